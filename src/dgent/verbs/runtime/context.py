"""The verb that shows what the model of an agent would be shown next."""

from __future__ import annotations

from typing import Annotated

from dgent.errors import ConfigError, Denied, InputError
from dgent.runtime.context.build import ContextBuilder
from dgent.runtime.context.part import AgentContext
from dgent.runtime.opener import build_context_budget, read_rules
from dgent.runtime.tool.own import USUAL, OwnTools
from dgent.runtime.tool.rule import Rules
from dgent.universe.gate import Principal
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, verb


class ShowContext(Ask):
    """Input of `agent.context`."""

    name: Annotated[str, argument("the agent's name", complete="agent")]


@verb("agent.context", effect="read", errors=(InputError, ConfigError, Denied), partner=True)
async def show(context: Context, ask: ShowContext) -> AgentContext:
    """Show what an agent's model would be shown next: its parts, their tokens, and what does not fit."""
    universe = await context.universe()
    settings = context.find_agent(ask.name)
    rules = Rules(read_rules(settings))
    builder = ContextBuilder(
        universe.acting(Principal(ask.name, "partner")),
        ask.name,
        instructions=settings.read_instructions(),
        rules=rules,
        budget=build_context_budget(settings),
    )
    own = OwnTools(universe, ask.name, USUAL if settings.tools is None else settings.tools)
    return await builder.build(tools=rules.narrow(own.schemas()))
