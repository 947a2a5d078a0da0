"""The trail: an exploration that is kept as a whole or given up as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.entity import Propertied
from dgent.cupboard.kind import ENDED, TRAIL_STATES

FOLLOWS: dict[str, tuple[str, ...]] = {
    "": TRAIL_STATES,
    "draft": ("draft", "pending", "active"),
    "pending": ("pending", "active"),
    "active": ("active", "completed", "abandoned"),
    "completed": (),
    "abandoned": (),
}


@dataclass
class Trail(Propertied):
    """Work that is tried out: draft, pending, active, and in the end completed or abandoned.

    `reason` and `lesson` say why it was given up and what was learned; `crumbs` are the ids of those that it
    had when it ended.
    """

    name: str = ""
    goal: str = ""
    state: str = ""
    reason: str | None = field(default=None, kw_only=True)
    lesson: str | None = field(default=None, kw_only=True)
    completed_at: datetime | None = field(default=None, kw_only=True)
    updated_at: datetime | None = field(default=None, kw_only=True)
    crumbs: tuple[str, ...] = field(default=(), init=False, repr=False)

    SCOPE: ClassVar[str] = "trail"
    OWN: ClassVar[tuple[str, ...]] = (
        "name",
        "goal",
        "state",
        "reason",
        "lesson",
        "completed_at",
        "properties",
        "extra",
    )

    @property
    def trail_id(self) -> str:
        """Its id."""
        return self.id

    @property
    def ended(self) -> bool:
        """Whether it was completed or abandoned."""
        return self.state in ENDED

    def set_state(self, state: str) -> None:
        """Go on to another state, as the life of a trail allows."""
        check_state(state)
        follows = FOLLOWS.get(self.state, ())
        if state not in follows:
            allowed = ", ".join(follows) or "nothing"
            raise errors.InvalidState(
                f"a trail that is {self.state} cannot become {state}", hint=f"{allowed} can follow"
            )
        self.state = state
        if state in ENDED and self.completed_at is None:
            self.completed_at = clock.now()

    def complete(self) -> None:
        """It worked: when it is stored, its crumbs become permanent."""
        self._end("completed")

    def abandon(self, reason: str | None = None, lesson: str | None = None) -> None:
        """It did not: when it is stored, its crumbs go, and the lesson stays."""
        self._end("abandoned")
        self.reason = reason if reason is not None else self.reason
        self.lesson = lesson if lesson is not None else self.lesson

    def _end(self, state: str) -> None:
        if self.state != "active":
            raise errors.InvalidState(
                f"a trail that is {self.state or 'new'} cannot become {state}",
                hint="only an active trail can end",
            )
        self.state, self.completed_at = state, clock.now()


def check_state(state: object) -> str:
    """The state itself, or InvalidState with the ones there are."""
    if not isinstance(state, str) or state not in TRAIL_STATES:
        raise errors.InvalidState(
            f"{state!r} is no state of a trail", hint=f"use one of {', '.join(TRAIL_STATES)}"
        )
    return state
