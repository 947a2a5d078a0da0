"""What worker processes of a nursery do on a folder."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any

from dgent.errors import Closed, Conflict
from dgent.store.backend import Keep, Put
from dgent.store.jsonl import backend
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import commit, find_ids, put, typed_record
from tests.fault.forking import forked
from tests.fault.nursery import say

ACCOUNTS = [f"account.{n}" for n in range(4)]


async def transfer(store: JSONLBackend) -> None:
    """Move something between two records of two schemas, by compare-and-set."""
    one, two = random.sample(ACCOUNTS, 2)
    first, second = await store.get_many([one, two])
    assert first is not None and second is not None
    amount = random.randrange(1, 9)
    try:
        await commit(
            store,
            Put(first.replace(data={"n": first.data["n"] - amount}), expect=first.rev),
            Put(second.replace(data={"n": second.data["n"] + amount}), expect=second.rev),
        )
    except Conflict:
        return


async def scribble(store: JSONLBackend, name: str) -> None:
    """Write everything there is to write until killed, saying so after each call has returned."""
    n = 0
    while True:
        n += 1
        what = random.random()
        if what < 0.4:
            answer = await put(store, typed_record(f"{name}.{n}", n))
            say(["one", f"{name}.{n}", answer.written[0].rev, n])
        elif what < 0.6:
            pair = [f"{name}.{n}.{part}" for part in "ab"]
            await put(store, typed_record(pair[0], n), typed_record(pair[1], n, schema="tick"), key=pair[0])
            say(["pair", *pair])
        elif what < 0.75:
            await transfer(store)
        elif what < 0.9:
            ids = [f"{name}.{n}.{part}" for part in range(5)]
            await asyncio.gather(*(put(store, typed_record(id, n)) for id in ids))
            for id in ids:
                say(["one", id, 1, n])
        elif what < 0.96:
            await put(store, typed_record(f"{name}.gone", n))
            await store.forget([f"{name}.gone"], "tester", None)
            say(["gone", f"{name}.gone"])
        elif what < 0.98:
            await store.rewrite(history=True)
        else:
            await store.compact(Keep(versions=3))


async def count_up(store: JSONLBackend, name: str) -> None:
    """Add to a counter by compare-and-set, thirty times."""
    done = 0
    while done < 30:
        now = await store.get("counter")
        assert now is not None
        try:
            await commit(store, Put(typed_record("counter", now.data["n"] + 1), expect=now.rev))
            done += 1
        except Conflict:
            continue
    say(["counted", done])


async def hold(store: JSONLBackend, *ids: str, **data: Any) -> list[tuple[str, int, int]]:
    """Put new records one after another, however slow the disk is and whoever reads: so they are held."""
    told = []
    for id in ids:
        store._require_open().writer.pace_s, store.kernel.was_read = 0.0, False
        answer = await put(store, typed_record(id, data={"n": 0, **data}))
        told.append((id, answer.written[0].rev, answer.seq))
    return told


async def hold_and_die(store: JSONLBackend, name: str) -> None:
    """Hold some commits, say so, and be gone."""
    backend.QUIET_S = 60.0  # a slow machine is not the end of a burst
    for told in await hold(store, *(f"{name}.{n}" for n in range(20))):
        say(["held", *told])
    assert store.kernel.late
    os.kill(os.getpid(), signal.SIGKILL)


async def hold_and_fork(store: JSONLBackend, _: str) -> None:
    """Hold some commits and fork: both go on, and see what the other does."""
    await hold(store, "a", "b", "c")
    assert store.kernel.late
    folder = store.folder

    async def child() -> None:
        try:
            await store.get("a")
            raise AssertionError("it was opened before the fork")
        except Closed:
            pass
        own = JSONLBackend(folder)
        await own.open()
        assert None not in await own.get_many(["a", "b", "c"])
        await hold(own, "child")
        await own.close()

    wait = forked(child)
    await hold(store, "parent")
    await asyncio.to_thread(wait)
    say(["both", len(await find_ids(store, limit=None))])


async def work(job: str, folder: str, name: str) -> None:
    """Open the folder and do the job."""
    store = JSONLBackend(folder)
    await store.open()
    say(["ready"])
    jobs = (scribble, count_up, hold_and_die, hold_and_fork)
    await {each.__name__: each for each in jobs}[job](store, name)  # type: ignore[operator]
    await store.close()
