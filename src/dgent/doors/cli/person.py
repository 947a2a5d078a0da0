"""The person at the terminal: shown what an agent does, asked for consent, and heard when they interrupt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from dgent.config import settings as config
from dgent.doors.cli.options import DoorOptions
from dgent.doors.cli.style import Paint, cut
from dgent.doors.cli.turn_view import LineView, TurnView, View, describe_arguments
from dgent.errors import InputError
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Done, Event, Failed
from dgent.runtime.model.call import NO_USAGE, TokenUsage
from dgent.runtime.tool.belt import Decision
from dgent.runtime.tool.consent import Consent
from dgent.verbs import parse

INTERRUPTED, FAILED = 130, 1
_QUESTION = "allow it? y once, a until this ends, d for some time, n no: "


class Person:
    """One person and the agent that works for them. With `once`, standard output has the answer alone.

    `agrees` is consent to everything, given beforehand.
    """

    def __init__(
        self,
        author: str,
        settings: config.Settings,
        chosen: DoorOptions,
        *,
        verbose: bool,
        once: bool,
        agrees: bool = False,
    ) -> None:
        self.author, self.settings, self.chosen = author, settings, chosen
        self.verbose, self._once, self._agrees = verbose, once, agrees
        self._side = sys.stderr if once else sys.stdout
        terminal = sys.stdout.isatty()
        self.paint = Paint(config.wants_color(chosen.color or settings.color, terminal), terminal=terminal)
        self.usage: TokenUsage = NO_USAGE
        self.leaving = False
        self.runtime: AgentRuntime | None = None
        self._allowed: set[tuple[str, str, str, str]] = set()
        self._presses = 0
        self._ended: Event | None = None

    @property
    def agent(self) -> AgentRuntime:
        """The agent at work."""
        assert self.runtime is not None
        return self.runtime

    @property
    def exit_code(self) -> int:
        """The exit code of a program that ends with the last turn."""
        if isinstance(self._ended, Failed):
            return FAILED
        return INTERRUPTED if isinstance(self._ended, Done) and self._ended.finish == "interrupted" else 0

    def write(self, text: str = "") -> None:
        """Write a line that is no answer."""
        self._side.write(text + "\n")
        self._side.flush()

    async def follow(self, found: AsyncGenerator[Event]) -> None:
        """Show the events of a turn; an interrupt ends it durably, and a second one leaves."""
        view = self._open_view()
        loop = asyncio.get_running_loop()
        self._presses = 0
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            async with aclosing(found) as events:
                async for event in events:
                    view.show(event)
                    if isinstance(event, Done | Failed):
                        self._ended = event
                    if isinstance(event, Done) and event.usage is not None:
                        self.usage = self.usage.add(event.usage)
        finally:
            view.close()
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)

    def _open_view(self) -> View:
        if self.chosen.output != "human":
            return LineView()
        side = sys.stdout if self.paint.terminal else sys.stderr
        return TurnView(sys.stdout, side, self.paint, verbose=self.verbose)

    def _interrupt(self) -> None:
        self._presses += 1
        self.leaving = self.leaving or self._presses > 1
        if self._presses == 1:
            self._stopping = asyncio.get_running_loop().create_task(self.agent.interrupt())

    # -- consent ------------------------------------------------------------------------------

    async def ask(self, request: Consent) -> Decision:
        """Ask the person whether a call may run."""
        by = self.author
        kind = (request.tool, request.operation, request.scope, request.trust)
        if self._agrees or kind in self._allowed:
            return Decision("once", by=by)
        if not sys.stdin.isatty():
            return Decision("deny", by=by)
        self.write(self.paint(f"  {request.describe()}", fg="yellow"))
        if request.details:
            self.write(self.paint.dim(f"    {cut(describe_arguments(request.details), 400)}"))
        while True:
            said = (await self._read_answer(_QUESTION)).strip().lower()
            if said in ("y", "yes"):
                return Decision("once", by=by)
            if said in ("a", "always"):
                self._allowed.add(kind)
                return Decision("once", by=by)
            if said in ("n", "no"):
                return Decision("deny", by=by)
            if said[:1] == "d":
                lasts = (
                    said[1:].strip() or (await self._read_answer("for how long, such as 30m or 8h? ")).strip()
                )
                try:
                    return Decision("duration", read_seconds(lasts), by)
                except InputError as error:
                    self.write(self.paint(error.message, fg="red"))

    async def _read_answer(self, prompt: str) -> str:
        """Return a line of the terminal without stopping the loop: another door may answer meanwhile."""
        import termios

        loop, source = asyncio.get_running_loop(), sys.stdin.fileno()
        # What was typed before the question was no answer to it.
        termios.tcflush(source, termios.TCIFLUSH)
        self._side.write(self.paint(prompt, fg="yellow"))
        self._side.flush()
        ready = asyncio.Event()
        loop.add_reader(source, ready.set)
        try:
            await ready.wait()
        except asyncio.CancelledError:
            self.write()
            raise
        finally:
            loop.remove_reader(source)
        line = os.read(source, 4096).decode(errors="replace")
        return line if line else "n"  # Ctrl-D


def read_seconds(text: str) -> float:
    """Return a length of time such as 30m or 8h in seconds."""
    from dgent import clock

    return (parse.ahead(text, "for") - clock.now()).total_seconds()
