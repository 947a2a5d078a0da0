"""Merge a fork back: blocks by their changes, archival entries by union, the rest three-way.

Nothing is lost: where the changes of both sides cannot be combined, both are kept and reported. Merging again
merges only what is new since. The next merge completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dgent.blocks.record import BLOCK, CHECKPOINT, SCHEMAS, group_ids
from dgent.errors import Conflict
from dgent.exchange.copy import BATCH
from dgent.exchange.fork import baseline
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import Base, BaseEntry
from dgent.exchange.fork.blocks import BlockMerge, Theirs, renumber_checkpoints
from dgent.exchange.fork.origin import Origin, check_trust, identity, require_origin
from dgent.exchange.fork.records import GRANTS, UNREADABLE, ForkChange, RecordMerge
from dgent.exchange.fork.report import ForkMerged, MergeTally
from dgent.model.crystal import Crystal
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe.position import is_in_past, position_of
from dgent.universe.universe import Universe

BATCH_BYTES = 8 * 2**20
NOBODY = "its recipient does not exist here any more"
FORGOTTEN_THERE = "the fork has forgotten it; only a deletion is merged, so it stays here"


async def merge(
    fork: Universe,
    target: Universe,
    *,
    dry_run: bool = False,
    trust: str = "partner",
    progress: Progress | None = None,
) -> ForkMerged:
    """Merge the changes of a fork into the store it was made from, or report what that would do.

    Versions of blocks keep their authors, messages and times; commits have the target's author. `conflicts`
    has what both sides changed, and where the fork's version is kept.
    """
    check_trust(trust, "merge")
    made = await require_origin(fork)
    await check_target(made, target)
    run = _MergeRun(fork, target, made, dry_run, ProgressReporter(progress))
    return await run.run()


async def check_target(made: Origin, target: Universe) -> None:
    """Refuse to merge a fork into another store than its source; raises Conflict."""
    found = await identity(target)
    if found != made.source:
        whose = f"the constellation {made.name!r}" if made.name else f"the store {made.source}"
        raise Conflict(
            f"this is not a fork of the store {found}: it was made from {whose}",
            hint=f"merge it there: -C {made.name}" if made.name else "",
            source=made.source,
        )


class _MergeRun:
    """One run of a merge."""

    def __init__(
        self, fork: Universe, target: Universe, made: Origin, dry_run: bool, pace: ProgressReporter
    ) -> None:
        self.fork, self.target, self.made = fork, target, made
        self.dry_run, self.pace = dry_run, pace
        self.tally = MergeTally()
        self.note = f"merge of fork {made.fork}"
        self.base: Base = {}
        self.ancestry: Ancestry | None = None
        self.next: Base = {}  # the content of the fork now: the base of the next merge
        self._cards: list[tuple[bool, bool, str]] = []  # is new, is active, id
        self._checkpoints: list[ForkChange] = []
        self._grants: list[ForkChange] = []

    async def run(self) -> ForkMerged:
        """Merge everything; each part can be repeated."""
        self.base, home = await baseline.load(self.fork)
        if not await is_in_past(self.target.backend, home):
            # It was restored since, so merged changes may be gone: compare the histories of both sides.
            self.ancestry = Ancestry(self.fork, self.target)
        owners = await self._find_owners()
        records = RecordMerge(self.target, owners, self.tally, self.note, self.dry_run, self.ancestry)
        seq = await self.fork.seq()
        versions = await baseline.find_newest_versions(self.fork, seq)
        self.pace.total = len(self.base)
        await self._merge_records(records, seq, versions)
        await self._merge_deleted(records)
        await self._merge_blocks(versions)
        changes = self._checkpoints
        if not self.dry_run:
            changes = await renumber_checkpoints(self.fork, self.target, changes, self.base, self.tally)
            await records.merge(changes)
            await baseline.save(self.fork, self._make_next_base(), await position_of(self.target.backend))
        else:
            await records.merge(changes)
        self.pace.end()
        return self.tally.done(self.made.fork, self.made.seq, await self.target.seq(), self.dry_run)

    def _make_next_base(self) -> Base:
        """Return what both sides have now; skipped records keep their old base."""
        kept = {id: self.base[id] for id in self.tally.skipped if id in self.base}
        return {id: each for id, each in self.next.items() if id not in self.tally.skipped} | kept

    async def _find_owners(self) -> dict[str, str | None]:
        """Return the room of each schema; register the schemas of blocks if there are any."""
        found = {each.name: each.owner for each in await self.fork.schemas()}
        if BLOCK.name in found:
            self.fork.register(*SCHEMAS)
            self.target.register(*SCHEMAS)
        return found | {each.name: each.owner for each in await self.target.schemas()}

    async def _merge_records(self, records: RecordMerge, seq: int, versions: dict[str, int]) -> None:
        """Merge every record of the fork; blocks and their checkpoints come later."""
        batch: list[ForkChange] = []
        size = 0
        async for datum in baseline.iterate_records(self.fork, seq):
            self.pace.add(1)
            was = self.base.get(datum.id)
            if datum.problem is not None:
                self.tally.skip(datum.id, datum.schema or "", UNREADABLE)
                continue
            point = 0 if was is None else was.point
            self.next[datum.id] = baseline.make_entry(datum, versions.get(datum.id, 0), point)
            if datum.schema == BLOCK.name:
                self._cards.append((was is None, bool(datum.data.get("active")), datum.id))
                continue
            change = ForkChange(datum.id, was, datum)
            if not change.is_changed and self.ancestry is None:
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
            data = {} if change.fork is None else change.fork.data
            group = data.get("group")
            wanted = group_ids(str(group)) if group is not None else [str(data.get("to"))]
            comes = any(to in self.next and to not in self.base for to in wanted)
            if comes or any(await self.target.get_many(wanted, raw=True)):
                found.append(change)
            else:
                self.tally.skip(change.id, change.schema, NOBODY)
        return found

    async def _merge_deleted(self, records: RecordMerge) -> None:
        """Merge the deletions of the fork."""
        there = self.next.keys() | self.tally.skipped  # unreadable records exist, too
        gone = [ForkChange(id, was, None) for id, was in self.base.items() if id not in there]
        if self.ancestry is not None:
            gone += [
                ForkChange(id, was, None)
                async for id, was in self.ancestry.find_deleted(there | self.base.keys())
            ]
        for change in gone:
            if change.schema == BLOCK.name:
                self.tally.skip(change.id, BLOCK.name, FORGOTTEN_THERE, again=False)
        self._checkpoints += [change for change in gone if change.schema == CHECKPOINT.name]
        await _merge_in_batches(
            records, [each for each in gone if each.schema not in (BLOCK.name, CHECKPOINT.name)]
        )

    async def _merge_blocks(self, versions: dict[str, int]) -> None:
        here = (
            await baseline.find_newest_versions(self.target, await self.target.seq()) if self._cards else {}
        )
        blocks = BlockMerge(self.fork, self.target, here, self.tally, self.note, self.dry_run)
        # Deleted and renamed ones first: then their labels are free for new ones.
        ids = [id for *_, id in sorted(self._cards)]
        for start in range(0, len(ids), BATCH):
            for card in await self.fork.get_many(ids[start : start + BATCH]):
                if isinstance(card, Crystal) and card.schema_name == BLOCK.name:
                    known: BaseEntry | None = self.base.get(card.id)
                    if self.ancestry is not None:
                        known = await self.ancestry.find_block_base(card.id, known)
                    await blocks.merge(Theirs(card, versions.get(card.id, 0), known))


async def _merge_in_batches(records: RecordMerge, changes: Sequence[ForkChange]) -> None:
    for start in range(0, len(changes), BATCH):
        await records.merge(changes[start : start + BATCH])


class ForkStatus(msgspec.Struct, frozen=True):
    """A fork compared with its source: the commits since the fork point, and what a merge would do."""

    fork: str
    source: str
    name: str
    scope: str
    fork_point: int
    made_at: datetime
    source_commits: int
    merge: ForkMerged


async def status(fork: Universe, source: Universe, *, trust: str = "partner") -> ForkStatus:
    """Compare a fork with its source; nothing is changed."""
    check_trust(trust, "status")
    made = await require_origin(fork)
    would = await merge(fork, source, dry_run=True, trust=trust)
    later = max(0, await source.seq() - made.seq)
    return ForkStatus(made.fork, made.source, made.name, made.scope, made.seq, made.made_at, later, would)
