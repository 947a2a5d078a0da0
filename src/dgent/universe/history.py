"""Undo a commit, and read the rule by which old history is pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dgent import clock, ids
from dgent.errors import HistoryGone, InputError, NotFound, UndoConflict, VersionConflict
from dgent.model import reserved
from dgent.store.backend import Change, Committed, Delete, Keep, Op, Reverted
from dgent.universe import write
from dgent.universe.parts import find_later_parts
from dgent.universe.room import Describers, Keeper, load_room

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

ATTEMPTS = 8
FIRST = 4  # commits that are read at once at first: most look for the newest, and a commit may be large
WINDOW = 256  # commits that are read at once at most


async def read_back(
    universe: Universe,
    after: int = 0,
    last: int | None = None,
    at_once: int = FIRST,
    items: int | None = None,
) -> AsyncIterator[Change]:
    """Yield the commits after `after` up to `last`, or the newest; newest first, as far as they are kept.

    So many are read `at_once` at first, then twice as many each time; `items` as for `Universe.changes`.
    """
    end = await universe.seq() if last is None else last
    window = min(WINDOW, at_once)
    while end > after:
        low = max(after, end - window)
        window = min(WINDOW, 2 * window)
        try:
            changes = await universe.changes(low, until=end, items=items)
        except HistoryGone as gone:
            first = gone.details.get("first_seq")
            if type(first) is not int or first - 1 <= low or first > end:
                return
            after = low = first - 1
            changes = await universe.changes(low, until=end, items=items)
        for change in reversed(changes):
            if change.seq is not None:
                yield change
        end = low


async def find_undoable(universe: Universe, describers: Describers, keeps: bool = False) -> int | None:
    """Return the newest commit of a user that is not undone; None where there is none.

    `keeps`: pass over commits of rooms that refuse an undo, since they have one of their own.
    """
    undone: set[int | None] = set()
    async for change in read_back(universe):
        if change.seq in undone:
            continue
        if change.kind == "undo":
            undone.add(change.of_seq)
        elif change.kind not in UNDONE or not await describers.is_of_user(change):
            continue
        elif not keeps or all(_has_keeper(universe, item.schema) for item in change.items):
            return change.seq
    return None


def _has_keeper(universe: Universe, schema: str | None) -> bool:
    owner = reserved.OWNERS.get(schema or "")
    return owner is None or load_room(owner).keeper(universe) is not None


async def find_redoable(universe: Universe, describers: Describers) -> int | None:
    """Return the newest undo that is not itself undone; None where there is none, or something came after."""
    undone: set[int | None] = set()
    async for change in read_back(universe):
        if change.seq in undone:
            continue
        if change.kind == "undo":
            undone.add(change.of_seq)
            target = None if change.of_seq is None else await _find_commit(universe, change.of_seq)
            if target is None or target.kind != "undo":  # undoing an undo was a redo
                return change.seq
        elif await describers.is_of_user(change):
            return None
    return None


UNDONE = ("data", "upgrade", "complete", "abandon", "merge")
"""The kinds of commits that a user takes back one after the other."""


async def undo(universe: Universe, seq: int, only: Iterable[str] | None, force: bool) -> Committed:
    """Put the records of a commit back to what they were before it, as a new commit."""
    if only is not None and (isinstance(only, str) or not isinstance(only, Iterable)):
        raise InputError(f"only must be a collection of ids, not {type(only).__name__}", field="only")
    wanted = None if only is None else {ids.check_id(id, "only") for id in only}
    for attempt in range(ATTEMPTS):
        picked = await _pick_records(universe, seq, wanted)
        keeper = await _keeper(universe, picked)
        if keeper is not None:
            done = await keeper.undo(seq, picked, force, False)
            assert done is not None
            return done
        records = await _revertible(universe, seq, picked, force)
        try:
            return await universe.commit(
                revert_ops(universe, records), kind="undo", of_seq=seq, note=f"undo of {seq}"
            )
        except VersionConflict:
            # Changed between the look and the commit; a second look names what did.
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt raises or returns")


async def revertible(universe: Universe, seq: int, wanted: set[str] | None, force: bool) -> list[Reverted]:
    """Return the records that undoing a commit would put back; refused where undo would refuse."""
    records = await _pick_records(universe, seq, wanted)
    keeper = await _keeper(universe, records)
    if keeper is not None:
        await keeper.undo(seq, records, force, True)
        return records
    return await _revertible(universe, seq, records, force)


async def _revertible(universe: Universe, seq: int, records: list[Reverted], force: bool) -> list[Reverted]:
    if not force and (changed := await find_changed(universe, records)):
        raise refusal(seq, changed)
    if not force and (later := await find_later_parts(universe, _new_ids(records))):
        names = ", ".join(map(repr, later[:10]))
        raise UndoConflict(f"what commit {seq} changed is what later steps build on: {names}", ids=later)
    return records


def _new_ids(records: Iterable[Reverted]) -> list[str]:
    """Return the records that undoing a commit removes."""
    return [record.id for record in records if record.live and record.before is None]


async def find_changed(universe: Universe, records: Iterable[Reverted]) -> list[Reverted]:
    """Return the records of a commit that changed since and were not put back by undoing those changes."""
    found: dict[int, Change | None] = {}
    return [
        record
        for record in records
        if record.now_rev != record.rev and not await _is_put_back(universe, record, found)
    ]


async def _is_put_back(universe: Universe, record: Reverted, found: dict[int, Change | None]) -> bool:
    """Check whether the later changes of a record are undone among themselves; `found` keeps commits."""
    undone: set[int | None] = set()
    expected = record.now_rev
    for version in await universe.history(record.id):  # newest first
        if version.rev <= record.rev:
            break
        if version.rev != expected:
            return False  # one in between is pruned
        expected -= 1
        if version.seq in undone:
            undone.remove(version.seq)
            continue
        if version.seq not in found:
            found[version.seq] = await _find_commit(universe, version.seq)
        change = found[version.seq]
        if change is None or change.kind != "undo":
            return False
        undone.add(change.of_seq)
    return not undone and expected == record.rev


async def _find_commit(universe: Universe, seq: int) -> Change | None:
    try:
        return next(iter(await universe.changes(seq - 1, until=seq)), None)
    except HistoryGone:
        return None


async def _keeper(universe: Universe, records: list[Reverted]) -> Keeper | None:
    """Return what undoes these records for their room, if all are of one room and it is in use here."""
    if not universe.rooms:
        return None
    now = await universe.backend.get_many([record.id for record in records if record.before is None])
    datums = [record.before for record in records if record.before is not None] + now
    owners = {reserved.OWNERS.get(datum.schema or "") for datum in datums if datum is not None}
    owner = owners.pop() if len(owners) == 1 else None
    return None if owner is None or owner not in universe.rooms else load_room(owner).keeper(universe)


async def _pick_records(universe: Universe, seq: int, wanted: set[str] | None) -> list[Reverted]:
    if type(seq) is not int or seq < 1:
        raise InputError(f"seq is the number of a commit, not {seq!r}", field="seq")
    records = await universe.backend.states_before(seq)
    if wanted is None:
        return records
    if missing := sorted(wanted - {record.id for record in records}):
        raise NotFound(f"commit {seq} changed no {', '.join(map(repr, missing[:10]))}", ids=missing)
    return [record for record in records if record.id in wanted]


def revert_ops(universe: Universe, records: Iterable[Reverted]) -> list[Op]:
    """Return the ops that put records back to what they were before a commit."""
    ops: list[Op] = []
    for record in records:
        expect = record.now_rev if record.live else 0
        if record.before is not None:
            ops.append(write.put_op(universe.contracts, record.before, expect))
        elif record.live:
            ops.append(Delete(record.id, expect))
    return ops


def refusal(seq: int, changed: list[Reverted]) -> UndoConflict:
    """Return the error that records of a commit have changed since."""
    names = ", ".join(f"{r.id!r} (rev {r.now_rev}, commit {r.now_seq})" for r in changed[:10])
    count = "1 record" if len(changed) == 1 else f"{len(changed)} records"
    return UndoConflict(
        f"{count} of commit {seq} changed since: {names}",
        records={r.id: (r.now_rev, r.now_seq) for r in changed},
    )


def rule(keep: int | timedelta | datetime | Keep) -> Keep:
    """Return the retention rule that the arguments mean; one that names nothing would remove everything."""
    if isinstance(keep, timedelta):
        if keep < timedelta(0):
            raise InputError(f"keep reaches into the future: {keep}", field="keep")
        now = clock.now()
        return Keep(after=now - min(keep, now - clock.EPOCH))
    if isinstance(keep, datetime):
        keep = Keep(after=keep)
    elif type(keep) is int:
        keep = Keep(versions=keep)
    if not isinstance(keep, Keep):
        raise InputError(
            f"keep is a number of versions, a timedelta, a datetime or a Keep, not {keep!r}", field="keep"
        )
    if keep.versions is None and keep.after is None:
        raise InputError("keep must name a number of versions or an age", field="keep")
    if keep.versions is not None and (type(keep.versions) is not int or keep.versions < 0):
        raise InputError(f"keep must be 0 versions or more, not {keep.versions!r}", field="keep")
    if keep.after is not None:
        clock.to_us(keep.after)
    return keep
