"""Import the properties and categories of a folder, and map their ids to those here.

The original gives its built-in properties other ids in every folder. They are matched by name; the ids of the
folder are stored in a note, so that an export writes the same ids.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from dgent.cupboard import builtin, errors
from dgent.cupboard.definition import Definition, Definitions
from dgent.cupboard.record import CATEGORY, PROPERTY, CategoryRecord, PropertyRecord
from dgent.exchange.foreign.fields import DERIVED, FILES, NOTE, SourceRow, read_times
from dgent.exchange.foreign.incoming import ImportRun
from dgent.exchange.foreign.origin import format_time, make_extra, read_note
from dgent.model.query import Query

BUILT_IN = (*builtin.PROPERTIES, *builtin.CATEGORIES)
Unfit = (errors.TypeMismatch, errors.InvalidCategory)

_decode = msgspec.json.Decoder().decode


class Naming:
    """The properties and categories here, and the ids that a folder uses for them."""

    def __init__(self) -> None:
        self.properties: dict[str, PropertyRecord] = {}
        self.categories: dict[str, CategoryRecord] = {}
        self.here: dict[str, str] = {}  # ids of the folder, and the ids here
        self._names: dict[Any, str] = {}

    def add(self, id: str, record: PropertyRecord | CategoryRecord) -> None:
        """Add a definition of this cupboard."""
        if isinstance(record, PropertyRecord):
            self.properties[id] = record
            self._names.setdefault(record.name, id)
        else:
            self.categories[id] = record
            self._names.setdefault((record.property_id, record.name), id)

    def find_by_name(self, record: PropertyRecord | CategoryRecord) -> str | None:
        """Return the id of the definition here with the same name."""
        key: Any = record.name
        if isinstance(record, CategoryRecord):
            key = (record.property_id, record.name)
        return self._names.get(key)

    def definitions(self) -> Definitions:
        """Return all definitions, to check values by."""
        return Definitions(self.properties, self.categories)


async def import_definitions(
    run: ImportRun, rows: dict[str, list[SourceRow]], changed_at: datetime
) -> Naming:
    """Import the definitions of a folder, and return how they map to those here."""
    naming = Naming()
    changeset = run.changeset
    for schema in (PROPERTY, CATEGORY):
        for each in await changeset.tx.recall(Query(schema=schema.name, descending=False, limit=None)):
            changeset.add_loaded(each)
            naming.add(each.id, each.value)
    for id in BUILT_IN:
        naming.add(id, changeset.record(id))
    before = dict(naming.properties), dict(naming.categories)
    for row in rows["properties"]:
        _import_property(run, naming, row, changed_at)
    for row in rows["categories"]:
        _import_category(run, naming, row, changed_at)
    if (naming.properties, naming.categories) != before:
        changeset.mark_redefined()
    changeset.definitions = naming.definitions()
    return naming


def _import_property(run: ImportRun, naming: Naming, row: SourceRow, changed_at: datetime) -> None:
    given = row.fields
    record = PropertyRecord(
        given["name"], given["value_type"], given["description"], given["scope"], extra=row.extra()
    )
    id = given["property_id"]
    there = id if id in naming.properties else naming.find_by_name(record)
    if there is not None:
        known = naming.properties[there]
        if (known.value_type, known.scope) != (record.value_type, record.scope):
            run.keep_line(
                row.file, row.line, f"{known.name!r} is already {known.value_type} of a {known.scope} here"
            )
            return
    _import_or_alias(run, naming, row, changed_at, record, there)


def _import_category(run: ImportRun, naming: Naming, row: SourceRow, changed_at: datetime) -> None:
    given = row.fields
    property_id = naming.here.get(given["property_id"], given["property_id"])
    record = CategoryRecord(property_id, given["name"], given["ordinal"], extra=row.extra())
    owner = naming.properties.get(property_id)
    if owner is None or owner.value_type != "categorical":
        why = "does not exist" if owner is None else f"is {owner.value_type}"
        run.report(row.file, row.line, f"the property {given['property_id']!r} of a category {why}")
    id = given["category_id"]
    there = id if id in naming.categories else naming.find_by_name(record)
    _import_or_alias(run, naming, row, changed_at, record, there)


def _import_or_alias(
    run: ImportRun,
    naming: Naming,
    row: SourceRow,
    changed_at: datetime,
    record: PropertyRecord | CategoryRecord,
    there: str | None,
) -> None:
    """Import a definition, or record it as an alias of one that exists here."""
    id = next(iter(row.fields.values()))
    when = read_times(row, changed_at).created_at
    if there is None or (there == id and there not in BUILT_IN):
        run.import_record(row.file, row.line, id, record, when)
        if isinstance(run.changeset.record(id), type(record)):
            naming.here[id] = id
            naming.add(id, run.changeset.record(id))
        return
    naming.here[id] = there
    known = naming.properties.get(there) or naming.categories[there]
    if there not in BUILT_IN:
        run.report(row.file, row.line, f"{id!r} is treated as {there!r}, which has the same name")
    elif NOTE not in known.extra and (there != id or _differs(row, known)):
        renamed = replace(known, extra={**known.extra, **_make_alias_note(run, row, known, there)})
        run.changeset.put(there, renamed)
        run.tally.count("changed")
        naming.add(there, renamed)
        return
    run.tally.count("unchanged")


def _differs(row: SourceRow, known: Any) -> bool:
    return bool(row.unknown) or any(
        row.fields[name] != getattr(known, name) for name in ("description", "ordinal") if name in row.fields
    )


def _make_alias_note(run: ImportRun, row: SourceRow, known: Any, there: str) -> dict[str, Any]:
    """Return the note of a built-in definition about its equivalent in a folder."""
    now = {field: getattr(known, field, None) for field in row.fields}
    now["created_at"] = format_time(run.changeset.created_at(there))
    written: dict[str, list[Any]] = {}
    for field in FILES[row.file][1:]:
        given = row.fields[field.name]
        if given is DERIVED or field.name == "property_id":
            continue
        given_text = row.written[field.name][1] if field.name in row.written else field.kind.write(given)
        if given_text != now[field.name]:
            written[field.name] = [now[field.name], given_text]
    return make_extra(row.unknown, NOTE, {"id": next(iter(row.fields.values())), "written": written})


def find_exported_id(record: Any, id: str) -> str:
    """Return the id under which a definition is exported."""
    found = read_note(record.extra, NOTE).get("id")
    return found if isinstance(found, str) else id


# -- values -------------------------------------------------------------------------------


def decode_value(definition: Definition, given: Any, naming: Naming) -> Any:
    """Return a value as it is stored, from one that may be JSON in a text; raises TypeMismatch."""
    value = _unwrap_json(definition, given)
    if value is None:
        return definition.default()
    if definition.value_type == "categorical" and isinstance(value, str):
        value = naming.here.get(value, value)
    if definition.value_type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return definition.encode(value)


def _unwrap_json(definition: Definition, given: Any) -> Any:
    if not isinstance(given, str) or (
        definition.value_type == "categorical" and definition.find_option(given) is not None
    ):
        return given
    try:
        inner = _decode(given)
    except (msgspec.MsgspecError, RecursionError):
        return given
    if definition.value_type == "text":
        return inner if isinstance(inner, str) else given
    return inner


def encode_value(definition: Definition, stored: Any, categories: dict[str, str]) -> Any:
    """Return a stored value as it is exported, so that an import reads the same value."""
    if definition.value_type == "categorical":
        return categories.get(stored, stored)
    if definition.value_type == "timestamp" and stored is not None:
        native = definition.decode(stored)
        return format_time(native)
    if definition.value_type == "text" and _unwrap_json(definition, stored) != stored:
        return msgspec.json.encode(stored).decode()
    return stored
