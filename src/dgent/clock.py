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
from typing import NamedTuple

from dgent.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP_US = 60 * 1_000_000
LASTING_US = 60 * 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_NO_BOOT = "process "

_source = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_since_boot_ns = time.monotonic_ns if _source is None else functools.partial(time.clock_gettime_ns, _source)


def now_us() -> int:
    """Return the wall clock in microseconds, for commits; ignores a jump that does not last. May go back."""
    return _wall.now_us()


def belief() -> ClockBelief | None:
    """Return where this process takes the wall clock to be; None before its first use, or without a boot."""
    found = _wall.belief
    return None if found is None or found.boot.startswith(_NO_BOOT) else found


def recall(belief: ClockBelief) -> None:
    """Compare the wall clock with where an earlier program of this boot took it to be."""
    _wall.recall(belief)


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
        return f"{_NO_BOOT}{uuid.uuid4()}"


def jitter(least_s: float, most_s: float) -> float:
    """Return a random pause in seconds, so that programs that wait for each other try at different times."""
    import random  # only who has to wait needs it

    return random.uniform(least_s, most_s)


def since_boot_us() -> int:
    """Return microseconds since the boot, with sleep where the system counts it; this clock cannot be set."""
    return _since_boot_ns() // 1000


class ClockBelief(NamedTuple):
    """The wall clock as the programs of one boot follow it; a store keeps it for the next program.

    `offset` is its distance from the time since the boot. `other` is the one since it was set by a large
    step, at `set_at`, while that is not believed.
    """

    boot: str
    offset: int
    other: int | None = None
    set_at: int = 0


class Wall:
    """The wall clock as this process follows it: a large step counts only after it has lasted a while.

    Commit times never go back. So a moment with a clock that is years ahead must not become a commit time.
    """

    def __init__(self) -> None:
        self.belief: ClockBelief | None = None  # the same object until it changes: commits compare it

    def now_us(self) -> int:
        """Return the wall time; for the first LASTING_US after a step above STEP_US, without that step."""
        wall, since_boot = time.time_ns() // 1000, since_boot_us()
        offset, belief = wall - since_boot, self.belief
        if belief is None:
            self.belief = ClockBelief(boot(), offset)
            return wall
        step = abs(offset - belief.offset)
        if step <= STEP_US:
            if belief.other is not None or step > STEP_US // 2:
                self.belief = ClockBelief(belief.boot, offset)
            return wall
        if belief.other is None or abs(offset - belief.other) > STEP_US:
            self.belief = belief = ClockBelief(belief.boot, belief.offset, offset, since_boot)
        if since_boot - belief.set_at < LASTING_US:
            return since_boot + belief.offset
        self.belief = ClockBelief(belief.boot, offset)
        return wall

    def recall(self, belief: ClockBelief) -> None:
        """Go on from the belief of an earlier program of this boot, if this one has none yet."""
        if self.belief is None and belief.boot == boot() and 0 < belief.offset < _LAST_US:
            self.belief = belief


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
    if type(moment) is not datetime or moment.tzinfo is not UTC:
        # By way of the integer: it refuses a missing zone, and knows no year beyond 9999.
        moment = from_us(to_us(moment))
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"
