"""Records three ways: as they were at the fork point, as they are in the fork, and as they are here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from dgent import ids
from dgent.blocks.record import AGENT, AUDIT, CHECKPOINT, ENTRY, GROUP, MEMBER, ROOM, SHARE
from dgent.errors import VersionConflict
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import Known, proof
from dgent.exchange.fork.report import ForkClash, Tally
from dgent.model.datum import Datum
from dgent.store.backend import Delete, Op, Put
from dgent.store.upkeep import forgotten_among
from dgent.universe import write
from dgent.universe.universe import Universe

ATTEMPTS = 50
UNION = frozenset((ENTRY.name, AUDIT.name))
"""What either side has stays: these never change, and only ever become more."""
IN_PLACE = frozenset((AGENT.name, GROUP.name, MEMBER.name, SHARE.name, CHECKPOINT.name))
"""What their id means cannot be there twice: of a share, a second one would be a second permission."""

GRANTS = frozenset((MEMBER.name, SHARE.name))
"""What gives an agent a permission: what was taken back here stays so."""

OTHER_ROOM = "its room has rules over many records that a merge of records cannot keep"
FORGOTTEN = "it was forgotten here, and stays so"
KEPT_ENTRY = "merged by union: what the fork deleted stays here"
UNREADABLE = "it cannot be read in the fork"


class Side(NamedTuple):
    """A record that the fork has, had, or both; None where it is not."""

    id: str
    base: Known | None
    fork: Datum | None
    here: bytes | None = None  # the proof of the base here, where it has another author than in the fork

    @property
    def schema(self) -> str:
        """Its schema."""
        if self.fork is not None:
            return self.fork.schema or ""
        return "" if self.base is None else self.base.schema

    @property
    def is_changed(self) -> bool:
        """Whether the fork did anything to it."""
        was = None if self.base is None else self.base.proof
        return was != (None if self.fork is None else proof(self.fork))


class _Verdict(NamedTuple):
    """What to do about one record, and what to tell of it."""

    op: Op | None = None
    counted: str = ""
    clash: ForkClash | None = None
    left: str = ""


class Records:
    """Merging records that are no blocks, some at a time."""

    def __init__(
        self,
        target: Universe,
        owners: dict[str, str | None],
        tally: Tally,
        note: str,
        dry_run: bool,
        ancestry: Ancestry | None = None,
    ) -> None:
        self._target, self._owners, self._tally = target, owners, tally
        self._note, self._dry_run, self._ancestry = note, dry_run, ancestry

    async def merge(self, sides: Sequence[Side]) -> None:
        """Merge some records: all of one room in one commit, tried again when somebody else was faster."""
        rooms: dict[str | None, list[Side]] = {}
        for side in sides:
            owner = self._owners.get(side.schema)
            if owner in (None, ROOM):
                rooms.setdefault(owner, []).append(side)
            else:
                self._tally.leave(side.id, side.schema, OTHER_ROOM)
        for room, some in rooms.items():
            await self._merge(room, some)

    async def _merge(self, room: str | None, sides: Sequence[Side]) -> None:
        universe = self._target if room is None else self._target.for_room(room)
        for attempt in range(ATTEMPTS):
            verdicts = await self._verdicts(sides)
            ops = [each.op for each in verdicts if each.op is not None]
            try:
                if ops and not self._dry_run:
                    await universe.commit(ops, note=self._note, kind="merge")
                break
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
        for side, verdict in zip(sides, verdicts, strict=True):
            self._tell(side, verdict)

    def _tell(self, side: Side, verdict: _Verdict) -> None:
        if verdict.left:
            self._tally.leave(side.id, side.schema, verdict.left, verdict.left != KEPT_ENTRY)
        if verdict.clash is not None:
            self._tally.conflicts.append(verdict.clash)
        if verdict.counted:
            self._tally.counts[verdict.counted] += 1
            self._tally.counts["entries"] += verdict.counted == "added" and side.schema == ENTRY.name

    async def _verdicts(self, sides: Sequence[Side]) -> list[_Verdict]:
        names = [side.id for side in sides] + [_beside(side) for side in sides]
        found: list[Datum | None] = await self._target.get_many(names, raw=True)
        absent = [id for id, there in zip(names, found, strict=True) if there is None]
        gone = await forgotten_among(self._target.backend, absent) if absent else frozenset()
        there, beside = found[: len(sides)], found[len(sides) :]
        if self._ancestry is not None:
            sides = [await self._compared(*pair) for pair in zip(sides, there, strict=True)]
        return [
            self._verdict(side, here, other, side.id in gone)
            for side, here, other in zip(sides, there, beside, strict=True)
        ]

    async def _compared(self, side: Side, there: Datum | None) -> Side:
        """The record with the newest version that both sides have had as its base."""
        if self._ancestry is None or side.fork is None or _say_the_same(side.fork, there):
            return side
        base, here = await self._ancestry.of_record(side.id)
        return side._replace(base=base, here=here)

    def _verdict(self, side: Side, there: Datum | None, beside: Datum | None, gone: bool) -> _Verdict:
        was = None if side.base is None else side.base.proof
        was_here = was if side.here is None else side.here
        theirs = None if side.fork is None else proof(side.fork)
        ours = None if there is None else proof(there)
        if theirs in (was, ours) or _say_the_same(side.fork, there):
            return _Verdict()
        if side.fork is None:
            assert there is not None, "what is gone on both sides is the same"
            if side.schema in UNION:
                return _Verdict(left=KEPT_ENTRY)
            if ours == was_here:
                return _Verdict(Delete(side.id, there.rev), "deleted")
            return _Verdict(clash=ForkClash(side.id, side.schema, "deleted in the fork, changed here"))
        if side.fork.problem is not None:
            return _Verdict(left=UNREADABLE)
        if there is None:
            if gone:
                return _Verdict(left=FORGOTTEN)
            put = self._put(side.fork, side.id, 0)
            if was is None:
                return _Verdict(put, "added")
            what = "deleted here, changed in the fork"
            if side.schema in GRANTS:
                theirs_now = dict(side.fork.data)
                return _Verdict(clash=ForkClash(side.id, side.schema, what, theirs=theirs_now))
            return _Verdict(put, clash=ForkClash(side.id, side.schema, what, side.id))
        if ours == was_here and there.schema == side.fork.schema:
            return _Verdict(self._put(side.fork, side.id, there.rev), "changed")
        return self._both(side, side.fork, beside)

    def _both(self, side: Side, theirs: Datum, beside: Datum | None) -> _Verdict:
        """Both sides wrote it: ours stays, and theirs is kept under another id where that is possible."""
        what = "changed on both sides" if side.base is not None else "made on both sides"
        if side.schema in IN_PLACE:
            return _Verdict(clash=ForkClash(side.id, side.schema, what, theirs=dict(theirs.data)))
        id = _beside(side)
        put = None if beside is not None else self._put(theirs, id, 0)
        return _Verdict(put, clash=ForkClash(side.id, side.schema, what, id))

    def _put(self, datum: Datum, id: str, expect: int | None) -> Put:
        plain = datum.replace(id=id, rev=None, seq=None)
        op = write.put_op(self._target.contracts, plain, expect)
        return write.add_author(op, self._target.author)


def _say_the_same(one: Datum | None, other: Datum | None) -> bool:
    """Whether two sides wrote the same, whoever did."""
    return one is not None and other is not None and proof(one, False) == proof(other, False)


def _beside(side: Side) -> str:
    """Where the fork's version of a record is kept when both sides changed it; the same each time."""
    mark = "" if side.fork is None else proof(side.fork).hex()[:12]
    id = f"{side.id}~{mark}"
    if len(id.encode()) <= ids.MAX_ID_BYTES:
        return id
    return f"{hashlib.sha256(side.id.encode()).hexdigest()}~{mark}"
