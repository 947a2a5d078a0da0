"""A commit that was handed in and waits for its answer."""

from __future__ import annotations

import asyncio

from dgent.errors import OutcomeUnknown, Unavailable
from dgent.store.backend import Commit, Committed, View
from dgent.store.ledger import Prepared

OPS_A_SECOND = 1000  # a large commit gets so much more time


class Job:
    """One commit, who waits for it, and until when."""

    __slots__ = ("answer", "end", "failed", "names", "offered", "prepared", "result", "view")

    def __init__(self, prepared: Prepared, view: View, answer: asyncio.Future[Committed], end: float) -> None:
        self.prepared, self.view, self.answer = prepared, view, answer
        self.end = end + self.extra_s
        self.offered = False  # worked out and maybe sent: from here on it may happen
        self.result: Committed | None = None
        self.failed: Exception | None = None
        # Its records and its key: commits that share one of these are never under way together.
        self.names: list[str | bytes] = [op.id for op in prepared.commit.ops]
        if prepared.key is not None:
            self.names.append(prepared.key)

    @property
    def commit(self) -> Commit:
        """What was asked for."""
        return self.prepared.commit

    @property
    def extra_s(self) -> float:
        """How much longer than others this may take, because it is large."""
        return len(self.prepared.drafts) / OPS_A_SECOND

    def fail(self, error: Exception) -> None:
        """Tell whoever still waits."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self, place: str) -> None:
        """The time is up: say whether it may have happened."""
        if self.offered:
            self.fail(self.unknown(place))
        else:
            self.fail(Unavailable(f"{place} took no commit in time", hint="try again"))

    def unknown(self, place: str) -> OutcomeUnknown:
        """What to say when nobody can tell whether it happened."""
        message = f"{place} did not say whether the commit happened"
        if self.commit.key is None:
            hint = "read the records to find out; a commit with a key can be asked for or repeated"
            return OutcomeUnknown(message, hint=hint)
        return OutcomeUnknown(message, key=self.commit.key)
