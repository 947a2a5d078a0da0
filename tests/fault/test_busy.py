"""Another process holds the write lock: a bounded wait, an error that names it, and reads go on."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Busy
from dgent.store.sqlite import connection, shared, writer
from tests.fault.jobs import NOTE, Note
from tests.fault.nursery import Child, Nursery

WAIT_S = 0.5


class Watched(connection.Patience):
    """Records of each wait for a lock that was granted: when it is counted from, and on which thread."""

    waits: list[tuple[float, threading.Thread]]

    def __call__(self, attempts: int) -> bool:
        granted = super().__call__(attempts)
        if granted:
            self.waits.append((self._began, threading.current_thread()))
        return granted


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAIT_S", WAIT_S)


def hold(nursery: Nursery, path: Path, seconds: float) -> Child:
    child = nursery.start("hold", path=str(path), seconds=seconds)
    nursery.hear(child)
    return child


async def tick(ticks: list[None]) -> None:
    """Add an entry each time that the event loop comes round, up to a thousand times a second."""
    while True:
        await asyncio.sleep(0.001)
        ticks.append(None)


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each search for the holder of a lock."""
    looks: list[str] = []
    look = connection.lock_holder

    def counted(path: str) -> int | None:
        looks.append(path)
        return look(path)

    monkeypatch.setattr(connection, "lock_holder", counted)
    return looks


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_busy_names_the_holder(
    tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    wait_s = 2.0  # long beside what a loaded machine adds to it
    monkeypatch.setattr(connection, "WAIT_S", wait_s)
    monkeypatch.setattr(writer, "Patience", Watched)
    Watched.waits = []
    looks = count_looks(monkeypatch)
    path = tmp_path / "busy.db"
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        await u.put(dgent.Datum(id="before"))
        holder = hold(nursery, path, 30)
        ticks: list[None] = []
        ticking = asyncio.ensure_future(tick(ticks))
        started = time.monotonic()
        # Three groups of commits: the waits must not add up.
        puts = [asyncio.ensure_future(u.put(dgent.Datum(id=f"{i}"))) for i in range(700)]
        await asyncio.sleep(wait_s / 2)
        assert await u.exists("before") and await u.count() == 1
        asked = time.monotonic()
        ended = await asyncio.gather(*puts, return_exceptions=True)
        took = time.monotonic() - started
        assert all(isinstance(error, Busy) for error in ended), ended[0]
        assert str(holder.pid) in str(ended[0]) and ended[0].details["pid"] == holder.pid
        assert ended[0].retryable
        assert took >= wait_s and Watched.waits
        assert max(began for began, _ in Watched.waits) < asked, "a group waited from when it was its turn"
        ticking.cancel()
        assert threading.current_thread() not in {thread for _, thread in Watched.waits}
        assert len(ticks) > 20, "the loop stood still while a thread waited"
        assert len(looks) == 3, "the holder is looked up once for each group"
        holder.kill()
        nursery.wait(holder)
        await asyncio.gather(*(u.put(dgent.Datum(id=f"{i}")) for i in range(700)))
        assert await u.count() == 701


async def test_a_short_hold_is_waited_out(tmp_path: Path, nursery: Nursery) -> None:
    path = tmp_path / "busy.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        await u.put(dgent.Datum(id="before"))
        hold(nursery, path, WAIT_S / 2)
        await asyncio.gather(
            *(u.remember(Note(i, "x")) for i in range(50)), u.delete("before"), u.forget("before")
        )
        assert await u.count(dgent.Query(schema=NOTE.name)) == 50


async def test_opening_needs_no_write_lock(tmp_path: Path, nursery: Nursery) -> None:
    """A store can be opened and read whoever writes; only what must write waits, and then says so."""
    path = tmp_path / "busy.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="before"))
    holder = hold(nursery, path, 30)
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.exists("before")
        u.register(NOTE)
        calls: list[Any] = [
            u.query(dgent.Query()),
            u.forget("before"),
            u.transact(lambda tx: tx.delete("before")),
        ]
        for call in calls:
            with pytest.raises(Busy, match=f"process {holder.pid}"):
                await call
        holder.kill()
        nursery.wait(holder)
        assert len(await u.query(dgent.Query())) == 1


async def test_creating_waits_for_who_creates(tmp_path: Path, nursery: Nursery) -> None:
    path = tmp_path / "new.db"
    holder = nursery.start("hold_new", path=str(path))
    nursery.hear(holder)
    with pytest.raises(Busy):
        await dgent.open(f"sqlite:///{path}").open()
    holder.kill()
    nursery.wait(holder)
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="x"))


async def test_a_reader_that_stays_does_not_stop_writers(
    tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot held elsewhere keeps the log from being emptied; nothing else waits for it."""
    monkeypatch.setattr(shared, "SCRUB_S", 60.0)
    path = tmp_path / "busy.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="secret", data={"word": "xyzzy"}))
        reader = nursery.start("hold_snapshot", path=str(path))
        nursery.hear(reader)
        forgetting = asyncio.ensure_future(u.forget("secret"))
        longest = 0.0
        for i in range(200):
            started = time.monotonic()
            await u.put(dgent.Datum(id=f"{i}"))
            longest = max(longest, time.monotonic() - started)
            await asyncio.sleep(0.002)
        assert longest < shared.SCRUB_S / 3, "puts waited for a forget that waited for a reader"
        assert not forgetting.done(), "it waits for the reader"
        reader.kill()
        nursery.wait(reader)
        assert (await forgetting).erased
    assert b"xyzzy" not in path.read_bytes()


async def test_forgetting_does_not_swell_the_log(
    tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader stays, forgetting tries again and again; it must not copy the file each time."""
    monkeypatch.setattr(shared, "SCRUB_S", 1.0)
    path = tmp_path / "busy.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put_many([dgent.Datum(id=f"{i}", data={"text": f"{i:04}" * 250}) for i in range(1000)])
        reader = nursery.start("hold_snapshot", path=str(path))
        nursery.hear(reader)
        before = os.path.getsize(f"{path}-wal") + os.path.getsize(path)
        assert not (await u.forget("7")).erased
        assert os.path.getsize(f"{path}-wal") < 2 * before
        reader.kill()
        nursery.wait(reader)
        # Nothing left to forget, only to erase: closing does it.
    assert b"0007" * 250 not in path.read_bytes()
