"""Open work for a prompt: the crumbs that an agent holds, and those it could take next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dgent.blocks.context.budget import PromptPart
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.record import CRUMB
from dgent.cupboard.tables.crumb import Crumb
from dgent.universe.gate import Trust
from dgent.universe.origin import find_origins, lowest_trust
from dgent.universe.tail import TailPoint, follow
from dgent.universe.universe import Universe

HELD = 10
READY = 5
MAX_NAME = 120  # characters of a crumb's name


class OpenWork:
    """The open work of one agent; a store without any crumb is not searched again until there is one."""

    def __init__(self, universe: Universe, agent: str) -> None:
        self._universe, self._agent = universe, agent
        self._cupboard = Cupboard(universe)
        self._none: TailPoint | None = None  # where there was no crumb at all: others become ready by time

    async def read(self) -> tuple[list[PromptPart], Trust]:
        """Return it as parts of a prompt, by priority, and the lowest of its origins."""
        universe, tail = self._universe, await follow(self._universe)
        if tail is not None and tail.is_untouched(self._none, (CRUMB.name,)):
            return [], "partner"
        point = None if tail is None else tail.point
        held = await self._cupboard.crumbs.fetch(states=["taken"], holder=self._agent, limit=HELD)
        ready = await self._cupboard.ready(READY)
        if not (held or ready):
            some = await universe.query(schema=CRUMB.name, limit=1, raw=True, partial=True)
            self._none = None if some else point
            return [], "partner"
        ids = [each.crumb_id for each in (*held, *ready)]
        stored = [each for each in await universe.get_many(ids, raw=True, partial=True) if each is not None]
        found = await find_origins(universe, stored)
        origins = {each.id: origin for each, origin in zip(stored, found, strict=True)}
        parts = [
            _part("held", "memory:work", "yours", held, 0, origins),
            _part("ready", "memory:ready", "can be taken", ready, 1, origins),
        ]
        return [part for part in parts if part.body], lowest_trust("partner", *found)


def _part(
    name: str, tag: str, said: str, crumbs: Iterable[Crumb], rank: int, origins: Mapping[str, Trust]
) -> PromptPart:
    lines = [
        f"- {each.handle} {_shorten(each.name)}{_mark(origins.get(each.crumb_id, 'partner'))}"
        for each in crumbs
    ]
    return PromptPart(name, tag, (("state", said),), "\n".join(lines), (0, rank))


def _mark(origin: Trust) -> str:
    return "" if origin == "partner" else f" (origin: {origin})"


def _shorten(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"
