"""The command `dgent code`: have an agent work on the files of a project."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgent.doors.cli.acp import AGENT, agent_options, model_options
from dgent.doors.cli.options import DoorOptions, door_options, options_of

if TYPE_CHECKING:
    from dgent.config.settings import Settings
    from dgent.runtime.event import Event
    from dgent.runtime.tool.consent import Answer, Consent

FAILED = 1


@click.command(
    "code",
    params=[
        click.Argument(["task"]),
        click.Option(
            ["--root"],
            type=click.Path(path_type=Path, file_okay=False, exists=True),
            default=Path(),
            help="The folder of the project; the current one by default.",
        ),
        *model_options(),
        click.Option(["--attempts"], type=int, default=3, show_default=True, help="Attempts before it ends."),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def code_(
    ctx: click.Context, task: str, root: Path, model: str | None, mode: str, max_steps: int, attempts: int
) -> int:
    """Have an agent work on a task in a project: it reads, plans, changes files and runs commands.

    It asks before it changes or runs something, unless --mode or --yes says otherwise; without a terminal to
    ask at, the answer is no. An attempt that is given up is taken back, and its lesson shown to the next.
    Every change of a file can be taken back with `dgent undo`. --json prints each event as a line.
    """
    from dgent.doors.cli.serve import load_settings

    chosen = options_of(ctx)
    settings = load_settings(chosen)
    name = chosen.agent or AGENT
    more = {"mode": "auto" if chosen.yes else mode, "attempts": attempts}
    more |= agent_options(settings, name, model, max_steps)()
    return asyncio.run(_work(settings, chosen, name, task, root, more))


async def _work(
    settings: Settings, chosen: DoorOptions, name: str, task: str, root: Path, more: dict[str, Any]
) -> int:
    from dgent.doors.cli.session import Store
    from dgent.runtime.code.task import CodingAgent
    from dgent.runtime.event import Failed

    partner = DoorOptions()
    partner.__dict__.update(chosen.__dict__, agent=None)
    ask = _ask if sys.stdin is not None and sys.stdin.isatty() else None
    async with AsyncExitStack() as stack:
        universe = await Store(stack, settings, partner, makes=True).open_running()
        coder = CodingAgent(universe, name, root, ask=ask, **more)
        stack.push_async_callback(coder.close)
        last: Event | None = None
        async with aclosing(coder.work(task, origin="terminal")) as events:
            async for last in events:
                _show(last, chosen.output)
    return FAILED if isinstance(last, Failed) or coder.plan.given_up else 0


async def _ask(asked: Consent) -> Answer:
    """Ask in the terminal; whatever is not a clear yes is a no."""
    scope = f", a always {asked.scope}" if asked.scope else ""
    click.echo(f"{asked.reason or asked.describe()}\nallow it? y once{scope}, n no: ", err=True, nl=False)
    said = (await asyncio.to_thread(sys.stdin.readline)).strip().lower()
    return "scope" if said == "a" and asked.scope else "once" if said in ("y", "yes") else "deny"


def _show(event: Event, output: str) -> None:
    """Write an event: the answer to standard output, all else to the error output."""
    from dgent.runtime import event as events

    if output != "human":
        sys.stdout.write(events.encode(event).decode() + "\n")
    elif isinstance(event, events.Text):
        sys.stdout.write(event.text)
    elif isinstance(event, events.ToolStarted):
        given = event.arguments if isinstance(event.arguments, dict) else {}
        words = [
            str(given[each]) for each in ("path", "command", "pattern", "number", "state") if each in given
        ]
        click.echo(f"  {event.name} {' '.join(words)}"[:200], err=True)
    elif isinstance(event, events.ToolFinished) and event.error:
        click.echo(f"    failed: {event.text[:300]}", err=True)
    elif isinstance(event, events.Notice):
        click.echo(f"  {event.text}", err=True)
    elif isinstance(event, events.Failed):
        click.echo(f"error: {event.message}\nhint:  {event.hint}".removesuffix("\nhint:  "), err=True)
    elif isinstance(event, events.Done):
        sys.stdout.write("\n")
    sys.stdout.flush()
