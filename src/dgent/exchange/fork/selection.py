"""The content of a fork: select records as of one commit and copy them, while others write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing

from dgent.blocks.record import AGENT, BLOCK, CHECKPOINT, GROUP, MEMBER, ROOM, SCHEMAS, SHARE, VERSION
from dgent.errors import Corrupt, HistoryGone
from dgent.exchange.contents import copy_contents
from dgent.exchange.copy import BATCH
from dgent.exchange.fork import baseline
from dgent.exchange.fork.baseline import EVERYTHING, INNER, hash_record
from dgent.exchange.fork.origin import Origin
from dgent.exchange.snapshot import Snapshot
from dgent.model.datum import Datum
from dgent.store.backend import EVERY_ROOM, Delete, Op
from dgent.system.progress import ProgressReporter
from dgent.universe import write
from dgent.universe.universe import Universe

BATCH_BYTES = 8 * 2**20
ATTEMPTS = 64  # to read a block while others write to it
ROSTER = frozenset((AGENT.name, GROUP.name, MEMBER.name))
_OF_BLOCKS = frozenset((VERSION.name, CHECKPOINT.name, SHARE.name))


class Selection:
    """Copies a store or part of it, as of one commit, into a store without other records."""

    def __init__(self, source: Universe, target: Universe, made: Origin, pace: ProgressReporter) -> None:
        self.source, self.target, self.made, self.pace = source, target, made, pace
        self.left_out = 0
        self._owners: dict[str, str | None] = {}

    async def run(self) -> None:
        """Copy everything in the scope."""
        self._owners = {schema.name: schema.owner for schema in await self.source.schemas()}
        if BLOCK.name in self._owners:
            self.target.register(*SCHEMAS)
        choose = {"core": self._select_core, "since": self._select_changed, "all": self._select_all}[
            self.made.scope
        ]
        await self._carry_blocks(await choose())

    async def _select_all(self) -> set[str]:
        """Copy the records that replaying the log did not copy; return the ids of all blocks."""
        met: set[str] = set()

        async def missing() -> AsyncIterator[Datum]:
            async for batch in _batches(self._records()):
                some = [
                    each for each in batch if each.schema not in baseline.OWN and each.schema not in INNER
                ]
                met.update(each.id for each in some)
                held = await self.target.get_many([each.id for each in some], raw=True)
                for datum, there in zip(some, held, strict=True):
                    if there is None or hash_record(there) != hash_record(datum):
                        yield datum

        async for batch in _batches(missing()):
            await self._carry(batch)
        there = [each async for each in self.target.iterate(EVERYTHING.replace(content=False), raw=True)]
        kept = baseline.OWN | INNER
        await self._remove([each for each in there if each.schema not in kept and each.id not in met])
        return {each.id for each in there if each.schema == BLOCK.name and each.id in met}

    async def _remove(self, datums: Sequence[Datum]) -> None:
        """Delete records that the source does not have: a resumed copy may have older ones."""
        ids = [each.id for each in datums]
        for start in range(0, len(ids), BATCH):
            ops: list[Op] = [Delete(id) for id in ids[start : start + BATCH]]
            await self.target.for_room(EVERY_ROOM).commit(ops, note="fork")

    async def _select_core(self) -> set[str]:
        """Copy agents, groups and memberships; return the ids of the core blocks."""
        async for batch in _batches(self._records(*sorted(ROSTER))):
            await self._carry(batch)
        cards = self._records(BLOCK.name)
        return {
            card.id async for card in cards if card.data.get("kind") == "core" and card.data.get("active")
        }

    async def _select_changed(self) -> set[str]:
        """Copy changed records and the roster; return the ids of the changed blocks."""
        blocks: set[str] = set()

        async def others() -> AsyncIterator[Datum]:
            async for datum in self._records():
                schema, owner = datum.schema or "", self._owners.get(datum.schema or "")
                late = (datum.seq or 0) > self.made.after
                if schema in baseline.OWN:
                    continue
                if schema == BLOCK.name or schema in _OF_BLOCKS:
                    blocks.update([datum.id.split("/", 1)[0]] if late else [])
                elif schema in ROSTER or (late and schema not in INNER and owner in (None, ROOM)):
                    yield datum
                elif late and owner not in (None, ROOM):
                    self.left_out += 1

        async for batch in _batches(others()):
            await self._carry(batch)
        return blocks

    async def _records(self, *schemas: str) -> AsyncIterator[Datum]:
        """Yield the records of some schemas, or all of them, as of the fork point."""
        for query in [EVERYTHING.replace(schema=name) for name in schemas] or [EVERYTHING]:
            async with aclosing(Snapshot(self.source, self.made.seq).records(query)) as found:
                async for datum in found:
                    if datum.problem is not None:
                        raise Corrupt(datum.problem, id=datum.id)
                    yield datum

    async def _carry_blocks(self, wanted: set[str]) -> None:
        """Copy whole blocks; the header comes last, so there never is one without its document."""
        for id in sorted(wanted):
            card = await self._read_header(id)
            if card is None:
                continue
            inside = await read_block(self.source, id, self.made.seq)
            held = {each.id: each for each in await read_block(self.target, id)}
            new = [
                each
                for each in inside
                if each.id not in held or hash_record(held[each.id]) != hash_record(each)
            ]
            for start in range(0, len(new), BATCH):
                await self._carry(new[start : start + BATCH])
            await self._remove([each for each in held.values() if each.id not in {one.id for one in inside}])
            await self._carry([card])

    async def _read_header(self, id: str) -> Datum | None:
        try:
            found: Datum | None = await self.source.get(id, as_of=self.made.seq, raw=True)
        except HistoryGone:
            found = await self.source.get(id, raw=True)
        return found if found is not None and found.schema == BLOCK.name else None

    async def _carry(self, datums: Sequence[Datum]) -> None:
        async with copy_contents(self.source, self.target, datums) as contents:
            await carry(self.target, datums, "fork", contents)
        self.pace.add(len(datums))


async def carry(target: Universe, datums: Iterable[Datum], note: str, others: Sequence[Op] = ()) -> None:
    """Write records of another store into this one unchanged, whatever their room, and do other ops."""
    ops: list[Op] = [*others]
    for datum in datums:
        plain = datum.replace(rev=None, seq=None, updated_at=None)
        ops.append(write.add_author(write.put_op(target.contracts, plain, None), target.author))
    if ops:
        await target.for_room(EVERY_ROOM).commit(ops, note=note)


async def read_block(universe: Universe, id: str, seq: int | None = None) -> list[Datum]:
    """Return all records of a block but its header, as of a commit if that is still kept, else as of later.

    Versions of a block that others write to are packed now and then, which removes their records. Then the
    block is read as it is now, without later versions that have their own record.
    """
    for attempt in range(ATTEMPTS):
        moment = seq if attempt == 0 and seq is not None else await universe.seq()
        query = EVERYTHING.replace(prefix=f"{id}/")
        try:
            found = [each async for each in universe.iterate(query, as_of=moment, raw=True)]
        except HistoryGone:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        for datum in found:
            if datum.problem is not None:
                raise Corrupt(datum.problem, id=datum.id)
        stay = [each for each in found if not (each.schema == VERSION.name and _is_after(each, seq))]
        # The newest version is never packed: without its own record the block could not be edited.
        return stay if any(each.schema == VERSION.name for each in stay) else found
    raise AssertionError("the last attempt raises or returns")


def _is_after(datum: Datum, seq: int | None) -> bool:
    return seq is not None and (datum.seq or 0) > seq


async def _batches(found: AsyncIterator[Datum]) -> AsyncIterator[list[Datum]]:
    batch: list[Datum] = []
    size = 0
    async for datum in found:
        batch.append(datum)
        size += len(datum.content)
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
