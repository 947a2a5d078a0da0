"""Time as dgent stores it: microseconds since 1970 in UTC, as an integer."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from dgent.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now_us() -> int:
    """The wall clock in microseconds; it may jump, so nothing relies on its order."""
    return time.time_ns() // 1000


def now() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


def to_us(moment: datetime) -> int:
    """Microseconds of an aware datetime, exactly (no float on the way)."""
    if moment.tzinfo is None:
        raise InputError(
            f"the datetime {moment.isoformat()} has no time zone",
            hint="use datetime.now(UTC) or attach a tzinfo",
        )
    return (moment - EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The aware UTC datetime of a stored time."""
    try:
        return EPOCH + timedelta(0, 0, us)
    except OverflowError:
        raise InputError(f"{us} microseconds from 1970 are outside the years 1 to 9999") from None


def text(moment: datetime) -> str:
    """ISO text in UTC with exactly six decimals, so that text order is time order."""
    # By way of the integer: it refuses a missing zone, and knows no year beyond 9999.
    return from_us(to_us(moment)).isoformat(timespec="microseconds")[:-6] + "Z"
