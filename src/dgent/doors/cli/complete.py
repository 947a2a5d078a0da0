"""Shell completion of ids, names, schemas, constellations and settings."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from dgent.doors.cli.style import clean

MOST = 50
TABLES = ("crumbs", "trails", "links", "properties", "categories", "stashes", "metadata", "schemas")
MEMORY = {"block": "label", "agent": "name", "group": "name"}  # completed by label or name
KINDS = ("crumb", "trail", "stash")  # completed by id, with the name beside it


def complete(kind: str, ctx: click.Context, incomplete: str) -> list[Any]:
    """Return the completions of a word; none when the store cannot be read, since completing never fails."""
    if kind == "file":
        return [CompletionItem(incomplete, type="file")]
    with suppress(Exception):
        from dgent.config import settings as config
        from dgent.config.places import constellations
        from dgent.doors.cli.options import options_of

        if kind == "setting":
            return [name for name in config.KEYS if name.startswith(incomplete)]
        if kind == "table":
            return [name for name in TABLES if name.startswith(incomplete)]
        settings = _settings(ctx)
        if kind == "constellation":
            return [name for name in constellations(settings.places) if name.startswith(incomplete)]
        return _complete_stored(kind, settings.url, incomplete, options_of(ctx).agent or settings.author)
    return []


def _settings(ctx: click.Context) -> Any:
    from dgent.config import settings as config
    from dgent.doors.cli.options import options_of

    chosen = options_of(ctx)
    return config.load(url=chosen.url, constellation=chosen.constellation)


def _complete_stored(kind: str, url: str, incomplete: str, agent: str) -> list[Any]:
    import asyncio
    from pathlib import Path

    from dgent.universe.universe import open as open_universe

    if url.startswith("sqlite:///") and not Path(url[10:]).exists():
        return []

    async def read() -> list[Any]:
        async with open_universe(url) as u:
            return await _read(u, kind, incomplete, agent)

    return asyncio.run(read())


async def _read(u: Any, kind: str, incomplete: str, agent: str) -> list[Any]:
    """Return the stored things of a kind that begin with a word."""
    if kind in MEMORY:
        return [each for each in await _memory(u, kind, agent) if each.startswith(incomplete)][:MOST]
    if kind == "property":
        return [each for each in await _properties(u) if each.startswith(incomplete)]
    if kind in KINDS:
        return await _entities(u, kind, incomplete)
    if kind == "schema":
        return [each.name for each in await u.schemas(partial=True) if each.name.startswith(incomplete)]
    ids = [datum.id for datum in await u.list(incomplete or None, limit=MOST)]
    return [id for id in ids if clean(id) == id]  # a shell prints control characters too


async def _entities(u: Any, kind: str, incomplete: str) -> list[CompletionItem]:
    """Return the ids of crumbs, trails or stashes, each with its name as help."""
    entities = await u.query(schema=f"cupboard.{kind}", prefix=incomplete or None, limit=MOST, raw=True)
    return [
        CompletionItem(each.id, help=clean(str(each.data.get("name", ""))))
        for each in entities
        if clean(each.id) == each.id
    ]


async def _properties(u: Any) -> list[str]:
    from dgent.cupboard import Cupboard

    return [each.name for each in await Cupboard(u).properties.fetch() if clean(each.name) == each.name]


async def _memory(u: Any, kind: str, agent: str) -> list[str]:
    """Return the labels of an agent's blocks, or the names of agents or groups."""
    where = {"owner": agent, "active": True} if kind == "block" else None
    found = await u.query(schema=f"block.{kind}", where=where, limit=None, raw=True)
    names = [str(each.data.get(MEMORY[kind], "")) for each in found]
    return sorted(each for each in names if clean(each) == each)
