"""What worker processes do with blocks; each function is one job, named by the test that starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from dgent.blocks import Library
from dgent.blocks.history import log
from dgent.store.postgres import backend as _postgres  # noqa: F401 - here, so that no worker imports it
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from tests.fault.nursery import say


@asynccontextmanager
async def opened(url: str, agent: str = "scout") -> Any:
    """A library on a store."""
    async with open_universe(url) as u:
        yield Library(u, agent=agent)


def run(url: str, at: float, work: Callable[[Library], Awaitable[None]]) -> None:
    """Open a library and do the work, all workers at one moment."""

    async def main() -> None:
        async with opened(url) as lib:
            await lib.list()
            await asyncio.sleep(max(0.0, at - time.time()))
            await work(lib)

    asyncio.run(main())


def edit_all(url: str, at: float, name: str, times: int) -> None:
    """Edit one block of each kind so many times, by one handle."""

    async def work(lib: Library) -> None:
        notes, tasks = await lib.get("notes"), await lib.get("tasks")
        for n in range(times):
            await notes.append(f"[{name}.{n}]")
            if n % 5 == 4:
                await notes.replace(f"[{name}.{n}]", f"<{name}.{n}>")
            if n % 10 == 0:
                await tasks.append(f"{name}.{n}")
        say((await notes.history(1))[0].number)

    run(url, at, work)


def scribble(url: str, name: str, fold: int) -> None:
    """Make blocks, edit the one of all and compact it until killed; say what is done. Folds come often."""
    log.PACK_SIZE, log.KEEP = fold, 2

    async def work(lib: Library) -> None:
        notes = await lib.get("notes")
        for n in range(100_000):
            await notes.append(f"[{name}.{n}]")
            say(["edit", f"[{name}.{n}]"])
            if n % 7 == 3:
                block = await lib.create(f"{name}.{n}", text="new")
                say(["create", block.label])
            if n % 13 == 7:
                await notes.compact(keep=30)

    run(url, 0.0, work)


def redact(url: str, number: int, erases: bool) -> None:
    """Redact a version of the notes; without `erases` it dies between the commit and the erasing."""

    async def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        async with open_universe(url, author="scout") as u:
            block = await Library(u, agent="scout").get("notes")
            if not erases:
                Universe.forget = die  # type: ignore[assignment,method-assign]
            await block.redact(number)

    asyncio.run(main())
