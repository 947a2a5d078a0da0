"""Values of columns as JSON, and back: exact for every type, so that a row comes back as it was."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Column, types
from sqlalchemy.types import TypeEngine

from dgent.errors import InputError, Unsupported

Convert = Callable[[Any], Any]
_MICRO = timedelta(microseconds=1)


class Converter(NamedTuple):
    """Functions that make JSON of the values of a column, and values of JSON; None stays None."""

    write: Convert
    read: Convert

    @property
    def writes_same(self) -> bool:
        """True if a value of the column is the same in JSON."""
        return self.write is _same


def _same(value: Any) -> Any:
    return value


def _write_datetime(value: datetime) -> str:
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).isoformat()


def _read_datetime(aware: bool) -> Convert:
    def read(value: Any) -> datetime:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        # A column without a zone holds UTC: every time that leaves it is aware.
        return found if aware else found.astimezone(UTC).replace(tzinfo=None)

    return read


def _write_interval(value: timedelta) -> str:
    micros = value // _MICRO
    return f"{'-' if micros < 0 else ''}PT{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}S"


def _read_interval(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    sign, text = (-1, value[1:]) if value.startswith("-") else (1, value)
    seconds, _, micros = text.removeprefix("PT").removesuffix("S").partition(".")
    return sign * timedelta(seconds=int(seconds), microseconds=int(f"{micros:0<6}"))


def _read_integer(value: Any) -> Any:
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it has a fraction")  # which Postgres would cut off
        return int(value)
    return value


def _write_float(value: float) -> float | str:
    return value if isfinite(value) else repr(value)  # JSON has no form for inf and nan


def _read_as(kind: type | tuple[type, ...], parse: Convert) -> Convert:
    return lambda value: value if isinstance(value, kind) else parse(value)


def _enum(kind: types.Enum) -> Converter:
    if kind.enum_class is None:
        return Converter(_same, _same)
    members: Any = kind.enum_class
    return Converter(
        lambda value: value.name, lambda value: value if isinstance(value, Enum) else members[value]
    )


def _array(kind: Any) -> Converter:
    item = converter_of(kind.item_type)

    def each(convert: Convert) -> Convert:
        def run(values: Any) -> Any:
            if isinstance(values, list | tuple):
                return [None if value is None else run(value) for value in values]
            return convert(values)

        return run

    return Converter(each(item.write), each(item.read))


def converter_of(kind: TypeEngine[Any]) -> Converter:
    """Return the converter of a type; raises Unsupported for one whose values JSON cannot hold exactly."""
    if isinstance(kind, types.Interval) or kind.__visit_name__ == "INTERVAL":
        return Converter(_write_interval, _read_interval)
    if isinstance(kind, types.TypeDecorator):
        return _convert_custom(kind)
    if isinstance(kind, types.Enum):
        return _enum(kind)
    if isinstance(kind, types.ARRAY):
        return _array(kind)
    if isinstance(kind, types.Uuid):
        if not kind.as_uuid:
            return Converter(_same, _same)
        return Converter(str, _read_as(UUID, UUID))
    if isinstance(kind, types.DateTime):
        return Converter(_write_datetime, _read_datetime(bool(kind.timezone)))
    if isinstance(kind, types.Numeric | types.Float) and kind.asdecimal:
        return Converter(str, _read_as(Decimal, Decimal))
    for kinds, found in _PLAIN:
        if isinstance(kind, kinds):
            return found
    if isinstance(kind, types.NullType):  # what reflection could not name
        return Converter(_refuse_object, _same)
    raise Unsupported(
        f"values of the type {kind!r} have no exact form in JSON",
        hint="give serialize= and deserialize=, or leave the column out of the table object",
    )


def _refuse_object(value: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    raise Unsupported(
        f"a value of the type {type(value).__name__} has no exact form in JSON",
        hint="name the column's type in the table object",
    )


def _convert_custom(kind: types.TypeDecorator[Any]) -> Converter:
    """Return the converter of a custom type: that of its values in Python, where they are of its base."""
    if isinstance(kind.impl_instance, types.Integer):
        return Converter(_same, _same)  # its values in Python may have fractions
    return converter_of(kind.impl_instance)


_PLAIN: tuple[tuple[type[TypeEngine[Any]] | tuple[type[TypeEngine[Any]], ...], Converter], ...] = (
    (types.LargeBinary, Converter(lambda v: base64.b64encode(v).decode(), _read_as(bytes, base64.b64decode))),
    (types.JSON, Converter(_same, _same)),
    (types.Boolean, Converter(_same, _same)),
    (types.Integer, Converter(_same, _read_integer)),
    (types.String, Converter(_same, _same)),
    ((types.Numeric, types.Float), Converter(_write_float, _read_as((int, float), float))),
    (types.Date, Converter(date.isoformat, _read_as(date, date.fromisoformat))),
    (types.Time, Converter(time.isoformat, _read_as(time, time.fromisoformat))),
)


def check_value(column: Column[Any], value: Any, convert: Convert) -> Any:
    """Return a value converted; raises InputError naming the column and the value that it cannot hold."""
    if value is None:
        return None
    try:
        return convert(value)
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
        raise InputError(
            f"{value!r} is not a valid value of {column.name!r}, which is {column.type!r}: {error}",
            hint="give it as `get` shows such a value",
            field=column.name,
        ) from None
