"""An agent without an event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
import dgent.sync
from dgent.errors import InputError
from dgent.runtime import Consent, ScriptedModel
from dgent.runtime.event import Done, Text, ToolFinished
from dgent.runtime.tool.rule import RequiresConsent
from dgent.sync.runtime import AgentRuntime


def test_an_agent_answers(tmp_path: Path) -> None:
    model = ScriptedModel(["Yes.", "Indeed."])
    with (
        dgent.sync.open(f"sqlite:///{tmp_path}/a.db", author="ann") as u,
        AgentRuntime(u, "scout", model=model) as agent,
    ):
        assert agent.run("Is it?").text == "Yes."
        events = list(agent.respond("Really?"))
        assert isinstance(events[0], Text) and isinstance(events[-1], Done)
        assert agent.interrupted() == [] and list(agent.resume()) == []
        assert agent.context("And now?")["batch"].text == "And now?"
        assert [each.state for each in agent.messages.list_batches()] == ["complete"] * 2
        assert agent.inbox.list() == [] and agent.universe.count() > 0


def test_plain_functions_are_tools_and_doors() -> None:
    asked: list[str] = []

    def ask(request: Consent) -> str:
        asked.append(request.tool)
        return "once"

    def run(name: str) -> str:
        """Run something."""
        return name

    model = ScriptedModel([{"calls": [{"name": "run", "arguments": {"name": "x"}}]}, "Done."])
    with dgent.sync.open("memory:", author="ann") as u:
        rules = [RequiresConsent(("run",))]
        with AgentRuntime(u, "scout", model=model, tools=[run], rules=rules, ask=ask, own=()) as agent:
            found = [event for event in agent.respond("Run it.") if isinstance(event, ToolFinished)]
    assert asked == ["run"] and [each.error for each in found] == [False]


def test_leaving_early_ends_the_turn() -> None:
    model = ScriptedModel([{"text": "a long answer", "piece": 1, "pause_s": 5}])
    with dgent.sync.open("memory:", author="ann") as u, AgentRuntime(u, "scout", model=model) as agent:
        with agent.respond("Speak.") as events:
            assert next(events).text == "a"
        assert len(agent.interrupted()) == 1


def test_a_universe_of_the_loop_is_refused() -> None:
    async def main() -> None:
        async with dgent.open("memory:") as u:
            with pytest.raises(InputError, match=r"dgent\.sync"):
                AgentRuntime(u, "scout", model=ScriptedModel([]))

    asyncio.run(main())
