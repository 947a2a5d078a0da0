"""Jobs of a nursery that are killed at their n-th step.

A step is before or after any commit to either file. They say what a write was answered with, so that
what was promised can be compared with what is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import dgent
from dgent.store.backend import Commit, Committed, View
from dgent.store.sqlite.backend import SQLiteBackend
from tests.fault.nursery import say
from tests.offline.world import World

CLASHING = "0190b0a0-0000-7000-8000-000000000001"


class Fuse:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    def step(self) -> None:
        """One more."""
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def fit(self) -> None:
        """Make every commit two steps."""
        real = SQLiteBackend.commit

        async def commit(store: SQLiteBackend, commit: Commit, view: View) -> Committed:
            self.step()
            done = await real(store, commit, view)
            self.step()
            return done

        SQLiteBackend.commit = commit  # type: ignore[method-assign]


async def write(u: Any) -> None:
    """Some of everything: new, changed, several at once, deleted, and one that will conflict."""
    for n in range(3):
        await u.put(dgent.Datum(id="counter", data={"n": n}))
        say(f"counter {n}")
    await u.put(dgent.Datum(id=CLASHING, data={"n": 0}), expect=0)
    say("clash 0")
    await u.put_many([dgent.Datum(id=f"m{k}", data={"n": 0}) for k in range(3)])
    say("many 0")
    await u.put(dgent.Datum(id=CLASHING, data={"n": 1}))
    say("clash 1")
    await u.delete("m1")
    say("deleted 0")


async def storm(folder: str, name: str) -> None:
    """Write until killed, store or no store, and say what was answered."""
    warnings.simplefilter("ignore")
    n = 0
    while True:
        async with _away(folder) as u:
            for _ in range(12):
                await u.put(dgent.Datum(id=f"own.{name}", data={"n": n}))
                say(f"own {n}")
                await u.put_many([dgent.Datum(id=f"{half}.{name}.{n}", data={"n": n}) for half in "ab"])
                say(f"pair {n}")
                n += 1
                await asyncio.sleep(0.01)


async def run(job: str, folder: str, at: int) -> None:
    """Write while the store is away, or open it when it is back, which replays."""
    warnings.simplefilter("ignore")
    fuse = Fuse(at)
    fuse.fit()
    async with World(Path(folder)).open() if job == "replay" else _away(folder) as u:
        if job == "write":
            await write(u)
    say(f"steps {fuse.steps}")


def _away(folder: str) -> dgent.Universe:
    world = World.__new__(World)
    base = Path(folder)
    world.url, world.outbox = f"sqlite:///{base}/server/store.db", str(base / "outbox.db")
    return world.open()
