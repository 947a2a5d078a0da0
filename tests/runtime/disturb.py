"""Change what the contexts of an agent show, in each of the ways in which others change it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.errors import DgentError
from dgent.messages import Messages
from dgent.universe.origin import drop_marks
from dgent.universe.stamp import stamp_handle
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from tests.fault.nursery import say


class Others:
    """Everybody else who works on a store."""

    def __init__(self, u: Universe, seed: float) -> None:
        self.u, self.chance = u, random.Random(seed)
        self.own, self.bob = Library(u, "scout"), Library(u, "bob")
        self.cupboard, self.messages = Cupboard(u), Messages(u, "scout")
        self.ways: tuple[Callable[[], Awaitable[object]], ...] = (
            *(
                self.create,
                self.create,
                self.edit,
                self.edit,
                self.delete,
                self.describe,
                self.share,
                self.redact,
            ),
            *(self.add_crumb, self.end_crumb, self.add, self.add, self.edit_message, self.forget_message),
            *(self.redact, self.distrust, self.vouch, self.archive),
        )

    async def act(self) -> None:
        """Do one of these; most need what another one made, and then nothing happens."""
        with suppress(DgentError, IndexError):
            await self.chance.choice(self.ways)()

    @property
    def library(self) -> Library:
        """One of the libraries."""
        return self.chance.choice((self.own, self.bob))

    @property
    def label(self) -> str:
        """One of a few labels."""
        return f"block-{self.chance.randrange(3)}"

    async def create(self) -> None:
        kind = self.chance.choice(("core", "working"))
        await self.library.create(self.label, text=f"made {self.chance.random()}", kind=kind)

    async def edit(self) -> None:
        await (await self.library.get(self.label)).append(f" more {self.chance.random()}")

    async def delete(self) -> None:
        await self.library.delete(self.label)

    async def describe(self) -> None:
        await self.own.describe(self.label, description=f"about {self.chance.random()}")

    async def share(self) -> None:
        await self.bob.share(self.label, with_agent="scout")

    async def redact(self) -> None:
        await (await self.own.get(self.label)).redact(1)

    async def add_crumb(self) -> None:
        await self.cupboard.add(f"crumb {self.chance.random()}", state="ready")

    async def end_crumb(self) -> None:
        found = await self.cupboard.ready(1)
        await self.cupboard.done(found[0])

    async def add(self) -> None:
        who = self.chance.choice((self.messages, Messages(self.u, "bob")))
        await who.add("user", f"said {self.chance.random()}")

    async def edit_message(self) -> None:
        found = self.chance.choice((await self.messages.page(20)).items)
        await self.messages.edit(found.id, f"edited {self.chance.random()}")

    async def forget_message(self) -> None:
        await self.messages.forget(self.chance.choice((await self.messages.page(20)).items).batch)

    async def archive(self) -> None:
        await self.messages.compress({"strategy": "truncate", "keep": 6})

    async def distrust(self) -> None:
        marked = stamp_handle(self.u, None, "untrusted", "a page")
        await Cupboard(marked).add(f"crumb {self.chance.random()}", state="ready")
        await (await Library(marked, "scout").get(self.label)).append(f" read {self.chance.random()}")

    async def vouch(self) -> None:
        await drop_marks(self.u, (await self.own.get(self.label)).id)


async def disturb(url: str, seed: float, count: int) -> None:
    """Do some of it in a process of its own."""
    async with open_universe(url, author="bob") as u:
        others = Others(u, seed)
        for _ in range(count):
            await others.act()
        say("done")
