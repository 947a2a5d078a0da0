"""Two stores for the tests of forks, on whichever engines, and what is in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import dgent
from dgent.blocks import Library
from dgent.store.registry import ENGINES
from tests.contract.columns import SETTINGS
from tests.soak import SOAK


class Pair(NamedTuple):
    """A store and one that shall be its fork, each with the library of an agent."""

    source: dgent.Universe
    target: dgent.Universe

    @property
    def here(self) -> Library:
        return Library(self.source, "scout")

    @property
    def there(self) -> Library:
        return Library(self.target, "scout")


def pairs(*steps: int) -> list[tuple[str, str]]:
    """Return pairs of engines whose places differ by these steps; in a long look all there are."""
    names = [engine.name for engine in ENGINES]
    wanted = range(len(names)) if SOAK > 1 else steps
    return [(name, names[(place + step) % len(names)]) for place, name in enumerate(names) for step in wanted]


@asynccontextmanager
async def opened(tmp_path: Path, source: str = "memory", target: str = "memory") -> AsyncIterator[Pair]:
    places = []
    for side, engine in (("source", source), ("fork", target)):
        folder = tmp_path / side
        folder.mkdir(exist_ok=True)
        places.append(SETTINGS[engine][0].url(folder))
    async with dgent.open(places[0], author="ann") as one, dgent.open(places[1], author="bob") as other:
        yield Pair(one, other)


async def fill(u: dgent.Universe) -> None:
    """Two agents, a core block that is shared, a working one, an entry, and records of nobody."""
    scout, scribe = Library(u, "scout"), Library(u, "scribe")
    persona = await scout.create("persona", text="I like short answers.", kind="core")
    await persona.append(" And tea.", message="a taste")
    await persona.checkpoint("first")
    await scribe.create("notes", text="nothing yet")
    await scout.create("tasks", document="list", value=["wake up"])
    await scout.share("persona", with_agent="scribe", permission="read_write")
    await scout.archive("the sky was green", tags=["sky"])
    for name in "abcd":
        await u.put(dgent.Datum(name, data={"n": 1}, tags={"t"}))


async def state(u: dgent.Universe) -> dict[str, tuple[object, ...]]:
    """Everything a store holds, but for the numbers in it."""
    found = {}
    async for each in u.iterate(dgent.Query(limit=None), raw=True):
        if not (each.schema or "").startswith("dgent.fork"):
            found[each.id] = (each.schema, each.data, each.tags, each.author, each.content)
    return found
