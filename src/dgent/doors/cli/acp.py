"""The command `dgent acp`: serve an editor over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from dgent.doors.cli.options import DoorOptions, door_options, options_of
from dgent.errors import Unsupported

if TYPE_CHECKING:
    from dgent.config.settings import Settings

AGENT = "coder"
"""The agent where none is named."""


def model_options() -> list[click.Option]:
    """Build the options of commands that run a coding agent."""
    return [
        click.Option(["--model"], metavar="NAME", help="As anthropic:claude-sonnet-5-5, or script:FILE."),
        click.Option(
            ["--mode"],
            type=click.Choice(["plan", "ask", "code", "auto"]),
            default="ask",
            show_default=True,
            help="What needs no consent: reading alone (plan, ask), changing files (code), all (auto).",
        ),
        click.Option(["--max-steps"], type=int, default=100, show_default=True, help="Calls of the model."),
    ]


def agent_options(
    settings: Settings, name: str, model: str | None, steps: int
) -> Callable[[], dict[str, Any]]:
    """Return a function that opens what a coding agent takes, from command line and settings.

    Each runtime closes its model, so two must not share one.
    """
    from dgent.config.agent import find_agent
    from dgent.runtime.code.diagnose import find_servers
    from dgent.runtime.limits import Limits
    from dgent.runtime.opener import read_budget, read_options

    found = find_agent(settings, name)
    limits = Limits(steps=steps, budget=read_budget(found))
    more = {"limits": limits, "language_servers": find_servers(found.language_servers)}
    return lambda: read_options(name, found, model) | more


@click.command("acp", params=[*model_options(), *door_options(hidden=True)])
@click.pass_context
def acp_(ctx: click.Context, model: str | None, mode: str, max_steps: int) -> None:
    """Serve an editor (Zed, JetBrains, Neovim, …) over the Agent Client Protocol.

    The editor starts it, and speaks to it on standard input and output. All sessions belong to the agent of
    --agent, which remembers what it was told at any door.
    """
    from dgent.doors.cli.serve import load_settings

    chosen = options_of(ctx)
    settings = load_settings(chosen)
    try:
        import acp  # noqa: F401 - half a second long to load, so only here
    except ImportError as error:
        raise Unsupported(
            f"the Agent Client Protocol is not installed ({error.name})", hint="pip install 'dgent[acp]'"
        ) from None
    name = chosen.agent or AGENT
    options = agent_options(settings, name, model, max_steps)
    options()  # what is wrong is said before an editor waits for an answer
    asyncio.run(_serve(settings, chosen, name, mode, options))


async def _serve(
    settings: Settings, chosen: DoorOptions, name: str, mode: str, options: Callable[[], dict[str, Any]]
) -> None:
    from dgent.doors.acp.serve import serve_editor
    from dgent.doors.cli.session import Store

    partner = DoorOptions()
    partner.__dict__.update(chosen.__dict__, agent=None)  # whoever uses the editor opens the store
    async with AsyncExitStack() as stack:
        universe = await Store(stack, settings, partner, makes=True).open_running()
        await serve_editor(universe, name, mode=mode, options=options)
