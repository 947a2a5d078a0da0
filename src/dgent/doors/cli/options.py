"""Options of the door rather than of a verb, and the completion of words that stand behind options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dgent.universe.room import Room

_FORMATS = ("human", "json", "jsonl")


class DoorOptions:
    """The values of the door's options; a later one, nearer to the verb, overrides."""

    def __init__(self) -> None:
        self.constellation: str | None = None
        self.url: str | None = None
        self.agent: str | None = None
        self.color: str | None = None
        self.output = "human"
        self.yes = False
        self.read_only = False
        self.strict: bool | None = None
        self.side_by_side = False


def options_of(ctx: click.Context) -> DoorOptions:
    """Return the door's options of this call."""
    found: DoorOptions = ctx.ensure_object(DoorOptions)
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value in (None, False):
        return
    assert param.name is not None
    if param.name in _FORMATS:
        options_of(ctx).output = param.name
    else:
        setattr(options_of(ctx), param.name, value)


def completer(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return the function that click asks for one kind of thing when a shell completes a word."""

    def run(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        return complete(kind, ctx, incomplete)

    return run


def side_by_side() -> click.Option:
    """Build the option of `diff` for two columns."""
    return click.Option(
        ["--side-by-side"], is_flag=True, expose_value=False, callback=_keep, help="two columns"
    )


def door_options(hidden: bool = False) -> list[click.Option]:
    """Build the door's options; every command takes them too."""
    rest: dict[str, Any] = {"expose_value": False, "callback": _keep, "hidden": hidden}
    return [
        click.Option(
            ["-C", "--constellation"],
            help="Another constellation.",
            shell_complete=completer("constellation"),
            **rest,
        ),
        click.Option(["--url"], help="Another store, such as sqlite:///memory.db.", **rest),
        click.Option(["--json"], is_flag=True, help="Answer with one JSON object.", **rest),
        click.Option(["--jsonl"], is_flag=True, help="Answer with one JSON object a line.", **rest),
        click.Option(["--agent"], help="Who acts; the author of what is written.", **rest),
        click.Option(["--yes", "-y"], is_flag=True, help="Do what it says without asking.", **rest),
        click.Option(["--read-only"], is_flag=True, help="Open the store for reading only.", **rest),
        click.Option(
            ["--color"], type=click.Choice(["auto", "always", "never"]), help="Colours or none.", **rest
        ),
        click.Option(["--strict"], is_flag=True, help="A wrong setting is an error.", **rest),
    ]


# -- completion ---------------------------------------------------------------------------------

MOST = 50
MAX_HELP = 80  # characters of the text beside a word


def complete(kind: str, ctx: click.Context, incomplete: str) -> list[Any]:
    """Return the completions of a word; none when the store cannot be read, since completing never fails."""
    from click.shell_completion import CompletionItem  # only a shell that completes needs it

    if kind == "file":
        return [CompletionItem(incomplete, type="file")]
    with suppress(Exception):
        from dgent.config import settings as config
        from dgent.config.places import constellations

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

    chosen = options_of(ctx)
    return config.load(url=chosen.url, constellation=chosen.constellation)


def _complete_stored(room: Room | None, kind: str, url: str, incomplete: str, agent: str) -> list[Any]:
    import asyncio
    from pathlib import Path

    from dgent.doors.cli.style import clean
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
    from click.shell_completion import CompletionItem

    from dgent.doors.cli.style import clean

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
