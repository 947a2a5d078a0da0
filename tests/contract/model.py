"""The contract in plain dictionaries: what every engine is compared with, written to be read.

It keeps whole versions and has no index. A `Life` is one record from its first commit to its
forgetting, so a forgotten id that comes back is another life.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dgent import clock
from dgent.errors import HistoryGone, KeyReused, NewerRecord, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    LIVE,
    Change,
    Commit,
    Committed,
    Declaration,
    Delete,
    Forgotten,
    Item,
    Keep,
    Op,
    Put,
    Version,
    View,
    Written,
)
from dgent.store.tally import Counts, Tally, count_records
from dgent.testing.contract import DAY, expected_ids


class Life:
    """One record, oldest version first; `schemas` also knows the schema of a deletion."""

    def __init__(self, id: str, born: int, first_rev: int) -> None:
        self.id, self.born, self.first_rev = id, born, first_rev
        self.versions: list[Version] = []
        self.schemas: dict[int, str | None] = {}

    @property
    def now(self) -> Version:
        return self.versions[-1]

    @property
    def schema(self) -> str | None:
        return self.schemas[self.now.rev]

    def at(self, seq: int) -> Version | None:
        """The version at a seq; HistoryGone when a rule removed it."""
        for version in reversed(self.versions):
            if version.seq <= seq:
                return version
        if self.versions[0].rev > self.first_rev:
            raise HistoryGone(f"{self.id} at {seq}")
        return None

    def was_of(self, schema: str) -> bool:
        return any(self.schemas[version.rev] == schema for version in self.versions)


class Entry:
    """A commit in the log, and the lives it names."""

    def __init__(self, seq: int, at: int, commit: Commit) -> None:
        self.seq, self.at, self.commit = seq, at, commit
        self.note, self.work = commit.note, [_work(op) for op in commit.ops]
        self.known = True  # False once part of what it did was forgotten
        self.items: list[tuple[str, int, Life | None]] = []
        self.lives: list[Life] = []
        self.answer = Committed(seq)


def exact(value: Any) -> Any:
    """A form that equals only the same: Python alone takes 1, 1.0 and True for equal."""
    if isinstance(value, Datum):
        return "Datum", repr(value.data), value.replace(data={})
    if isinstance(value, msgspec.Struct):
        if isinstance(value, Forgotten):
            value = msgspec.structs.replace(value, remains="")  # the only thing that engines say differently
        return type(value).__name__, *map(exact, msgspec.structs.astuple(value))
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return value


def _work(op: Op) -> tuple[object, ...]:
    datum = _unstored(op.datum).replace(created_at=DAY) if isinstance(op, Put) else None
    return type(op), op.id, op.expect, exact(datum)


class Model:
    """A backend, as far as it can be compared."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.revs: dict[str, int] = {}
        self.seq = self.at = self.floor = self.born = 0
        self.log: list[Entry] = []
        self.keys: dict[str, Entry] = {}
        self.declared: dict[str, Declaration] = {}

    # -- writing --------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        if commit.key is not None and commit.key in self.keys:
            earlier = self.keys[commit.key]
            if not earlier.known or earlier.work != [_work(op) for op in commit.ops]:
                raise KeyReused("other work")
            return Committed(earlier.seq, earlier.answer.written, repeated=True)
        changing = [self._judge(op, commit) for op in commit.ops]
        if commit.key is None and not any(changing):
            return Committed(self.seq, tuple(map(self._unchanged, commit.ops)))
        entry = self._enter(commit)
        written = []
        for op, changes in zip(commit.ops, changing, strict=True):
            written.append(self._apply(op, entry) if changes else self._unchanged(op))
            if op.id in self.lives and (changes or commit.key is not None):
                entry.lives.append(self.lives[op.id])
        entry.answer = Committed(self.seq, tuple(written))
        if commit.key is not None:
            self.keys[commit.key] = entry
        return entry.answer

    def _enter(self, commit: Commit) -> Entry:
        self.seq += 1
        self.at = max(self.at, clock.now_us())
        self.log.append(Entry(self.seq, self.at, commit))
        return self.log[-1]

    def _live(self, id: str) -> Version | None:
        life = self.lives.get(id)
        return life.now if life is not None and life.now.datum is not None else None

    def _judge(self, op: Op, commit: Commit) -> bool:
        """Whether an op will change something; raises when it may not."""
        live = self._live(op.id)
        rev = 0 if live is None else live.rev
        if op.expect in (0, LIVE) and live is not None and self._shown(live.datum) is None:
            rev = 0
        if op.expect is not None and (rev == 0 if op.expect == LIVE else rev != op.expect):
            raise VersionConflict(op.id)
        if not isinstance(op, Put):
            return isinstance(op, Delete) and live is not None
        if live is None or live.datum is None:
            return True
        new, old = op.datum, live.datum
        older = (new.schema_version or 0) < (old.schema_version or 0)
        if older and new.schema == old.schema and commit.kind != "undo":
            raise NewerRecord(op.id)
        return exact(_stored(new, commit, old.created_at)) != exact(_unstored(old))

    def _unchanged(self, op: Op) -> Written:
        life = self.lives.get(op.id)
        if life is None:
            return Written(op.id, 0, 0, False)
        return Written(op.id, life.now.rev, life.now.seq, False, clock.to_us(life.now.at))

    def _apply(self, op: Op, entry: Entry) -> Written:
        rev = self.revs[op.id] = self.revs.get(op.id, 0) + 1
        live = self._live(op.id)
        if op.id not in self.lives:
            self.born += 1
            self.lives[op.id] = Life(op.id, self.born, rev)
        life = self.lives[op.id]
        datum = None
        if isinstance(op, Put):
            created_at = op.datum.created_at if live is None or live.datum is None else live.datum.created_at
            datum = _stored(op.datum, entry.commit, created_at)
            datum = datum.replace(rev=rev, seq=self.seq, updated_at=clock.from_us(self.at))
        rule = self._rule(life)
        life.schemas[rev] = life.schema if datum is None else datum.schema
        kind: Any = "delete" if datum is None else "put"
        life.versions.append(Version(op.id, rev, self.seq, clock.from_us(self.at), kind, datum))
        if rule != "all":
            life.versions = life.versions[-1 - (0 if rule == "none" else int(rule)) :]
        entry.items.append((kind, rev, life))
        return Written(op.id, rev, self.seq, True, self.at)

    def _rule(self, life: Life) -> str | int:
        """How much history the schema of the version that is replaced keeps."""
        schema = life.schema if life.versions else None
        return self.declared[schema].history if schema in self.declared else "all"

    # -- reading --------------------------------------------------------------------------

    async def get(self, id: str, as_of: int | None = None) -> Datum | None:
        life = self.lives.get(id)
        version = None if life is None else life.now if as_of is None else life.at(as_of)
        return None if version is None else self._shown(version.datum, as_of)

    def _shown(self, datum: Datum | None, as_of: int | None = None, expired: bool = False) -> Datum | None:
        """The version, if it has not expired at the moment of a read; or only if it has."""
        if as_of is None or as_of >= self.seq:
            moment = max(self.at, clock.now_us())
        else:
            moment = min(e.at for e in self.log if e.seq >= as_of)
        expires = None if datum is None else datum.expires_at
        return datum if (expires is not None and clock.to_us(expires) <= moment) == expired else None

    async def history(self, id: str, limit: int | None) -> list[tuple[object, ...]]:
        life = self.lives.get(id)
        if life is None:
            return []
        notes = {e.seq: (e.commit.author, e.note) for e in self.log if e.seq > self.floor}
        return [
            (v.rev, v.seq, v.at, v.op, v.datum, *notes.get(v.seq, (None, None)))
            for v in life.versions[::-1][:limit]
        ]

    async def query(self, query: Query, view: View, as_of: int | None = None) -> list[Datum]:
        if as_of is not None and as_of < self.floor:
            raise HistoryGone("compacted")
        records: dict[str, Datum] = {}
        for life in sorted(self.lives.values(), key=lambda life: life.born):
            try:
                version = life.now if as_of is None else life.at(as_of)
            except HistoryGone:
                if self._was_made_after(life, as_of or 0):
                    continue  # the log says so, whatever became of its versions
                if query.schema is None or life.was_of(query.schema):
                    raise
                continue
            if (
                version is not None
                and (datum := self._shown(version.datum, as_of, query.expired)) is not None
            ):
                records[life.id] = datum
        return [records[id] for id in expected_ids(list(records.values()), query, view)]

    def _was_made_after(self, life: Life, seq: int) -> bool:
        made = (entry.seq for entry in self.log for _, rev, of in entry.items if of is life and rev == 1)
        return next(made, 0) > seq

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        return len(await self.query(query.replace(limit=None, offset=0), view, as_of))

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        return count_records(tally, view, await self.query(tally.everything(), view, as_of))

    async def changes(self, since: int, limit: int) -> list[Change]:
        if since < self.floor:
            raise HistoryGone("compacted")
        found = [self._change(entry) for entry in self.log if entry.seq > since]
        return [change for change in found if change.items][:limit]

    def _change(self, entry: Entry) -> Change:
        items = []
        for kind, rev, life in entry.items:
            if life is None:
                items.append(Item("forget", None, rev))
            elif self.lives.get(life.id) is life:
                kept = {version.rev: version.datum for version in life.versions}
                put = kind == "put"
                datum = kept.get(rev if put else rev - 1)
                schema = life.schema if datum is None else datum.schema
                shown, last = (datum, None) if put else (None, datum)
                items.append(Item("put" if put else "delete", life.id, rev, schema, shown, last))
        of = entry.commit
        at = clock.from_us(entry.at)
        return Change(entry.seq, at, of.author, of.kind, tuple(items), entry.note, of.of_seq)

    async def last_seq(self) -> int:
        return self.seq

    # -- upkeep ---------------------------------------------------------------------------

    async def declare(self, declaration: Declaration) -> None:
        known = self.declared.get(declaration.name)
        if known is None or declaration.version >= known.version:
            self.declared[declaration.name] = declaration

    async def forget(
        self,
        ids: list[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        known = [id for id in dict.fromkeys(ids) if id in self.lives]
        wanted = [id for id in known if not (only_deleted and self.lives[id].now.datum is not None)]
        gone = [self.lives.pop(id) for id in wanted]
        if not gone:
            return Forgotten(self.seq, 0, 0, True)
        for entry in {*self.log, *self.keys.values()}:
            if any(life in gone for life in entry.lives):
                entry.note, entry.known = None, False
        entry = self._enter(Commit([], author=author, kind="forget"))
        entry.items = [("forget", life.now.rev, None) for life in gone]
        versions = sum(len(life.versions) - (life.now.datum is None) for life in gone)
        return Forgotten(self.seq, len(gone), versions, True)

    async def compact(self, keep: Keep) -> int:
        removed, floor = 0, 0
        for life in self.lives.values():
            if keep.schema is None or life.schema == keep.schema:
                first = _first_kept(life, keep)
                removed += first
                floor = max(floor, life.versions[first].seq) if first else floor
                life.versions = life.versions[first:]
        if keep.after is not None and keep.versions is None:
            until = clock.to_us(keep.after)
            floor = max([floor, *(entry.seq for entry in self.log if entry.at <= until)])
        if keep.schema is None and floor > self.floor:
            self.floor = floor
            keyed = set(self.keys.values())
            self.log = [e for e in self.log if e.seq > floor or e.seq == self.seq or e in keyed]
        return removed


def _stored(datum: Datum, commit: Commit, created_at: datetime) -> Datum:
    return _unstored(datum).replace(author=datum.author or commit.author, created_at=created_at)


def _unstored(datum: Datum) -> Datum:
    return datum.replace(rev=None, seq=None, updated_at=None)


def _first_kept(life: Life, keep: Keep) -> int:
    """The place of the oldest version that a rule keeps; both parts must agree to remove one."""
    first = len(life.versions) - 1
    if keep.versions is not None:
        first = min(first, max(0, len(life.versions) - 1 - keep.versions))
    if keep.after is not None:
        by_then = [place for place, version in enumerate(life.versions) if version.at <= keep.after]
        first = min(first, by_then[-1] if by_then else 0)
    return first
