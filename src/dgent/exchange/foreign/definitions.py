"""Properties and categories of a folder, and which ones they are here.

The original gives its built-in properties other ids in every folder. They are found by their names; what the
folder calls them is noted, so that they are written under the same ids again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from dgent.cupboard import builtin, errors
from dgent.cupboard.definition import Defined, Definitions
from dgent.cupboard.record import CATEGORY, PROPERTY, CategoryRecord, PropertyRecord
from dgent.exchange.foreign.fields import DERIVED, FILES, NOTE, Row, stamp, times
from dgent.exchange.foreign.incoming import Incoming
from dgent.exchange.foreign.origin import extra_of, note_of
from dgent.model.query import Query

BUILT_IN = (*builtin.PROPERTIES, *builtin.CATEGORIES)
Unfit = (errors.TypeMismatch, errors.InvalidCategory)

_decode = msgspec.json.Decoder().decode


class Naming:
    """The properties and categories here, and under which ids a folder has them."""

    def __init__(self) -> None:
        self.properties: dict[str, PropertyRecord] = {}
        self.categories: dict[str, CategoryRecord] = {}
        self.here: dict[str, str] = {}  # ids of the folder, and what they are here
        self._names: dict[Any, str] = {}

    def add(self, id: str, record: PropertyRecord | CategoryRecord) -> None:
        """Take note of a definition that is here."""
        if isinstance(record, PropertyRecord):
            self.properties[id] = record
            self._names.setdefault(record.name, id)
        else:
            self.categories[id] = record
            self._names.setdefault((record.property_id, record.name), id)

    def named(self, record: PropertyRecord | CategoryRecord) -> str | None:
        """What has the same name here."""
        key: Any = record.name
        if isinstance(record, CategoryRecord):
            key = (record.property_id, record.name)
        return self._names.get(key)

    def definitions(self) -> Definitions:
        """All of them, to judge values by."""
        return Definitions(self.properties, self.categories)


async def define(incoming: Incoming, rows: dict[str, list[Row]], changed_at: datetime) -> Naming:
    """Take in the definitions of a folder, and tell which ones they are."""
    naming = Naming()
    draft = incoming.draft
    for schema in (PROPERTY, CATEGORY):
        for each in await draft.tx.recall(Query(schema=schema.name, descending=False, limit=None)):
            draft.hold(each)
            naming.add(each.id, each.value)
    for id in BUILT_IN:
        naming.add(id, draft.record(id))
    before = dict(naming.properties), dict(naming.categories)
    for row in rows["properties"]:
        _take_property(incoming, naming, row, changed_at)
    for row in rows["categories"]:
        _take_category(incoming, naming, row, changed_at)
    if (naming.properties, naming.categories) != before:
        draft.redefine()
    draft.definitions = naming.definitions()
    return naming


def _take_property(incoming: Incoming, naming: Naming, row: Row, changed_at: datetime) -> None:
    given = row.fields
    record = PropertyRecord(
        given["name"], given["value_type"], given["description"], given["scope"], extra=row.extra()
    )
    id = given["property_id"]
    there = id if id in naming.properties else naming.named(record)
    if there is not None:
        known = naming.properties[there]
        if (known.value_type, known.scope) != (record.value_type, record.scope):
            incoming.keep(
                row.file, row.line, f"{known.name!r} is {known.value_type} of a {known.scope} here already"
            )
            return
    _settle(incoming, naming, row, changed_at, record, there)


def _take_category(incoming: Incoming, naming: Naming, row: Row, changed_at: datetime) -> None:
    given = row.fields
    property_id = naming.here.get(given["property_id"], given["property_id"])
    record = CategoryRecord(property_id, given["name"], given["ordinal"], extra=row.extra())
    owner = naming.properties.get(property_id)
    if owner is None or owner.value_type != "categorical":
        why = "is not there" if owner is None else f"is {owner.value_type}"
        incoming.tell(row.file, row.line, f"the property {given['property_id']!r} of a category {why}")
    id = given["category_id"]
    there = id if id in naming.categories else naming.named(record)
    _settle(incoming, naming, row, changed_at, record, there)


def _settle(
    incoming: Incoming,
    naming: Naming,
    row: Row,
    changed_at: datetime,
    record: PropertyRecord | CategoryRecord,
    there: str | None,
) -> None:
    """Take a definition in as it is, or as another name of one that is here."""
    id = next(iter(row.fields.values()))
    when = times(row, changed_at).created_at
    if there is None or (there == id and there not in BUILT_IN):
        incoming.take(row.file, row.line, id, record, when)
        if isinstance(incoming.draft.record(id), type(record)):
            naming.here[id] = id
            naming.add(id, incoming.draft.record(id))
        return
    naming.here[id] = there
    known = naming.properties.get(there) or naming.categories[there]
    if there not in BUILT_IN:
        incoming.tell(row.file, row.line, f"{id!r} counts as {there!r}, which has the same name")
    elif NOTE not in known.extra and (there != id or _differs(row, known)):
        renamed = replace(known, extra={**known.extra, **_alias(incoming, row, known, there)})
        incoming.draft.put(there, renamed)
        incoming.tally.count("changed")
        naming.add(there, renamed)
        return
    incoming.tally.count("unchanged")


def _differs(row: Row, known: Any) -> bool:
    return bool(row.unknown) or any(
        row.fields[name] != getattr(known, name) for name in ("description", "ordinal") if name in row.fields
    )


def _alias(incoming: Incoming, row: Row, known: Any, there: str) -> dict[str, Any]:
    """What a built-in definition notes of the one of a folder that it stands for."""
    now = {field: getattr(known, field, None) for field in row.fields}
    now["created_at"] = stamp(incoming.draft.created_at(there))
    written: dict[str, list[Any]] = {}
    for field in FILES[row.file][1:]:
        given = row.fields[field.name]
        if given is DERIVED or field.name == "property_id":
            continue
        told = row.written[field.name][1] if field.name in row.written else field.kind.write(given)
        if told != now[field.name]:
            written[field.name] = [now[field.name], told]
    return extra_of(row.unknown, NOTE, {"id": next(iter(row.fields.values())), "written": written})


def outside(record: Any, id: str) -> str:
    """The id under which a definition is written."""
    found = note_of(record.extra, NOTE).get("id")
    return found if isinstance(found, str) else id


# -- values -------------------------------------------------------------------------------


def value_of(defined: Defined, given: Any, naming: Naming) -> Any:
    """A value as it is stored, from one that may be JSON inside of a text; TypeMismatch when it is none."""
    value = _inner(defined, given)
    if value is None:
        return defined.default()
    if defined.value_type == "categorical" and isinstance(value, str):
        value = naming.here.get(value, value)
    if defined.value_type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return defined.stored(value)


def _inner(defined: Defined, given: Any) -> Any:
    if not isinstance(given, str) or (
        defined.value_type == "categorical" and defined.choice(given) is not None
    ):
        return given
    try:
        inner = _decode(given)
    except (msgspec.MsgspecError, RecursionError):
        return given
    if defined.value_type == "text":
        return inner if isinstance(inner, str) else given
    return inner


def value_out(defined: Defined, stored: Any, categories: dict[str, str]) -> Any:
    """A stored value as it is written, so that it is read as the same."""
    if defined.value_type == "categorical":
        return categories.get(stored, stored)
    if defined.value_type == "timestamp" and stored is not None:
        native = defined.native(stored)
        return stamp(native)
    if defined.value_type == "text" and _inner(defined, stored) != stored:
        return msgspec.json.encode(stored).decode()
    return stored
