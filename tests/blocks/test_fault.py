"""What can go wrong in the middle of an edit: a cancel, a full disk, a clock that jumps, another handle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent import clock
from dgent.blocks import Block, Library, Shape, Template
from dgent.blocks.history import log as chain
from dgent.errors import StorageFull
from tests.fault.test_full_disk import Disk, disk

__all__ = ["disk"]

PAUSES_S = [0.0002 * 1.8**n for n in range(7)]


async def check(lib: Library, block: Block) -> None:
    """What a handle has in memory is what is stored, and its versions are dense."""
    fresh = await Library(lib._universe, agent="scout").get(block.label)
    assert await block.text() == await fresh.text()
    versions = await fresh.history()
    assert [each.number for each in versions] == list(range(len(versions), 0, -1))
    assert versions[0].size == len(await fresh.text())
    assert block.version == fresh.version == len(versions)


# -- a cancel -----------------------------------------------------------------------------------


async def append(block: Block, n: int) -> None:
    await block.append(f"[{n}]")


async def undo(block: Block, n: int) -> None:
    await block.undo()


async def rollback(block: Block, n: int) -> None:
    await block.rollback(1)


async def create(block: Block, n: int) -> None:
    await Library(block._permissions.universe, agent="scout").create(f"new{n}", text="new")


CALLS: list[Callable[[Block, int], Awaitable[None]]] = [append, undo, rollback, create]


@pytest.mark.parametrize("call", CALLS)
async def test_a_cancel_at_any_moment(
    quick: Library, call: Callable[[Block, int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "PACK_SIZE", 4)
    monkeypatch.setattr(chain, "KEEP", 1)
    block = await quick.create("notes", text="[start]")
    other = await Library(quick._universe, agent="scout").get("notes")
    pauses: list[float | int] = [*range(40), *PAUSES_S]
    for n, pause in enumerate(pauses):
        await other.append(f"({n})")  # so that what the handle has in memory is behind
        task = asyncio.ensure_future(call(block, n))
        if isinstance(pause, int):
            for _ in range(pause):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(pause)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not block._version_log.lock.locked()
    await other.append("(last)")  # what was cancelled while it was being stored is stored now, or never
    await check(quick, block)
    for label in [each.label for each in await quick.list() if each.label != "notes"]:
        made = await quick.get(label)
        assert (await made.text(), len(await made.history())) == ("new", 1)
    await block.append("[end]")
    assert (await other.text()).endswith("[end]")
    await check(quick, block)


# -- several handles ------------------------------------------------------------------------------


async def test_tasks_of_one_handle_and_handles_of_one_program(quick: Library) -> None:
    one = await quick.create("notes", limit=100_000)
    two, three = await quick.get("notes"), await Library(quick._universe, agent="scout").get("notes")
    handles = {"a": one, "b": two, "c": three}
    counter, same = await quick.create("hits", document="counter"), await quick.get("hits")
    await asyncio.gather(
        *(each.append(f"[{n}{name}]") for n in range(30) for name, each in handles.items()),
        *(same.increment() for _ in range(20)),
        *(counter.increment() for _ in range(20)),
    )
    text = await one.text()
    assert all(text.count(f"[{n}{name}]") == 1 for n in range(30) for name in "abc")
    for each in (one, two, three):
        await check(quick, each)
    assert await counter.value() == {"count": 40}


# -- a clock that jumps ---------------------------------------------------------------------------


async def test_a_clock_that_jumps_back(quick: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    noon, minutes = datetime(2026, 5, 1, 12, tzinfo=UTC), 0
    monkeypatch.setattr(clock, "now", lambda: noon + timedelta(minutes=minutes))
    block = await quick.create("notes", text="0")
    log = await quick.create("log", template=Template("hour", Shape("log", keep_s=3600)))
    for n, jump in enumerate((0, 10, -60, -50, 20), 1):
        minutes = jump
        await block.append(str(n))
        await log.log(f"n{n}")
    assert await block.text() == "012345"
    assert [each.number for each in await block.history()] == [6, 5, 4, 3, 2, 1]
    assert [each["message"] for each in await log.entries(trimmed=True)] == ["n5", "n4", "n3", "n2", "n1"]
    assert (await block.at(time=noon + timedelta(minutes=5))).text == "01"
    assert (await block.at(time=noon + timedelta(minutes=30))).text == "012345"
    await block.undo()
    await block.rollback(3)
    assert await block.text() == "012"
    await check(quick, block)


# -- a full disk ------------------------------------------------------------------------------------


async def test_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "PACK_SIZE", 16)
    monkeypatch.setattr(chain, "KEEP", 2)
    async with dgent.open(f"sqlite:///{disk.folder / 'store.db'}") as u:
        lib = Library(u, agent="scout")
        block = await lib.create("notes", text="", limit=10**7)
        for n in range(20):
            await block.append(f"[{n}]" + "x" * 500)
        disk.fill()
        done = 20
        with pytest.raises(StorageFull):
            for _ in range(5000):
                await block.append(f"[{done}]" + "x" * 500)
                done += 1
        with pytest.raises(StorageFull):
            for n in range(5000):
                await lib.create(f"b{n}", text="y" * 2000)
        text = await block.text()
        assert text.count("x" * 500) == done and f"[{done}]" not in text
        assert "notes" in [each.label for each in await lib.list()]
        disk.free()
        await block.append("[end]")
        await check(lib, block)
        await lib.create("after")
        for each in await lib.list():
            assert len(await each.history()) >= 1
