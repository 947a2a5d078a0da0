"""The file format of the original crumbs program: the fields of each file, and how they are read and written.

Keys are read in any spelling (`crumb_id`, `CrumbID`), and written as the original writes them. Fields that
the original does not know are written only when they differ from the default. Every value of a line is
written again; its spelling is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, get_args, get_type_hints
from uuid import UUID

import msgspec

from dgent import clock, ids
from dgent.cupboard.kind import (
    CONTENT_TYPES,
    CRUMB_STATES,
    LINK_TYPES,
    SCOPES,
    STASH_TYPES,
    TRAIL_STATES,
    VALUE_TYPES,
)
from dgent.cupboard.record import CrumbRecord
from dgent.cupboard.tables.metadata import is_schema_name
from dgent.errors import InputError
from dgent.exchange.foreign.files import SourceLine
from dgent.exchange.foreign.origin import (
    Written,
    format_time,
    is_same_value,
    make_extra,
    parse_time,
    read_note,
)

NOTE = "dgent:file"
"""The key for the note about a line: in `extra` of a record, and in a line for fields that would clash."""

STATES = {"open": "ready", "in_progress": "taken", "closed": "pebble"}
"""Synonyms of the states of a crumb."""

_decode = msgspec.json.Decoder().decode


REQUIRED: Any = object()
"""The default of a field that is required."""


class _UnknownWord(InputError):
    """An unknown word in a field that takes only known ones; the line cannot be imported."""


class FieldType(NamedTuple):
    """The functions that read and write a field; reading raises ValueError for an invalid value."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


class FieldSpec(NamedTuple):
    """A field of a file. An optional one has a default; with `always` the default is written as well."""

    name: str
    kind: FieldType
    default: Any = REQUIRED
    always: bool = True


# -- kinds of values ----------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _name(value: Any) -> str:
    if not _text(value):
        raise ValueError
    return str(value)


def _id(value: Any) -> str:
    try:
        return ids.check_id(value)
    except InputError:
        raise ValueError from None


def _optional_id(value: Any) -> str | None:
    return None if value is None or value == "" else _id(value)


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else _text(value)


def _whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if type(value) is not int:
        raise ValueError
    return value


def _map(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError
    return tuple(value)


def _one_of(words: tuple[str, ...], others: Mapping[str, str] = {}) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        word = others.get(value, value) if isinstance(value, str) else None
        if word not in words:
            raise ValueError
        return str(word)

    return read


def _require_word(words: tuple[str, ...], noun: str) -> FieldType:
    """Return the type of a field that takes one of some words; any other refuses the line."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise _UnknownWord(f"{value!r:.60} is not a valid {noun}")
        return value

    return FieldType(read)


def _schema_name(value: Any) -> str:
    if not is_schema_name(value):
        raise _UnknownWord(f"{value!r:.60} is not a valid name of a metadata schema")
    return str(value)


def _optional_time(value: Any) -> datetime | None:
    return None if value is None or value == "" else parse_time(value)


def decode_stash_value(value: Any) -> Any:
    """Read the value of a stash, which one release of the original writes as JSON in a text."""
    if isinstance(value, str):
        try:
            inner = _decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
        return inner if inner is None or isinstance(inner, str | dict) else value
    return value


def encode_stash_value(value: Any) -> Any:
    """Return a value as it is written; text that would be read as JSON is written as JSON in a text."""
    if isinstance(value, str) and decode_stash_value(value) != value:
        return msgspec.json.encode(value).decode()
    return value


TEXT = FieldType(_text)
NAME = FieldType(_name)
ID = FieldType(_id)
OPTIONAL_ID = FieldType(_optional_id)
OPTIONAL_TEXT = FieldType(_optional_text)
WHOLE = FieldType(_whole)
MAP = FieldType(_map)
TEXTS = FieldType(_texts, list)
TIME = FieldType(parse_time, format_time)
OPTIONAL_TIME = FieldType(_optional_time, format_time)
VALUE = FieldType(decode_stash_value, encode_stash_value)
ANY = FieldType(lambda value: value)

DERIVED = datetime(1, 1, 1, tzinfo=UTC)
"""The placeholder for a time that the line does not have."""


def _add_columns(
    known: tuple[FieldSpec, ...], record: type[Any], derived: frozenset[str]
) -> tuple[FieldSpec, ...]:
    """Return the fields of a file with those fields of its record that the original does not know."""
    names = {field.name for field in known} | derived
    hints = get_type_hints(record)
    return known + tuple(
        FieldSpec(column.name, _type_of(hints[column.name]), column.default, False)
        for column in dataclasses.fields(record)
        if column.name not in names
    )


def _type_of(hint: Any) -> FieldType:
    """Return how a field is read and written by the type that its record gives it."""
    if datetime in (hint, *get_args(hint)):
        return OPTIONAL_TIME

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            raise ValueError from None

    return FieldType(read, msgspec.to_builtins)


_CRUMB_FIELDS = (
    FieldSpec("crumb_id", ID),
    FieldSpec("name", NAME),
    FieldSpec("state", FieldType(_one_of(CRUMB_STATES, STATES)), "draft"),
    FieldSpec("created_at", TIME, DERIVED),
    FieldSpec("updated_at", TIME, DERIVED),
    FieldSpec("properties", MAP, {}, False),
    FieldSpec("defer_until", OPTIONAL_TIME, None, False),
    FieldSpec("holder", OPTIONAL_TEXT, None, False),
    FieldSpec("lease_until", OPTIONAL_TIME, None, False),
    FieldSpec("token", WHOLE, 0, False),
)

FILES: dict[str, tuple[FieldSpec, ...]] = {
    "crumbs": _add_columns(_CRUMB_FIELDS, CrumbRecord, frozenset(("open_parents", "queue", "extra"))),
    "trails": (
        FieldSpec("trail_id", ID),
        FieldSpec("name", TEXT, "", False),
        FieldSpec("goal", TEXT, "", False),
        FieldSpec("state", FieldType(_one_of(TRAIL_STATES)), "draft"),
        FieldSpec("created_at", TIME, DERIVED),
        FieldSpec("updated_at", TIME, DERIVED, False),
        FieldSpec("completed_at", OPTIONAL_TIME, None),
        FieldSpec("reason", OPTIONAL_TEXT, None, False),
        FieldSpec("lesson", OPTIONAL_TEXT, None, False),
        FieldSpec("properties", MAP, {}, False),
        FieldSpec("crumbs", TEXTS, (), False),
    ),
    "properties": (
        FieldSpec("property_id", ID),
        FieldSpec("name", NAME),
        FieldSpec("description", TEXT, ""),
        FieldSpec("value_type", _require_word(VALUE_TYPES, "type of value")),
        FieldSpec("scope", _require_word(SCOPES, "scope"), "crumb", False),
        FieldSpec("created_at", TIME, DERIVED),
    ),
    "categories": (
        FieldSpec("category_id", ID),
        FieldSpec("property_id", ID),
        FieldSpec("name", NAME),
        FieldSpec("ordinal", WHOLE, 0),
        FieldSpec("created_at", TIME, DERIVED, False),
    ),
    "crumb_properties": (
        FieldSpec("crumb_id", ID),
        FieldSpec("property_id", ID),
        FieldSpec("value_type", OPTIONAL_TEXT, None),
        FieldSpec("value", ANY, None),
    ),
    "links": (
        FieldSpec("link_id", ID),
        FieldSpec("link_type", _require_word(LINK_TYPES, "type of link")),
        FieldSpec("from_id", ID),
        FieldSpec("to_id", ID),
        FieldSpec("created_at", TIME, DERIVED),
    ),
    "schemas": (
        FieldSpec("schema_name", FieldType(_schema_name)),
        FieldSpec("description", TEXT, ""),
        FieldSpec("content_type", _require_word(CONTENT_TYPES, "type of content"), "text"),
        FieldSpec("created_at", TIME, DERIVED),
    ),
    "metadata": (
        FieldSpec("metadata_id", ID),
        FieldSpec("table_name", NAME),
        FieldSpec("crumb_id", ID),
        FieldSpec("property_id", OPTIONAL_ID, None),
        FieldSpec("content", ANY, ""),
        FieldSpec("created_at", TIME, DERIVED),
    ),
    "stashes": (
        FieldSpec("stash_id", ID),
        FieldSpec("name", NAME),
        FieldSpec("stash_type", _require_word(STASH_TYPES, "type of stash")),
        FieldSpec("value", VALUE, None),
        FieldSpec("version", WHOLE, 0),
        FieldSpec("created_at", TIME, DERIVED),
        FieldSpec("updated_at", TIME, DERIVED),
        FieldSpec("changed_by", OPTIONAL_TEXT, None, False),
        FieldSpec("last_operation", OPTIONAL_TEXT, None, False),
        FieldSpec("properties", MAP, {}, False),
    ),
    "stash_history": (
        FieldSpec("history_id", ID),
        FieldSpec("stash_id", ID),
        FieldSpec("version", WHOLE),
        FieldSpec("value", VALUE, None),
        FieldSpec("operation", NAME, "set"),
        FieldSpec("changed_by", OPTIONAL_TEXT, None),
        FieldSpec("created_at", TIME, DERIVED),
    ),
}
"""The files in reading order: files that others refer to come first."""

DEFINITIONS = ("properties", "categories")
"""Files in which the first line of an id is used, because values rely on it; in others the last."""


def _normalize_key(key: str) -> str:
    return key.replace("_", "").casefold()


class SourceRow(NamedTuple):
    """A valid line: its fields, its unknown fields, and values that its record does not keep."""

    file: str
    line: SourceLine
    fields: dict[str, Any]
    unknown: dict[str, Any]
    written: Written

    def extra(self, **note: Any) -> dict[str, Any]:
        """Return the `extra` of its record: unknown fields and the note."""
        return make_extra(self.unknown, NOTE, {"written": self.written, **note})


def parse_row(file: str, line: SourceLine) -> SourceRow:
    """Parse a line of a file; raises InputError if a required field is missing or invalid."""
    assert line.given is not None
    unknown = dict(line.given)
    hidden = unknown.pop(NOTE, None)
    fields: dict[str, Any] = {}
    written: Written = {}
    for field in FILES[file]:
        key = _find_key(unknown, field.name)
        given = None if key is None else unknown.pop(key)
        found = fields[field.name] = _read_field(field, given)
        if found is DERIVED:
            if not _is_no_time(given):
                unknown[field.name] = given  # kept beside the derived time
        elif given is not None and field.kind not in (VALUE, ANY):
            made = field.kind.write(found)
            if not is_same_value(made, given):
                written[field.name] = [made, given]
    if isinstance(hidden, dict):
        unknown |= hidden
    elif hidden is not None:
        unknown[NOTE] = hidden
    return SourceRow(file, line, fields, unknown, written)


def _read_field(field: FieldSpec, given: Any) -> Any:
    """Return the value of a field; where the given one is missing or invalid its default, or InputError."""
    try:
        if given is not None:
            return field.kind.read(given)
    except _UnknownWord:
        raise
    except (ValueError, OverflowError):
        pass
    if field.default is REQUIRED:
        what = "has none" if given is None else f"has {given!r:.60}"
        raise InputError(f"it needs a valid {field.name}, but {what}")
    return field.default


def _is_no_time(given: Any) -> bool:
    """Check whether a field has no time, which the original writes as one of year 1."""
    return given is None or given == "" or (isinstance(given, str) and given.startswith("0001-"))


def _find_key(given: Mapping[str, Any], name: str) -> str | None:
    """Return the key of a field as this line spells it; None if it is missing."""
    if name in given:
        return name
    wanted = _normalize_key(name)
    return next((key for key in given if _normalize_key(key) == wanted), None)


class Times(NamedTuple):
    """The creation and change time of a row's record; `stated`: the line has the latter."""

    created_at: datetime
    updated_at: datetime
    stated: bool


def read_times(row: SourceRow, changed_at: datetime) -> Times:
    """Return the times of a row; a missing one is that of its UUIDv7, or else that of its file."""
    fields = row.fields
    created = fields["created_at"]
    if created is DERIVED:
        created = read_uuid_time(next(iter(fields.values()))) or changed_at
    updated = fields.get("updated_at", DERIVED)
    stated = updated is not DERIVED
    return Times(created, updated if stated else fields.get("completed_at") or created, stated)


def read_uuid_time(id: str) -> datetime | None:
    """Return the time in a UUIDv7; None for any other id."""
    try:
        found = UUID(id)
        return clock.from_us((found.int >> 80) * 1000) if found.version == 7 else None
    except (ValueError, InputError):
        return None


def encode_fields(file: str, fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a record: its fields, with the values of the file, and its unknown fields."""
    written = read_note(read_note(extra, NOTE), "written")
    line: dict[str, Any] = {}
    for name, kind, default, always in FILES[file]:
        value = kind.write(fields.get(name, default))
        noted = written.get(name)
        if isinstance(noted, list) and noted[:1] == [value]:
            line[name] = noted[-1]
        elif always or value != kind.write(default):
            line[name] = value
    return line | encode_unknown(file, extra)


def encode_unknown(file: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the unknown fields of a record; those that would clash with a field are under the note's key."""
    own = {_normalize_key(field.name) for field in FILES[file]}
    out, hidden = {}, dict(read_note(extra, NOTE).get("hidden", {}))
    for name, value in extra.items():
        if name == NOTE:
            continue
        if _normalize_key(name) in own:
            hidden[name] = value
        else:
            out[name] = value
    return out | ({NOTE: hidden} if hidden else {})
