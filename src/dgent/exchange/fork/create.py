"""Create a fork: a separate store with all of a store, its core blocks, or what was written since a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import msgspec

from dgent import clock, ids
from dgent.blocks.record import BLOCK
from dgent.errors import Conflict, InputError
from dgent.exchange.copy import MARK, replay
from dgent.exchange.fork import baseline
from dgent.exchange.fork.origin import ORIGIN, ORIGIN_ID, Origin, Scope, check_scope, check_trust, identity
from dgent.exchange.fork.selection import Selection
from dgent.model.query import Query
from dgent.store.backend import Delete, Op, Put
from dgent.system.progress import Progress, ProgressReporter
from dgent.universe import write
from dgent.universe.position import position_of
from dgent.universe.universe import Universe


class Forked(msgspec.Struct, frozen=True):
    """A new fork: its id, its source and commit, and how much it has.

    `left_out` counts records of other rooms in that time, which cannot be copied without the rest of their
    room.
    """

    fork: str
    source: str
    seq: int
    scope: str
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
    after = await _resolve_since(source, since)
    if scope == "all":
        seq = await replay(source, target, progress=progress)
    else:
        seq = await source.seq()
        if await target.count(Query(limit=None)):
            raise Conflict("the target is not empty", hint="fork into an empty place")
    target.register(ORIGIN)
    made = Origin(ids.new_id(), whose, seq, scope, clock.now(), name, after, whole=False)
    await target.remember(made, id=ORIGIN_ID, note="fork")
    selection = Selection(source, target, made, ProgressReporter(progress))
    await selection.run()
    done = await _finish(target, replace(made, whole=True), await position_of(source.backend))
    selection.pace.end()
    return msgspec.structs.replace(done, left_out=selection.left_out)


async def stamp(target: Universe, source: str, seq: int, *, name: str = "", home: str = "") -> Forked:
    """Turn a copy of a store into a fork of it, with its present content as base.

    `home` is the position of the store when it was copied, or later.
    """
    target.register(ORIGIN)
    return await _finish(target, Origin(ids.new_id(), source, seq, "all", clock.now(), name), home)


async def _finish(target: Universe, made: Origin, home: str) -> Forked:
    """Store the base of the fork, and then its origin, which makes it a fork."""
    base = await baseline.capture(target)
    await baseline.save(target, base, home)
    datum, _ = write.new_datum(target.contracts, made, id=ORIGIN_ID, author="system")
    marks = await target.query(Query(schema=MARK.name, limit=None), raw=True)
    ops: list[Op] = [Put(datum, None, None, True), *(Delete(mark.id) for mark in marks)]
    await target.commit(ops, note="fork")
    blocks = sum(each.schema == BLOCK.name for each in base.values())
    return Forked(made.fork, made.source, made.seq, made.scope, len(base), blocks)


async def _resolve_since(source: Universe, since: datetime | int | None) -> int:
    """Return the commit that a time or a seq refers to; 0 for None."""
    if since is None:
        return 0
    if isinstance(since, datetime) and since.tzinfo is not None:
        return await source.backend.seq_at(since)
    if type(since) is int and since >= 0:
        return since
    raise InputError(f"expected a commit or an aware datetime for 'since', got {since!r}", field="since")
