"""A conversation with an agent in the terminal: the prompt, answers, interrupts, consent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from dgent.config import settings as config
from dgent.config.agent import find_agent
from dgent.config.places import make_private
from dgent.doors.cli.options import DoorOptions
from dgent.doors.cli.slash import NAMES, run_command
from dgent.doors.cli.style import Paint, ago, cut
from dgent.doors.cli.turn_view import LineView, TurnView, View, describe_arguments
from dgent.errors import DgentError, InputError
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Done, Event, Failed
from dgent.runtime.model.call import NO_USAGE, TokenUsage
from dgent.runtime.opener import open_agent
from dgent.runtime.tool.belt import Decision
from dgent.runtime.tool.consent import Consent
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe
from dgent.verbs import parse

if TYPE_CHECKING:
    from asyncio import Runner

INTERRUPTED, FAILED = 130, 1
KEPT_LINES = 1_000  # of what was typed
ORIGIN = "terminal"
_QUESTION = "allow it? y once, a while this chat lasts, d for some time, n no: "


class Conversation:
    """One agent, one person, one terminal."""

    def __init__(
        self,
        universe: Universe,
        agent: str,
        settings: config.Settings,
        chosen: DoorOptions,
        *,
        verbose: bool,
        once: bool,
    ) -> None:
        self.universe, self.name, self.settings, self.chosen = universe, agent, settings, chosen
        self.verbose, self._once = verbose, once
        terminal = sys.stdout.isatty()
        self.paint = Paint(config.wants_color(chosen.color or settings.color, terminal), terminal=terminal)
        self.usage: TokenUsage = NO_USAGE
        self.leaving = False
        self._agent: AgentRuntime | None = None
        self._allowed: set[tuple[str, str, str, str]] = set()
        self._presses = 0
        self._ended: Event | None = None

    @property
    def agent(self) -> AgentRuntime:
        """The agent at work."""
        assert self._agent is not None
        return self._agent

    def use_model(self, model: str | None) -> None:
        """Open the agent with a model, or with that of its settings."""
        ask = self._ask if self.chosen.yes or not self._once else None
        self._agent = open_agent(
            self.universe, self.name, find_agent(self.settings, self.name), model=model, ask=ask
        )

    async def change_model(self, model: str) -> None:
        """Go on with another model; the one of before stays if the name is wrong."""
        before = self.agent
        self.use_model(model)
        await before.close()

    async def close(self) -> None:
        """End the agent's work."""
        if self._agent is not None:
            await self._agent.close()

    def write(self, text: str = "") -> None:
        """Write a line that is no answer."""
        stream = sys.stderr if self._once else sys.stdout
        stream.write(text + "\n")
        stream.flush()

    # -- once ---------------------------------------------------------------------------------

    def answer_once(self, runner: Runner, message: str | None) -> int:
        """Answer one message, or go on with what was interrupted; return the exit code."""
        found = self.agent.resume() if message is None else self._respond(message)
        runner.run(self.follow(found))
        if isinstance(self._ended, Failed):
            return FAILED
        return INTERRUPTED if isinstance(self._ended, Done) and self._ended.finish == "interrupted" else 0

    def _respond(self, text: str) -> AsyncGenerator[Event]:
        partner = Principal(self.universe.author, "partner")
        return self.agent.respond(text, caller=partner, origin=ORIGIN)

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

    # -- a whole conversation -----------------------------------------------------------------

    def hold(self, runner: Runner, resume: bool) -> int:
        """Read lines and answer them until the person leaves; return the exit code."""
        with _History(self.settings), suppress(KeyboardInterrupt):  # one that comes between two steps
            runner.run(self._greet())
            if resume:
                self._run(runner, self.follow(self.agent.resume()))
            self._presses = 0
            while not self.leaving:
                try:
                    line = self._read_line().strip()
                    self._presses = 0
                except EOFError:
                    self.write()
                    return 0
                except KeyboardInterrupt:
                    self._presses += 1  # one that ended an answer counts, too
                    self.write(self.paint.dim(" (again, or Ctrl-D, leaves)") if self._presses == 1 else "")
                    self.leaving = self._presses > 1
                    continue
                if line.startswith("/"):
                    self._run(runner, run_command(self, line))
                elif line:
                    self._run(runner, self.follow(self._respond(line)))
        return 0

    def _run(self, runner: Runner, work: Any) -> None:
        """Run a step of the conversation; an error is shown, and the conversation goes on."""
        try:
            runner.run(work)
        except DgentError as error:
            self.write(f"{self.paint('error:', fg='red', bold=True)} {self.paint(error.message)}")
            if error.hint:
                self.write(f"{self.paint('hint:', fg='cyan')}  {self.paint(error.hint)}")
        except KeyboardInterrupt:
            self.write()

    def _read_line(self) -> str:
        """Return what is typed; a line that ends with a backslash goes on in the next one."""
        prompt = f"{self.name}> "
        if self.paint.color:
            prompt = f"\x01\x1b[1m\x02{self.paint(self.name)}> \x01\x1b[0m\x02"
        lines = [input(prompt)]
        while lines[-1].endswith("\\"):
            lines.append(input("… "))
        return "\n".join(line.removesuffix("\\") for line in lines)

    async def _greet(self) -> None:
        self.write(
            f"{self.paint.bold(self.name)} with {self.paint(self.agent.model.name)}; /help lists commands"
        )
        for line in await self.describe_interrupted():
            self.write(line)

    async def describe_interrupted(self) -> list[str]:
        """Return what can be resumed, in words."""
        found = await self.agent.interrupted()
        lines = []
        for each in found:
            batch = await self.agent.messages.get_batch(each.id)
            messages = await batch.messages()
            asked = next((message.text for message in messages if message.role == "user"), "")
            last = max((message.at for message in messages), default=each.started_at)
            state = "was interrupted" if each.state == "interrupted" else "was cut off"
            said = self.paint(cut(asked[:400], 60))
            lines.append(self.paint(f"a turn {state} ({ago(last)}): ", fg="yellow") + said)
        if lines:
            lines.append(
                self.paint.dim("/resume goes on with it" if len(lines) == 1 else "/resume goes on with them")
            )
        return lines

    # -- consent ------------------------------------------------------------------------------

    async def _ask(self, request: Consent) -> Decision:
        """Ask the person whether a call may run."""
        by = self.universe.author
        kind = (request.tool, request.operation, request.scope, request.trust)
        if self.chosen.yes or kind in self._allowed:
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
        sys.stdout.write(self.paint(prompt, fg="yellow"))
        sys.stdout.flush()
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


class _History:
    """The lines that were typed, kept for the next conversation in a private file."""

    def __init__(self, settings: config.Settings) -> None:
        self._path = settings.places.data / "chat_history"
        try:
            import readline
        except ImportError:  # a build of Python without it
            self._readline: Any = None
        else:
            self._readline = readline

    def __enter__(self) -> None:
        if self._readline is None:
            return
        with suppress(OSError):
            self._readline.read_history_file(str(self._path))
        self._readline.set_history_length(KEPT_LINES)
        self._readline.set_completer(_complete)
        self._readline.set_completer_delims(" ")
        self._readline.parse_and_bind("tab: complete")

    def __exit__(self, *_error: object) -> None:
        if self._readline is not None:
            with suppress(OSError, DgentError):
                make_private(self._path.parent)
                self._readline.write_history_file(str(self._path))


def _complete(text: str, number: int) -> str | None:
    found = [f"/{name}" for name in NAMES if text.startswith("/") and f"/{name}".startswith(text)]
    return found[number] if number < len(found) else None
