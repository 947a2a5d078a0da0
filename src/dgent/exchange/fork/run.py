"""One run of a merge, in either direction: what one store changed since a base goes into another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dgent.blocks.record import BLOCK, CHECKPOINT, SCHEMAS, group_ids
from dgent.exchange.copy import BATCH
from dgent.exchange.fork import baseline
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import Base, BaseEntry
from dgent.exchange.fork.blocks import BlockMerge, Theirs, renumber_checkpoints
from dgent.exchange.fork.filter import MergeFilter
from dgent.exchange.fork.records import GRANTS, UNREADABLE, ForkChange, RecordMerge
from dgent.exchange.fork.report import FORK, ForkMerged, MergeTally, Side
from dgent.exchange.fork.resolve import Resolver
from dgent.exchange.fork.states import StateMerge
from dgent.model.crystal import Crystal
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe.universe import Universe

BATCH_BYTES = 8 * 2**20
NOBODY = "its recipient does not exist here any more"
FORGOTTEN_THERE = "it was forgotten {where}; only a deletion is merged, so it stays here"


@dataclass(frozen=True)
class MergeSettings:
    """The settings of a run: its note in the log, the words for the other side, the conflicts, the filter."""

    note: str
    side: Side = FORK
    dry_run: bool = False
    resolver: Resolver = field(default_factory=Resolver)
    filter: MergeFilter = field(default_factory=MergeFilter)
    progress: Progress | None = None


class MergeRun:
    """One run of a merge: everything that the source changed since the base goes into the target."""

    def __init__(
        self,
        source: Universe,
        target: Universe,
        base: Base,
        ancestry: Ancestry | None,
        how: MergeSettings,
    ) -> None:
        self.source, self.target, self.base, self.how = source, target, base, how
        self.ancestry = ancestry  # compare the histories of both sides instead of the base
        self.pace = ProgressReporter(how.progress)
        self.tally = MergeTally(how.side)
        self.next: Base = {}  # the content of the source now: the base of the next merge
        self.versions: dict[str, int] = {}  # the newest version here of each block, before the merge
        self.untouched: set[str] = set()  # ids that the filter leaves out: their base stays
        self.reached: dict[str, int] = {}
        self.added: set[str] = set()
        self._cards: list[tuple[bool, bool, str]] = []  # is new, is active, id
        self._checkpoints: list[ForkChange] = []
        self._grants: list[ForkChange] = []

    async def run(self) -> None:
        """Merge everything; each part can be repeated."""
        how = self.how
        owners = await self._find_owners()
        await how.filter.prepare(self.source, self.target, self.base)
        records = RecordMerge(
            self.target, owners, self.tally, how.note, how.dry_run, how.resolver, self.ancestry
        )
        seq = await self.source.seq()
        versions = await baseline.find_newest_versions(self.source, seq)
        self.pace.total = len(self.base)
        states = StateMerge(self.source, self.target, self.base, records, self.ancestry)
        await self._merge_records(records, states, seq, versions)
        await self._merge_deleted(records, states)
        await states.merge()
        await self._merge_blocks(versions)
        changes = self._checkpoints
        if not how.dry_run:
            changes = await renumber_checkpoints(self.source, self.target, changes, self.base, self.tally)
        await records.merge(changes)
        self.pace.end()

    def is_settled(self, id: str) -> bool:
        """Check whether a record was considered and merged; the base of others stays."""
        return id not in self.untouched and id not in self.tally.skipped

    async def report(self, fork: str, fork_point: int) -> ForkMerged:
        """Return the result of the run."""
        return self.tally.done(fork, fork_point, await self.target.seq(), self.how.dry_run)

    async def _find_owners(self) -> dict[str, str | None]:
        """Return the room of each schema; register the schemas of blocks if there are any."""
        found = {each.name: each.owner for each in await self.source.schemas()}
        if BLOCK.name in found:
            self.source.register(*SCHEMAS)
            self.target.register(*SCHEMAS)
        return found | {each.name: each.owner for each in await self.target.schemas()}

    async def _merge_records(
        self, records: RecordMerge, states: StateMerge, seq: int, versions: dict[str, int]
    ) -> None:
        """Merge every record of the source; blocks and their checkpoints come later."""
        batch: list[ForkChange] = []
        size = 0
        async for datum in baseline.iterate_records(self.source, seq):
            self.pace.add(1)
            was = self.base.get(datum.id)
            if not self.how.filter.wants(datum):
                self.untouched.add(datum.id)
                continue
            if datum.problem is not None:
                self.tally.skip(datum.id, datum.schema or "", UNREADABLE.format(where=self.how.side.where))
                continue
            point = 0 if was is None else was.point
            self.next[datum.id] = baseline.make_entry(datum, versions.get(datum.id, 0), point)
            if datum.schema == BLOCK.name:
                self._cards.append((was is None, bool(datum.data.get("active")), datum.id))
                continue
            change = ForkChange(datum.id, was, datum)
            if (not change.is_changed and self.ancestry is None) or states.takes(change):
                continue
            late = self._checkpoints if datum.schema == CHECKPOINT.name else self._grants
            if datum.schema == CHECKPOINT.name or datum.schema in GRANTS:
                late.append(change)
                continue
            batch.append(change)
            size += len(datum.content)
            if len(batch) == BATCH or size > BATCH_BYTES:
                await records.merge(batch)
                batch, size = [], 0
        await records.merge(batch)
        await _merge_in_batches(records, await self._select_known_grantees(self._grants))

    async def _select_known_grantees(self, changes: Sequence[ForkChange]) -> list[ForkChange]:
        """Return the shares and memberships whose agent or group exists here, or is merged with them."""
        found: list[ForkChange] = []
        for change in changes:
            data = {} if change.theirs is None else change.theirs.data
            group = data.get("group")
            wanted = group_ids(str(group)) if group is not None else [str(data.get("to"))]
            comes = any(to in self.next and to not in self.base for to in wanted)
            if comes or any(await self.target.get_many(wanted, raw=True)):
                found.append(change)
            else:
                self.tally.skip(change.id, change.schema, NOBODY)
        return found

    async def _merge_deleted(self, records: RecordMerge, states: StateMerge) -> None:
        """Merge the deletions of the source."""
        there = self.next.keys() | self.tally.skipped | self.untouched  # unreadable records exist, too
        gone: list[ForkChange] = []
        for id, was in self.base.items():
            if id not in there and self.how.filter.wants_deleted(id, was):
                gone.append(ForkChange(id, was, None))
            elif id not in there:
                self.untouched.add(id)
        if self.ancestry is not None:
            async for id, was in self.ancestry.find_deleted(there | self.base.keys()):
                if self.how.filter.wants_deleted(id, was):
                    gone.append(ForkChange(id, was, None))
        for change in gone:
            if change.schema == BLOCK.name:
                why = FORGOTTEN_THERE.format(where=self.how.side.where)
                self.tally.skip(change.id, BLOCK.name, why, again=False)
        self._checkpoints += [change for change in gone if change.schema == CHECKPOINT.name]
        rest = [each for each in gone if each.schema not in (BLOCK.name, CHECKPOINT.name)]
        await _merge_in_batches(records, [each for each in rest if not states.takes(each)])

    async def _merge_blocks(self, versions: dict[str, int]) -> None:
        if self._cards:
            self.versions = await baseline.find_newest_versions(self.target, await self.target.seq())
        how = self.how
        blocks = BlockMerge(
            self.source, self.target, self.versions, self.tally, how.note, how.dry_run, how.resolver
        )
        # Deleted and renamed ones first: then their labels are free for new ones.
        ids = [id for *_, id in sorted(self._cards)]
        for start in range(0, len(ids), BATCH):
            for card in await self.source.get_many(ids[start : start + BATCH]):
                if isinstance(card, Crystal) and card.schema_name == BLOCK.name:
                    known: BaseEntry | None = self.base.get(card.id)
                    if self.ancestry is not None:
                        known = await self.ancestry.find_block_base(card.id, known)
                    await blocks.merge(Theirs(card, versions.get(card.id, 0), known))
        self.reached, self.added = blocks.reached, blocks.added


async def _merge_in_batches(records: RecordMerge, changes: Sequence[ForkChange]) -> None:
    for start in range(0, len(changes), BATCH):
        await records.merge(changes[start : start + BATCH])
