"""The membrane of a universe: put, get, list and delete records of its kinds, and insert rows of SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from dgent import clock, ids
from dgent.errors import Conflict, DecodeFailed, InputError, NotFound, VersionConflict
from dgent.membrane.record import PROPOSAL, ROOM, SCHEMAS, SESSION, TABLES, key_of, record_id
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import LIVE, Check, Delete, Expect, Forgotten, Op, Put
from dgent.universe import write
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

R = TypeVar("R")

ATTEMPTS = 200  # each of them means that somebody else committed

_SCHEMAS: dict[Any, Schema[Any]] = {each.contract: each for each in SCHEMAS}
_PARENTS: dict[str, Schema[Any]] = {"session_id": SESSION, "proposal_id": PROPOSAL}
_PREFIXES = {
    "cli_sessions": "cli",
    "cli_session_events": "evt",
    "cli_session_agents": "agt",
    "cli_session_artifacts": "art",
}
_BEGINS = ("started_at", "observed_at", "dreamed_at", "timestamp", "created_at", "updated_at")
"""Fields with the time of what a record is about, the first one first: lists are in its order."""

_MOMENTS = frozenset((*_BEGINS, "last_heartbeat", "proposed_at", "germinated_at", "promoted_at"))


def make_id(prefix: str) -> str:
    """Return a new id such as `cli_01a2b3c4d5e6`: unique, and short enough to type."""
    return f"{prefix}_{ids.new_id()[-12:]}"


class Membrane:
    """The membrane of a universe: `Membrane(u)`. Its services stand on this."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe.for_room(ROOM)
        self.universe.register(*SCHEMAS)
        universe.rooms.add(ROOM)

    async def put(self, *records: Any, new: bool = False, note: str | None = None) -> None:
        """Store records in one commit, each in place of the one with its key; with `new` that is a Conflict.

        Raises NotFound unless the session or proposal that a record belongs to is there, or comes with it.
        """
        ops: dict[str, Op] = {}
        for record in records:
            op = self._put(record, 0 if new else None)
            if op.id in ops:
                raise Conflict(f"the id {key_of(record)!r} is given twice", hint="use another id")
            ops[op.id] = op
        for id in {id for record in records for id in _find_parents(record)} - ops.keys():
            ops[id] = Check(id, LIVE)
        await self.commit(list(ops.values()), note=note)

    def _put(self, record: Any, expect: Expect) -> Put:
        return Put(self.datum_of(record), expect, None, True)

    def datum_of(self, record: Any) -> Datum:
        """Return the datum of a record as it is stored."""
        schema = _schema_of(type(record))
        datum, _ = write.new_datum(
            self.universe.contracts,
            record,
            schema=schema,
            id=record_id(schema, key_of(record)),
            author=self.universe.author,
            created_at=_begin_of(record),
        )
        return datum

    async def commit(self, ops: Sequence[Op], *, note: str | None = None) -> None:
        """Do all ops or none; raises Conflict for a key that is taken, NotFound for one that is needed."""
        if not ops:
            return
        try:
            await self.universe.commit(ops, note=note)
        except VersionConflict as error:
            schema, _, key = str(error.details.get("id", "")).partition("/")
            if error.details.get("expected") == 0:
                raise Conflict(f"a record {key!r} is there already", hint="use another id", id=key) from None
            raise NotFound(f"there is no {_describe(schema)} {key!r}", id=key) from None

    async def change(
        self, kind: type[R], key: str, work: Callable[[R], Sequence[Any]], *, note: str | None = None
    ) -> R | None:
        """Store what `work` makes of a record: its new version, and new records beside it.

        Of two who change it at once, the slower one works on what the other wrote. Nothing is stored, and
        None returned, where `work` returns nothing. Raises NotFound.
        """
        schema = _schema_of(kind)

        async def run(tx: Transaction) -> R | None:
            found = await tx.get(record_id(schema, key))
            if not isinstance(found, Crystal):
                raise NotFound(f"there is no {_describe(schema.name)} {key!r}", id=key)
            made = work(found.value)
            for number, record in enumerate(made):
                await tx.put(self.datum_of(record), expect=0 if number else None)
            return made[0] if made else None

        return await self.universe.transact(run, attempts=ATTEMPTS, note=note)

    async def get(self, kind: type[R], key: str) -> R | None:
        """Return the record of a kind with this key; None when there is none."""
        found = await self.universe.get(record_id(_schema_of(kind), key))
        return found.value if isinstance(found, Crystal) else None

    async def list(
        self, kind: type[R], *, limit: int | None = 100, newest: bool = True, **where: Any
    ) -> list[R]:
        """Return records of a kind whose fields have these values; None is any value."""
        wanted = {name: value for name, value in where.items() if value is not None}
        query = Query(schema=_schema_of(kind).name, where=wanted or None, limit=limit, descending=newest)
        return [each.value for each in await self.universe.recall(query)]

    async def delete(self, kind: type[Any], *keys: str) -> None:
        """Delete the records with these keys, where there are any."""
        await self.commit([Delete(record_id(_schema_of(kind), key)) for key in keys])

    async def forget(self, kind: type[Any], *keys: str) -> Forgotten:
        """Erase records and all their versions for good."""
        return await self.universe.forget(*(record_id(_schema_of(kind), key) for key in keys))

    async def insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False) -> int:
        """Insert rows as SQL gives them, in one commit; return how many. A key that is there is a Conflict.

        Missing columns get their defaults. JSON objects and lists may be given as text, times as ISO text or
        as seconds since 1970.
        """
        schema = _schema_of_table(table)
        records = [read_row(table, schema, row) for row in rows]
        await self.put(*records, new=not replace)
        return len(records)


def _schema_of(kind: type[Any]) -> Schema[Any]:
    try:
        return _SCHEMAS[kind]
    except KeyError:
        raise InputError(f"{kind.__name__} is not a kind of record of the membrane") from None


def _find_parents(record: Any) -> Iterator[str]:
    """Yield the ids of records without which a record means nothing."""
    for field, schema in _PARENTS.items():
        if hasattr(record, field):
            yield record_id(schema, getattr(record, field))


def _describe(schema: str) -> str:
    return schema.removeprefix("membrane.").removeprefix("cli_").replace("_", " ")


def _begin_of(record: Any) -> datetime:
    found: datetime = next(getattr(record, name) for name in _BEGINS if hasattr(record, name))
    return found


def _schema_of_table(table: str) -> Schema[Any]:
    if table not in TABLES:
        raise InputError(f"there is no table {table!r} here", hint=f"there are {', '.join(TABLES)}")
    return next(each for each in SCHEMAS if each.name == TABLES[table].schema)


# -- rows of SQL --------------------------------------------------------------------------------


def read_row(table: str, schema: Schema[Any], row: Mapping[str, Any]) -> Any:
    """Return the record of a row; InputError names a column that is not there or has a wrong value."""
    columns = TABLES[table].columns
    if unknown := [name for name in row if name not in columns]:
        hint = f"it has {', '.join(columns)}"
        raise InputError(f"{table} has no column {unknown[0]!r}", hint=hint, field=str(unknown[0]))
    kinds = schema.shape.fields
    given = {name: _read_value(name, kinds[name], value) for name, value in row.items() if value is not None}
    try:
        return schema.shape.decode(_fill(table, schema, given))
    except DecodeFailed as error:
        wrong = "; ".join(f"{name} {reason}" for name, reason in error.details["fields"].items())
        raise InputError(f"a row of {table} is wrong: {wrong}") from None


def _fill(table: str, schema: Schema[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with those that follow from nothing but the moment."""
    key, now = TABLES[table].key, clock.text(clock.now())
    if key == "id":
        given.setdefault("id", make_id(_PREFIXES[table]) if table in _PREFIXES else ids.new_id())
    for name in _MOMENTS & schema.shape.fields.keys() - schema.shape.defaults.keys():
        given.setdefault(name, now)
    return given


def _read_value(name: str, kind: str, value: Any) -> Any:
    """Return a value of a column as its field has it; `kind` describes the field's type."""
    if "datetime" in kind:
        return _read_time(name, value)
    if kind == "bool" and value in (0, 1):
        return bool(value)
    if kind == "any" and isinstance(value, str):
        return read_json(value)
    return value


def read_json(text: str) -> Any:
    """Return a JSON object or list given as text; any other text as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_time(name: str, value: Any) -> str:
    """Return a time as stored text; one without a zone is taken as UTC."""
    try:
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value, UTC)
        else:
            moment = datetime.fromisoformat(value)
        return clock.text(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except (TypeError, ValueError, OverflowError, OSError):
        hint = "use ISO text such as 2026-01-31T12:00:00Z, or seconds since 1970"
        raise InputError(f"expected a time for {name!r}, got {value!r:.60}", hint=hint, field=name) from None
