"""Three-way merge of records: as in the base, as in the fork, and as here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from dgent import ids
from dgent.blocks.record import AGENT, AUDIT, CHECKPOINT, ENTRY, GROUP, MEMBER, ROOM, SHARE
from dgent.errors import VersionConflict
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import BaseEntry, hash_record
from dgent.exchange.fork.report import ForkClash, MergeTally
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.universe import Universe

ATTEMPTS = 50
UNION = frozenset((ENTRY.name, AUDIT.name))
"""Schemas merged by union: their records never change, and are only added."""
IN_PLACE = frozenset((AGENT.name, GROUP.name, MEMBER.name, SHARE.name, CHECKPOINT.name))
"""Schemas whose records cannot exist twice: a second share would be a second permission."""

GRANTS = frozenset((MEMBER.name, SHARE.name))
"""Schemas that give an agent a permission: what was revoked here stays revoked."""

OTHER_ROOM = "its room has rules across records that a merge cannot enforce"
FORGOTTEN = "it was forgotten here, and stays forgotten"
KEPT_ENTRY = "merged by union: what the fork deleted stays here"
UNREADABLE = "it cannot be read in the fork"


class ForkChange(NamedTuple):
    """A record in the base and in the fork; None where it does not exist."""

    id: str
    base: BaseEntry | None
    fork: Datum | None
    here: bytes | None = None  # hash of the base here, if its author differs from the fork

    @property
    def schema(self) -> str:
        """Its schema."""
        if self.fork is not None:
            return self.fork.schema or ""
        return "" if self.base is None else self.base.schema

    @property
    def is_changed(self) -> bool:
        """True when the fork changed it."""
        was = None if self.base is None else self.base.fingerprint
        return was != (None if self.fork is None else hash_record(self.fork))


class _MergeDecision(NamedTuple):
    """The decision about one record: the op, and what to report."""

    op: Op | None = None
    counted: str = ""
    clash: ForkClash | None = None
    left: str = ""


class RecordMerge:
    """Merges records other than blocks, in batches."""

    def __init__(
        self,
        target: Universe,
        owners: dict[str, str | None],
        tally: MergeTally,
        note: str,
        dry_run: bool,
        ancestry: Ancestry | None = None,
    ) -> None:
        self._target, self._owners, self._tally = target, owners, tally
        self._note, self._dry_run, self._ancestry = note, dry_run, ancestry

    async def merge(self, changes: Sequence[ForkChange]) -> None:
        """Merge some records, those of one room in one commit, repeated after a conflict."""
        rooms: dict[str | None, list[ForkChange]] = {}
        for change in changes:
            owner = self._owners.get(change.schema)
            if owner in (None, ROOM):
                rooms.setdefault(owner, []).append(change)
            else:
                self._tally.skip(change.id, change.schema, OTHER_ROOM)
        for room, some in rooms.items():
            await self._merge(room, some)

    async def _merge(self, room: str | None, changes: Sequence[ForkChange]) -> None:
        universe = self._target if room is None else self._target.for_room(room)
        for attempt in range(ATTEMPTS):
            decisions = await self._decide_all(changes)
            ops = [each.op for each in decisions if each.op is not None]
            try:
                if ops and not self._dry_run:
                    await universe.commit(ops, note=self._note, kind="merge")
                break
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
        for change, decision in zip(changes, decisions, strict=True):
            self._count(change, decision)

    def _count(self, change: ForkChange, decision: _MergeDecision) -> None:
        if decision.left:
            self._tally.skip(change.id, change.schema, decision.left, decision.left != KEPT_ENTRY)
        if decision.clash is not None:
            self._tally.conflicts.append(decision.clash)
        if decision.counted:
            self._tally.counts[decision.counted] += 1
            self._tally.counts["entries"] += decision.counted == "added" and change.schema == ENTRY.name

    async def _decide_all(self, changes: Sequence[ForkChange]) -> list[_MergeDecision]:
        names = [change.id for change in changes] + [_make_copy_id(change) for change in changes]
        found: list[Datum | None] = await self._target.get_many(names, raw=True)
        absent = [id for id, there in zip(names, found, strict=True) if there is None]
        gone = await forgotten_among(self._target.backend, absent) if absent else frozenset()
        there, beside = found[: len(changes)], found[len(changes) :]
        if self._ancestry is not None:
            changes = [await self._find_base(*pair) for pair in zip(changes, there, strict=True)]
        return [
            self._decide(change, here, other, change.id in gone)
            for change, here, other in zip(changes, there, beside, strict=True)
        ]

    async def _find_base(self, change: ForkChange, there: Datum | None) -> ForkChange:
        """Return the change with the newest version that both sides have had as its base."""
        if self._ancestry is None or change.fork is None or _is_same_content(change.fork, there):
            return change
        base, here = await self._ancestry.find_record_base(change.id)
        return change._replace(base=base, here=here)

    def _decide(
        self, change: ForkChange, there: Datum | None, beside: Datum | None, gone: bool
    ) -> _MergeDecision:
        was = None if change.base is None else change.base.fingerprint
        was_here = was if change.here is None else change.here
        theirs = None if change.fork is None else hash_record(change.fork)
        ours = None if there is None else hash_record(there)
        if theirs in (was, ours) or _is_same_content(change.fork, there):
            return _MergeDecision()
        if change.fork is None:
            assert there is not None, "a record deleted on both sides is equal"
            return self._decide_deleted(change, there, ours == was_here)
        if change.fork.problem is not None:
            return _MergeDecision(left=UNREADABLE)
        if there is None:
            return _MergeDecision(left=FORGOTTEN) if gone else self._decide_missing(change, change.fork)
        if ours == was_here and there.schema == change.fork.schema:
            return _MergeDecision(self._put(change.fork, change.id, there.rev), "changed")
        return self._keep_both(change, change.fork, beside)

    def _decide_deleted(self, change: ForkChange, there: Datum, unchanged: bool) -> _MergeDecision:
        """Decide about a record that the fork deleted; `unchanged`: the one here is as it was."""
        if change.schema in UNION:
            return _MergeDecision(left=KEPT_ENTRY)
        if unchanged:
            return _MergeDecision(Delete(change.id, there.rev), "deleted")
        return _MergeDecision(clash=ForkClash(change.id, change.schema, "deleted in the fork, changed here"))

    def _decide_missing(self, change: ForkChange, fork: Datum) -> _MergeDecision:
        """Decide about a record of the fork that is not here: new, or deleted here."""
        put = self._put(fork, change.id, 0)
        if change.base is None:
            return _MergeDecision(put, "added")
        what = "deleted here, changed in the fork"
        if change.schema in GRANTS:
            return _MergeDecision(clash=ForkClash(change.id, change.schema, what, theirs=dict(fork.data)))
        return _MergeDecision(put, clash=ForkClash(change.id, change.schema, what, change.id))

    def _keep_both(self, change: ForkChange, theirs: Datum, beside: Datum | None) -> _MergeDecision:
        """Decide about a record that both sides wrote: ours stays, theirs gets another id where possible."""
        what = "changed on both sides" if change.base is not None else "made on both sides"
        if change.schema in IN_PLACE:
            return _MergeDecision(clash=ForkClash(change.id, change.schema, what, theirs=dict(theirs.data)))
        id = _make_copy_id(change)
        put = None if beside is not None else self._put(theirs, id, 0)
        return _MergeDecision(put, clash=ForkClash(change.id, change.schema, what, id))

    def _put(self, datum: Datum, id: str, expect: int | None) -> Put:
        plain = datum.replace(id=id, rev=None, seq=None, updated_at=None)
        op = write.put_op(self._target.contracts, plain, expect)
        return write.add_author(op, self._target.author)


def _is_same_content(one: Datum | None, other: Datum | None) -> bool:
    """Check whether both sides have the same content, apart from the author."""
    return one is not None and other is not None and hash_record(one, False) == hash_record(other, False)


def _make_copy_id(change: ForkChange) -> str:
    """Return the id for the fork's version of a record that both sides changed; the same each time."""
    mark = "" if change.fork is None else hash_record(change.fork).hex()[:12]
    id = f"{change.id}~{mark}"
    if len(id.encode()) <= ids.MAX_ID_BYTES:
        return id
    return f"{hashlib.sha256(change.id.encode()).hexdigest()}~{mark}"
