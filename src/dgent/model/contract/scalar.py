"""Values that are stored as text and compare as what they stand for: decimals, durations, zoned times."""

from __future__ import annotations

from datetime import time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["decimal", "duration", "time"]

KINDS: dict[type, Kind] = {Decimal: "decimal", timedelta: "duration", time: "time"}
_COMPARED: dict[Kind, tuple[type, ...]] = {
    "decimal": (Decimal, int),
    "duration": (timedelta,),
    "time": (time,),
}


def value_of(kind: Kind, stored: Any) -> Any:
    """Return the value that stored data stands for; data of another kind comes back as it is.

    A float is the decimal that JSON shows of it, as contracts read it. NaN and times without a zone stay
    text: nothing compares with NaN, and the text of such times sorts in order.
    """
    if type(stored) is str:
        return _PARSERS[kind](stored)
    if kind == "decimal" and type(stored) is float:
        return Decimal(repr(stored))
    return stored


def is_exact(value: Any) -> bool:
    """Return whether a value compares by its meaning, and not by the text that it is stored as."""
    if type(value) is time:
        return value.utcoffset() is not None
    return type(value) in KINDS


def align(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Return two values converted to the kind of the one that has a kind; None when they do not compare."""
    kind = KINDS.get(type(a)) or KINDS.get(type(b))
    if kind is None:
        return None
    left, right = value_of(kind, a), value_of(kind, b)
    known = _COMPARED[kind]
    return (left, right) if type(left) in known and type(right) in known else None


def _decimal(text: str) -> Any:
    try:
        found = Decimal(text)
    except (InvalidOperation, ValueError):
        return text
    return text if found.is_nan() else found


def _duration(text: str) -> Any:
    try:
        return msgspec.convert(text, timedelta)
    except msgspec.ValidationError:
        return text


def _time(text: str) -> Any:
    try:
        found = msgspec.convert(text, time)
    except msgspec.ValidationError:
        return text
    return text if found.utcoffset() is None else found


_PARSERS: dict[Kind, Any] = {"decimal": _decimal, "duration": _duration, "time": _time}
