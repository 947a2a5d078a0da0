"""One call from the terminal: load settings, open the store, call the verb, print the answer."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dgent.config import settings as config
from dgent.config.places import make_private
from dgent.config.secret import mask
from dgent.doors.cli import render
from dgent.doors.cli.options import DoorOptions, options_of
from dgent.doors.cli.style import clean
from dgent.errors import ConfigError, Degraded, Denied, DgentError, InputError, NotFound
from dgent.store.registry import is_server
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from dgent.verbs import registry
from dgent.verbs.caller import Caller
from dgent.verbs.context import Choose, Context
from dgent.verbs.registry import Ask, Verb
from dgent.verbs.wire import as_json

if TYPE_CHECKING:
    from dgent.blocks.access.permission import Request
    from dgent.embedder.embedder import Embedder
    from dgent.membrane.shell import Shell
    from dgent.store.offline.report import Degradation
    from dgent.store.upgrade import Upgrade


AFTER_S = 1.0
EVERY_S = 0.1
_CELLS = 24


class Bar:
    """A progress bar on standard error; silent unless that is a terminal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._began = time.monotonic()
        self._shown = 0.0
        self._watched = sys.stderr.isatty()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def report(self, done: int, total: int | None) -> None:
        """Show progress; redraws at most every EVERY_S, from AFTER_S on."""
        now = time.monotonic()
        if not self._watched or now - self._began < AFTER_S or now - self._shown < EVERY_S:
            return
        self._shown = now
        sys.stderr.write(f"\r\x1b[K{line(self.name, done, total, now - self._began)}")
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = 0.0


def line(name: str, done: int, total: int | None, took_s: float) -> str:
    """Format one line of progress."""
    rate = done / took_s if took_s > 0 else 0.0
    if not total:
        return f"{name} {done:,}  {rate:,.0f}/s"
    part = min(done / total, 1.0)
    full = round(part * _CELLS)
    left = f"{_duration((total - done) / rate)} left" if rate and done < total else "nearly done"
    bar = "#" * full + "." * (_CELLS - full)
    return f"{name} {bar} {part:4.0%}  {done:,} of {total:,}  {rate:,.0f}/s  {left}"


def _duration(seconds: float) -> str:
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min" if whole < 6000 else f"{whole // 3600} h"


class Consent:
    """Consent of the user for one call: `--yes` agrees to everything; without a terminal the answer is no."""

    def __init__(self, yes: bool) -> None:
        self._yes, self._unasked = yes, False

    async def ask(self, request: Request) -> bool:
        """Ask the user for consent. Blocks the loop, which has nothing else to do meanwhile."""
        if self._yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            self._unasked = True
            return False
        about = clean(f"{request.agent} wants to {request.what} {request.label!r}: {request.reason}")
        return click.confirm(f"{about}. Do you agree?", err=True)

    @property
    def choose(self) -> Choose | None:
        """A function that asks the user to choose an answer; None without a terminal or with `--yes`."""
        if self._yes or sys.stdin is None or not sys.stdin.isatty():
            return None
        return _choose

    @contextmanager
    def explain(self) -> Iterator[None]:
        """Add a hint on --yes to a Denied that no user was asked about."""
        try:
            yield
        except Denied as error:
            if self._unasked:
                error.hint = "use --yes to agree"
            raise


async def _choose(question: str, answers: Sequence[str]) -> str:
    chosen: str = click.prompt(clean(question), type=click.Choice(answers), default=answers[0], err=True)
    return chosen


LOG_S = 1.0  # how long the log of a command may take
LOOK_S = 0.5  # how often to check that the output is still read


def answer(ctx: click.Context, verb: Verb, given: dict[str, Any]) -> int:
    """Call a verb and print its answer; returns the exit code."""
    chosen = options_of(ctx)
    settings = config.load(
        url=chosen.url, constellation=chosen.constellation, strict=True if chosen.strict else None
    )
    for warning in settings.warnings if chosen.output == "human" else ():
        click.echo(f"warning: {warning}", err=True)
    ask = registry.read_input(verb, given)
    effect = verb.effect_of(ask)
    if effect == "destroy" and not chosen.yes:
        _confirm(verb, ask, settings, chosen)
    makes = verb.makes and not getattr(ask, "dry_run", False)
    if makes and hasattr(ask, "dry_run") and find_missing(settings) is not None:
        # What fails must not leave an empty store: it is tried on one in memory first.
        asyncio.run(_answer(verb, _trial_of(ask), settings, chosen, makes=False, quiet=True))
    return asyncio.run(_answer(verb, ask, settings, chosen, makes))


def _trial_of(ask: Any) -> Ask:
    trial: Ask = msgspec.structs.replace(ask, dry_run=True)
    return trial


def _confirm(verb: Verb, ask: Ask, settings: config.Settings, chosen: DoorOptions) -> None:
    """Ask before a call that cannot be undone; a dry run first raises its errors."""
    if hasattr(ask, "dry_run"):
        asyncio.run(_answer(verb, _trial_of(ask), settings, chosen, makes=False, quiet=True))
    given = [value for value in msgspec.structs.asdict(ask).values() if value and value is not True]
    about = ", ".join(str(each) for value in given for each in (value if type(value) is tuple else [value]))
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(f"{verb.id} cannot be undone", hint="use --yes to do it without being asked")
    click.confirm(f"{verb.help.rstrip('.')}: {about}?", abort=True, err=True)


async def _answer(
    verb: Verb, ask: Ask, settings: config.Settings, chosen: DoorOptions, makes: bool, quiet: bool = False
) -> int:
    async with AsyncExitStack() as stack:
        bar = stack.enter_context(Bar(verb.id))
        reads = verb.effect_of(ask) == "read" and not verb.streams and (verb.makes or not verb.local)
        store = Store(stack, settings, chosen, makes, reads)
        caller = Caller("terminal", chosen.agent, "partner")
        out = Out()
        consent = Consent(chosen.yes)
        context = Context(
            store.open,
            settings=settings,
            caller=caller,
            report=bar.report,
            out=out.write,
            consent=consent.ask,
            missing=find_missing(settings),
            choose=consent.choose,
            remote=is_server(settings.url),
        )
        if settings.sessions and not quiet:
            store.log = CommandLog(verb, settings)
            if verb.id == "session.resume":
                context.shell = store.log.find_shell()
        result = registry.call(verb, context, ask)
        if verb.streams:
            await _follow(result, settings, chosen)
            return 0
        with consent.explain():
            found = await result
        bar.close()
        if quiet:
            return 0
        store.report_missing()
        if out.used:
            # Standard output is the file, so the answer goes to standard error.
            if chosen.output == "human":
                render.show(found, settings, chosen, verb.output, err=True)
            return 0
        return print_answer(found, settings, chosen, verb.output, store.degraded)


class CommandLog:
    """Logs a command in the session of its shell, after its answer was printed and on the store it opened.

    The name of the verb is logged, never its input: what is forgotten must not live on in a log.
    """

    def __init__(self, verb: Verb, settings: config.Settings) -> None:
        self._verb, self._settings, self._began = verb, settings, time.monotonic()

    def find_shell(self) -> Shell:
        """Return the shell that called; the answer does not wait for what this loads."""
        from dgent.membrane.shell import find_shell

        return find_shell(os.getppid())

    def leave(self, universe: Universe) -> Callable[[Any, BaseException | None, Any], Awaitable[None]]:
        """Return what an exit stack calls at the end of the command, before the store is closed."""

        async def log(_kind: Any, error: BaseException | None, _trace: Any) -> None:
            if universe.degraded is not None or self._verb.id.startswith("session."):
                return
            from dgent.membrane.shell import log_command

            sys.stdout.flush()
            took_ms = round(1000 * (time.monotonic() - self._began))
            data = {"verb": self._verb.id, "took_ms": took_ms}
            if error is not None:
                data["error"] = getattr(error, "code", type(error).__name__)
            message = "dgent " + self._verb.id.replace(".", " ")
            # Whatever is wrong with the log is no reason to fail, or to keep the user waiting.
            with suppress(Exception):
                work = log_command(universe, self.find_shell(), self._settings.project, message, data)
                await asyncio.wait_for(work, LOG_S)

        return log


class Out:
    """Standard output as a file for a verb; `used` once it was written to."""

    def __init__(self) -> None:
        self.used = False

    def write(self, chunk: bytes) -> None:
        """Write a part of the file."""
        self.used = True
        sys.stdout.buffer.write(chunk)


async def _follow(stream: AsyncIterator[Any], settings: config.Settings, chosen: DoorOptions) -> None:
    """Print a stream until it ends or the output is closed, which is checked also while it is idle."""
    following = asyncio.ensure_future(_print_each(stream, settings, chosen))
    try:
        while not following.done():
            await asyncio.wait([following], timeout=LOOK_S)
            if _is_closed():
                return
        following.result()
    finally:
        # Before the store is closed under it.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _print_each(stream: AsyncIterator[Any], settings: config.Settings, chosen: DoorOptions) -> None:
    async for each in stream:
        _print_one(each, settings, chosen)


def _is_closed() -> bool:
    """Check whether standard output is a pipe whose reader has closed it."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):
        return False  # no such thing here, or no real file
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class Store:
    """The store of a call, opened at first use."""

    def __init__(
        self,
        stack: AsyncExitStack,
        settings: config.Settings,
        chosen: DoorOptions,
        makes: bool,
        reads: bool = False,
    ) -> None:
        self._stack, self._settings, self._chosen = stack, settings, chosen
        self._makes, self._reads = makes, reads
        self._universe: Universe | None = None
        self.log: CommandLog | None = None

    async def open(self) -> Universe:
        """Return the universe; the first write creates it and reports where."""
        if self._universe is None and self._reads and find_missing(self._settings) is not None:
            self._universe = await self._stack.enter_async_context(open_universe("memory:"))
        if self._universe is None:
            settings = self._settings
            new = self._new()
            author = self._chosen.agent or settings.author
            degrade = False if self._chosen.read_only else settings.degrade
            opening = open_universe(
                settings.urls,
                author=author,
                durability=settings.durability,
                degrade=degrade,
                outbox=settings.outbox if degrade else None,
                embedder=_find_embedder(settings),
                token=settings.token if is_server(settings.url) else None,
                storage=settings.storage,
                read_only=self._chosen.read_only,
            )
            with warnings.catch_warnings(record=True) as caught, Bar("store.upgrade") as bar:
                if hasattr(opening.backend, "progress"):
                    opening.backend.progress = bar.report  # an upgrade of the format may take long
                # Reported below in one line each.
                warnings.simplefilter("always", Degraded)
                self._universe = await self._stack.enter_async_context(opening)
            if self.log is not None and not self._chosen.read_only:
                self._stack.push_async_exit(self.log.leave(self._universe))
            for each in caught:
                click.echo(mask(str(each.message)), err=True)
            self._report_upgrade(getattr(self._universe.backend, "upgraded", None))
            if new is not None and self._chosen.output == "human":
                click.echo(f"dgent keeps this in {mask(str(new))}", err=True)
        return self._universe

    async def open_running(self) -> Universe:
        """Return the universe for a program that stays, which registers itself where the settings say so."""
        universe = await self.open()
        if self._settings.sessions and universe.degraded is None:
            from dgent.membrane.instance import Instances

            with suppress(DgentError):  # the program serves all the same
                running = Instances(universe).running(project_path=self._settings.project)
                await self._stack.enter_async_context(running)
        return universe

    def report_missing(self) -> None:
        """Say so where an empty store in memory stood for one that does not exist yet."""
        told = self._reads and self._universe is not None and self._chosen.output == "human"
        if told and find_missing(self._settings) is not None:
            click.echo(mask(f"{self._describe_missing()}; {self._hint()}"), err=True)

    def _report_upgrade(self, done: Upgrade | None) -> None:
        if done is not None and done.steps and self._chosen.output == "human":
            backup = f"; the backup is {mask(done.backup)}" if done.backup else ""
            formats = f"{done.from_format} to {done.to_format}"
            click.echo(f"upgraded the store from storage format {formats}{backup}", err=True)

    @property
    def degraded(self) -> Degradation | None:
        """The state of an unavailable store; None while it is available or not opened."""
        return None if self._universe is None else self._universe.degraded

    def _new(self) -> Path | None:
        """Return the path of a store to create, after making its folder; None when the store exists."""
        settings = self._settings
        path = find_missing(settings)
        if path is None:
            return None
        if not self._makes or self._chosen.read_only:
            raise NotFound(self._describe_missing(), hint=self._hint(), path=str(path))
        if settings.folder is not None:
            make_private(settings.folder)
        return path

    def _describe_missing(self) -> str:
        where = self._settings.constellation or find_missing(self._settings)
        return f"nothing is stored in {where} yet"

    def _hint(self) -> str:
        settings = self._settings
        option = f"-C {settings.constellation} " if settings.constellation else f"--url {settings.url} "
        option = option if settings.values["url"].source == "argument" else ""
        return f"`dgent {option}remember something` makes it"


def find_missing(settings: config.Settings) -> Path | None:
    """Return the path of a store that does not exist yet; None when it does, or is on a server."""
    try:
        settings.url.encode()
    except UnicodeEncodeError:
        raise ConfigError("the path of the store is not valid Unicode text") from None
    path = _path_of(settings.url)
    if path is None or path.exists():
        return None
    if settings.degrade and Path(settings.outbox).exists():
        return None  # it was there before: now it is unavailable
    return path


def _find_embedder(settings: config.Settings) -> Embedder | None:
    """Return the embedder of the settings; it loads when it is used."""
    name, model, key = settings.embedder
    if name == "none":
        return None
    from dgent.embedder.named import make_embedder

    try:
        return make_embedder(name, model, key, settings.places.data)
    except (ConfigError, InputError) as error:
        if settings.strict:
            raise
        click.echo(f"warning: {error.message}; texts are not embedded", err=True)
        return None


def _path_of(url: str) -> Path | None:
    """Return the path of a store that is a file or a folder; None for a server."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    if url.startswith("jsonl:"):
        return Path(url.removeprefix("jsonl:").partition("?")[0])
    return None


def print_answer(
    found: Any,
    settings: config.Settings,
    chosen: DoorOptions,
    kind: Any = None,
    degraded: Degradation | None = None,
) -> int:
    """Print an answer, which is of a verb's output `kind`; returns the exit code."""
    if chosen.output == "human":
        render.show(found, settings, chosen, kind)
    elif chosen.output == "jsonl" and hasattr(found, "items"):
        for each in found.items:
            _print_json(each)
    else:
        _print_json({"ok": True, "data": found} | ({} if degraded is None else {"degraded": degraded}))
    return render.exit_code(found)


def _print_one(each: Any, settings: config.Settings, chosen: DoorOptions) -> None:
    if chosen.output == "human":
        render.show(each, settings, chosen, page=False)
    else:
        _print_json(each)
    sys.stdout.flush()


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(as_json(value) + b"\n")
    sys.stdout.buffer.flush()
