"""The jobs of test_fork: each opens a store, forks, and checks both sides."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Closed
from dgent.store.port.telemetry import TelemetryEvent
from dgent.store.sqlite import shared


def forked(work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a coroutine in a child; the returned function waits for it and checks that it ended well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # The child stands inside its parent's loop, which is not its own to run.
            asyncio.events._set_running_loop(None)
            asyncio.run(work())
            code = 0
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(code)

    def wait() -> None:
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the child failed; see its traceback"

    return wait


def fork_inherited(path: str) -> None:
    asyncio.run(_inherited(path))


async def _inherited(path: str) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a"))

        async def child() -> None:
            for call in (u.put(dgent.Datum()), u.get("a"), u.query(dgent.Query()), u.seq(), u.forget("a")):
                with pytest.raises(Closed):
                    await call
            with pytest.raises(Closed, match="before fork"):
                u.backend.get_now("a")
            await u.close()

        forked(child)()
        await u.put(dgent.Datum(id="b"))
        assert sorted(d.id for d in await u.list()) == ["a", "b"]


def fork_anew(path: str) -> None:
    asyncio.run(_anew(path))


async def _anew(path: str) -> None:
    ready, told = os.pipe()
    go, told_go = os.pipe()
    u = await dgent.open(f"sqlite:///{path}").open()
    await u.put(dgent.Datum(id="parent"))

    async def child() -> None:
        async with dgent.open(f"sqlite:///{path}") as mine:
            await mine.put(dgent.Datum(id="before"))
            os.write(told, b"x")
            os.read(go, 1)
            for i in range(20):
                await mine.put(dgent.Datum(id=f"after.{i}"))
            # Killed, so that nothing it does at its end can hide what was lost on the way.
            os.kill(os.getpid(), 9)

    try:
        wait = forked(child)
        os.read(ready, 1)
        assert await u.exists("before")
        # The parent was the last one as far as it knows: it folds and removes the log.
        await u.close()
        os.write(told_go, b"x")
        with pytest.raises(AssertionError):
            wait()
    finally:
        for end in (ready, told, go, told_go):
            os.close(end)
    async with dgent.open(f"sqlite:///{path}") as again:
        assert len(await again.list()) == 22, "acknowledged writes of the child are gone"


def fork_exit(path: str) -> None:
    asyncio.run(_exit(path))


async def _exit(path: str) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a"))
        for i in range(5):
            pid = os.fork()
            if pid == 0:
                # Not os._exit: threads are joined, atexit runs, and modules are torn down.
                asyncio.events._set_running_loop(None)
                threading.main_thread()
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                _finalize()
            os.waitpid(pid, 0)
            await u.put(dgent.Datum(id=f"b{i}"))
            assert os.path.getsize(path + "-wal") > 0, "the child removed the log under its parent"
        assert len(await u.list()) == 6


def _finalize() -> None:
    """End this process as the interpreter would at the end of a program."""
    import ctypes

    ctypes.pythonapi.Py_FinalizeEx()
    os._exit(0)


def fork_after_close(path: str) -> None:
    asyncio.run(_after_close(path))


async def _after_close(path: str) -> None:
    """Fork while handles that were closed are still held: the child has nothing left to close."""
    complaints: list[Any] = []
    sys.unraisablehook = complaints.append
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a"))
        await u.storage.telemetry.append([TelemetryEvent("span")])
        await u.storage.relational.execute("CREATE TABLE mine (n INTEGER)")
        held = list(shared._every)  # as long as somebody holds them, a fork looks at them

    async def child() -> None:
        assert not complaints, complaints
        async with dgent.open(f"sqlite:///{path}") as mine:
            await mine.put(dgent.Datum(id="child"))

    forked(child)()
    assert len(held) == 3
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.count() == 2


def fork_mid_write(path: str) -> None:
    for durability in ("full", "relaxed"):
        asyncio.run(_mid_write(path, durability))


async def _mid_write(path: str, durability: str) -> None:
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        await u.put(dgent.Datum(id=f"{durability}.first"))
        puts = [asyncio.ensure_future(u.put(dgent.Datum(id=f"{durability}.{i}"))) for i in range(20)]
        await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            # The parent's loop goes on in the child, with the same calls under way.
            code = 1
            try:
                for _ in range(20):
                    await asyncio.sleep(0)
                ended = [put.exception() for put in puts if put.done()]
                code = 0 if all(isinstance(error, Closed) for error in ended) else 2
            finally:
                os._exit(code)
        # The child's loop reads from the same pipe that wakes this one, and may take what it was woken by.
        while (await asyncio.wait(puts, timeout=0.05))[1]:
            pass
        made = [put.result() for put in puts]
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the child wrote with its parent's connection"
        assert len({datum.seq for datum in made}) == 20
        assert await u.count(dgent.Query(prefix=f"{durability}.")) == 21


def fork_storm(path: str) -> None:
    asyncio.run(_storm(path))


async def _storm(path: str) -> None:
    """Fork while the writer thread, the loop and the reader threads are all inside SQLite."""
    async with dgent.open(f"sqlite:///{path}") as u:
        stop = asyncio.Event()
        acked: list[str] = []

        async def writes(name: str) -> None:
            while not stop.is_set():
                acked.append((await u.put(dgent.Datum(data={"x": "y" * 500}, tags=frozenset({name})))).id)

        async def reads() -> None:
            while not stop.is_set():
                await u.count(dgent.Query(where={"x": {"$ne": 1}}))

        tasks = [asyncio.ensure_future(writes(f"w{i}")) for i in range(4)]
        tasks += [asyncio.ensure_future(reads()) for _ in range(4)]
        waits = []
        for i in range(60):
            await asyncio.sleep(0.004)

            async def child(i: int = i) -> None:
                async with dgent.open(f"sqlite:///{path}") as mine:
                    await mine.put(dgent.Datum(id=f"child.{i}"))
                    assert (await mine.get(f"child.{i}", raw=True)).id == f"child.{i}"
                    assert await mine.count() > i // 8

            waits.append(forked(child))
            if len(waits) > 6:
                waits.pop(0)()
        for wait in waits:
            wait()
        stop.set()
        await asyncio.gather(*tasks)
        assert await u.count(dgent.Query(prefix="child.")) == 60
        assert all(await u.get_many(acked, raw=True))


def fork_while_busy(path: str) -> None:
    asyncio.run(_while_busy(path))


async def _while_busy(path: str) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a"))
        other = apsw.Connection(path)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(u.put(dgent.Datum(id="b")))
        await asyncio.sleep(0.1)
        shared.PAUSE_S = 0.05

        async def child() -> None:
            with pytest.raises(Closed, match="fork"):
                await dgent.open(f"sqlite:///{path}").open()

        forked(child)()
        other.execute("ROLLBACK")
        other.close()
        done = await waiting
        assert done.rev == 1


def fork_while_opening(path: str) -> None:
    asyncio.run(_while_opening(path))


async def _while_opening(path: str) -> None:
    """Another thread is about to open the file, and waits for a lock on it when this one forks."""
    other = apsw.Connection(path)
    other.execute("BEGIN EXCLUSIVE")
    opening = asyncio.ensure_future(dgent.open(f"sqlite:///{path}").open())
    await asyncio.sleep(0.1)
    shared.PAUSE_S = 0.05

    async def child() -> None:
        with pytest.raises(Closed, match="fork"):
            await dgent.open(f"sqlite:///{path}").open()

    forked(child)()
    other.execute("ROLLBACK")
    other.close()
    u = await opening
    await u.put(dgent.Datum(id="a"))
    await u.close()
