"""Add turns to a conversation: `python -m tests.tables.adders URL CONVERSATION NAME COUNT`."""

from __future__ import annotations

import asyncio
import sys

import dgent
from dgent.tables import Town, connect


async def main(url: str, conversation: str, name: str, count: int) -> None:
    async with dgent.open(url) as u, await connect(u) as place:
        town = Town(u, place)
        for n in range(count):
            await town.add_turn(conversation, "user", f"{name} {n}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
