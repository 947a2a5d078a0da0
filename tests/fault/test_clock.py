"""A clock that jumps: ids stay unique, order by commit is kept, and times lead to the right seq."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dgent
from dgent import clock, ids
from tests.fault.check import check_store

HOUR_NS = 3600 * 10**9
YEAR_NS = 365 * 24 * HOUR_NS


class Jumpy:
    """The system's clock, set back and forth at will."""

    def __init__(self) -> None:
        self.shift = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.shift

    def now(self) -> datetime:
        return clock.from_us(self.time_ns() // 1000)


@pytest.fixture
def jumpy(monkeypatch: pytest.MonkeyPatch) -> Jumpy:
    made = Jumpy()

    class Time:
        time_ns = staticmethod(made.time_ns)

    monkeypatch.setattr(clock, "time", Time)
    monkeypatch.setattr(clock, "now", made.now)
    monkeypatch.setattr(ids, "time", Time)
    return made


def jumps() -> list[int]:
    rng = random.Random(7)
    big = [-HOUR_NS, HOUR_NS, YEAR_NS, -YEAR_NS, -3 * HOUR_NS, 0]
    return [rng.choice(big) if n % 5 == 0 else rng.randrange(-(10**6), 10**6) for n in range(120)]


def test_ids_are_unique_and_rise(jumpy: Jumpy) -> None:
    made = []
    for jump in jumps():
        jumpy.shift += jump
        made += [ids.new_id() for _ in range(50)]
    assert len(set(made)) == len(made)
    assert made == sorted(made)


PLACES: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder / 'clock.db'}",
}


@pytest.mark.parametrize("engine", PLACES)
async def test_commits_keep_their_order(tmp_path: Path, jumpy: Jumpy, engine: str) -> None:
    url = PLACES[engine](tmp_path)
    u = await dgent.open(url).open()
    seqs = []
    for n, jump in enumerate(jumps()):
        jumpy.shift += jump
        seqs.append((await u.put(dgent.Datum(id=f"r{n % 7}", data={"n": n}))).seq)
        if engine == "sqlite" and n % 40 == 20:
            # The next process must not go back either.
            await u.close()
            u = await dgent.open(url).open()
    assert seqs == list(range(1, len(seqs) + 1))
    changes = await u.changes(0, limit=1000)
    assert [change.seq for change in changes] == seqs
    times = [change.at for change in changes]
    assert times == sorted(times)
    # Any time leads to the last commit at or before it.
    moments = [at + timedelta(microseconds=step) for at in times[::7] for step in (-1, 0, 1)]
    for moment in moments:
        last = max((change.seq for change in changes if change.at <= moment), default=0)
        for id in ("r0", "r3"):
            by_time, by_seq = await u.get(id, as_of=moment, raw=True), await u.get(id, as_of=last, raw=True)
            assert by_time == by_seq
        assert await u.count(as_of=moment) == await u.count(as_of=last)
    await u.close()
    if engine == "sqlite":
        check_store(str(tmp_path / "clock.db"))


async def test_waiting_does_not_follow_the_wall_clock(tmp_path: Path, jumpy: Jumpy) -> None:
    """A feed that waits, and a write that waits for a lock, count time that only goes forward."""
    async with dgent.open(f"sqlite:///{tmp_path / 'clock.db'}") as u:
        started = time.monotonic()
        jumpy.shift = -YEAR_NS
        await u.backend.wait(0, 0.1)
        jumpy.shift = YEAR_NS
        await u.backend.wait(0, 0.1)
        assert 0.15 < time.monotonic() - started < 5


async def test_keys_survive_a_jump(tmp_path: Path, jumpy: Jumpy) -> None:
    """A retry is recognised whatever the clock says; only `compact` lets old keys go."""
    async with dgent.open(f"sqlite:///{tmp_path / 'clock.db'}") as u:
        first = await u.put(dgent.Datum(id="x", created_at=datetime(2020, 1, 1, tzinfo=UTC)), key="k")
        for jump in (-HOUR_NS, YEAR_NS):
            jumpy.shift += jump
            again = await u.put(dgent.Datum(id="x", created_at=datetime(2020, 1, 1, tzinfo=UTC)), key="k")
            assert (again.rev, again.seq) == (first.rev, first.seq)
        assert await u.seq() == 1
