"""The tail of the feed: the newest commits of a store, read once for all that ask what changed since.

Whoever keeps what it read proves it by the commits since then. With many agents in one process most of those
are commits of others, and each agent would read all of them. So all handles of an open store share this tail:
`follow` reads what it lacks, and then it answers at once, by schema, by agent or by record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dgent.errors import Corrupt, HistoryGone
from dgent.store.backend import Backend, Change, Item
from dgent.universe.gate import Gate
from dgent.universe.past import Past
from dgent.universe.stamp import Stamp

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

FIRST = 256  # commits before the newest one that are read at first, or again after a long absence
PAGE = 256  # commits that are read at once
MOST, MOST_BYTES = 4096, 16 << 20  # commits that are kept, and their records as JSON
LARGE_BYTES = 64 << 10  # records of a larger commit are read again when they are needed
WHOLE = 1000  # records of a commit of users up to which it is looked at whole

_ANY = ""
_Key = tuple[str, str, str]  # a schema and an agent, or the first part of an id


class TailPoint(NamedTuple):
    """A commit that something was read as of; `life` changes when the numbers of commits begin anew."""

    life: int
    seq: int


class FeedTail:
    """The newest commits of one store, indexed by schema, by agent and by the first part of ids."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._epoch = b""
        self._life = 0
        self._start = self._seq = -1  # it knows the commits after the first one, up to the second
        self._changes: deque[tuple[Change, int]] = deque()
        self._size = 0
        self._index: dict[_Key, list[Change]] = {}
        self._reading = asyncio.Lock()

    @property
    def point(self) -> TailPoint:
        """The newest commit that it knows of."""
        return TailPoint(self._life, self._seq)

    def at(self, seq: int) -> TailPoint:
        """Return an earlier commit as a point."""
        return TailPoint(self._life, seq)

    # -- questions, each answered as of `point` ------------------------------------------------

    def find_by_schema(self, since: TailPoint, schemas: Iterable[str]) -> list[Change] | None:
        """Return the commits after a point that touched one of some schemas; None if not all are known."""
        return self._find(since, ((schema, _ANY, "") for schema in schemas))

    def find_by_agent(self, since: TailPoint, schemas: Iterable[str], agent: str) -> list[Change] | None:
        """Return the same for records that name an agent, or that do not say whose they were."""
        keys = ((schema, whose, "agent") for schema in schemas for whose in (agent, _ANY))
        return self._find(since, keys)

    def find_by_id(self, since: TailPoint, ids: Iterable[str]) -> list[Change] | None:
        """Return the same for some records and those below them: `find_by_id(p, ["a"])` has `a` and `a/1`."""
        return self._find(since, (("", id, "") for id in ids))

    def is_untouched(self, since: TailPoint | None, schemas: Iterable[str]) -> bool:
        """Check whether no record of some schemas changed after a point; False also if that is not known."""
        return self._is_untouched(since, ((schema, _ANY, "") for schema in schemas))

    def is_id_untouched(self, since: TailPoint | None, id: str) -> bool:
        """Check the same for a record and all below it."""
        return self._is_untouched(since, (("", id, ""),))

    def _is_untouched(self, since: TailPoint | None, keys: Iterable[_Key]) -> bool:
        if since is None or not self.knows(since):
            return False
        newest = (found[-1].seq or 0 for key in keys if (found := self._index.get(key)))
        return all(seq <= since.seq for seq in newest)

    def knows(self, since: TailPoint) -> bool:
        """Check whether all commits after a point are known."""
        return since.life == self._life and self._start <= since.seq

    def _find(self, since: TailPoint, keys: Iterable[_Key]) -> list[Change] | None:
        if not self.knows(since):
            return None
        found: dict[int, Change] = {}
        for key in keys:
            for change in reversed(self._index.get(key, ())):
                assert change.seq is not None, "the log has numbers"
                if change.seq <= since.seq:
                    break
                found[change.seq] = change
        return [found[seq] for seq in sorted(found)]

    # -- reading what is new ---------------------------------------------------------------------

    async def catch_up(self) -> bool:
        """Read the commits that are missing; False if that cannot be told, as when the store went away."""
        epoch, seq = _epoch_of(self.backend), await self.backend.last_seq()
        if (epoch, seq) == (self._epoch, self._seq):
            return bool(epoch)
        async with self._reading:
            while epoch:
                if epoch == self._epoch and self._seq > seq:
                    seq = await self.backend.last_seq()  # another reader was faster, or there are fewer now
                if epoch != self._epoch or self._seq > seq or seq - self._seq > MOST:
                    self._begin(epoch, max(0, seq - FIRST))
                if self._seq < seq:
                    await self._read(seq)
                now = _epoch_of(self.backend)
                if self._seq >= seq and now == epoch:
                    return True
                epoch, seq = now, await self.backend.last_seq()
        return False

    async def _read(self, seq: int) -> None:
        """Read up to a commit, as far as one read goes, and what came after it meanwhile."""
        epoch, since = self._epoch, self._seq
        in_part: Any = getattr(self.backend, "changes_in_part", None)
        try:
            if in_part is None:
                found: list[Change] = await self.backend.changes(since, PAGE)
            else:
                found = await in_part(since, PAGE, WHOLE)
        except HistoryGone as gone:
            first = gone.details.get("first_seq")
            self._begin(epoch, max(since + 1, first - 1) if type(first) is int else seq)
            return
        if _epoch_of(self.backend) != epoch:
            self._begin(b"", -1)
            return
        for change in found:
            self._add(change)
        if len(found) < PAGE:
            self._seq = max(self._seq, seq)  # commits that are not on the feed have numbers, too

    def _begin(self, epoch: bytes, seq: int) -> None:
        """Forget everything, and begin after a commit; what others kept is not proven any more."""
        self._life += 1
        self._epoch, self._seq = epoch, seq
        self._drop_before(seq)

    def _drop_before(self, seq: int) -> None:
        self._start, self._size = seq, 0
        self._changes.clear()
        self._index.clear()

    def _add(self, change: Change) -> None:
        assert change.seq is not None, "the log has numbers"
        self._seq = change.seq
        if change.more or any(item.id is None for item in change.items):
            # Forgotten records are nowhere any more; and who does not know all records cannot answer.
            self._drop_before(change.seq)
            return
        size = sum(map(_measure, change.items))
        keys = dict.fromkeys(key for item in change.items for key in _keys_of(item))
        if size > LARGE_BYTES:
            bare = tuple(msgspec.structs.replace(item, datum=None, last=None) for item in change.items)
            change, size = msgspec.structs.replace(change, items=bare, more=len(bare)), len(bare) * 100
        self._changes.append((change, size))
        self._size += size
        for key in keys:
            self._index.setdefault(key, []).append(change)
        if len(self._changes) > MOST or self._size > MOST_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        """Drop the older half, so that this is done once for many commits."""
        gone = 0
        for _ in range((len(self._changes) + 1) // 2):
            change, size = self._changes.popleft()
            gone, self._size = change.seq or 0, self._size - size
        self._start = gone
        for key, found in list(self._index.items()):
            left = [change for change in found if (change.seq or 0) > gone]
            if left:
                self._index[key] = left
            else:
                del self._index[key]


async def follow(universe: Universe) -> FeedTail | None:
    """Return the tail of a store, up to its newest commit.

    None where there is none: who acts for a principal may not see everything, the past does not change, a
    tool call says what it read, and nobody knows what happens in a store that is away.
    """
    universe._check()
    backend, life = universe.backend, universe._life
    if isinstance(backend, Gate | Past | Stamp) or not _epoch_of(backend):
        return None
    if life.tail is None:
        life.tail = FeedTail(backend)
    tail: FeedTail = life.tail
    return tail if tail.backend is backend and await tail.catch_up() else None


def _epoch_of(backend: Backend) -> bytes:
    """Return the epoch of a store; empty while it is away, or where its engine has none."""
    away = getattr(backend, "degradation", None) is not None
    return b"" if away else getattr(backend, "epoch", b"")


def _keys_of(item: Item) -> Iterator[_Key]:
    """Yield what a record is found by."""
    assert item.id is not None, "a commit that forgot something is not kept"
    yield "", item.id.partition("/")[0], ""
    if item.schema is not None:
        whose = _data_of(item).get("agent")
        yield item.schema, _ANY, ""
        yield item.schema, whose if type(whose) is str else _ANY, "agent"


def _data_of(item: Item) -> dict[str, Any]:
    datum = item.datum if item.op == "put" else item.last
    try:
        return {} if datum is None else datum.data
    except Corrupt:
        return {}


def _measure(item: Item) -> int:
    datum = item.datum if item.op == "put" else item.last
    return 200 if datum is None else 200 + len(datum.content) + len(msgspec.json.encode(_data_of(item)))
