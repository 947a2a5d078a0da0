"""Column types as SQLite keeps them: times with a zone, and decimals that are never rounded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

from sqlalchemy import types
from sqlalchemy.dialects.sqlite import base

DIGITS = 15  # of a decimal fraction, that SQLite keeps

Process = Callable[[Any], Any]


class DateTime(base.DATETIME):
    """A date with a time. With `timezone=True` it is stored in UTC, as SQLite's own clock gives it, and read
    as an aware time; a time without a zone is taken for UTC.
    """

    def bind_processor(self, dialect: Any) -> Process | None:
        """Return the function that makes a stored text of a time."""
        write: Process | None = super().bind_processor(dialect)
        assert write is not None
        if not self.timezone:
            return write

        def process(value: Any) -> Any:
            if isinstance(value, datetime) and value.tzinfo is not None:
                value = value.astimezone(UTC)
            return write(value)

        return process

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:
        """Return the function that reads a time from a stored text."""
        read: Process | None = super().result_processor(dialect, coltype)
        assert read is not None
        if not self.timezone:
            return read

        def process(value: Any) -> Any:
            found = None if value is None else read(value)
            if found is None:
                return None
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)

        return process


class Time(base.TIME):
    """A time of day; with `timezone=True` its offset is stored with it."""

    def bind_processor(self, dialect: Any) -> Process | None:
        """Return the function that makes a stored text of a time."""
        write: Process | None = super().bind_processor(dialect)
        assert write is not None
        if not self.timezone:
            return write
        return lambda value: value.isoformat() if isinstance(value, time) and value.tzinfo else write(value)

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:
        """Return the function that reads a time from a stored text."""
        if not self.timezone:
            read: Process | None = super().result_processor(dialect, coltype)
            return read
        return lambda value: None if value is None else time.fromisoformat(value)


def store_decimal(value: Any) -> Any:
    """Return the number to store for a decimal; raises ValueError for one that SQLite would round."""
    if not isinstance(value, Decimal):
        return value
    if not value.is_finite():
        raise ValueError(f"{value} cannot be stored as a number")
    if value == value.to_integral_value() and -(2**63) <= value < 2**63:
        return int(value)
    near = float(value)
    if Decimal(repr(near)) != value or len(value.normalize().as_tuple().digits) > DIGITS:
        raise ValueError(
            f"SQLite keeps {DIGITS} digits of a decimal, and {value} has more:"
            " round it, or keep it in a column of text"
        )
    return near


class _Decimals:
    """Stores decimals as numbers: 15 digits with a fraction, 64 bits without; others are refused."""

    asdecimal: bool
    scale: int | None = None

    def bind_processor(self, dialect: Any) -> Process | None:
        """Return the function that makes the number to store."""
        return store_decimal

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:
        """Return the function that makes a decimal, or a float, of a stored number."""
        if not self.asdecimal:
            return lambda value: None if value is None else float(value)
        scale = self.scale or 0
        step = Decimal(1).scaleb(-scale) if scale else None

        def process(value: Any) -> Any:
            if value is None:
                return None
            found = Decimal(repr(value) if isinstance(value, float) else value)
            exponent = found.as_tuple().exponent
            if step is not None and isinstance(exponent, int) and -exponent < scale:
                return found.quantize(step)  # 1.50, not 1.5; digits are added, never taken away
            return found

        return process


class Numeric(_Decimals, types.Numeric[Any]):
    """A decimal number, which is never rounded."""


class Float(_Decimals, types.Float[Any]):
    """A number with a fraction, read as a decimal where that is asked for."""
