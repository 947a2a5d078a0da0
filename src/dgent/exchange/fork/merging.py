"""Merging a fork back: blocks by their changes, archival entries by union, the rest three ways.

Nothing is lost by it: where both sides did something that cannot be put together, both are kept and told of.
Merging again does only what is new since. A merge that is stopped is gone on with by the next one.
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
from dgent.exchange.fork.baseline import Base, Known
from dgent.exchange.fork.blocks import Blocks, Theirs, numbered
from dgent.exchange.fork.origin import Origin, check_trust, identity, known_origin
from dgent.exchange.fork.records import GRANTS, UNREADABLE, Records, Side
from dgent.exchange.fork.report import ForkMerged, Tally
from dgent.model.crystal import Crystal
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe.position import is_in_past, position_of
from dgent.universe.universe import Universe

BATCH_BYTES = 8 * 2**20
NOBODY = "whom it is for is not here any more"
FORGOTTEN_THERE = "the fork has it no more; a block is deleted by its card, so here it stays"


async def merge(
    fork: Universe,
    target: Universe,
    *,
    dry_run: bool = False,
    trust: str = "partner",
    progress: Progress | None = None,
) -> ForkMerged:
    """Bring what was done in a fork back to the store it was made from, or tell what that would do.

    Versions of blocks keep their authors, messages and times; commits are of the target's author. What both
    sides changed is in `conflicts`, with where the fork's version is kept.
    """
    check_trust(trust, "merge")
    made = await known_origin(fork)
    await check_target(made, target)
    merging = _Merging(fork, target, made, dry_run, ProgressReporter(progress))
    return await merging.run()


async def check_target(made: Origin, target: Universe) -> None:
    """A fork goes back to where it came from, and nowhere else."""
    found = await identity(target)
    if found != made.source:
        whose = f"the constellation {made.name!r}" if made.name else f"the store {made.source}"
        raise Conflict(
            f"this is no fork of the store {found}: it was made from {whose}",
            hint=f"merge it there: -C {made.name}" if made.name else "",
            source=made.source,
        )


class _Merging:
    """One merge under way."""

    def __init__(
        self, fork: Universe, target: Universe, made: Origin, dry_run: bool, pace: ProgressReporter
    ) -> None:
        self.fork, self.target, self.made = fork, target, made
        self.dry_run, self.pace = dry_run, pace
        self.tally = Tally()
        self.note = f"merge of fork {made.fork}"
        self.base: Base = {}
        self.ancestry: Ancestry | None = None
        self.next: Base = {}  # what the fork holds now: the base of the next merge
        self._cards: list[tuple[bool, bool, str]] = []  # whether it is new, and there, and its id
        self._checkpoints: list[Side] = []
        self._grants: list[Side] = []

    async def run(self) -> ForkMerged:
        """Do all of it, each part so that it can be done again."""
        self.base, home = await baseline.load(self.fork)
        if not await is_in_past(self.target.backend, home):
            # It was restored since, so what was merged may be gone: what both sides hold is compared.
            self.ancestry = Ancestry(self.fork, self.target)
        owners = await self._owners()
        records = Records(self.target, owners, self.tally, self.note, self.dry_run, self.ancestry)
        seq = await self.fork.seq()
        versions = await baseline.newest_versions(self.fork, seq)
        self.pace.total = len(self.base)
        await self._records(records, seq, versions)
        await self._deleted(records)
        await self._blocks(versions)
        sides = self._checkpoints
        if not self.dry_run:
            sides = await numbered(self.fork, self.target, sides, self.base, self.tally)
            await records.merge(sides)
            await baseline.save(self.fork, self._merged(), await position_of(self.target.backend))
        else:
            await records.merge(sides)
        self.pace.end()
        return self.tally.done(self.made.fork, self.made.seq, await self.target.seq(), self.dry_run)

    def _merged(self) -> Base:
        """What both sides have now; what was not merged is as it was before."""
        kept = {id: self.base[id] for id in self.tally.left if id in self.base}
        return {id: each for id, each in self.next.items() if id not in self.tally.left} | kept

    async def _owners(self) -> dict[str, str | None]:
        """The room of each schema; the schemas of blocks are made known where there are any."""
        found = {each.name: each.owner for each in await self.fork.schemas()}
        if BLOCK.name in found:
            self.fork.register(*SCHEMAS)
            self.target.register(*SCHEMAS)
        return found | {each.name: each.owner for each in await self.target.schemas()}

    async def _records(self, records: Records, seq: int, versions: dict[str, int]) -> None:
        """Every record that the fork has; blocks and their checkpoints wait."""
        batch: list[Side] = []
        size = 0
        async for datum in baseline.records(self.fork, seq):
            self.pace.add(1)
            was = self.base.get(datum.id)
            if datum.problem is not None:
                self.tally.leave(datum.id, datum.schema or "", UNREADABLE)
                continue
            point = 0 if was is None else was.point
            self.next[datum.id] = baseline.known(datum, versions.get(datum.id, 0), point)
            if datum.schema == BLOCK.name:
                self._cards.append((was is None, bool(datum.data.get("active")), datum.id))
                continue
            side = Side(datum.id, was, datum)
            if not side.is_changed and self.ancestry is None:
                continue
            late = self._checkpoints if datum.schema == CHECKPOINT.name else self._grants
            if datum.schema == CHECKPOINT.name or datum.schema in GRANTS:
                late.append(side)
                continue
            batch.append(side)
            size += len(datum.content)
            if len(batch) == BATCH or size > BATCH_BYTES:
                await records.merge(batch)
                batch, size = [], 0
        await records.merge(batch)
        await _in_parts(records, await self._to_somebody(self._grants))

    async def _to_somebody(self, sides: Sequence[Side]) -> list[Side]:
        """Those of some shares and memberships that are for an agent or a group that is here, or comes."""
        found: list[Side] = []
        for side in sides:
            data = {} if side.fork is None else side.fork.data
            group = data.get("group")
            wanted = group_ids(str(group)) if group is not None else [str(data.get("to"))]
            comes = any(to in self.next and to not in self.base for to in wanted)
            if comes or any(await self.target.get_many(wanted, raw=True)):
                found.append(side)
            else:
                self.tally.leave(side.id, side.schema, NOBODY)
        return found

    async def _deleted(self, records: Records) -> None:
        """What the fork has no more."""
        there = self.next.keys() | self.tally.left  # what cannot be read is there, too
        gone = [Side(id, was, None) for id, was in self.base.items() if id not in there]
        if self.ancestry is not None:
            gone += [Side(id, was, None) async for id, was in self.ancestry.deleted(there | self.base.keys())]
        for side in gone:
            if side.schema == BLOCK.name:
                self.tally.leave(side.id, BLOCK.name, FORGOTTEN_THERE, again=False)
        self._checkpoints += [side for side in gone if side.schema == CHECKPOINT.name]
        await _in_parts(records, [each for each in gone if each.schema not in (BLOCK.name, CHECKPOINT.name)])

    async def _blocks(self, versions: dict[str, int]) -> None:
        here = await baseline.newest_versions(self.target, await self.target.seq()) if self._cards else {}
        blocks = Blocks(self.fork, self.target, here, self.tally, self.note, self.dry_run)
        # Those that are deleted or renamed there first: then their labels are free for those that are new.
        ids = [id for *_, id in sorted(self._cards)]
        for start in range(0, len(ids), BATCH):
            for card in await self.fork.get_many(ids[start : start + BATCH]):
                if isinstance(card, Crystal) and card.schema_name == BLOCK.name:
                    known: Known | None = self.base.get(card.id)
                    if self.ancestry is not None:
                        known = await self.ancestry.of_block(card.id, known)
                    await blocks.merge(Theirs(card, versions.get(card.id, 0), known))


async def _in_parts(records: Records, sides: Sequence[Side]) -> None:
    for start in range(0, len(sides), BATCH):
        await records.merge(sides[start : start + BATCH])


class Apart(msgspec.Struct, frozen=True):
    """A fork beside its source: how many commits came since the fork point, and what a merge would do."""

    fork: str
    source: str
    name: str
    scope: str
    fork_point: int
    made_at: datetime
    source_commits: int
    merge: ForkMerged


async def status(fork: Universe, source: Universe, *, trust: str = "partner") -> Apart:
    """How far a fork and its source are apart; nothing is changed."""
    check_trust(trust, "status")
    made = await known_origin(fork)
    would = await merge(fork, source, dry_run=True, trust=trust)
    later = max(0, await source.seq() - made.seq)
    return Apart(made.fork, made.source, made.name, made.scope, made.seq, made.made_at, later, would)
