"""Time as dgent stores it: microseconds since 1970 in UTC, as an integer.

The wall clock may be set, and differs between machines. The time since the boot only goes forward, and is the
same for all programs of one boot of one machine; it says nothing to other machines.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from datetime import UTC, datetime, timedelta

from dgent.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP_US = 60 * 1_000_000
LASTING_US = 60 * 1_000_000
_MICROSECOND = timedelta(microseconds=1)

_source = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_since_boot_ns = time.monotonic_ns if _source is None else functools.partial(time.clock_gettime_ns, _source)


def now_us() -> int:
    """Return the wall clock in microseconds, for commits; ignores a jump that does not last. May go back."""
    return _wall.now_us()


def now() -> datetime:
    """Return the wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


@functools.cache
def boot() -> str:
    """Return a name for this boot of this machine; one for this process where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            named = file.read().strip()
        # Containers share the boot, but may count its time from another start.
        return f"{named} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return f"process {uuid.uuid4()}"


def jitter(least_s: float, most_s: float) -> float:
    """Return a random pause in seconds, so that programs that wait for each other try at different times."""
    import random  # only who has to wait needs it

    return random.uniform(least_s, most_s)


def since_boot_us() -> int:
    """Return microseconds since the boot, with sleep where the system counts it; this clock cannot be set."""
    return _since_boot_ns() // 1000


class Wall:
    """The wall clock as this process follows it: a large step counts only after it has lasted a while.

    Commit times never go back. So a moment with a clock that is years ahead must not become a commit time.
    """

    def __init__(self) -> None:
        self._offset: int | None = None  # of the wall clock from the time since the boot
        self._other: int | None = None  # where it is since it was set
        self._set_at = 0

    def now_us(self) -> int:
        """Return the wall time; for the first LASTING_US after a step above STEP_US, without that step."""
        wall, since_boot = time.time_ns() // 1000, since_boot_us()
        offset = wall - since_boot
        if self._offset is None or abs(offset - self._offset) <= STEP_US:
            self._offset, self._other = offset, None
            return wall
        if self._other is None or abs(offset - self._other) > STEP_US:
            self._other, self._set_at = offset, since_boot
        if since_boot - self._set_at < LASTING_US:
            return since_boot + self._offset
        self._offset, self._other = offset, None
        return wall


_wall = Wall()


def to_us(moment: datetime) -> int:
    """Return the microseconds of an aware datetime, exactly (no float); raises InputError without a zone."""
    if moment.tzinfo is None:
        raise InputError(
            f"the datetime {moment.isoformat()} has no time zone",
            hint="use datetime.now(UTC) or attach a tzinfo",
        )
    return (moment - EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """Return the aware UTC datetime of a stored time."""
    try:
        return EPOCH + timedelta(0, 0, us)
    except OverflowError:
        raise InputError(f"{us} microseconds from 1970 are outside the years 1 to 9999") from None


def text(moment: datetime) -> str:
    """Return ISO text in UTC with exactly six decimals, so that text order is time order."""
    # By way of the integer: it refuses a missing zone, and knows no year beyond 9999.
    return from_us(to_us(moment)).isoformat(timespec="microseconds")[:-6] + "Z"
