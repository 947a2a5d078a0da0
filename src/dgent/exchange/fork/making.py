"""Making a fork: all of a store, its core blocks, or what was written since a time, in a store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime

import msgspec

from dgent import clock, ids
from dgent.blocks.record import (
    AGENT,
    BLOCK,
    CHECKPOINT,
    GROUP,
    MEMBER,
    ROOM,
    SCHEMAS,
    SEEN,
    SHARE,
    VERSION,
)
from dgent.errors import Conflict, Corrupt, HistoryGone, InputError
from dgent.exchange.copy import BATCH, MARK, copy
from dgent.exchange.fork import base as bases
from dgent.exchange.fork.base import EVERYTHING, INNER
from dgent.exchange.fork.origin import ORIGIN, ORIGIN_ID, Origin, Scope, check_scope, check_trust, identity
from dgent.exchange.moment import Moment
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Delete, Op, Put
from dgent.store.upkeep import Pace, Progress
from dgent.universe import writing
from dgent.universe.universe import Universe

ATTEMPTS = 64  # at reading a block while others write to it
ROSTER = frozenset((AGENT.name, GROUP.name, MEMBER.name))
_OF_BLOCKS = frozenset((VERSION.name, CHECKPOINT.name, SHARE.name))


class Forked(msgspec.Struct, frozen=True):
    """A fork that was made: its id, of what, as of which commit, and how much it holds.

    `left_out` counts records of other rooms that were written in the time but cannot be taken apart from the
    rest of their room.
    """

    fork: str
    source: str
    seq: int
    scope: Scope
    records: int
    blocks: int
    left_out: int = 0


async def fork(
    source: Universe,
    target: Universe,
    *,
    scope: Scope = "all",
    since: datetime | int | None = None,
    name: str = "",
    trust: str = "partner",
    progress: Progress | None = None,
) -> Forked:
    """Make an empty store a fork of another one, whatever their engines.

    `all` is everything with its history. `core` is the core blocks with their history, the agents, the groups
    and who these blocks are shared with. `since` is what was written after a time or a commit; blocks that
    changed come with all of their history. `name` is what the source is called. The source is only read.
    """
    check_trust(trust, "fork")
    check_scope(scope, since)
    whose = await identity(source)
    if scope == "all":
        done = await copy(source, target, progress=progress)
        return await stamp(target, whose, done.seq, name=name)
    after = await _commit_of(source, since)
    if await target.count(Query(limit=None)):
        raise Conflict("the target holds records of its own", hint="fork into an empty place")
    made = Origin(ids.new_id(), whose, await source.seq(), scope, clock.now(), name, after, False)
    target.register(ORIGIN)
    await target.remember(made, id=ORIGIN_ID, note="fork")
    selection = _Selection(source, target, made, Pace(progress))
    await selection.run()
    await bases.save(target, await bases.taken(target))
    await target.remember(replace(made, whole=True), id=ORIGIN_ID, note="fork")
    selection.pace.end()
    return Forked(made.fork, whose, made.seq, scope, selection.records, selection.blocks, selection.left_out)


async def stamp(target: Universe, source: str, seq: int, *, name: str = "") -> Forked:
    """Make a copy of a store a fork of it: from now on it is known what it held at the fork point."""
    made = Origin(ids.new_id(), source, seq, "all", clock.now(), name)
    target.register(ORIGIN)
    base = await bases.taken(target)
    await bases.save(target, base)
    datum, _ = writing.new_datum(target.contracts, made, id=ORIGIN_ID, author="system")
    marks = await target.query(Query(schema=MARK.name, limit=None), raw=True)
    ops: list[Op] = [Put(datum, None, None, True), *(Delete(mark.id) for mark in marks)]
    await target.commit(ops, note="fork")
    blocks = sum(each.schema == BLOCK.name for each in base.values())
    return Forked(made.fork, source, seq, "all", len(base), blocks)


async def _commit_of(source: Universe, since: datetime | int | None) -> int:
    """The commit that a time means."""
    if since is None:
        return 0
    if isinstance(since, datetime) and since.tzinfo is not None:
        return await source.backend.seq_at(since)
    if type(since) is int and since >= 0:
        return since
    raise InputError(f"since is a commit or an aware datetime, not {since!r}", field="since")


class _Selection:
    """Carrying part of a store, as of one commit, to an empty one."""

    def __init__(self, source: Universe, target: Universe, made: Origin, pace: Pace) -> None:
        self.source, self.target, self.made, self.pace = source, target, made, pace
        self.records = self.blocks = self.left_out = 0
        self._owners: dict[str, str | None] = {}

    async def run(self) -> None:
        """Carry everything that was asked for."""
        self._owners = {schema.name: schema.owner for schema in await self.source.schemas()}
        if BLOCK.name in self._owners:
            self.target.register(*SCHEMAS)
        wanted = await (self._core() if self.made.scope == "core" else self._changed())
        await self._carry_blocks(wanted)

    async def _core(self) -> set[str]:
        """The core blocks; the roster goes along."""
        async for batch in _batches(self._records(*sorted(ROSTER))):
            await self._carry(batch)
        cards = self._records(BLOCK.name)
        return {
            card.id async for card in cards if card.data.get("kind") == "core" and card.data.get("active")
        }

    async def _changed(self) -> set[str]:
        """The blocks that changed; what else was written goes along, and the roster."""
        blocks: set[str] = set()

        async def others() -> AsyncIterator[Datum]:
            async for datum in self._records():
                schema, owner = datum.schema or "", self._owners.get(datum.schema or "")
                late = (datum.seq or 0) > self.made.after
                if schema in bases.OWN:
                    continue
                if schema == BLOCK.name or schema in _OF_BLOCKS:
                    blocks.update([datum.id.split("/", 1)[0]] if late else [])
                elif schema in ROSTER or (late and schema not in INNER and owner in (None, ROOM)):
                    yield datum
                elif late and schema != SEEN.name and owner not in (None, ROOM):
                    self.left_out += 1

        async for batch in _batches(others()):
            await self._carry(batch)
        return blocks

    async def _records(self, *schemas: str) -> AsyncIterator[Datum]:
        """The records of some schemas, or all of them, as of the fork point."""
        for query in [EVERYTHING.replace(schema=name) for name in schemas] or [EVERYTHING]:
            async with aclosing(Moment(self.source, self.made.seq).records(query)) as found:
                async for datum in found:
                    if datum.problem is not None:
                        raise Corrupt(datum.problem, id=datum.id)
                    yield datum

    async def _carry_blocks(self, wanted: set[str]) -> None:
        """Blocks whole: the card comes last, so there never is one without its document."""
        for id in sorted(wanted):
            card = await self._card(id)
            if card is None:
                continue
            inside = await read_block(self.source, id, self.made.seq)
            for start in range(0, len(inside), BATCH):
                await self._carry(inside[start : start + BATCH])
            await self._carry([card])
            self.blocks += 1

    async def _card(self, id: str) -> Datum | None:
        try:
            found: Datum | None = await self.source.get(id, as_of=self.made.seq, raw=True)
        except HistoryGone:
            found = await self.source.get(id, raw=True)
        return found if found is not None and found.schema == BLOCK.name else None

    async def _carry(self, datums: Sequence[Datum]) -> None:
        await carry(self.target, datums, self._owners, "fork")
        self.records += len(datums)
        self.pace.add(len(datums))


async def carry(target: Universe, datums: Iterable[Datum], owners: dict[str, str | None], note: str) -> None:
    """Put records of another store into this one as they are, each in the name of its room."""
    rooms: dict[str | None, list[Op]] = {}
    for datum in datums:
        plain = datum.replace(rev=None, seq=None)
        op = writing.authored(writing.put_op(target.contracts, plain, None), target.author)
        rooms.setdefault(owners.get(datum.schema or ""), []).append(op)
    for room, ops in rooms.items():
        await (target if room is None else target.for_room(room)).commit(ops, note=note)


async def read_block(universe: Universe, id: str, seq: int | None = None) -> list[Datum]:
    """Everything of a block but its card, of one moment: as of a commit if that is still there, else later.

    A block that others write to is folded now and then, and what was folded is gone. Then it is read as it is
    now, and versions that came after the commit are left away where they stand alone.
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
        # The newest version is never folded: without one that stands alone it could not be edited.
        return stay if any(each.schema == VERSION.name for each in stay) else found
    raise AssertionError("the last attempt raises or returns")


def _is_after(datum: Datum, seq: int | None) -> bool:
    return seq is not None and (datum.seq or 0) > seq


async def _batches(found: AsyncIterator[Datum]) -> AsyncIterator[list[Datum]]:
    batch: list[Datum] = []
    async for datum in found:
        batch.append(datum)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
