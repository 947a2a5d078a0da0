"""Open an agent as its settings say: one function for all doors."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dgent.config.agent import AgentSettings
from dgent.errors import ConfigError, InputError
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.context.budget import ContextBudget
from dgent.runtime.hub import EventHub
from dgent.runtime.limits import Limits
from dgent.runtime.model.budget import Budget
from dgent.runtime.model.call import Model, Settings
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
    budget = Budget(calls=settings.calls, tokens=settings.tokens, cost=settings.cost)
    context = build_context_budget(settings)
    return AgentRuntime(
        universe,
        name,
        model=open_model(name, settings, model),
        tools=tools,
        rules=read_rules(settings),
        instructions=settings.read_instructions(),
        budget=context,
        limits=Limits(budget=budget, consent_s=consent_s),
        ask=ask,
        hub=hub,
        own=USUAL if settings.tools is None else settings.tools,
        settings=Settings(
            max_tokens=context.answer, temperature=settings.temperature, thinking=settings.thinking
        ),
    )


def open_model(name: str, settings: AgentSettings, model: ModelSpec | None = None) -> Model:
    """Return the model of an agent, with those that it falls back on."""
    first = model or settings.model
    if first is None:
        raise ConfigError(
            f"no model is set for {name}",
            hint="give --model script:FILE, or `dgent config set model anthropic:claude-sonnet-5-5`",
        )
    # The key and the server are those of the model that the settings name, and of no other.
    own = model is None or model == settings.model
    found = resolve(first, key=settings.key if own else None, base_url=settings.url if own else None)
    if not settings.fallback or model is not None:
        return found
    return RetryingModel([found, *map(resolve, settings.fallback)], retry=Retry(restart=True))


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
