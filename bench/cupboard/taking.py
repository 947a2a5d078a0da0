"""`python -m bench.cupboard.taking SIDE PATH AGENT`: take crumbs until there are none, and print them.

Starts when something comes in on stdin, so that all processes start together.
"""

from __future__ import annotations

import asyncio
import sys

import dgent
from bench.cupboard.raw import Raw
from dgent.cupboard import Cupboard


async def take_all(path: str, agent: str) -> list[str]:
    """By the cupboard."""
    async with dgent.open(f"sqlite:///{path}", author=agent) as universe:
        cupboard = Cupboard(universe)
        await cupboard.crumbs.fetch(limit=1)
        _wait()
        taken = []
        while (crumb := await cupboard.take(agent)) is not None:
            taken.append(crumb.id)
    return taken


def take_all_by_hand(path: str, agent: str) -> list[str]:
    """By one statement."""
    raw = Raw(path)
    _wait()
    taken = []
    while (id := raw.take(agent)) is not None:
        taken.append(id)
    raw.close()
    return taken


def _wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    side, path, agent = sys.argv[1:]
    found = take_all_by_hand(path, agent) if side == "raw" else asyncio.run(take_all(path, agent))
    print("\n".join(found), flush=True)
