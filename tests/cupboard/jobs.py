"""What worker processes do with a cupboard; each function is one job, named by the test that starts it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dgent.cupboard import Crumb, Cupboard, Link, Stash, errors
from dgent.errors import DgentError
from dgent.store.postgres import backend as _postgres  # noqa: F401 - here, so that no worker imports it
from dgent.universe.universe import open as open_universe
from tests.fault.nursery import say


def run(url: str, at: float, work: Callable[[Cupboard], Awaitable[None]]) -> None:
    """Open a cupboard and do the work, all workers at one moment."""

    async def main() -> None:
        async with opened(url) as cupboard:
            await cupboard.crumbs.fetch(limit=1)
            await asyncio.sleep(max(0.0, at - time.time()))
            await work(cupboard)

    asyncio.run(main())


@asynccontextmanager
async def opened(url: str) -> Any:
    async with open_universe(url, author="worker") as u:
        yield Cupboard(u)


def take_all(url: str, at: float, agent: str) -> None:
    """Take crumbs until there are none, and say which."""

    async def work(cupboard: Cupboard) -> None:
        taken: list[str] = []
        while crumb := await cupboard.take(agent):
            assert crumb.holder == agent and crumb.state == "taken"
            taken.append(crumb.name)
        for start in range(0, len(taken), 200):
            say(taken[start : start + 200])

    run(url, at, work)


def count_up(url: str, at: float, stash: str, times: int) -> None:
    """Add one to a counter so many times, alternately in one step and by a set that is repeated."""

    async def work(cupboard: Cupboard) -> None:
        for n in range(times):
            if n % 4:
                await cupboard.stashes.increment(stash)
                continue
            while True:
                found = await cupboard.stashes.get(stash)
                found.increment(1)
                try:
                    await cupboard.stashes.set(stash, found)
                    break
                except errors.Conflict:
                    continue

    run(url, at, work)


def use_lock(url: str, at: float, stash: str, agent: str, times: int, file: str) -> None:
    """Under the lock, add one to a number in a file by reading and writing it; say the tokens."""

    async def work(cupboard: Cupboard) -> None:
        for _ in range(times):
            while True:
                try:
                    token = await cupboard.stashes.acquire(stash, agent, lease_s=60)
                    break
                except errors.LockHeld:
                    await asyncio.sleep(0.002)
            number = int(Path(file).read_text())
            await asyncio.sleep(0.001)
            Path(file).write_text(str(number + 1))
            say([number, token])
            await cupboard.stashes.release(stash, agent)

    run(url, at, work)


def hold(url: str, at: float, stash: str, lease_s: float) -> None:
    """Acquire a lock and take a crumb, say the tokens, and do nothing more."""

    async def work(cupboard: Cupboard) -> None:
        token = await cupboard.stashes.acquire(stash, "dead", lease_s=lease_s)
        crumb = await cupboard.take("dead", lease_s=lease_s)
        assert crumb is not None
        say([token, crumb.token])
        await asyncio.sleep(60)

    run(url, at, work)


def try_link(url: str, at: float, link_type: str, start: str, end: str) -> None:
    """Try to make a link, and say how it went."""

    async def work(cupboard: Cupboard) -> None:
        try:
            await cupboard.links.set(None, Link(link_type, start, end))
            say("made")
        except DgentError as error:
            say(type(error).__name__)

    run(url, at, work)


def try_stash(url: str, at: float, name: str) -> None:
    """Try to make a stash of a name, and say how it went."""

    async def work(cupboard: Cupboard) -> None:
        try:
            await cupboard.stashes.set(None, Stash(name, "context", {}))
            say("made")
        except DgentError as error:
            say(type(error).__name__)

    run(url, at, work)


def add_until_ended(url: str, at: float, trail: str, name: str) -> None:
    """Add crumbs to a trail until it takes none, and say those that it took."""

    async def work(cupboard: Cupboard) -> None:
        for n in range(10_000):
            try:
                if n % 3:
                    await cupboard.add(f"{name}.{n}", trail=trail, state="ready")
                else:
                    await cupboard.add_many(
                        [Crumb(f"{name}.{n}"), Crumb(f"{name}.{n}'")], [("child_of", 1, 0)], trail=trail
                    )
            except errors.InvalidState:
                return
            say(f"{name}.{n}")

    run(url, at, work)


def end_trail(url: str, at: float, trail: str, how: str) -> None:
    """Complete or abandon a trail, and say with how many crumbs."""

    async def work(cupboard: Cupboard) -> None:
        ended = await getattr(cupboard, how)(trail)
        say(len(ended.crumbs))

    run(url, at, work)


def make_crumbs(url: str, at: float, count: int) -> None:
    """Make and read crumbs; each must have a value for every property that is defined, at every moment."""

    async def work(cupboard: Cupboard) -> None:
        last: set[str] = set()
        for n in range(count):
            made = await cupboard.add(f"c{n}")
            known = {p.id for p in await cupboard.properties.fetch()}
            assert known >= last
            found = await cupboard.crumbs.get(made.id)
            assert set(found.get_properties()) >= known, "a property without a value"
            last = known
        say(len(last))

    run(url, at, work)
