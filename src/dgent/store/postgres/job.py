"""Jobs of the writer: a commit, or new records that tasks put at the same time, each by a commit."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from dgent.errors import OutcomeUnknown, Unavailable
from dgent.model.datum import Datum
from dgent.store.backend import Committed, View, Written
from dgent.store.engine.commit import Prepared
from dgent.store.engine.fresh import MOST, FreshGroup, FreshKind
from dgent.store.port.attached import BoundStatement, has_reads

OPS_A_SECOND = 1000  # a large commit gets so much more time
MAX_BYTES = 1 << 20  # of data that travels together


class Job(ABC):
    """A part of a group, those who wait for it, and its deadline."""

    __slots__ = ("answer", "end", "extra_s", "guarded", "key", "names", "offered", "records")

    answer: asyncio.Future[Committed] | FreshGroup

    def __init__(self, records: int, end: float) -> None:
        self.records = records
        # A large one may take longer than others, by so many seconds.
        self.extra_s = records / OPS_A_SECOND
        self.end = end + self.extra_s
        self.offered = False  # worked out and maybe sent: from here on it may happen
        # Its records and its key: commits that share one of these are never under way together.
        self.names: list[str | bytes] = []
        self.guarded = False  # it holds only if nobody commits in between
        self.key: str | None = None  # by which it can be asked for

    def fail(self, error: Exception) -> None:
        """Report an error to the tasks that still wait."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def due_statements(self) -> Sequence[BoundStatement]:
        """Return the statements to run with it, once it is worked out; none if it is refused or repeated."""
        return ()

    @property
    def has_statements(self) -> bool:
        """Return whether statements may run with it."""
        return False

    @property
    def proves_rows(self) -> bool:
        """Return whether it compares rows of callers' tables with those that were read."""
        return False

    @abstractmethod
    def settle(self, before: int, ahead: int, at: int | None) -> None:
        """Answer those who wait: seqs after `before` moved by `ahead`, the time is `at`, None if not sent."""

    def expire(self, place: str) -> None:
        """Report that the time is up, and whether it may have happened."""
        if self.offered:
            self.fail(self.unknown(place))
        else:
            self.fail(Unavailable(f"{place} took no commit in time", hint="try again"))

    def unknown(self, place: str) -> OutcomeUnknown:
        """Return the error for a commit that may or may not have happened."""
        message = f"{place} did not say whether the commit happened"
        if self.key is None:
            hint = "read the records to find out; a commit with a key can be asked for or repeated"
            return OutcomeUnknown(message, hint=hint)
        return OutcomeUnknown(message, key=self.key)


class CommitJob(Job):
    """One commit."""

    __slots__ = ("failed", "prepared", "result", "view")

    answer: asyncio.Future[Committed]

    def __init__(self, prepared: Prepared, view: View, answer: asyncio.Future[Committed], end: float) -> None:
        super().__init__(len(prepared.drafts), end)
        self.prepared, self.view, self.answer = prepared, view, answer
        self.result: Committed | None = None
        self.failed: Exception | None = None
        self.guarded, self.key = prepared.commit.guard is not None, prepared.commit.key
        self.names += [op.id for op in prepared.commit.ops]
        if prepared.key is not None:
            self.names.append(prepared.key)

    def due_statements(self) -> Sequence[BoundStatement]:
        """Return the statements to run with it, once it is worked out; none if it is refused or repeated."""
        done = self.failed is None and self.result is not None and not self.result.repeated
        return self.prepared.commit.statements if done else ()

    @property
    def has_statements(self) -> bool:
        """Return whether statements may run with it."""
        return bool(self.prepared.commit.statements)

    @property
    def proves_rows(self) -> bool:
        """Return whether it compares rows of callers' tables with those that were read."""
        return has_reads(self.prepared.commit.statements)

    def settle(self, before: int, ahead: int, at: int | None) -> None:
        """Answer with the result, or with its refusal."""
        if self.failed is not None:
            self.answer.set_exception(self.failed)
        else:
            assert self.result is not None
            self.answer.set_result(self.result if at is None else _renumber(self.result, before, ahead, at))


class FreshJob(Job):
    """New records of many tasks, which travel by themselves and are answered together."""

    __slots__ = ("_loop", "placed")

    answer: FreshGroup

    def __init__(self, kind: FreshKind, loop: asyncio.AbstractEventLoop, end: float) -> None:
        super().__init__(0, end)
        self._loop = loop
        self.answer = FreshGroup(kind)
        self.placed: tuple[range, int] | None = None  # the seqs and the time that were assumed

    def takes(self, kind: FreshKind) -> bool:
        """Return whether one more record of this kind may join."""
        return self.answer.kind is kind and self.records < MOST

    def add(self, data: dict[str, Any], tags: frozenset[Any]) -> asyncio.Future[Datum | None]:
        """Add a record, of which nothing is checked yet."""
        answer: asyncio.Future[Datum | None] = self._loop.create_future()
        self.answer.add(data, tags, answer)
        self.records += 1
        return answer

    def fail(self, error: Exception) -> None:
        """Report an error to all tasks that still wait: it is about none of their records."""
        self.answer.fail(error)

    def settle(self, before: int, ahead: int, at: int | None) -> None:
        """Answer each with its record."""
        assert self.placed is not None and at is not None, "new records are always sent"
        seqs = range(self.placed[0].start + ahead, self.placed[0].stop + ahead)
        self.answer.set_result(self.answer.list_stored(seqs, at))

    def encode(self) -> bool:
        """Check and encode the records; False if each goes the usual way, or nobody waits any more."""
        if not self.answer.encode():
            return False
        if self.answer.size > MAX_BYTES:
            self.answer.set_result(None)
            return False
        self.records = len(self.answer.answers)
        self.extra_s = self.records / OPS_A_SECOND
        return True


def _renumber(result: Committed, before: int, ahead: int, at: int) -> Committed:
    """Return the answer with the numbers and the time that the store gave instead of those assumed."""
    seq, written, repeated, pending = result.seq, result.written, result.repeated, result.pending
    if repeated:
        return result
    if seq is not None and seq > before:
        seq += ahead
    # What a commit has changed has its seq.
    found = [Written(each.id, each.rev, seq, True, at) if each.changed else each for each in written]
    return Committed(seq, tuple(found), False, pending)
