"""Merging a fork back: blocks by their changes, archival entries by union, the rest three ways.

Nothing is lost by it: where both sides did something that cannot be put together, both are kept and told of.
Merging again does only what is new since. A merge that is stopped is gone on with by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgent.blocks.record import BLOCK, CHECKPOINT, SCHEMAS
from dgent.errors import Conflict
from dgent.exchange.copy import BATCH
from dgent.exchange.fork import base as bases
from dgent.exchange.fork.base import Base, Known
from dgent.exchange.fork.blocks import Blocks, Theirs
from dgent.exchange.fork.checkpoints import numbered
from dgent.exchange.fork.origin import Origin, check_trust, identity, known_origin
from dgent.exchange.fork.records import UNREADABLE, Records, Side
from dgent.exchange.fork.report import Merged, Tally
from dgent.model.crystal import Crystal
from dgent.store.upkeep import Pace, Progress
from dgent.universe.universe import Universe

FORGOTTEN_THERE = "the fork has it no more; a block is deleted by its card, so here it stays"


async def merge(
    fork: Universe,
    target: Universe,
    *,
    dry_run: bool = False,
    trust: str = "partner",
    progress: Progress | None = None,
) -> Merged:
    """Bring what was done in a fork back to the store it was made from, or tell what that would do.

    Versions of blocks keep their authors, messages and times; commits are of the target's author. What both
    sides changed is in `conflicts`, with where the fork's version is kept.
    """
    check_trust(trust, "merge")
    made = await known_origin(fork)
    await check_target(made, target)
    merging = _Merging(fork, target, made, dry_run, Pace(progress))
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

    def __init__(self, fork: Universe, target: Universe, made: Origin, dry_run: bool, pace: Pace) -> None:
        self.fork, self.target, self.made = fork, target, made
        self.dry_run, self.pace = dry_run, pace
        self.tally = Tally()
        self.note = f"merge of fork {made.fork}"
        self.base: Base = {}
        self.next: Base = {}  # what the fork holds now: the base of the next merge
        self._cards: list[str] = []
        self._checkpoints: list[Side] = []

    async def run(self) -> Merged:
        """Do all of it, each part so that it can be done again."""
        self.base = await bases.load(self.fork)
        owners = await self._owners()
        records = Records(self.target, owners, self.tally, self.note, self.dry_run)
        seq = await self.fork.seq()
        versions = await bases.newest_versions(self.fork, seq)
        self.pace.total = len(self.base)
        await self._records(records, seq, versions)
        await self._deleted(records)
        await self._blocks(versions)
        sides = self._checkpoints
        if not self.dry_run:
            sides = await numbered(self.fork, self.target, sides, self.base, self.tally)
            await records.merge(sides)
            await bases.save(self.fork, self.next)
        else:
            await records.merge(sides)
        self.pace.end()
        return self.tally.done(self.made.fork, self.made.seq, await self.target.seq(), self.dry_run)

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
        async for datum in bases.records(self.fork, seq):
            self.pace.add(1)
            was = self.base.get(datum.id)
            if datum.problem is not None:
                self.tally.leave(datum.schema or "", UNREADABLE)
                if was is not None:
                    self.next[datum.id] = was
                continue
            point = 0 if was is None else was.point
            self.next[datum.id] = bases.known(datum, versions.get(datum.id, 0), point)
            if datum.schema == BLOCK.name:
                self._cards.append(datum.id)
                continue
            side = Side(datum.id, was, datum)
            if not side.is_changed:
                continue
            (self._checkpoints if datum.schema == CHECKPOINT.name else batch).append(side)
            if len(batch) == BATCH:
                await records.merge(batch)
                batch = []
        await records.merge(batch)

    async def _deleted(self, records: Records) -> None:
        """What the fork has no more."""
        gone = [Side(id, was, None) for id, was in self.base.items() if id not in self.next]
        for side in gone:
            if side.schema == BLOCK.name:
                self.tally.leave(BLOCK.name, FORGOTTEN_THERE)
        self._checkpoints += [side for side in gone if side.schema == CHECKPOINT.name]
        await _in_parts(records, [each for each in gone if each.schema not in (BLOCK.name, CHECKPOINT.name)])

    async def _blocks(self, versions: dict[str, int]) -> None:
        here = await bases.newest_versions(self.target, await self.target.seq()) if self._cards else {}
        blocks = Blocks(self.fork, self.target, here, self.tally, self.note, self.dry_run)
        for start in range(0, len(self._cards), BATCH):
            for card in await self.fork.get_many(self._cards[start : start + BATCH]):
                if isinstance(card, Crystal) and card.schema_name == BLOCK.name:
                    known: Known | None = self.base.get(card.id)
                    await blocks.merge(Theirs(card, versions.get(card.id, 0), known))


async def _in_parts(records: Records, sides: Sequence[Side]) -> None:
    for start in range(0, len(sides), BATCH):
        await records.merge(sides[start : start + BATCH])
