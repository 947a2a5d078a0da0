"""Open work for a prompt: the crumbs that an agent holds, and those it could take next."""

from __future__ import annotations

from collections.abc import Iterable

from dgent.blocks.context.budget import PromptPart
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.tables.crumb import Crumb

HELD = 10
READY = 5
MAX_NAME = 120  # characters of a crumb's name


async def read_work(cupboard: Cupboard, agent: str) -> list[PromptPart]:
    """Return the open work of an agent as parts of a prompt, by priority; empty without any."""
    held = await cupboard.crumbs.fetch(states=["taken"], holder=agent, limit=HELD)
    ready = await cupboard.ready(READY)
    parts = [
        _part("held", "memory:work", "yours", held, 0),
        _part("ready", "memory:ready", "can be taken", ready, 1),
    ]
    return [part for part in parts if part.body]


def _part(name: str, tag: str, said: str, crumbs: Iterable[Crumb], rank: int) -> PromptPart:
    lines = [f"- {each.handle} {_shorten(each.name)}" for each in crumbs]
    return PromptPart(name, tag, (("state", said),), "\n".join(lines), (0, rank))


def _shorten(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"
