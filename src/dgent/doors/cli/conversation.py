"""A conversation with an agent in the terminal: the prompt, answers, interrupts, consent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dgent.config import settings as config
from dgent.config.agent import find_agent
from dgent.config.places import make_private
from dgent.doors.cli.options import DoorOptions
from dgent.doors.cli.person import Person
from dgent.doors.cli.slash import NAMES, run_command
from dgent.doors.cli.style import ago, cut
from dgent.errors import DgentError
from dgent.runtime.event import Event
from dgent.runtime.opener import open_agent
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe

if TYPE_CHECKING:
    from asyncio import Runner

KEPT_LINES = 1_000  # of what was typed
ORIGIN = "terminal"


class Conversation(Person):
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
        super().__init__(universe.author, settings, chosen, verbose=verbose, once=once, agrees=chosen.yes)
        self.universe, self.name = universe, agent

    def use_model(self, model: str | None) -> None:
        """Open the agent with a model, or with that of its settings."""
        ask = self.ask if self.chosen.yes or not self._once else None
        self.runtime = open_agent(
            self.universe, self.name, find_agent(self.settings, self.name), model=model, ask=ask
        )

    async def change_model(self, model: str) -> None:
        """Go on with another model; the one of before stays if the name is wrong."""
        before = self.agent
        self.use_model(model)
        await before.close()

    async def close(self) -> None:
        """End the agent's work."""
        if self.runtime is not None:
            await self.runtime.close()

    # -- once ---------------------------------------------------------------------------------

    def answer_once(self, runner: Runner, message: str | None) -> int:
        """Answer one message, or go on with what was interrupted; return the exit code."""
        found = self.agent.resume() if message is None else self._respond(message)
        runner.run(self.follow(found))
        return self.exit_code

    def _respond(self, text: str) -> AsyncGenerator[Event]:
        partner = Principal(self.universe.author, "partner")
        return self.agent.respond(text, caller=partner, origin=ORIGIN)

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
