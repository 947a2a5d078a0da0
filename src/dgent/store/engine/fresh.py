"""New records that tasks put in one turn of the event loop, checked and written together.

Each is a commit of its own, with its own seq and its own answer. What is asked of every record is asked of
all at once, by columns, as for a batch; where anything is unusual, each goes the usual way by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, compress, repeat
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent import ids
from dgent.errors import Busy, Closed, InputError, OutcomeUnknown
from dgent.model.datum import Datum, make_stored
from dgent.store.backend import Commit
from dgent.store.engine.batch import Batch
from dgent.store.engine.row import MAX_RECORD_BYTES, EncodedDatum, tag_texts_of

if TYPE_CHECKING:
    from dgent.store.engine.commit import Ledger

MOST = 256  # records of one group


class FreshKind(NamedTuple):
    """The parts that the records of a group have in common, and what checks and encodes their data.

    `encode` returns None where each has to be looked at by itself. `closed` holds True once the store said
    that such records have other entries than one for each tag and field.
    """

    schema: str
    version: int
    commit: Commit  # without ops: who writes, and for which room
    encode: Callable[[Sequence[dict[str, Any]]], list[bytes] | None]
    closed: list[bool]


class FreshGroup:
    """The records of a group, and the future of each task that waits for one.

    It is the answer of a job of the writer: what the job gives goes to all of them. None sends a task the
    usual way.
    """

    __slots__ = ("_batch", "_data", "_tags", "_times", "answers", "kind", "size")

    def __init__(self, kind: FreshKind) -> None:
        self.kind = kind
        self.answers: list[asyncio.Future[Datum | None]] = []
        self._data: list[dict[str, Any]] = []
        self._tags: list[frozenset[Any]] = []
        self._times: list[int] = []
        self._batch: Batch | None = None
        self.size = 0

    def add(self, data: dict[str, Any], tags: frozenset[Any], answer: asyncio.Future[Datum | None]) -> None:
        """Add a record, of which nothing is checked yet."""
        self._data.append(data)
        self._tags.append(tags)
        self._times.append(time_ns() // 1000)
        self.answers.append(answer)

    def encode(self) -> bool:
        """Check and encode the records that somebody waits for; False if none can be written together."""
        self._leave_cancelled()
        if not self.answers:
            return False
        data = self.kind.encode(self._data)
        texts = _find_texts(self._tags)
        if data is None or texts is None or max(map(len, data)) > MAX_RECORD_BYTES:
            self.set_result(None)
            return False
        names = ids.new_ids(len(data))
        tags = [*map(texts.__getitem__, self._tags)]
        schema, version, commit = self.kind.schema, self.kind.version, self.kind.commit
        first = names[0], self._times[0], schema, version, commit.author
        (tag_list, text), body = tags[0], self._data[0]
        like = EncodedDatum(*first, None, None, text, None, data[0], None, body, tag_list)
        self._batch = Batch(like, names, self._times, tags, data, self._data)
        self.size = self._batch.size
        return True

    def _leave_cancelled(self) -> None:
        if any(map(asyncio.Future.done, self.answers)):
            kept = [not answer.done() for answer in self.answers]
            columns: tuple[list[Any], ...] = (self._data, self._tags, self._times, self.answers)
            for column in columns:
                column[:] = compress(column, kept)

    def write(self, ledger: Ledger) -> list[Datum] | None:
        """Write all in the transaction of the writer; None if something has to be decided for one of them.

        The store refuses to write a known id. Then each goes the usual way, and gets another one.
        """
        placed = self.place(ledger, drawn=True)
        return None if placed is None else self.list_stored(*placed)

    def place(self, ledger: Ledger, drawn: bool = False) -> tuple[range, int] | None:
        """Write all to a ledger and return their seqs and their time; None as `write` does."""
        batch, kind = self._batch, self.kind
        assert batch is not None, "it was encoded"
        placed = ledger.put_fresh(kind.commit, batch, drawn)
        if placed is None:
            kind.closed[0] = kind.closed[0] or ledger.needs_closer_look(kind.commit, batch.like)
        return placed

    def list_stored(self, seqs: range, at: int) -> list[Datum]:
        """Return the records as they are stored, by commits of these seqs and of this time."""
        batch, kind = self._batch, self.kind
        assert batch is not None, "it was encoded"
        author, name, version = kind.commit.author, kind.schema, kind.version
        return [
            make_stored(id, created, data, tags, author, name, version, seq, at)
            for id, created, data, tags, seq in zip(
                batch.ids, self._times, self._data, self._tags, seqs, strict=True
            )
        ]

    # -- as the answer of a job -----------------------------------------------------------

    def cancelled(self) -> bool:
        """Return whether nobody waits any more."""
        return all(map(asyncio.Future.done, self.answers))

    def done(self) -> bool:
        """Return whether all have their answers."""
        return self.cancelled()

    def set_result(self, stored: Sequence[Datum] | None) -> None:
        """Give each its record; None sends all the usual way."""
        for answer, datum in zip(self.answers, repeat(None) if stored is None else stored, strict=False):
            if not answer.done():
                answer.set_result(datum)

    def set_exception(self, error: BaseException) -> None:
        """Fail all, if each has waited or may be stored; else all go the usual way: one may be at fault."""
        if not isinstance(error, Busy | Closed | OutcomeUnknown):
            self.set_result(None)
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Fail all that still wait."""
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error)


def _find_texts(tags: Sequence[frozenset[Any]]) -> dict[frozenset[str], tuple[tuple[str, ...], str]] | None:
    """Return sets of tags as rows have them; None if one has anything but texts that can be stored."""
    if not {str}.issuperset(map(type, chain.from_iterable(tags))):
        return None
    try:
        return {each: tag_texts_of(each, False) for each in {*tags}}
    except InputError:
        return None  # said again by whoever puts it by itself
