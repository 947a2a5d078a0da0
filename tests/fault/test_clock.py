"""A clock that jumps: ids stay unique, order by commit is kept, and times lead to the right seq."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

import dgent
from dgent import clock, ids
from dgent.store.registry import ENGINES
from dgent.store.upkeep import check_commit_times
from tests.contract.columns import SETTINGS
from tests.fault.check import check_store

HOUR_NS = 3600 * 10**9
YEAR_NS = 365 * 24 * HOUR_NS
MINUTE_US = 60 * 10**6


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

    monkeypatch.setattr(clock, "_wall", clock.Wall())
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


@pytest.mark.parametrize("engine", [engine.name for engine in ENGINES])
async def test_a_moment_with_a_wrong_clock_moves_no_other_commit(
    tmp_path: Path, jumpy: Jumpy, engine: str
) -> None:
    async with dgent.open(SETTINGS[engine][0].url(tmp_path)) as u:
        await u.put(dgent.Datum(id="before"))
        for years in (10, -10):
            jumpy.shift = years * YEAR_NS
            await u.put(dgent.Datum(id=f"during {years}"))
            await u.delete(f"during {years}")
            jumpy.shift = 0
            await u.put(dgent.Datum(id=f"after {years}"))
        now = datetime.now(UTC)
        times = [change.at for change in await u.changes(0, limit=100)]
        assert len(times) == 7 and times == sorted(times)
        assert all(abs(now - at) < timedelta(minutes=10) for at in times)
        assert await u.count(as_of=now + timedelta(minutes=10)) == 3


STORED = [engine.name for engine in ENGINES if engine.name != "memory"]


@pytest.mark.parametrize("years", [10, -10])
@pytest.mark.parametrize("engine", STORED)
async def test_a_short_program_with_a_wrong_clock_moves_no_other_commit(
    tmp_path: Path, jumpy: Jumpy, engine: str, years: int
) -> None:
    """It has only the store to compare its clock with."""
    url = SETTINGS[engine][0].url(tmp_path)

    async def commit(id: str, shift: int) -> None:
        jumpy.shift = shift
        clock._wall = clock.Wall()  # as in a process of its own
        async with dgent.open(url) as u:
            await u.put(dgent.Datum(id=id))

    for id, shift in (("before", 0), ("during", years * YEAR_NS), ("again", years * YEAR_NS), ("after", 0)):
        await commit(id, shift)
    now = datetime.now(UTC)
    async with dgent.open(url) as u:
        times = [change.at for change in await u.changes(0, limit=100)]
        assert len(times) == 4 and times == sorted(times)
        assert all(abs(now - at) < timedelta(minutes=10) for at in times)
        assert await check_commit_times(u.backend) == []


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
async def test_short_programs_believe_a_clock_that_lasts(
    tmp_path: Path, jumpy: Jumpy, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    url = SETTINGS[engine][0].url(tmp_path)
    passed = 0  # minutes, also by the wall clock
    since_boot = clock.since_boot_us
    monkeypatch.setattr(clock, "since_boot_us", lambda: since_boot() + passed * MINUTE_US)

    async def commit_time(hours: int) -> int:
        """Return the hours that a commit by another process is dated ahead, with a clock so many ahead."""
        jumpy.shift = hours * HOUR_NS + passed * MINUTE_US * 1000
        clock._wall = clock.Wall()
        async with dgent.open(url) as u:
            put = await u.put(dgent.Datum(data={"passed": passed}))
            [change] = await u.changes(put.seq - 1)
        return round((change.at - datetime.now(UTC) - timedelta(minutes=passed)) / timedelta(hours=1))

    assert await commit_time(0) == 0
    assert await commit_time(5) == 0
    assert await commit_time(0) == 0  # it did not last
    passed += 10
    assert await commit_time(5) == 0
    passed += 2
    assert await commit_time(5) == 5
    assert await commit_time(5) == 5


async def test_a_store_of_another_boot_says_nothing_of_the_clock(
    tmp_path: Path, jumpy: Jumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'clock.db'}"
    for boot, hours in (("one boot", 0), ("another boot", 5), ("process of no boot", 7)):
        monkeypatch.setattr(clock, "boot", lambda boot=boot: boot)
        jumpy.shift = hours * HOUR_NS
        clock._wall = clock.Wall()
        async with dgent.open(url) as u:
            put = await u.put(dgent.Datum())
            [change] = await u.changes(put.seq - 1)
        assert round((change.at - datetime.now(UTC)) / timedelta(hours=1)) == hours


@pytest.mark.parametrize(
    "stored", [b"\xff", b"{}", "text", 7, b'["x", 1]', b'["b", 9223372036854775807, null, 0]']
)
async def test_a_damaged_note_of_the_clock_is_ignored(tmp_path: Path, jumpy: Jumpy, stored: object) -> None:
    path = tmp_path / "clock.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="first"))
    if isinstance(stored, bytes):
        stored = stored.replace(b'"b"', msgspec.json.encode(clock.boot()))
    with closing(apsw.Connection(str(path))) as file:
        file.execute("UPDATE meta SET value = ? WHERE name = 'clock'", (stored,))
        assert file.changes() == 1
    clock._wall = clock.Wall()
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="second"))
        times = [change.at for change in await u.changes(0)]
        assert all(abs(datetime.now(UTC) - at) < timedelta(minutes=10) for at in times)


async def test_a_store_dated_ahead_is_reported(tmp_path: Path, jumpy: Jumpy) -> None:
    """A program that starts with a wrong clock cannot know it."""
    url = f"sqlite:///{tmp_path / 'clock.db'}"
    async with dgent.open(url) as u:
        assert await check_commit_times(u.backend) == []
        jumpy.shift = 10 * YEAR_NS
        clock._wall = clock.Wall()
        await u.put(dgent.Datum(id="ahead"))
        assert await check_commit_times(u.backend) == []
    jumpy.shift = 0
    clock._wall = clock.Wall()
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="after"))
        [finding] = await check_commit_times(u.backend)
        assert (finding.level, finding.subject) == ("warning", "times") and "commit 2" in finding.message
        assert await u.count(as_of=1) == 1 and await u.count(as_of=2) == 2  # numbers tell them apart


def test_a_clock_that_was_corrected_is_followed(jumpy: Jumpy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small corrections at once, large ones when they have lasted."""
    passed = 0
    monkeypatch.setattr(clock, "since_boot_us", lambda: passed)
    wall = clock.Wall()
    monkeypatch.setattr(clock, "time", type("Time", (), {"time_ns": lambda: (passed + jumpy.shift) * 1000}))
    second = 1_000_000
    for step in (second, -2 * second, 50 * second):
        jumpy.shift += step
        assert wall.now_us() == passed + jumpy.shift
    good = jumpy.shift
    jumpy.shift += 3600 * second
    for _ in range(6):
        assert wall.now_us() == passed + good
        passed += 10 * second
    assert wall.now_us() == passed + jumpy.shift
    jumpy.shift -= 3600 * second
    assert wall.now_us() == passed + good + 3600 * second
    jumpy.shift += 3600 * second  # it did not last
    passed += 100 * second
    assert wall.now_us() == passed + jumpy.shift


async def test_waiting_does_not_follow_the_wall_clock(tmp_path: Path, jumpy: Jumpy) -> None:
    """A feed that waits, and a write that waits for a lock, count time that only goes forward."""
    async with dgent.open(f"sqlite:///{tmp_path / 'clock.db'}") as u:
        started = time.monotonic()
        jumpy.shift = -YEAR_NS
        await u.backend.wait(0, 0.1)
        jumpy.shift = YEAR_NS
        await u.backend.wait(0, 0.1)
        assert 0.15 < time.monotonic() - started < 60


async def test_keys_survive_a_jump(tmp_path: Path, jumpy: Jumpy) -> None:
    """A retry is recognised whatever the clock says; only `compact` lets old keys go."""
    async with dgent.open(f"sqlite:///{tmp_path / 'clock.db'}") as u:
        first = await u.put(dgent.Datum(id="x", created_at=datetime(2020, 1, 1, tzinfo=UTC)), key="k")
        for jump in (-HOUR_NS, YEAR_NS):
            jumpy.shift += jump
            again = await u.put(dgent.Datum(id="x", created_at=datetime(2020, 1, 1, tzinfo=UTC)), key="k")
            assert (again.rev, again.seq) == (first.rev, first.seq)
        assert await u.seq() == 1
