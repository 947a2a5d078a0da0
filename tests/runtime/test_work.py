"""Agents that work together: the queue, messages to each other, and histories that outgrow their budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import ModelRefused
from dgent.messages import Inbox, Messages, TooSoon
from dgent.runtime import AgentRuntime, ContextBudget, EventHub, ScriptedModel
from dgent.runtime.event import Notice
from dgent.universe.universe import Universe


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", author="ann", durability="relaxed") as universe:
        yield universe


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


async def test_what_is_in_the_queue_is_answered_once(u: Universe) -> None:
    await Inbox(u, "web").send("scout", "Hello?", type="user_request", trust="conversant", origin="chat")
    async with AgentRuntime(u, "scout", model=ScriptedModel(["Hello."])) as agent:
        answer = await agent.work()
        assert answer is not None and answer.text == "Hello."
        assert await agent.work() is None
    (batch,) = await Messages(u, "scout").list_batches()
    assert (batch.state, batch.trust, batch.origin) == ("complete", "conversant", "chat")
    assert await Inbox(u, "scout").list() == []


async def test_a_message_that_fails_is_put_back_and_goes_on(u: Universe) -> None:
    await Inbox(u, "web").send("scout", "Hello?", type="user_request")
    model = ScriptedModel([{"error": "model_refused"}, "Hello."])
    async with AgentRuntime(u, "scout", model=model) as agent:
        with pytest.raises(ModelRefused):
            await agent.work()
        (waiting,) = await agent.inbox.list()
        assert waiting.state == "waiting" and "model_refused" in waiting.error
        answer = await agent.work(wait_s=5)
        assert answer is not None and answer.text == "Hello."
    assert len(await Messages(u, "scout").list_batches()) == 1


async def test_an_interrupted_message_waits_for_the_next_worker(u: Universe) -> None:
    await Inbox(u, "web").send("scout", "Hello?", type="user_request")
    async with AgentRuntime(u, "scout", model=ScriptedModel([{"text": "slow", "delay_s": 60}])) as agent:
        work = asyncio.create_task(agent.work())
        while not agent.running:
            await asyncio.sleep(0.001)
        await agent.interrupt()
        answer = await work
        assert answer is not None and answer.finish == "interrupted"
    async with AgentRuntime(u, "scout", model=ScriptedModel(["Hello."])) as agent:
        answer = await agent.work()
        assert answer is not None and answer.text == "Hello."


async def test_agents_write_to_each_other_but_not_without_end(u: Universe) -> None:
    first = ScriptedModel([call("send_message", to="bob", text="Is it high?"), "I asked."])
    second = ScriptedModel(
        [call("send_message", to="scout", text="Very."), {"expect": "too_soon", "text": "Later."}]
    )
    async with AgentRuntime(u, "scout", model=first) as scout, AgentRuntime(u, "bob", model=second) as bob:
        await scout.run("Ask bob.")
        answer = await bob.work()
        assert answer is not None and answer.text == "Later."
        assert second.calls[0].last_text() == "Is it high?"
        with pytest.raises(TooSoon):
            await bob.send("scout", "Very.")
    (batch,) = await Messages(u, "bob").list_batches()
    assert (batch.type, batch.trust, batch.origin) == ("agent_to_agent", "partner", "agent scout")


async def test_serve_goes_on_after_failures(u: Universe) -> None:
    model = ScriptedModel([{"error": "model_refused"}, "One.", "Two."])
    inbox = Inbox(u, "web")
    for text in ("a", "b"):
        await inbox.send("scout", text, type="user_request", trust="friend")
    async with AgentRuntime(u, "scout", model=model) as agent:
        serving = asyncio.create_task(agent.serve())
        while await agent.inbox.list():
            await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert {each.state for each in await Messages(u, "scout").list_batches()} == {"complete"}


async def test_a_long_history_is_summed_up_once(u: Universe) -> None:
    budget = ContextBudget(window=20_000, history=600)
    said = "the lighthouse stands on the coast " * 10
    talk = ScriptedModel([said] * 8)
    async with AgentRuntime(u, "scout", model=talk, budget=budget, compress=None) as agent:
        for number in range(8):
            await agent.run(f"Question {number}?")
    model = ScriptedModel(["Yes.", "It was all about a lighthouse.", "No."])
    async with EventHub() as hub:
        tap = hub.tap(wanted=lambda event: isinstance(event, Notice))
        async with AgentRuntime(u, "scout", model=model, budget=budget, hub=hub) as agent:
            await agent.run("One more?")
            notice = await anext(tap)
            assert notice.code == "compressed"  # type: ignore[union-attr]
            await agent.run("And another?")
        assert "about a lighthouse" in model.calls[-1].system[-1].text
    assert model.left == 0 and len(await Messages(u, "scout").list_summaries()) == 1
