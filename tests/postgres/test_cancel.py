"""A call cancelled at any of its awaits happens whole or not at all, and leaves nothing behind.

Each call is started and cancelled after 0, 1, 2, ... turns of the event loop, then after pauses of
real time, which hit the moments when the server has it. A neighbour writes all the while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import dgent
from dgent.store.backend import Delete, Put
from tests.postgres.load import feed

PLACES: list[float] = [*range(0, 20, 2), *(0.0003 * 1.8**n for n in range(8))]
SOME = 6
MANY = 1100


def made(id: str, n: int = 0, **more: Any) -> dgent.Datum:
    return dgent.Datum(id=id, data={"n": n}, **more)


async def _transaction(u: Any, name: str) -> None:
    async def work(tx: Any) -> None:
        assert await tx.count(dgent.Query(prefix=name)) == 0
        for i in range(SOME):
            await tx.put(made(f"{name}.{i}", i))

    await u.transact(work)


async def _commit(u: Any, name: str) -> None:
    gone = [Delete(f"{name}.{i}") for i in range(SOME)]
    await u.commit([*gone, *(Put(made(f"{name}.new.{i}")) for i in range(2 * SOME))])


async def _schema(u: Any, name: str) -> None:
    await u.put(made(name, schema=f"schema.{name}", schema_version=1))


Work = Callable[[Any, str], Awaitable[Any]]
CALLS: dict[str, tuple[Work, int, int]] = {
    "put": (lambda u, name: u.put(made(name)), 0, 1),
    "schema": (_schema, 0, 1),
    "put_many": (lambda u, name: u.put_many([made(f"{name}.{i}") for i in range(SOME)]), 0, SOME),
    "bulk": (lambda u, name: u.put_many([made(f"{name}.{i}") for i in range(MANY)]), 0, MANY),
    "transaction": (_transaction, 0, SOME),
    "commit": (_commit, SOME, 2 * SOME),
    "forget": (lambda u, name: u.forget(*(f"{name}.{i}" for i in range(SOME))), SOME, 0),
    "get": (lambda u, name: u.get(f"{name}.1", raw=True), SOME, SOME),
    "query": (lambda u, name: u.query(dgent.Query(prefix=name, where={"n": {"$gte": 0}})), SOME, SOME),
    "watch": (lambda u, name: u.backend.wait(10**9, 0.05), SOME, SOME),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_cancelled_anywhere(url: str, kind: str) -> None:
    call, before, after = CALLS[kind]
    async with dgent.open(f"{url}&timeout=10") as u:
        await u.put(made("warm"))
        await u.backend.wait(1, 0.01)
        seen = set()
        for turn, place in enumerate(PLACES[::3] if kind in ("bulk", "watch") else PLACES):
            name = f"{kind}.{turn}"
            if before:
                await u.put_many([made(f"{name}.{i}") for i in range(SOME)])
            neighbour = asyncio.ensure_future(u.put(made(f"neighbour.{turn}")))
            task = asyncio.ensure_future(call(u, name))
            await _wait(place)
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            cancelled = isinstance(outcome, asyncio.CancelledError)
            assert cancelled or not isinstance(outcome, BaseException), outcome
            assert (await asyncio.wait_for(neighbour, 5)).rev == 1
            # Its own records are settled once a later commit is through.
            await asyncio.wait_for(u.put(made(f"after.{turn}")), 5)
            count = await u.count(dgent.Query(prefix=name))
            assert count in (before, after), f"{kind} is half done: {count}"
            assert cancelled or count == after
            seen.add((cancelled, count))
            await _given_back(u)
        assert (True, before) in seen, "it was never cancelled early"
        if kind not in ("commit", "forget"):
            assert all(len(found) == 1 for found in (await feed(u)).values())
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left behind: {left}"


async def _given_back(u: Any) -> None:
    """Wait until all connections are free: a group whose last caller left may still look once more."""
    async with asyncio.timeout(5):
        while u.backend._require_open()._out:
            await asyncio.sleep(0.001)


async def _wait(place: float) -> None:
    if isinstance(place, float):
        await asyncio.sleep(place)
    else:
        for _ in range(place):
            await asyncio.sleep(0)


async def test_cancelled_while_opening_and_closing(url: str) -> None:
    for place in [0, 1, 2, 4, 8, *(0.0005 * 1.7**n for n in range(10))]:
        opening = dgent.open(url)
        task = asyncio.ensure_future(opening.open())
        await _wait(place)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await opening.close()
        closing = await dgent.open(url).open()
        writes = [asyncio.ensure_future(closing.put(made(f"{place}.{i}"))) for i in range(3)]
        await asyncio.sleep(0)
        task = asyncio.ensure_future(closing.close())
        await _wait(place)
        task.cancel()
        await asyncio.gather(task, *writes, return_exceptions=True)
        await closing.close()
    # Whoever was cancelled did not wait for the end of the closing; it comes all the same.
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=5)
    assert not left, f"left behind: {left}"


async def test_cancelled_in_a_crowd(url: str) -> None:
    """Hundreds of puts, every third one cancelled at a random moment: the others all stand."""
    async with dgent.open(url) as u:
        puts = [asyncio.ensure_future(u.put(made(f"{i}"))) for i in range(600)]
        for place in range(0, 600, 3):
            if place % 60 == 0:
                await asyncio.sleep(0.003 if place % 120 else 0)
            puts[place].cancel()
        ended = await asyncio.gather(*puts, return_exceptions=True)
        stood = {f"{i}" for i, end in enumerate(ended) if isinstance(end, dgent.Datum)}
        assert {f"{i}" for i in range(600) if i % 3} <= stood
        seqs = await feed(u)
        assert stood <= seqs.keys() and all(len(found) == 1 for found in seqs.values())
