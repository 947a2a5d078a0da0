"""The command `dgent chat`: talk to an agent in the terminal, or send it one message from a script."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from dgent.doors.cli.options import DoorOptions, door_options, options_of
from dgent.errors import InputError

if TYPE_CHECKING:
    from dgent.config.settings import Settings
    from dgent.doors.cli.conversation import Conversation
    from dgent.universe.universe import Universe

ASSISTANT = "assistant"
"""The agent of a store that has none yet."""


@click.command(
    "chat",
    params=[
        click.Option(
            ["-m", "--message"], metavar="TEXT", help="Send this message, print the answer and end."
        ),
        click.Option(["--model"], metavar="NAME", help="As anthropic:claude-sonnet-5-5, or script:FILE."),
        click.Option(["--resume"], is_flag=True, help="Go on with what was interrupted, first of all."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Show thoughts, and tool calls in full."),
        *door_options(hidden=True),
    ],
)
@click.pass_context
def chat_(ctx: click.Context, message: str | None, model: str | None, resume: bool, verbose: bool) -> int:
    """Talk to an agent: --agent says which, its settings say what model and tools it has.

    In a terminal, Ctrl-C interrupts an answer, which can be resumed, and Ctrl-D leaves; /help lists commands.
    With -m, or with text on standard input, it answers once: the answer goes to standard output, and all else
    to standard error. --json prints each event as a line. What needs consent is refused there without --yes.
    """
    from dgent.doors.cli.serve import load_settings

    chosen = options_of(ctx)
    settings = load_settings(chosen)
    if message is None and not resume and not _is_terminal():
        message = _read_message()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            conversation = runner.run(_open(stack, settings, chosen, model, verbose, message is not None))
            if message is not None or (resume and not _is_terminal()):
                return conversation.answer_once(runner, message)
            return conversation.hold(runner, resume)
        finally:
            runner.run(stack.aclose())


async def _open(
    stack: AsyncExitStack,
    settings: Settings,
    chosen: DoorOptions,
    model: str | None,
    verbose: bool,
    once: bool,
) -> Conversation:
    from dgent.doors.cli.conversation import Conversation
    from dgent.doors.cli.session import Store

    partner = DoorOptions()
    partner.__dict__.update(chosen.__dict__, agent=None)  # the store is opened by whoever talks to the agent
    universe = await Store(stack, settings, partner, makes=True).open_running()
    name = chosen.agent or await choose_agent(universe, settings)
    conversation = Conversation(universe, name, settings, chosen, verbose=verbose, once=once)
    conversation.use_model(model)
    stack.push_async_callback(conversation.close)
    return conversation


async def choose_agent(universe: Universe, settings: Settings) -> str:
    """Return the agent that is meant where none is named: the only one there is."""
    from dgent.blocks import Library
    from dgent.config.agent import list_agents

    names = list_agents(settings)
    if not names:
        names = [each.name for each in await Library(universe, ASSISTANT).agents.list()]
    if len(names) > 1:
        raise InputError(
            f"there are several agents: {', '.join(names[:10])}", hint="name one with --agent", field="agent"
        )
    return names[0] if names else ASSISTANT


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _read_message() -> str:
    from dgent.doors.cli.command import read_stdin

    text = read_stdin()
    if not text.strip():
        raise InputError(
            "there is no message", hint='give one with -m "…", or on standard input', field="message"
        )
    return text
