"""Merge large states of agents: the record and the steps that build on it are merged as one thing.

Each step of a state is a small record. Some steps of one side and some of the other would be no state.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dgent.errors import TransactionConflict, VersionConflict
from dgent.exchange.fork.ancestry import Ancestry
from dgent.exchange.fork.baseline import Base, hash_record
from dgent.exchange.fork.records import ATTEMPTS, FORGOTTEN, ForkChange, RecordMerge, make_copy_id
from dgent.exchange.fork.report import ForkClash
from dgent.exchange.fork.resolve import LEFT_OPEN, OPEN
from dgent.flow.delta import read_whole
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Delete, Guard, Op
from dgent.store.upkeep import forgotten_among
from dgent.universe.parts import OF, SCHEMA, can_have_parts, find_parts, split_id
from dgent.universe.universe import Universe

_BOTH = "both sides took steps"


def find_state(id: str, schema: str) -> str | None:
    """Return the id of the state that a record is or belongs to; None for any other record."""
    if schema == SCHEMA:
        return split_id(id)[0] or None
    return id if schema == OF and can_have_parts(id) else None


class StateMerge:
    """Collects the states that the other side changed, and merges each as a whole."""

    def __init__(
        self, source: Universe, target: Universe, base: Base, records: RecordMerge, ancestry: Ancestry | None
    ) -> None:
        self._source, self._target, self._base = source, target, base
        self._records, self._ancestry = records, ancestry
        self._changed: dict[str, list[str]] = {}

    def takes(self, change: ForkChange) -> bool:
        """Keep a change of a state for later; False for a change of any other record."""
        state = find_state(change.id, change.schema)
        if state is not None:
            self._changed.setdefault(state, []).append(change.id)
        return state is not None

    async def merge(self) -> None:
        """Merge all states that the other side changed."""
        for id, changed in self._changed.items():
            for attempt in range(ATTEMPTS):
                try:
                    await self._merge(id, changed)
                    break
                except (VersionConflict, TransactionConflict):
                    if attempt == ATTEMPTS - 1:
                        raise

    async def _merge(self, id: str, changed: list[str]) -> None:
        seq = await self._target.seq()
        ours, theirs = await _read(self._target, id), await _read(self._source, id)
        if _hash_all(ours) == _hash_all(theirs):
            return
        records, clash = self._records, None
        if id not in ours and await forgotten_among(self._target.backend, [id]):
            for each in changed:
                records.tally.skip(each, OF, FORGOTTEN)
            return
        ops = self._take_theirs(ours, theirs)
        if await self._is_changed_here(id, ours):
            clash, ops = await self._resolve(id, ops)
        if ops and not records.dry_run:
            guard = Guard(seq, frozenset((id,)), (Query(schema=SCHEMA, prefix=f"{id}+", limit=None),))
            await self._target.commit(ops, guard=guard, note=records.note, kind="merge")
        if clash is None:
            records.tally.counts["changed" if id in ours else "added"] += 1
            return
        records.tally.conflicts.append(clash)
        for each in changed if clash.choice == OPEN else ():
            records.tally.skip(each, OF, LEFT_OPEN)

    def _take_theirs(self, ours: Mapping[str, Datum], theirs: Mapping[str, Datum]) -> list[Op]:
        """Return the ops that make our state theirs."""
        ops: list[Op] = [Delete(id, datum.rev) for id, datum in ours.items() if id not in theirs]
        for id, datum in theirs.items():
            there = ours.get(id)
            if there is None or hash_record(there, False) != hash_record(datum, False):
                ops.append(self._records.make_put(datum, id, 0 if there is None else there.rev))
        return ops

    async def _resolve(self, id: str, take: list[Op]) -> tuple[ForkClash, list[Op]]:
        """Return the conflict with what was chosen for it; with `both` theirs is kept whole beside ours."""
        whole = await read_whole(self._source, id)
        kept = "" if whole is None else make_copy_id(ForkChange(id, None, whole))
        clash = ForkClash(id, OF, _BOTH, kept)
        choice = await self._records.resolver.resolve(clash)
        if choice == "both":
            if whole is None or await self._target.get(kept, raw=True) is not None:
                return clash, []
            return clash, [self._records.make_put(whole, kept, 0)]
        clash = msgspec.structs.replace(clash, choice=choice, kept=id if choice == "theirs" else "")
        return clash, take if choice == "theirs" else []

    async def _is_changed_here(self, id: str, ours: Mapping[str, Datum]) -> bool:
        """Return whether this side took steps since the base, or went back some."""
        known = {each for each in self._base if each == id or split_id(each)[0] == id}
        for each in known | ours.keys():
            entry, here = self._base.get(each), None
            if self._ancestry is not None:
                entry, here = await self._ancestry.find_record_base(each)
            was = here or (None if entry is None else entry.fingerprint)
            if was != (hash_record(ours[each]) if each in ours else None):
                return True
        return False


async def _read(universe: Universe, id: str) -> dict[str, Datum]:
    """Return the record of a state and all of its steps, by id."""
    record: Datum | None = await universe.get(id, raw=True)
    parts = await find_parts(universe, id)
    return {each.id: each for each in ([] if record is None else [record]) + parts}


def _hash_all(state: Mapping[str, Datum]) -> dict[str, bytes]:
    return {id: hash_record(datum, False) for id, datum in state.items()}
