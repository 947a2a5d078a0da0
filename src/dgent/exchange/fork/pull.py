"""Pull: bring a fork up to date with the store it was made from, or with another fork of that store.

It is a merge in the other direction, with the same rules. The base that a fork has with its home serves both
directions: after a pull it is what home has now, so that a merge brings back only the changes of the fork,
and a conflict that was decided in the fork stays decided. With another fork it has a base of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dgent.blocks.record import BLOCK
from dgent.errors import Conflict
from dgent.exchange.fork import baseline
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import Base, BaseEntry
from dgent.exchange.fork.filter import PullFilter
from dgent.exchange.fork.origin import Origin, check_trust, identity, require_origin
from dgent.exchange.fork.report import HOME, SIBLING, ForkMerged
from dgent.exchange.fork.resolve import AskConflict, Choice, Resolver
from dgent.exchange.fork.run import MergeRun, MergeSettings
from dgent.system.progress import Progress
from dgent.universe.position import is_in_past, position_of
from dgent.universe.universe import Universe


async def pull(
    fork: Universe,
    source: Universe,
    *,
    labels: Sequence[str] = (),
    agents: Sequence[str] = (),
    conflicts: Choice = "both",
    ask: AskConflict | None = None,
    dry_run: bool = False,
    trust: str = "partner",
    progress: Progress | None = None,
) -> ForkMerged:
    """Bring into a fork what its home, or another fork of that home, changed; the source is only read.

    `labels` and `agents` restrict it to the blocks of these labels (or label folders) and of these owners.
    `conflicts` decides where both sides changed the same: `both` merges texts and keeps theirs of a record
    beside, `theirs` and `mine` take one side, `ask` calls `ask` for each, and leaves it for the next pull
    where the answer is `open`. Raises Conflict when the source is neither.
    """
    check_trust(trust, "pull")
    made = await require_origin(fork)
    peer = await identity(source)
    resolver = Resolver(conflicts, ask)
    if peer == made.source:
        work: _Pull = _PullHome(fork, source, made, peer)
    else:
        other = await _require_sibling(made, source, peer)
        work = _PullSibling(fork, source, made, peer, other)
    await work.load()
    narrow = PullFilter(made, work.source_base, labels, agents)
    how = MergeSettings(work.note, work.side, dry_run, resolver, narrow, progress)
    run = MergeRun(source, fork, work.base, work.ancestry, how)
    await run.run()
    if not dry_run:
        await work.save(run)
    return await run.report(made.fork, made.seq)


async def _require_sibling(made: Origin, source: Universe, peer: str) -> Origin:
    if peer == made.fork:
        raise Conflict("a fork cannot pull from itself", hint="name its home or another fork")
    whose = f"the constellation {made.name!r}" if made.name else f"the store {made.source}"
    try:
        other = await require_origin(source)
    except KeyError:  # not a fork
        other = None
    if other is None or other.source != made.source:
        raise Conflict(
            f"the store {peer} is neither the home of this fork nor a fork of it: its home is {whose}",
            hint="pull from its home or from another fork of that; `dgent fork list` shows them",
            source=made.source,
        )
    return other


class _Pull(ABC):
    """The base of a pull, and where it is stored."""

    side = HOME

    def __init__(self, fork: Universe, source: Universe, made: Origin, peer: str) -> None:
        self.fork, self.source, self.made, self.peer = fork, source, made, peer
        self.base: Base = {}
        self.source_base: Base | None = None
        self.ancestry: Ancestry | None = None
        self.note = "pull from home"

    @abstractmethod
    async def load(self) -> None:
        """Load the base, with the numbers that versions have in the source."""

    @abstractmethod
    async def save(self, run: MergeRun) -> None:
        """Store the base of the next pull."""

    def _find_synced(self, run: MergeRun, id: str) -> int:
        """Return the version here up to which the source is in it, or an earlier one if others wrote."""
        if id in run.added:
            return run.next[id].version
        return run.reached.get(id, run.versions.get(id, 0))


class _PullHome(_Pull):
    """A pull from the store that the fork was made from."""

    async def load(self) -> None:
        """Load the base of the merge, with the versions of home that were pulled last."""
        self._shared, home = await baseline.load(self.fork)
        self._pulled, _ = await baseline.load_pulled(self.fork, self.peer)
        if not await is_in_past(self.source.backend, home):
            self.ancestry = Ancestry(self.source, self.fork)
        for id, each in self._shared.items():
            last = self._pulled.get(id, each._replace(version=each.point, synced=0))
            synced = max(each.version, last.synced)
            self.base[id] = each._replace(version=last.version, synced=synced)

    async def save(self, run: MergeRun) -> None:
        """Store what home has now as the base of the next pull and of the next merge."""
        shared = {id: each for id, each in self._shared.items() if not run.is_settled(id)}
        pulled = {id: each for id, each in self._pulled.items() if not run.is_settled(id)}
        for id, each in run.next.items():
            if not run.is_settled(id):
                continue
            shared[id] = each
            if each.schema == BLOCK.name:
                shared[id] = self._make_shared_entry(run, id, each)
                synced = self._find_synced(run, id)
                pulled[id] = each._replace(card=None, point=shared[id].point, synced=synced)
        position = await position_of(self.source.backend)
        await baseline.save_pulled(self.fork, self.peer, pulled, position)
        await baseline.save(self.fork, shared, position)

    def _make_shared_entry(self, run: MergeRun, id: str, home: BaseEntry) -> BaseEntry:
        """Return the base of a block for the next merge: the newest version here that home has all of."""
        if id in run.added:
            return home._replace(point=home.version)
        was = self._shared.get(id)
        if was is None:
            return home._replace(version=0, point=0)
        # If the fork had no edits of its own, everything up to here came from home.
        own = run.versions.get(id, 0) > was.version
        version = was.version if own else run.reached.get(id, was.version)
        return home._replace(version=version, point=was.point)


class _PullSibling(_Pull):
    """A pull from another fork of the same home."""

    side = SIBLING

    def __init__(self, fork: Universe, source: Universe, made: Origin, peer: str, other: Origin) -> None:
        super().__init__(fork, source, made, peer)
        self._other = other
        self.note = f"pull from fork {peer}"

    async def load(self) -> None:
        """Load the base of the last pull; for the first one, what both forks had of their home."""
        theirs, their_home = await baseline.load(self.source)
        self.source_base = theirs
        pulled, position = await baseline.load_pulled(self.fork, self.peer)
        if pulled or position:
            self.base = pulled
            if not await is_in_past(self.source.backend, position):
                self.ancestry = Ancestry(self.source, self.fork)
            return
        ours, our_home = await baseline.load(self.fork)
        order = _compare_positions(our_home, their_home)
        if order is None:
            self.ancestry = Ancestry(self.source, self.fork)
        # The fork that saw home last has what home changed in between; the other one shows what it was.
        older, newer = (ours, theirs) if order is None or order <= 0 else (theirs, ours)
        for id, each in older.items():
            if self._other.scope != "all" and id not in theirs:
                continue  # it was never in the other fork, so it was not deleted there
            point = min(each.point, newer[id].point) if id in newer else each.point
            synced = ours[id].point if id in ours else 0
            self.base[id] = each._replace(version=point, point=point, synced=synced)

    async def save(self, run: MergeRun) -> None:
        """Store what the other fork has now as the base of the next pull from it."""
        kept = {id: each for id, each in self.base.items() if not run.is_settled(id)}
        for id, each in run.next.items():
            if not run.is_settled(id):
                continue
            if each.schema == BLOCK.name:
                point = each.version if id in run.added else each.point
                each = each._replace(point=point, synced=self._find_synced(run, id))
            kept[id] = each
        await baseline.save_pulled(self.fork, self.peer, kept, await position_of(self.source.backend))


def _compare_positions(one: str, other: str) -> int | None:
    """Compare two positions of one store, as -1, 0 or 1; None when they cannot be compared."""
    first, second = one.split(":"), other.split(":")
    if len(first) < 2 or len(second) < 2 or first[0] != second[0]:
        return None
    left, right = int(first[1]), int(second[1])
    return (left > right) - (left < right)
