"""Filters of `fetch`: keys in either spelling, values checked, unknown keys ignored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dgent import clock
from dgent.cupboard import errors


class Filter(NamedTuple):
    """What a fetch asks for: values under plain keys, and which part of the answer."""

    values: dict[str, Any]
    limit: int | None
    offset: int


def plain(key: str) -> str:
    """A key in the one form that `CrumbID`, `crumb_id` and `crumbId` share."""
    return key.replace("_", "").replace("-", "").lower()


def read(given: Mapping[str, Any] | None, more: Mapping[str, Any], known: Mapping[str, str]) -> Filter:
    """A filter as the caller gave it, as a map and by keywords; `known` has each column's kind of values.

    Kinds: `text`, `texts` (one or a list of them), `list`, `whole` (a whole number), `time`, `map`, `any`.
    """
    if given is not None and not isinstance(given, Mapping):
        raise errors.InvalidFilter(f"a filter maps keys to values; it is no {type(given).__name__}")
    columns = {plain(column): column for column in known}
    values: dict[str, Any] = {}
    limit: int | None = None
    offset = 0
    for key, value in (*(given or {}).items(), *more.items()):
        if not isinstance(key, str):
            raise errors.InvalidFilter(f"a filter's keys are texts, not {key!r}")
        name = plain(key)
        if name == "limit":
            limit = None if value is None else _count(key, value) or None
        elif name == "offset":
            offset = 0 if value is None else _count(key, value)
        elif name in columns:
            column = columns[name]
            values[column] = _KINDS[known[column]](key, value)
    return Filter({column: value for column, value in values.items() if value != ()}, limit, offset)


def page(found: list[Any], wanted: Filter) -> list[Any]:
    """The part of an answer that was asked for."""
    last = None if wanted.limit is None else wanted.offset + wanted.limit
    return found[wanted.offset : last]


def _wrong(key: str, wanted: str, value: Any) -> errors.InvalidFilter:
    return errors.InvalidFilter(f"the filter {key} takes {wanted}, not {value!r:.80}", field=key)


def _count(key: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _wrong(key, "a whole number from 0", value)
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "a text", value)
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    """One text or several; an empty list filters nothing."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple | set | frozenset) or not all(isinstance(v, str) for v in value):
        raise _wrong(key, "a text or a list of texts", value)
    return tuple(dict.fromkeys(value))


def _list(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise _wrong(key, "a list of texts", value)
    return _texts(key, value)


def _whole(key: str, value: Any) -> int:
    if type(value) is not int:
        raise _wrong(key, "a whole number", value)
    return value


def _time(key: str, value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return clock.from_us(clock.to_us(moment))
    except Exception:
        raise _wrong(key, "an aware datetime or RFC 3339 text", value) from None


def _map(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _wrong(key, "a map of names to values", value)
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
