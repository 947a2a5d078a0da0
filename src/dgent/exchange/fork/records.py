"""Three-way merge of records: as in the base, as on the other side, and as here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dgent import ids
from dgent.blocks.record import AGENT, ARCHIVE_SHARE, AUDIT, CHECKPOINT, ENTRY, GROUP, MEMBER, ROOM, SHARE
from dgent.errors import VersionConflict
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import BaseEntry, hash_record
from dgent.exchange.fork.report import ForkClash, MergeTally
from dgent.exchange.fork.resolve import LEFT_OPEN, OPEN, Resolver
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.universe import Universe

ATTEMPTS = 50
UNION = frozenset((ENTRY.name, AUDIT.name))
"""Schemas merged by union: their records never change, and are only added."""
IN_PLACE = frozenset(each.name for each in (AGENT, GROUP, MEMBER, SHARE, ARCHIVE_SHARE, CHECKPOINT))
"""Schemas whose records cannot exist twice: a second share would be a second permission."""

GRANTS = frozenset((MEMBER.name, SHARE.name, ARCHIVE_SHARE.name))
"""Schemas that give an agent a permission: what was revoked here stays revoked."""

OTHER_ROOM = "its room has rules across records that a merge cannot enforce"
FORGOTTEN = "it was forgotten here, and stays forgotten"
KEPT_ENTRY = "merged by union: what was deleted {where} stays here"
UNREADABLE = "it cannot be read {where}"


class ForkChange(NamedTuple):
    """A record in the base and on the other side; None where it does not exist."""

    id: str
    base: BaseEntry | None
    theirs: Datum | None
    here: bytes | None = None  # hash of the base here, if its author differs from theirs

    @property
    def schema(self) -> str:
        """Its schema."""
        if self.theirs is not None:
            return self.theirs.schema or ""
        return "" if self.base is None else self.base.schema

    @property
    def is_changed(self) -> bool:
        """True when the other side changed it."""
        was = None if self.base is None else self.base.fingerprint
        return was != (None if self.theirs is None else hash_record(self.theirs))


class _MergeDecision(NamedTuple):
    """The decision about one record: the op, and what to report."""

    op: Op | None = None
    counted: str = ""
    clash: ForkClash | None = None
    left: str = ""
    again: bool = True


class RecordMerge:
    """Merges records other than blocks, in batches."""

    def __init__(
        self,
        target: Universe,
        owners: dict[str, str | None],
        tally: MergeTally,
        note: str,
        dry_run: bool,
        resolver: Resolver,
        ancestry: Ancestry | None = None,
    ) -> None:
        self._target, self._owners, self.tally = target, owners, tally
        self.note, self.dry_run, self._ancestry = note, dry_run, ancestry
        self.resolver, self._where = resolver, tally.side.where

    async def merge(self, changes: Sequence[ForkChange]) -> None:
        """Merge some records, those of one room in one commit, repeated after a conflict."""
        rooms: dict[str | None, list[ForkChange]] = {}
        for change in changes:
            owner = self._owners.get(change.schema)
            if owner in (None, ROOM):
                rooms.setdefault(owner, []).append(change)
            else:
                self.tally.skip(change.id, change.schema, OTHER_ROOM)
        for room, some in rooms.items():
            await self._merge(room, some)

    async def _merge(self, room: str | None, changes: Sequence[ForkChange]) -> None:
        universe = self._target if room is None else self._target.for_room(room)
        for attempt in range(ATTEMPTS):
            decisions = await self._decide_all(changes)
            ops = [each.op for each in decisions if each.op is not None]
            try:
                if ops and not self.dry_run:
                    await universe.commit(ops, note=self.note, kind="merge")
                break
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
        for change, decision in zip(changes, decisions, strict=True):
            self._count(change, decision)

    def _count(self, change: ForkChange, decision: _MergeDecision) -> None:
        if decision.left:
            self.tally.skip(change.id, change.schema, decision.left, decision.again)
        if decision.clash is not None:
            self.tally.conflicts.append(decision.clash)
        if decision.counted:
            self.tally.counts[decision.counted] += 1
            self.tally.counts["entries"] += decision.counted == "added" and change.schema == ENTRY.name

    async def _decide_all(self, changes: Sequence[ForkChange]) -> list[_MergeDecision]:
        names = [change.id for change in changes] + [make_copy_id(change) for change in changes]
        found: list[Datum | None] = await self._target.get_many(names, raw=True)
        absent = [id for id, there in zip(names, found, strict=True) if there is None]
        gone = await forgotten_among(self._target.backend, absent) if absent else frozenset()
        there, beside = found[: len(changes)], found[len(changes) :]
        if self._ancestry is not None:
            changes = [await self._find_base(*pair) for pair in zip(changes, there, strict=True)]
        return [
            await self._decide(change, here, other, change.id in gone)
            for change, here, other in zip(changes, there, beside, strict=True)
        ]

    async def _find_base(self, change: ForkChange, there: Datum | None) -> ForkChange:
        """Return the change with the newest version that both sides have had as its base."""
        if self._ancestry is None or change.theirs is None or _is_same_content(change.theirs, there):
            return change
        base, here = await self._ancestry.find_record_base(change.id)
        return change._replace(base=base, here=here)

    async def _decide(
        self, change: ForkChange, there: Datum | None, beside: Datum | None, gone: bool
    ) -> _MergeDecision:
        was = None if change.base is None else change.base.fingerprint
        was_here = was if change.here is None else change.here
        theirs = None if change.theirs is None else hash_record(change.theirs)
        ours = None if there is None else hash_record(there)
        if theirs in (was, ours) or _is_same_content(change.theirs, there):
            return _MergeDecision()
        if change.theirs is None:
            assert there is not None, "a record deleted on both sides is equal"
            return await self._decide_deleted(change, there, ours == was_here)
        if change.theirs.problem is not None:
            return _MergeDecision(left=UNREADABLE.format(where=self._where))
        if there is None:
            return (
                _MergeDecision(left=FORGOTTEN) if gone else await self._decide_missing(change, change.theirs)
            )
        if ours == was_here and there.schema == change.theirs.schema:
            return _MergeDecision(self.make_put(change.theirs, change.id, there.rev), "changed")
        return await self._decide_both(change, change.theirs, there, beside)

    async def _decide_deleted(self, change: ForkChange, there: Datum, unchanged: bool) -> _MergeDecision:
        """Decide about a record that the other side deleted; `unchanged`: the one here is as it was."""
        if change.schema in UNION:
            return _MergeDecision(left=KEPT_ENTRY.format(where=self._where), again=False)
        if unchanged:
            return _MergeDecision(Delete(change.id, there.rev), "deleted")
        clash = ForkClash(change.id, change.schema, f"deleted {self._where}, changed here")
        return await self._resolve(clash, None, Delete(change.id, there.rev))

    async def _decide_missing(self, change: ForkChange, theirs: Datum) -> _MergeDecision:
        """Decide about a record of the other side that is not here: new, or deleted here."""
        put = self.make_put(theirs, change.id, 0)
        if change.base is None:
            return _MergeDecision(put, "added")
        what = f"deleted here, changed {self._where}"
        if change.schema in GRANTS:
            return await self._resolve(
                ForkClash(change.id, change.schema, what, theirs=dict(theirs.data)), None, put
            )
        return await self._resolve(ForkClash(change.id, change.schema, what, change.id), put, put)

    async def _decide_both(
        self, change: ForkChange, theirs: Datum, there: Datum, beside: Datum | None
    ) -> _MergeDecision:
        """Decide about a record that both sides wrote; with `both` theirs gets another id where possible."""
        what = "changed on both sides" if change.base is not None else "made on both sides"
        put = self.make_put(theirs, change.id, there.rev)
        if change.schema in IN_PLACE:
            return await self._resolve(
                ForkClash(change.id, change.schema, what, theirs=dict(theirs.data)), None, put
            )
        id = make_copy_id(change)
        both = None if beside is not None else self.make_put(theirs, id, 0)
        return await self._resolve(ForkClash(change.id, change.schema, what, id), both, put)

    async def _resolve(self, clash: ForkClash, both: Op | None, theirs: Op) -> _MergeDecision:
        """Return the op that the choice for a conflict asks for; `mine` and an open one need none."""
        choice = await self.resolver.resolve(clash)
        if choice == "both":
            return _MergeDecision(both, clash=clash)
        kept = clash.id if choice == "theirs" and isinstance(theirs, Put) else ""
        clash = msgspec.structs.replace(clash, choice=choice, kept=kept)
        return _MergeDecision(
            theirs if choice == "theirs" else None, clash=clash, left=LEFT_OPEN if choice == OPEN else ""
        )

    def make_put(self, datum: Datum, id: str, expect: int | None) -> Put:
        """Return the op that stores a record of the other side here, under an id."""
        plain = datum.replace(id=id, rev=None, seq=None, updated_at=None)
        op = write.put_op(self._target.contracts, plain, expect)
        return write.add_author(op, self._target.author)


def _is_same_content(one: Datum | None, other: Datum | None) -> bool:
    """Check whether both sides have the same content, apart from the author."""
    return one is not None and other is not None and hash_record(one, False) == hash_record(other, False)


def make_copy_id(change: ForkChange) -> str:
    """Return the id for the other side's version of a record that both sides changed; the same each time."""
    mark = "" if change.theirs is None else hash_record(change.theirs).hex()[:12]
    id = f"{change.id}~{mark}"
    if len(id.encode()) <= ids.MAX_ID_BYTES:
        return id
    return f"{hashlib.sha256(change.id.encode()).hexdigest()}~{mark}"
