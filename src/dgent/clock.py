"""Time as dgent stores it: microseconds since 1970 in UTC, as an integer.

The wall clock may be set, and differs between machines. The time since the boot only goes forward, and is the
same for all programs of one boot of one machine; it says nothing to other machines.
"""

from __future__ import annotations

import functools
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dgent.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now_us() -> int:
    """The wall clock in microseconds; it may jump, so nothing relies on its order."""
    return time.time_ns() // 1000


def now() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


@functools.cache
def boot() -> str:
    """Name this boot of this machine; where the system has no name for it, this process alone."""
    try:
        named = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Containers share the boot, but may count its time from another start.
        return f"{named} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"process {uuid.uuid4()}"


def since_boot_us() -> int:
    """Microseconds since the boot, sleep included where the system counts it; nobody can set this clock."""
    source = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if source is None else time.clock_gettime_ns(source)) // 1000


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
