"""The crumb: one piece of work."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.entity import Propertied
from dgent.cupboard.kind import CRUMB_STATES


@dataclass
class Crumb(Propertied):
    """A work item: draft, pending, ready, taken, and in the end pebble (done) or dust (dropped).

    `holder`, `lease_until` and `token` say who has taken it, until when, and for which time; they are set by
    `cupboard.take`. Without a lease, `lease_until` is None: it is held until it is released or finished. An
    empty state means draft when it is new.
    """

    name: str = ""
    state: str = ""
    defer_until: datetime | None = None
    updated_at: datetime | None = field(default=None, kw_only=True)
    holder: str | None = field(default=None, init=False)
    lease_until: datetime | None = field(default=None, init=False)
    token: int = field(default=0, init=False)
    _taken_by: str | None = field(default=None, init=False, repr=False, compare=False)

    SCOPE: ClassVar[str] = "crumb"
    OWN: ClassVar[tuple[str, ...]] = ("name", "state", "defer_until", "properties", "extra")

    @property
    def crumb_id(self) -> str:
        """Its id."""
        return self.id

    def set_state(self, state: str) -> None:
        """Any state may follow any other."""
        self.state = check_state(state)
        self._touched()

    def pebble(self) -> None:
        """It is done; only what was taken can be."""
        if self.state != "taken":
            raise errors.InvalidTransition(
                f"a crumb that is {self.state or 'new'} cannot become a pebble",
                hint="take it first, or use set_state",
            )
        self.set_state("pebble")

    def dust(self) -> None:
        """It failed, or nobody wants it any more."""
        self.set_state("dust")

    def defer(self, until: datetime | None) -> None:
        """Keep it out of the ready work until a time; None ends that."""
        self.defer_until = None if until is None else clock.from_us(clock.to_us(until))
        self._touched()

    def _touched(self) -> None:
        self.updated_at = clock.now()


def check_state(state: object) -> str:
    """The state itself, or InvalidState with the ones there are."""
    if not isinstance(state, str) or state not in CRUMB_STATES:
        raise errors.InvalidState(
            f"{state!r} is no state of a crumb", hint=f"use one of {', '.join(CRUMB_STATES)}"
        )
    return state
