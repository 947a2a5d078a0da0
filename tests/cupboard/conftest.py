"""A cupboard on every engine of the registry, and a second one on the same store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

import dgent
from dgent import clock
from dgent.cupboard import Cupboard
from dgent.store.registry import ENGINES, Engine
from tests.contract.columns import SETTINGS
from tests.soak import first
from tests.universe.conftest import SameMemory, engine

__all__ = ["engine"]

FEW = [engine for name in first(("sqlite", "memory"), 1) for engine in ENGINES if engine.name == name]


@pytest.fixture(params=FEW, ids=lambda engine: engine.name)
def few_engines(request: pytest.FixtureRequest) -> Engine:
    """Imported as `engine` where cases are many; how engines differ is seen in the other files."""
    return request.param


Rival = Callable[[], Awaitable[Cupboard]]


@pytest.fixture
def url(engine: Engine, store_path: Path) -> str:
    return SETTINGS[engine.name][0].url(store_path)


@pytest.fixture
async def cupboard(url: str) -> AsyncIterator[Cupboard]:
    """A cupboard on an open universe, of each engine in turn."""
    async with dgent.open(url, author="ann") as u:
        yield Cupboard(u)


@pytest.fixture
async def rival(cupboard: Cupboard, url: str) -> AsyncIterator[Rival]:
    """Opens one more cupboard on the same store, as another program would."""
    opened: list[dgent.Universe] = []

    async def open_one() -> Cupboard:
        backend = {"backend": SameMemory(cupboard.universe.backend)} if url == "memory:" else {"url": url}
        other = dgent.open(**backend, author="bob")
        opened.append(await other)
        return Cupboard(other)

    yield open_one
    for other in opened:
        await other.close()


@pytest.fixture(params=first(["sqlite", "memory"], 1))
async def quick(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[Cupboard]:
    """A cupboard for rules that are the same on all engines: in a short look on the one most used."""
    async with dgent.open(SETTINGS[request.param][0].url(store_path), author="ann") as u:
        yield Cupboard(u)


HoursT = TypeVar("HoursT", bound="Hours")


class Hours:
    """The clocks of this process, moved on by the test instead of waited for."""

    def __init__(self) -> None:
        self.passed = self.set = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed + self.set

    def since_boot_us(self) -> int:
        return time.monotonic_ns() // 1000 + self.passed // timedelta(microseconds=1)

    def pass_by(self, seconds: float) -> None:
        """So much time is over now."""
        self.passed += timedelta(seconds=seconds)

    def set_clock(self, seconds: float) -> None:
        """Somebody sets the wall clock by so much; no time passes."""
        self.set += timedelta(seconds=seconds)


class Frozen(Hours):
    """The same clocks, but time passes only when the test says so, however slow the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self._start, self._start_us = datetime.now(UTC), time.monotonic_ns() // 1000

    def now(self) -> datetime:
        return self._start + self.passed + self.set

    def since_boot_us(self) -> int:
        return self._start_us + self.passed // timedelta(microseconds=1)


def _use(made: HoursT, monkeypatch: pytest.MonkeyPatch) -> HoursT:
    monkeypatch.setattr(clock, "now", made.now)
    monkeypatch.setattr(clock, "since_boot_us", made.since_boot_us)
    return made


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """Time passes as the test says: leases and dates come to their ends on a machine of any speed."""
    return _use(Hours(), monkeypatch)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Frozen:
    """Leases end only when the test says so, also where heartbeats are late."""
    return _use(Frozen(), monkeypatch)
