"""Shell completion of ids, names, schemas, constellations and settings."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dgent.doors.cli.style import clean

if TYPE_CHECKING:
    from dgent.universe.room import Room

MOST = 50
MAX_HELP = 80  # characters of the text beside a word


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
        room = _room(kind)
        if room is not None and kind in room.words:
            return [word for word in room.words[kind] if word.startswith(incomplete)]
        settings = _settings(ctx)
        if kind == "constellation":
            return [name for name in constellations(settings.places) if name.startswith(incomplete)]
        return _complete_stored(
            room, kind, settings.url, incomplete, options_of(ctx).agent or settings.author
        )
    return []


def _room(kind: str) -> Room | None:
    """Return the room that has things of a kind; None for what every store has."""
    from dgent.universe.room import all_rooms

    return next((room for room in all_rooms() if kind in room.kinds), None)


def _settings(ctx: click.Context) -> Any:
    from dgent.config import settings as config
    from dgent.doors.cli.options import options_of

    chosen = options_of(ctx)
    return config.load(url=chosen.url, constellation=chosen.constellation)


def _complete_stored(room: Room | None, kind: str, url: str, incomplete: str, agent: str) -> list[Any]:
    import asyncio
    from pathlib import Path

    from dgent.universe.universe import open as open_universe

    if url.startswith("sqlite:///") and not Path(url[10:]).exists():
        return []

    async def read() -> list[Any]:
        async with open_universe(url) as u:
            if room is not None:
                found = await room.find_names(u, kind, incomplete, agent, MOST)
                return [_item(*each) for each in found if clean(each.word) == each.word][:MOST]
            if kind == "schema":
                words = [each.name for each in await u.schemas(partial=True)]
                return [word for word in words if word.startswith(incomplete)]
            ids = [datum.id for datum in await u.list(incomplete or None, limit=MOST)]
            return [id for id in ids if clean(id) == id]  # a shell prints control characters too

    return asyncio.run(read())


def _item(word: str, text: str) -> CompletionItem:
    return CompletionItem(_quote(word), help=clean(" ".join(text.split()))[:MAX_HELP])


def _quote(word: str) -> str:
    """Quote a word for bash, which inserts what it is given; the other shells quote by themselves."""
    import os
    import shlex

    if os.environ.get("_DGENT_COMPLETE") != "bash_complete":
        return word
    try:
        shlex.split(os.environ.get("COMP_WORDS", ""))
    except ValueError:
        return word  # the user has opened a quote, which bash closes
    return shlex.quote(word)
