"""The stash: state that several crumbs share, with a version and a history."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from dgent import clock
from dgent.cupboard import errors
from dgent.cupboard.entity import Propertied
from dgent.cupboard.leasing import check_lease


@dataclass
class Stash(Propertied):
    """A resource, an artifact, a context, a counter or a lock.

    The methods change it in memory, and `stashes.set` stores it if nobody was faster. What must be exact
    between programs in one step is done by the methods of the table: `stashes.increment`, `acquire`, …
    """

    name: str = ""
    stash_type: str = ""
    value: Any = None
    changed_by: str | None = None
    version: int = field(default=1, kw_only=True)
    updated_at: datetime | None = field(default=None, kw_only=True)
    last_operation: str = field(default="", kw_only=True)

    SCOPE: ClassVar[str] = "stash"
    OWN: ClassVar[tuple[str, ...]] = (
        "name",
        "stash_type",
        "value",
        "changed_by",
        "version",
        "properties",
        "extra",
    )

    @property
    def stash_id(self) -> str:
        """Its id."""
        return self.id

    def get_value(self) -> Any:
        """Its value; None for a lock that is free."""
        return self.value

    def set_value(self, value: Any) -> None:
        """Give it another value; a lock is acquired and released instead."""
        if self.stash_type == "lock":
            raise errors.InvalidStashType("a lock has no value to set", hint="acquire or release it")
        self.value = copy.deepcopy(value)
        self._operated("set")

    def increment(self, delta: int = 1) -> int:
        """Add to a counter, and return what it is then."""
        self.value = {"value": incremented(self, delta)}
        self._operated("increment")
        found: int = self.value["value"]
        return found

    def acquire(self, holder: str, *, lease_s: float | None = None) -> None:
        """Hold a lock; the holder may do so again, and changes nothing by it."""
        value = acquired(self, holder, lease_s)
        if value is not None:
            self.value = value
            self._operated("acquire")

    def release(self, holder: str) -> None:
        """Let go of a lock."""
        check_holder(self, holder)
        self.value = None
        self._operated("release")

    def _operated(self, operation: str) -> None:
        self.version += 1
        self.last_operation = operation
        self.updated_at = clock.now()


@dataclass(frozen=True)
class StashHistoryEntry:
    """One version of a stash: its value after the operation that made it."""

    history_id: str
    stash_id: str
    version: int
    value: Any
    operation: str
    changed_by: str | None
    created_at: datetime


def check_type(stash: Any, wanted: str, operation: str) -> None:
    """Refuse an operation that this type of stash does not have."""
    if stash.stash_type != wanted:
        raise errors.InvalidStashType(
            f"{operation} is for a {wanted}, and {stash.name!r} is a {stash.stash_type}"
        )


def incremented(stash: Any, delta: int) -> int:
    """What a counter will be; a value that is missing or odd counts as 0."""
    check_type(stash, "counter", "increment")
    if type(delta) is not int:
        raise errors.TypeMismatch(f"a counter grows by a whole number, not {delta!r}")
    now = stash.value.get("value") if isinstance(stash.value, dict) else stash.value
    total = (now if type(now) is int else 0) + delta
    if not -(2**63) <= total < 2**63:
        raise errors.InvalidData(f"the counter {stash.name!r} would leave 64 bits")
    return total


def acquired(stash: Any, holder: str, lease_s: float | None, ended: bool | None = None) -> Any:
    """The value of a lock for a new holder; None when that is who holds it. Refused while another does.

    `ended` says whether the present lease has ended, where the caller knows of signs of life.
    """
    check_type(stash, "lock", "acquire")
    if not isinstance(holder, str) or not holder:
        raise errors.InvalidHolder("a lock needs the name of its holder", field="holder")
    length = None if lease_s is None else check_lease(lease_s)
    now = clock.now()
    held = stash.value if isinstance(stash.value, dict) else {}
    until = lease_end(held)
    if ended is None:
        ended = until is not None and until <= now
    if held.get("holder") and not ended:
        if held["holder"] == holder:
            return None
        raise errors.LockHeld(
            f"{stash.name!r} is held by {held['holder']!r}"
            + ("" if until is None else f" until {clock.text(until)}"),
            holder=held["holder"],
        )
    value = {"holder": holder, "acquired_at": clock.text(now), "token": stash.version + 1}
    if length is not None:
        value["lease_until"] = clock.text(now + length)
    return value


def check_holder(stash: Any, holder: str) -> None:
    """Refuse whoever does not hold the lock."""
    check_type(stash, "lock", "release")
    held = stash.value.get("holder") if isinstance(stash.value, dict) else None
    if held is None or held != holder:
        who = f"held by {held!r}" if held else "free"
        raise errors.NotLockHolder(f"{holder!r} does not hold {stash.name!r}, which is {who}")


def lease_end(held: dict[str, Any]) -> datetime | None:
    """When a lock's first lease ends; None when it has none."""
    text = held.get("lease_until")
    return datetime.fromisoformat(text) if isinstance(text, str) else None
