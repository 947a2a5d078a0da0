"""A call cancelled at any of its awaits happens whole or not at all, and leaves nothing behind.

Each call is started and cancelled after 0, 1, 2, ... turns of the event loop, until it is over
before the cancel comes; then again after pauses of real time, which hit the moments at which
another thread has the work. A neighbour writes through the same handle all the while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.store.backend import Delete, Put
from tests.fault.check import check_store, store_threads
from tests.fault.jobs import NOTE, Note

PAUSES_S = [0.0001 * 1.6**n for n in range(9)]
SOME = 12


def note(id: str, n: int = 0) -> dgent.Datum:
    return dgent.Datum(id=id, data={"n": n, "owner": "x"}, schema=NOTE.name, schema_version=1)


class Call:
    """A call to cancel: `before` makes what it needs, `states` are the outcomes that are whole."""

    def __init__(self, run: Callable[[Any, str], Awaitable[Any]], before: int, after: int) -> None:
        self.run, self.before, self.after = run, before, after


async def _transaction(u: Any, name: str) -> None:
    async with u.transaction() as tx:
        assert await tx.count(dgent.Query(prefix=name)) == 0
        for i in range(SOME):
            await tx.put(note(f"{name}.{i}", i))


async def _transact(u: Any, name: str) -> None:
    async def work(tx: Any) -> None:
        for i in range(SOME):
            await tx.get(f"{name}.{i}")
            await tx.delete(f"{name}.{i}")

    await u.transact(work, lock=name)


async def _undo(u: Any, name: str) -> None:
    found = await u.get(f"{name}.0", raw=True)
    await u.undo(found.seq)


async def _iterate(u: Any, name: str) -> None:
    async for _ in u.iterate(dgent.Query(prefix=name)):
        await asyncio.sleep(0)


async def _watch(u: Any, name: str) -> None:
    async for change in u.watch(0):
        if change.items[0].id == f"{name}.0":
            return


async def _delete_and_make(u: Any, name: str) -> None:
    ops = [Delete(f"{name}.{i}") for i in range(SOME)] + [
        Put(note(f"{name}.new.{i}")) for i in range(2 * SOME)
    ]
    await u.commit(ops)


CALLS = {
    "put": Call(lambda u, name: u.put(note(name)), 0, 1),
    "remember": Call(lambda u, name: u.remember(Note(1, "x"), id=name), 0, 1),
    "put_many": Call(lambda u, name: u.put_many([note(f"{name}.{i}") for i in range(SOME)]), 0, SOME),
    "transaction": Call(_transaction, 0, SOME),
    "transact": Call(_transact, SOME, 0),
    "commit": Call(_delete_and_make, SOME, 2 * SOME),
    "undo": Call(_undo, SOME, 0),
    "forget": Call(lambda u, name: u.forget(*(f"{name}.{i}" for i in range(SOME))), SOME, 0),
    "query": Call(lambda u, name: u.query(dgent.Query(prefix=name, where={"n": {"$gte": 0}})), SOME, SOME),
    "count": Call(lambda u, name: u.count(dgent.Query(prefix=name)), SOME, SOME),
    "iterate": Call(_iterate, SOME, SOME),
    "watch": Call(_watch, SOME, SOME),
    "compact": Call(lambda u, name: u.compact(100), SOME, SOME),
}


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("kind", CALLS)
async def test_cancelled_anywhere(tmp_path: Path, kind: str, durability: str) -> None:
    call = CALLS[kind]
    path = str(tmp_path / "cancel.db")
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        u.register(NOTE)
        await u.indexed()
        seen = set()
        for turns, place in enumerate([*range(40), *PAUSES_S]):
            name = f"{kind}.{turns}"
            if call.before:
                await u.put_many([note(f"{name}.{i}") for i in range(SOME)])
            neighbour = asyncio.ensure_future(u.put(dgent.Datum(id=f"neighbour.{turns}")))
            task = asyncio.ensure_future(call.run(u, name))
            await _wait(place)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            assert isinstance(outcome, asyncio.CancelledError) or not isinstance(outcome, BaseException), (
                outcome
            )
            await asyncio.wait_for(neighbour, 5)
            # Whatever a thread still does is over once a later commit is through.
            await asyncio.wait_for(u.put(dgent.Datum(id=f"after.{turns}")), 5)
            count = await u.count(dgent.Query(prefix=name))
            assert count in (call.before, call.after), f"{kind} is half done: {count}"
            if not isinstance(outcome, BaseException):
                assert count == call.after
            seen.add((isinstance(outcome, BaseException), count))
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left behind: {left}"
        assert (True, call.before) in seen, "it was never cancelled early"
    check_store(path)


async def _wait(place: float) -> None:
    if isinstance(place, float):
        await asyncio.sleep(place)
    else:
        for _ in range(place):
            await asyncio.sleep(0)


def test_cancelled_while_opening_and_closing(tmp_path: Path) -> None:
    """A cancelled open leaves no store open; a cancelled close still closes."""

    async def opening(path: Path, place: float) -> None:
        u = dgent.open(f"sqlite:///{path}")
        task = asyncio.ensure_future(u.open())
        await _wait(place)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await u.close()

    async def closing(path: Path, place: float) -> None:
        u = await dgent.open(f"sqlite:///{path}").open()
        # All threads of the loop are taken, so that the close waits for one when it is cancelled.
        naps = [asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.02) for _ in range(12)]
        task = asyncio.ensure_future(u.close())
        await _wait(place)
        task.cancel()
        await asyncio.gather(task, *naps, return_exceptions=True)

    async def used(path: Path) -> None:
        async with dgent.open(f"sqlite:///{path}") as u:
            await u.put(dgent.Datum(id="x"))

    places = [*range(8), *PAUSES_S, 0.006, 0.01, 0.02]
    # A close that is cancelled before its first step has not begun, so it cannot have closed.
    cases = [(opening, place) for place in places] + [(closing, place) for place in places if place]
    for turn, (cancelled, place) in enumerate(cases):
        path = tmp_path / f"{turn}.db"
        # Its own loop, which ends only when the threads of its opens have ended.
        asyncio.run(cancelled(path, place))
        for _ in range(500):
            if not store_threads():
                break
            time.sleep(0.01)
        assert not store_threads(), f"still open: {cancelled.__name__} cancelled after {place}"
        assert not list(tmp_path.glob(f"{turn}.db-*"))
        asyncio.run(used(path))


async def test_cancelled_in_a_crowd(tmp_path: Path) -> None:
    """Hundreds of puts, every third one cancelled at a random moment: the others all stand."""
    for durability in ("full", "relaxed"):
        path = str(tmp_path / f"{durability}.db")
        async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
            puts = [asyncio.ensure_future(u.put(note(f"{i}"))) for i in range(600)]
            for place in range(0, 600, 3):
                if place % 60 == 0:
                    await asyncio.sleep(0.0005 if place % 120 else 0)
                puts[place].cancel()
            ended = await asyncio.gather(*puts, return_exceptions=True)
            stood = {f"{i}" for i, end in enumerate(ended) if isinstance(end, dgent.Datum)}
            assert {f"{i}" for i in range(600) if i % 3} <= stood
            stored = {datum.id for datum in await u.list(limit=None)}
            assert stood <= stored
        check_store(path)
