"""Parse user input: times, conditions, data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dgent import clock
from dgent.errors import InputError
from dgent.model.span import UNITS

_AGO = re.compile(r"(\d{1,9})\s*(s|m|h|d|w)(?: ago)?", re.ASCII)
_CONDITION = re.compile(r"(?s)([^=!<>^~]+)(!=|>=|<=|\^=|~=|=|>|<)(.*)")
_LINES = re.compile(r"(\d{1,9})(-(\d{1,9})?)?", re.ASCII)
_SIGNS = "=!<>^~"
_OPERATORS = {
    "=": "$eq",
    "!=": "$ne",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
    "^=": "$prefix",
    "~=": "$contains",
}


def moment(text: str, field: str) -> datetime:
    """Parse a time such as 2026-01-31, 2026-01-31T12:00Z, or 90m, 2h, 3d, 1w for that long ago."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        try:
            return clock.now() - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            raise InputError(f"{field}: {text} is too long ago", field=field) from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        hint = "write 2026-01-31, 2026-01-31T12:00Z, or 2h for two hours ago"
        raise InputError(f"{field}: {text!r} is not a time", hint=hint, field=field) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def ahead(text: str, field: str) -> datetime:
    """Parse a time such as 2026-01-31T12:00Z, or 90m, 2h, 3d, 1w for that long from now."""
    now = clock.now()
    try:
        found = moment(text, field)
        return found if _AGO.fullmatch(text.strip()) is None else now + (now - found)
    except (InputError, OverflowError):
        hint = "write 2026-01-31, 2026-01-31T12:00Z, or 2h for in two hours"
        raise InputError(f"{field}: {text!r} is not a time", hint=hint, field=field) from None


def point(text: str | None, field: str = "as_of") -> int | datetime | None:
    """Parse the point to read at: a commit number, or a time."""
    if text is None:
        return None
    return number(text, field) if text.isascii() and text.isdigit() else moment(text, field)


def number(text: str, field: str) -> int:
    """Parse the number of a commit."""
    if len(text) > 18:
        raise InputError(f"{field}: {text[:20]}… is too large for a commit number", field=field)
    return int(text)


def line_range(text: str, lines: int) -> tuple[int, int]:
    """Parse lines such as 5, 5-9, or 5- for all from the fifth; the first and the last of them, from 1."""
    found = _LINES.fullmatch(text.strip())
    first = int(found[1]) if found else 0
    last = first if not found or found[2] is None else int(found[3]) if found[3] else max(lines, first)
    if not 1 <= first <= last:
        raise InputError(f"lines: {text!r:.40} is not a range", hint="write 5, 5-9, or 5-", field="lines")
    if first > max(lines, 1):
        raise InputError(f"lines: there are {lines} lines, so none from {first}", field="lines")
    return first, last


def value(text: str) -> Any:
    """Parse a JSON value; text that is not JSON is returned as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def where(conditions: Sequence[str]) -> dict[str, Any] | None:
    """Parse conditions such as weight>=3, author=ann or tags~=red, or a `where` as JSON; all must hold."""
    parts: list[dict[str, Any]] = []
    for condition in conditions:
        if condition.lstrip().startswith("{"):
            parts.append(mapping(condition, "where"))
            continue
        found = _CONDITION.fullmatch(condition)
        if found is None:
            hint = "write path=value; also != > >= < <= ^= (starts with) ~= (contains)"
            raise InputError(f"where: {condition!r} is not a condition", hint=hint, field="where")
        path, operator, operand = found[1].strip(), found[2], found[3].strip()
        if operand[:1] and operand[0] in _SIGNS:
            hint = (
                f'the operators are {" ".join(_OPERATORS)}; quote a text that begins so: {path}="{operand}"'
            )
            message = f"where: {condition!r} has {operand[0]!r} after {operator!r}, which is not an operator"
            raise InputError(message, hint=hint, field="where")
        parts.append({path: {_OPERATORS[operator]: value(operand)}})
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def mapping(text: str, field: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError(f"{field} is not valid JSON: {error}", field=field) from None
    except RecursionError:
        raise InputError(f"{field} is nested too deeply", field=field) from None
    if not isinstance(found, dict):
        raise InputError(f"{field} must be a JSON object", field=field)
    return found


def data(given: Any) -> dict[str, Any]:
    """Parse the data of a record: a map, a JSON object as text, or a text to store as `text`."""
    if isinstance(given, dict):
        return given
    if not isinstance(given, str):
        raise InputError(f"data must be a map or text, not {type(given).__name__}", field="data")
    if not given.strip():
        raise InputError("there is nothing to store", hint="give a text, or a JSON object", field="data")
    return mapping(given, "data") if given.lstrip().startswith("{") else {"text": given}
