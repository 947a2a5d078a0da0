"""One call from the terminal: settings, the store, the verb, the answer."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from dgent import config
from dgent.doors.cli.progress import Bar
from dgent.doors.cli.setting import Said, said
from dgent.errors import InputError, NotFound
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from dgent.verbs import registry
from dgent.verbs.caller import Caller
from dgent.verbs.desk import Desk
from dgent.verbs.registry import Ask, Verb

MAKES = ("append", "write")  # a verb with such an effect may make the store it works on


def answer(ctx: click.Context, verb: Verb, given: dict[str, Any]) -> int:
    """Call a verb and print its answer; the exit code."""
    chosen = said(ctx)
    settings = config.load(
        url=chosen.url, constellation=chosen.constellation, strict=True if chosen.strict else None
    )
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    ask = registry.asked(verb, given)
    effect = verb.effect_of(ask)
    if effect == "destroy" and not chosen.yes:
        _confirm(verb, ask)
    return asyncio.run(_answer(verb, ask, settings, chosen, makes=effect in MAKES))


def _confirm(verb: Verb, ask: Ask) -> None:
    given = [value for value in msgspec.structs.asdict(ask).values() if value and value is not True]
    about = ", ".join(str(each) for value in given for each in (value if type(value) is tuple else [value]))
    if not sys.stdin.isatty():
        raise InputError(f"{verb.id} cannot be undone", hint="say --yes to do it without being asked")
    click.confirm(f"{verb.help.rstrip('.')}: {about}?", abort=True, err=True)


async def _answer(verb: Verb, ask: Ask, settings: config.Settings, chosen: Said, makes: bool) -> int:
    async with AsyncExitStack() as stack:
        bar = stack.enter_context(Bar(verb.id))
        store = Store(stack, settings, chosen.agent, makes)
        caller = Caller("terminal", chosen.agent, "partner")
        desk = Desk(
            store.open, settings=settings, caller=caller, report=bar.report, out=sys.stdout.buffer.write
        )
        result = registry.call(verb, desk, ask)
        if not verb.streams:
            found = await result
            bar.close()
            return printed(found, settings, chosen)
        async for each in result:
            _print_one(each, settings, chosen)
    return 0


class Store:
    """The store a call works on, opened when the verb asks for it."""

    def __init__(
        self, stack: AsyncExitStack, settings: config.Settings, agent: str | None, makes: bool
    ) -> None:
        self._stack, self._settings, self._agent, self._makes = stack, settings, agent, makes
        self._universe: Universe | None = None

    async def open(self) -> Universe:
        """The universe; made on the first write, and the user is told where."""
        if self._universe is None:
            settings = self._settings
            new = self._new()
            author = self._agent or settings.author
            opening = open_universe(settings.url, author=author, durability=settings.durability)
            self._universe = await self._stack.enter_async_context(opening)
            if new is not None:
                click.echo(f"dgent keeps this in {new}", err=True)
        return self._universe

    def _new(self) -> Path | None:
        """The file that is about to be made, with its folder made ready; None when the store is there."""
        settings = self._settings
        path = Path(settings.url[10:]) if settings.url.startswith("sqlite:///") else None
        if path is None or path.exists():
            return None
        if not self._makes:
            where = settings.constellation or path
            raise NotFound(
                f"there is nothing in {where} yet", hint="`dgent remember something` makes it", path=str(path)
            )
        if settings.folder is not None:
            config.make_private(settings.folder)
        return path


def printed(found: Any, settings: config.Settings, chosen: Said) -> int:
    from dgent.doors.cli import render

    if chosen.output == "human":
        render.show(found, settings, chosen)
    elif chosen.output == "jsonl" and hasattr(found, "items"):
        for each in found.items:
            _print_json(each)
    else:
        _print_json({"ok": True, "data": found})
    return render.exit_code(found)


def _print_one(each: Any, settings: config.Settings, chosen: Said) -> None:
    if chosen.output == "human":
        from dgent.doors.cli import render

        render.show(each, settings, chosen, page=False)
    else:
        _print_json(each)
    sys.stdout.flush()


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()
