"""Filters of `fetch`: keys in any spelling, values checked, unknown keys ignored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors


class Filter(NamedTuple):
    """A parsed filter: values by column, and the part of the answer that is wanted."""

    values: dict[str, Any]
    limit: int | None
    offset: int


def normalize_key(key: str) -> str:
    """Return a key in the one form that `CrumbID`, `crumb_id` and `crumbId` share."""
    return key.replace("_", "").replace("-", "").lower()


def read_filter(given: Mapping[str, Any] | None, more: Mapping[str, Any], known: Mapping[str, str]) -> Filter:
    """Parse a filter that the caller gave as a map and by keywords; `known` has each column's kind of values.

    Kinds: `text`, `texts` (one or a list of them), `list`, `whole` (a whole number), `time`, `map`, `any`.
    """
    if given is not None and not isinstance(given, Mapping):
        raise errors.InvalidFilter(f"expected a filter that maps keys to values, got {type(given).__name__}")
    columns = {normalize_key(column): column for column in known}
    values: dict[str, Any] = {}
    limit: int | None = None
    offset = 0
    for key, value in (*(given or {}).items(), *more.items()):
        if not isinstance(key, str):
            raise errors.InvalidFilter(f"expected text as key of a filter, got {key!r}")
        name = normalize_key(key)
        if name == "limit":
            limit = None if value is None else _count(key, value) or None
        elif name == "offset":
            offset = 0 if value is None else _count(key, value)
        elif name in columns:
            column = columns[name]
            values[column] = _KINDS[known[column]](key, value)
    return Filter({column: value for column, value in values.items() if value != ()}, limit, offset)


def take_page(found: list[Any], wanted: Filter) -> list[Any]:
    """Return the part of an answer that the filter asks for."""
    last = None if wanted.limit is None else wanted.offset + wanted.limit
    return found[wanted.offset : last]


def _make_error(key: str, wanted: str, value: Any) -> errors.InvalidFilter:
    return errors.InvalidFilter(f"expected {wanted} for the filter {key!r}, got {value!r:.80}", field=key)


def _count(key: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _make_error(key, "a whole number from 0", value)
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _make_error(key, "a text", value)
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    """Return one text or several as a tuple; an empty list filters nothing."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple | set | frozenset) or not all(isinstance(v, str) for v in value):
        raise _make_error(key, "a text or a list of texts", value)
    return tuple(dict.fromkeys(value))


def _list(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise _make_error(key, "a list of texts", value)
    return _texts(key, value)


def _whole(key: str, value: Any) -> int:
    if type(value) is not int:
        raise _make_error(key, "a whole number", value)
    return value


def _time(key: str, value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return clock.from_us(clock.to_us(moment))
    except Exception:
        raise _make_error(key, "an aware datetime or RFC 3339 text", value) from None


def _map(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _make_error(key, "a map of names to values", value)
    return dict(value)


def _any(_key: str, value: Any) -> Any:
    return value


_KINDS: dict[str, Any] = {
    "text": _text,
    "texts": _texts,
    "list": _list,
    "whole": _whole,
    "time": _time,
    "map": _map,
    "any": _any,
}
