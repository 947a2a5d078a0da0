"""The command `dgent code`: have an agent work on the files of a project."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgent.doors.cli.acp import AGENT, agent_options, model_options
from dgent.doors.cli.options import DoorOptions, door_options, options_of

if TYPE_CHECKING:
    from dgent.config.settings import Settings


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
        click.Option(["-v", "--verbose"], is_flag=True, help="Show thoughts, and tool calls in full."),
        click.Option(["--attempts"], type=int, default=3, show_default=True, help="Attempts before it ends."),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def code_(
    ctx: click.Context,
    task: str,
    root: Path,
    model: str | None,
    mode: str,
    max_steps: int,
    verbose: bool,
    attempts: int,
) -> int:
    """Have an agent work on a task in a project: it reads, plans, changes files and runs commands.

    It asks before it changes or runs something, unless --mode or --yes says otherwise; without a terminal to
    ask at, the answer is no. An attempt that is given up is taken back, and its lesson shown to the next.
    Ctrl-C interrupts it; the same task again goes on with its plan. Every change of a file can be taken back
    with `dgent undo`. --json prints each event as a line.
    """
    from dgent.doors.cli.serve import load_settings

    chosen = options_of(ctx)
    settings = load_settings(chosen)
    name = chosen.agent or AGENT
    more = {"mode": "auto" if chosen.yes else mode, "attempts": attempts}
    more |= agent_options(settings, name, model, max_steps)()
    return asyncio.run(_work(settings, chosen, name, task, root, verbose, more))


async def _work(
    settings: Settings,
    chosen: DoorOptions,
    name: str,
    task: str,
    root: Path,
    verbose: bool,
    more: dict[str, Any],
) -> int:
    from dgent.doors.cli.person import FAILED, Person
    from dgent.doors.cli.session import Store
    from dgent.runtime.code.task import CodingAgent

    partner = DoorOptions()
    partner.__dict__.update(chosen.__dict__, agent=None)
    async with AsyncExitStack() as stack:
        universe = await Store(stack, settings, partner, makes=True).open_running()
        plain = not sys.stdout.isatty() or chosen.output != "human"
        person = Person(universe.author, settings, chosen, verbose=verbose, once=plain)
        ask = person.ask if sys.stdin is not None and sys.stdin.isatty() else None
        coder = CodingAgent(universe, name, root, ask=ask, **more)
        stack.push_async_callback(coder.close)
        person.runtime = coder.runtime
        await person.follow(coder.work(task, origin="terminal"))
    return person.exit_code or (FAILED if coder.plan.given_up else 0)
