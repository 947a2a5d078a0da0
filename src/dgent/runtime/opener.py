"""Open an agent as its settings say: one function for all doors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dgent.config.agent import AgentSettings
from dgent.errors import ConfigError, InputError
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.context.budget import ContextBudget
from dgent.runtime.hub import EventHub
from dgent.runtime.limits import Limits
from dgent.runtime.model.budget import Budget
from dgent.runtime.model.call import Settings
from dgent.runtime.model.resolve import ModelSpec, resolve
from dgent.runtime.model.retry import Retry, RetryingModel
from dgent.runtime.tool.belt import AskPartner, GivenTool
from dgent.runtime.tool.own import USUAL
from dgent.runtime.tool.rule import Rule
from dgent.universe.universe import Universe


def open_agent(
    universe: Universe,
    name: str,
    settings: AgentSettings,
    *,
    model: ModelSpec | None = None,
    tools: Sequence[GivenTool] = (),
    ask: AskPartner | None = None,
    hub: EventHub | None = None,
    consent_s: float | None = None,
) -> AgentRuntime:
    """Return the runtime of an agent, with `model` in place of that of its settings.

    `ask` asks the partner at the door; without it, `consent_s` is how long an answer at another one is waited
    for. Raises ConfigError where no model is set, or its key is missing.
    """
    limits = Limits(budget=read_budget(settings), consent_s=consent_s)
    more = read_options(name, settings, model)
    return AgentRuntime(universe, name, tools=tools, limits=limits, ask=ask, hub=hub, **more)


def read_options(name: str, settings: AgentSettings, model: ModelSpec | None = None) -> dict[str, Any]:
    """Return what the runtime of an agent takes from its settings: model, rules, instructions and so on."""
    context = build_context_budget(settings)
    return {
        "model": choose_model(name, settings, model),
        "servers": settings.mcp,
        "rules": read_rules(settings),
        "instructions": settings.read_instructions(),
        "budget": context,
        "own": USUAL if settings.tools is None else settings.tools,
        "settings": Settings(
            max_tokens=context.answer, temperature=settings.temperature, thinking=settings.thinking
        ),
    }


def read_budget(settings: AgentSettings) -> Budget:
    """Return how much one turn of an agent may spend."""
    return Budget(calls=settings.calls, tokens=settings.tokens, cost=settings.cost)


def choose_model(name: str, settings: AgentSettings, model: ModelSpec | None = None) -> ModelSpec:
    """Return the model of an agent: a name, or where a key, a server or others are set, the model itself."""
    first = model or settings.model
    if first is None:
        raise ConfigError(
            f"no model is set for {name}",
            hint="give --model script:FILE, or `dgent config set model anthropic:claude-sonnet-5-5`",
        )
    if model is not None and model != settings.model:
        return first  # the key and the server are those of the model that the settings name, and of no other
    plain = settings.key is None and settings.url is None
    found = first if plain else resolve(first, key=settings.key, base_url=settings.url)
    if not settings.fallback:
        return found
    return RetryingModel([resolve(found), *map(resolve, settings.fallback)], retry=Retry(restart=True))


def read_rules(settings: AgentSettings) -> list[Rule]:
    """Return the tool rules of some settings; ConfigError for one that is wrong."""
    rules: list[Rule] = []
    for number, each in enumerate(settings.rules, 1):
        try:
            rules.append(msgspec.convert(each, Rule))
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"rule {number} of the agent is wrong: {error}", hint="see the guide on rules"
            ) from None
    return rules


def build_context_budget(settings: AgentSettings) -> ContextBudget:
    """Return the tokens that each part of a context may have, by the settings of an agent."""
    usual = ContextBudget() if settings.window is None else ContextBudget.for_window(settings.window)
    if settings.answer is None:
        return usual
    try:
        return msgspec.structs.replace(usual, answer=settings.answer)
    except InputError as error:
        raise ConfigError(error.message, hint=error.hint) from None
