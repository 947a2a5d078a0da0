"""Import the items of LangGraph's stores, with their times to live and their vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import InvalidNamespaceError
from langgraph.store.base import _validate_namespace as check_namespace

from dgent import clock
from dgent.bridges.langgraph import item as items
from dgent.bridges.langgraph.opaque import DAMAGE
from dgent.bridges.langgraph.thread import ATTEMPTS
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.exchange.foreign.database import parse_moment
from dgent.exchange.foreign.migration import (
    DIFFERENT,
    FORGOTTEN,
    MigrationTally,
    commit_checked,
    find_forgotten,
    is_same_data,
)
from dgent.model.datum import Datum
from dgent.store.backend import Op, Put
from dgent.store.sqlite.foreign import ForeignDatabase, ForeignRow
from dgent.universe.universe import Universe

NOTE = "import from LangGraph"


class ItemImport:
    """The import of the items of a store; `distance` is that of the index that their vectors are for."""

    def __init__(self, universe: Universe, tally: MigrationTally, distance: str, dry_run: bool) -> None:
        universe.register(items.ITEM)
        self._universe, self.tally = universe, tally
        self._distance, self.dry_run = distance, dry_run

    async def take(self, rows: Sequence[ForeignRow], database: ForeignDatabase | None = None) -> None:
        """Import items of a store, with their vectors where the file has some."""
        new: dict[str, tuple[ForeignRow, list[Datum]]] = {}
        for row in rows:
            try:
                datum = _read_item(row)
                vectors = [] if database is None else self._read_vectors(row, datum, database)
                if vectors:
                    datum = datum.replace(
                        data={**datum.data, "vectors": [each.data["path"] for each in vectors]}
                    )
                parts = [datum, *vectors]
                for each in parts:
                    each.check()
            except InputError as error:
                self.tally.leave("items", row.table, row.number, error.message)
                continue
            new[datum.id] = row, parts
        for _ in range(ATTEMPTS):
            try:
                return await self._put_items(new)
            except VersionConflict:
                continue
        raise Conflict("the items of the imported store keep changing")

    async def _put_items(self, new: Mapping[str, tuple[ForeignRow, list[Datum]]]) -> None:
        there = await self._universe.get_many(list(new), raw=True)
        gone = await find_forgotten(self._universe, list(new))
        ops: list[Op] = []
        verdicts: list[tuple[ForeignRow, str, int]] = []
        for (id, (row, (datum, *parts))), found in zip(new.items(), there, strict=True):
            vectors = sum("path" in each.data for each in parts)
            if id in gone or (found is not None and not _is_same_item(found, datum)):
                verdicts.append((row, FORGOTTEN if id in gone else DIFFERENT, vectors))
            elif found is not None:
                verdicts.append((row, "already_there", vectors))
            else:
                ops += [Put(datum, 0), *map(Put, parts)]
                verdicts.append((row, "written", vectors))
        if not self.dry_run:
            await commit_checked(self._universe, ops, NOTE)
        for row, verdict, vectors in verdicts:
            if verdict in ("written", "already_there"):
                self.tally.count("items", verdict)
            else:
                self.tally.leave("items", row.table, row.number, verdict)
            if vectors:
                what = verdict if verdict in ("written", "already_there") else "left_out"
                self.tally.count("vectors", what, vectors)

    def _read_vectors(self, row: ForeignRow, item: Datum, database: ForeignDatabase) -> list[Datum]:
        """Return the records of an item's vectors, as its index would have made them."""
        found = []
        where = {name: row.values[name] for name in ("prefix", "key")}
        for each in database.read("store_vectors", ("field_name",), where):
            path, data = each.values.get("field_name"), each.values.get("embedding")
            if not isinstance(path, str) or not isinstance(data, bytes) or not data or len(data) % 4:
                self.tally.leave("vectors", each.table, row.number, "it is damaged")
                continue
            try:
                schema = items.vector_schema(len(data) // 4, self._distance)
            except InputError as error:
                self.tally.leave("vectors", each.table, row.number, error.message)
                continue
            self._universe.register(schema)
            found.append(
                Datum(
                    items.part_id("vector", item.id, path),
                    data={"place": item.data["place"], "item": item.id, "path": path},
                    content=data,
                    schema=schema.name,
                    schema_version=schema.version,
                    expires_at=item.expires_at,
                )
            )
        return found


def _read_item(row: ForeignRow) -> Datum:
    """Return the record of an item."""
    values = row.values
    prefix, key = read_texts(values, ("prefix", "key"))
    namespace = tuple(prefix.split("."))
    try:
        check_namespace(namespace)
    except InvalidNamespaceError as error:
        raise InputError(f"its namespace is not valid: {error!s:.120}") from None
    value = read_object(values.get("value"))
    created, updated = parse_moment(values.get("created_at")), parse_moment(values.get("updated_at"))
    ends: Any = values.get("expires_at")
    ttl: Any = values.get("ttl_minutes")
    expires = parse_moment(ends)
    if ends is not None and expires is None:
        raise InputError("its expires_at is not a time")
    left = None if expires is None else (expires - clock.now()).total_seconds()
    if left is not None and left <= 0:
        raise InputError(f"it expired at {ends}")
    minutes = float(ttl) if type(ttl) in (int, float) else None
    if minutes is None and left is not None:
        minutes = left / 60
    datum = items.make_item(namespace, key, value, minutes, (), None)
    data = dict(datum.data)
    if updated is not None:
        data["updated_us"] = clock.to_us(updated)
    return Datum(
        datum.id,
        created,
        data,
        datum.content,
        schema=datum.schema,
        schema_version=datum.schema_version,
        expires_at=expires or datum.expires_at,
    )


def _is_same_item(found: Datum, made: Datum) -> bool:
    """Return whether a stored item is the one of the source, whatever is left of its time to live."""
    first, second = ({**each.data, "ttl": 0, "vectors": 0} for each in (found, made))
    return found.content == made.content and is_same_data(first, second)


def read_object(given: Any) -> dict[str, Any]:
    """Return a JSON object that was given or written as JSON; raises InputError for anything else."""
    if given is None:
        return {}
    try:
        found = given if isinstance(given, dict) else json.loads(given)
    except DAMAGE as error:
        raise InputError(f"is not JSON: {error!s:.100}") from None
    if not isinstance(found, dict):
        raise InputError("is not a JSON object")
    return found


def read_texts(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return some values of a row; raises InputError naming one that is not a text."""
    for name in names:
        if not isinstance(values.get(name), str):
            raise InputError(f"its {name} is not a text")
    return [values[name] for name in names]
