"""Notes of a record about its imported line, so that an export loses no value of it.

A field may have a value that a record does not keep: an unknown state, a time with nanoseconds, or none. Then
the note has what the field became and its value in the file; as long as the record has the former, the latter
is exported. Unknown fields are in `extra` under their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dgent import clock
from dgent.model import order

Written = dict[str, list[Any]]
"""For each field its value here and that in the file; only the former if the line did not have it."""

# A moment that a record keeps as it is, in any zone.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6}0*)?(Z|[+-]\d\d:\d\d)")


def make_extra(unknown: Mapping[str, Any], key: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `extra` of a record: unknown fields, and under a key the note unless it is empty."""
    kept = {name: value for name, value in unknown.items() if name != key}
    stated = {name: value for name, value in note.items() if value}
    if key in unknown:
        stated["hidden"] = {**stated.get("hidden", {}), key: unknown[key]}
    return {**kept, key: stated} if stated else kept


def read_note(extra: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the note in an `extra` under a key; empty if there is none."""
    found = extra.get(key)
    return found if isinstance(found, dict) else {}


def restore_fields(line: dict[str, Any], written: object) -> dict[str, Any]:
    """Return a line in which unchanged fields have the values of the file, or are left out as they were."""
    if not isinstance(written, dict):
        return line
    for field, noted in written.items():
        if isinstance(noted, list) and noted and line.get(field) == noted[0]:
            if len(noted) > 1:
                line[field] = noted[1]
            else:
                line.pop(field, None)
    return line


def is_same_value(made: Any, given: Any) -> bool:
    """Compare a value to be exported with that of the file; a moment is the same in every zone."""
    if order.same(made, given):
        return True
    if not isinstance(made, str) or not isinstance(given, str) or not _MOMENT.fullmatch(given):
        return False
    try:
        return parse_time(made) == parse_time(given)
    except (ValueError, OverflowError):
        return False


def parse_time(value: Any) -> datetime:
    """Parse a time in RFC 3339, in UTC without a zone. The original writes year 1 for none: ValueError."""
    if not isinstance(value, str):
        raise ValueError
    found = datetime.fromisoformat(value)
    if found.year <= 1:
        raise ValueError
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return clock.from_us(clock.to_us(aware))


def format_time(value: datetime | None) -> str | None:
    """Return a time in UTC with no more digits than needed."""
    if value is None:
        return None
    whole, _, fraction = clock.text(value)[:-1].partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"
