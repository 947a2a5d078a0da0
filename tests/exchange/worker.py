"""What other processes do in these tests; each says "begin" when it begins to do its job."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from pathlib import Path

import dgent
from dgent.errors import Closed
from dgent.exchange.backup import backup, restore
from dgent.store.engine.kernel import no_wrap
from dgent.store.sqlite.shared import share
from tests.exchange.constellation import url
from tests.fault.nursery import Child, Nursery, say

JOBS = "tests.exchange.worker"


def start(nursery: Nursery, job: str, **arguments: object) -> Child:
    """Start a worker, and wait until it does its job."""
    worker = nursery.start(job, **{name: str(value) for name, value in arguments.items()})
    assert nursery.hear(worker) == "begin"
    return worker


def end(nursery: Nursery, *workers: Child) -> None:
    """Kill workers, without a chance to tidy up."""
    for worker in workers:
        worker.kill()
    nursery.wait(*workers)


async def write(folder: str, name: str) -> None:
    """Put one record after another until killed."""
    async with dgent.open(url(Path(folder))) as u:
        n = 0
        while True:
            n += 1
            await u.put(dgent.Datum(id=f"{name}.{n}", data={"n": n, "x": "y" * 300}))
            if n == 1:
                say("begin")
            await asyncio.sleep(0.002)  # all are to be at it at once, not to fill the store


async def come_and_go(folder: str, name: str) -> None:
    """Open the store, put some records and close it, again and again; say what was acknowledged."""
    say("begin")
    until, n = time.monotonic() + 5, 0
    while time.monotonic() < until:
        async with dgent.open(url(Path(folder))) as u:
            for _ in range(random.randint(1, 4)):
                n += 1
                await u.put(dgent.Datum(id=f"{name}.{n}", data={"x": "y" * random.randint(1, 3000)}))
                say(f"{name}.{n}")
        await asyncio.sleep(random.uniform(0, 0.06))


async def keep_open(folder: str) -> None:
    """Have the store open, and do nothing with it."""
    async with dgent.open(url(Path(folder))):
        say("begin")
        await asyncio.to_thread(time.sleep, 60)


async def back_up(folder: str, target: str) -> None:
    """Make a backup."""
    async with dgent.open(url(Path(folder))) as u:
        say("begin")
        await backup(u, Path(folder), Path(target))


async def put_back(source: str, folder: str) -> None:
    """Restore a backup."""
    say("begin")
    await restore(Path(source), Path(folder), replace=True)


async def fork_inside(folder: str, target: str) -> None:
    """Fork while a backup reads the store on another thread; say what the child may do with the store."""
    codes: list[int] = []
    shutil.rmtree(Path(folder, "blobs"))  # they would be read first, and progress is about the store then

    def fork(done: int, total: int | None) -> None:
        if not codes and done:
            child = os.fork()
            if not child:
                try:
                    share(f"{folder}/membrane.db", "full", no_wrap)
                except Closed:
                    os._exit(7)
                os._exit(1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    async with dgent.open(url(Path(folder))) as u:
        say("begin")
        await backup(u, None, Path(target), progress=fork)
        await u.put(dgent.Datum(id="goes on"))
    say(codes)
