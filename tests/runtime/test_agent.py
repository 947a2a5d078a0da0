"""An agent at work: events, messages, tools, rules, limits, and what stays in the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import BudgetSpent, Closed, Conflict, InputError, ModelRefused
from dgent.messages import Messages
from dgent.runtime import AgentRuntime, Budget, EventHub, Limits, ScriptedModel, function_tool
from dgent.runtime.event import Done, Event, Failed, Notice, Text, ToolFinished, ToolStarted, UsageReport
from dgent.runtime.model.retry import Retry
from dgent.runtime.tool.rule import ExitLoop, MaxCalls, RequiredBeforeExit
from dgent.universe.universe import Universe


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", author="ann", durability="relaxed") as universe:
        yield universe


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


async def collect(agent: AgentRuntime, message: str, **given: Any) -> list[Event]:
    return [event async for event in agent.respond(message, **given)]


async def texts(u: Universe) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in reversed((await Messages(u, "scout").page(50)).items)]


async def test_a_turn_streams_and_is_stored(u: Universe) -> None:
    model = ScriptedModel([{"text": "On the coast, far out.", "piece": 8}])
    async with AgentRuntime(u, "scout", model=model, instructions="You are scout.") as agent:
        events = await collect(agent, "Where is the lighthouse?", origin="terminal")
    said = "".join(event.text for event in events if isinstance(event, Text))
    assert said == "On the coast, far out."
    assert [type(event) for event in events[-2:]] == [UsageReport, Done]
    done = events[-1]
    assert isinstance(done, Done) and done.text == said and done.finish == "stop" and done.usage.calls == 1
    assert await texts(u) == [("user", "Where is the lighthouse?"), ("assistant", said)]
    (batch,) = await Messages(u, "scout").list_batches()
    assert (batch.state, batch.trust, batch.origin) == ("complete", "partner", "terminal")
    assert model.calls[0].system[0].text == "You are scout."
    assert model.calls[0].last_text() == "Where is the lighthouse?"


async def test_an_agent_at_work_is_on_the_roster_unless_it_is_archived(u: Universe) -> None:
    roster = Library(u, "scout").agents
    async with AgentRuntime(u, "scout", model=ScriptedModel(["Hello.", "Again."])) as agent:
        await agent.run("Hi")
        await agent.run("Hi again")
        assert [each.name for each in await roster.list()] == ["scout"]
        assert len(await u.history("block.agent/scout")) == 1
    await roster.describe("scout", status="archived")
    async with AgentRuntime(u, "scout", model=ScriptedModel(["Never said."])) as agent:
        with pytest.raises(Conflict, match="archived"):
            await agent.run("Hi")
    assert len(await Messages(u, "scout").list_batches()) == 2


async def test_the_own_tools_keep_its_memory(u: Universe) -> None:
    model = ScriptedModel(
        [
            call("block_create", label="places", text="lighthouse: coast"),
            {"expect": '"ok":true', "text": "Noted."},
            {"text": "It is in my memory."},
        ]
    )
    async with AgentRuntime(u, "scout", model=model) as agent:
        events = await collect(agent, "Remember the lighthouse.")
        started, finished = (
            next(event for event in events if isinstance(event, kind)) for kind in (ToolStarted, ToolFinished)
        )
        assert (started.name, started.kind, finished.error) == ("block_create", "edit", False)
        await agent.run("And now?")
        assert any("lighthouse: coast" in part.text for part in model.calls[-1].system)
        context = await agent.context("hello")
        assert context["pinned"].tokens and context["batch"].text == "hello"


async def test_functions_are_tools_and_their_failures_are_answers(u: Universe) -> None:
    def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    steps = [
        {"calls": [{"name": "divide", "arguments": {"a": 1, "b": 0}}, {"name": "divide", "arguments": "{"}]},
        call("unheard", a=1),
        {"expect": "there is no tool", "text": "I cannot."},
    ]
    model = ScriptedModel(steps)
    async with AgentRuntime(u, "scout", model=model, tools=[divide], own=()) as agent:
        events = await collect(agent, "Divide.")
    results = [event for event in events if isinstance(event, ToolFinished)]
    assert [each.error for each in results] == [True, True, True]
    assert "ZeroDivisionError" in results[0].text and "not JSON" in results[1].text
    assert events[-1].text == "I cannot."  # type: ignore[union-attr]


async def test_two_tools_of_one_name_are_refused(u: Universe) -> None:
    def find(a: int) -> int:
        """Find."""
        return a

    with pytest.raises(InputError, match="two tools named 'find'"):
        AgentRuntime(u, "scout", model=ScriptedModel([]), tools=[find])


async def test_calls_with_the_same_id_are_told_apart(u: Universe) -> None:
    def look(at: str) -> str:
        """Look."""
        return at

    again = {"calls": [{"name": "look", "arguments": {"at": "here"}, "call": "c"}]}
    model = ScriptedModel([again, again, "Done."])
    async with AgentRuntime(
        u, "scout", model=model, tools=[function_tool(look, effect="read")], own=()
    ) as agent:
        events = await collect(agent, "Look twice.")
    assert [event.call for event in events if isinstance(event, ToolFinished)] == ["c", "c-2"]


async def test_rules_are_checked_before_a_call_and_before_the_end(u: Universe) -> None:
    ran: list[str] = []

    def web(query: str) -> str:
        """Search."""
        ran.append(query)
        return "found"

    def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return "noted"

    model = ScriptedModel(
        [
            {"calls": [{"name": "web", "arguments": {"query": q}} for q in "ab"]},
            "I am done.",
            call("note", text="n"),
            "Now I am.",
        ]
    )
    rules = [MaxCalls("web", 1), RequiredBeforeExit(("note",))]
    async with AgentRuntime(u, "scout", model=model, tools=[web, note], rules=rules, own=()) as agent:
        events = await collect(agent, "Go.")
    assert ran == ["a", "n"]
    assert [event.error for event in events if isinstance(event, ToolFinished)] == [False, True, False]
    assert [event.code for event in events if isinstance(event, Notice)] == ["rule"]
    assert "cannot end before note" in model.calls[2].last_text()
    assert events[-1].text == "Now I am."  # type: ignore[union-attr]


async def test_a_tool_can_end_the_turn(u: Universe) -> None:
    def finish() -> str:
        """Finish."""
        return "bye"

    model = ScriptedModel([{"text": "So long.", "calls": [{"name": "finish"}]}, "never said"])
    async with AgentRuntime(u, "scout", model=model, tools=[finish], rules=[ExitLoop(("finish",))]) as agent:
        assert (await agent.run("End.")).text == "So long."
    assert model.left == 1


async def test_limits_end_a_turn_that_can_be_resumed(u: Universe) -> None:
    def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedModel([call("look"), call("look"), "Found it."])
    async with AgentRuntime(u, "scout", model=model, tools=[look], limits=Limits(steps=2)) as agent:
        events = await collect(agent, "Search on.")
        assert isinstance(events[-1], Failed) and events[-1].code == "budget_spent"
        (left,) = await agent.interrupted()
        assert left.state == "interrupted" and "2 steps" in left.reason
        again = [event async for event in agent.resume()]
        assert isinstance(again[-1], Done) and again[-1].text == "Found it." and again[-1].usage.calls == 3
        assert await agent.interrupted() == []
    with pytest.raises(InputError):
        Limits(steps=0)


async def test_time_is_limited(u: Universe) -> None:
    model = ScriptedModel([{"text": "slow", "delay_s": 60}])
    async with AgentRuntime(u, "scout", model=model, limits=Limits(seconds=0.05)) as agent:
        with pytest.raises(BudgetSpent, match="seconds"):
            await agent.run("Hurry.")
        assert len(await agent.interrupted()) == 1


async def test_money_is_limited_for_each_turn(u: Universe) -> None:
    def look() -> str:
        """Look."""
        return "nothing"

    limits = Limits(budget=Budget(calls=1))
    async with AgentRuntime(
        u, "scout", model=ScriptedModel([call("look"), "one", "two"]), tools=[look], limits=limits
    ) as agent:
        with pytest.raises(BudgetSpent):
            await agent.run("Look.")
        assert (await agent.run("Just say something.")).text == "one"


async def test_a_model_that_fails_leaves_a_turn_to_resume(u: Universe) -> None:
    model = ScriptedModel([{"text": "I beg", "error": "model"}, {"error": "model_refused"}, "Well."])
    async with AgentRuntime(
        u, "scout", model=model, retry=Retry(attempts=2, first_s=0, restart=True)
    ) as agent:
        events = await collect(agent, "Say something.")
        assert [event.code for event in events if isinstance(event, Notice)] == ["restart"]
        assert isinstance(events[-1], Failed) and events[-1].code == "model_refused"
        with pytest.raises(ModelRefused):
            await AgentRuntime(u, "scout", model=ScriptedModel([])).run("Nothing left.")
        again = [event async for event in agent.resume((await agent.interrupted())[0].id)]
        assert again[-1].text == "Well."  # type: ignore[union-attr]


async def test_leaving_early_ends_the_turn_durably(u: Universe) -> None:
    model = ScriptedModel([{"text": "a long answer", "piece": 1, "pause_s": 5}, "Short."])
    async with AgentRuntime(u, "scout", model=model) as agent:
        async for event in agent.respond("Speak."):
            assert isinstance(event, Text)
            break
        while agent.running:
            await asyncio.sleep(0)
        (left,) = await agent.interrupted()
        assert left.reason == "the turn was stopped"
        assert [event.text async for event in agent.resume() if isinstance(event, Done)] == ["Short."]
    assert await texts(u) == [("user", "Speak."), ("assistant", "Short.")]


async def test_interrupt_ends_what_runs_and_says_so(u: Universe) -> None:
    model = ScriptedModel([{"text": "a long answer", "delay_s": 60}])
    agent = AgentRuntime(u, "scout", model=model)
    task = asyncio.create_task(agent.run("Speak."))
    while not agent.running:
        await asyncio.sleep(0)
    await agent.interrupt()
    assert (await task).finish == "interrupted"
    await agent.close()
    with pytest.raises(Closed):
        await agent.run("Once more.")


async def test_a_key_is_answered_once(u: Universe) -> None:
    model = ScriptedModel(["One."])
    async with AgentRuntime(u, "scout", model=model) as agent:
        first = await agent.run("Say it.", key="k")
        again = await agent.run("Say it.", key="k")
        (event,) = await collect(agent, "Say it.", key="k")
    assert (first.text, again.text, event.text) == ("One.",) * 3  # type: ignore[union-attr]
    assert again.finish == "repeated" and again.usage == first.usage and len(model.calls) == 1


async def test_a_batch_is_not_worked_on_twice(u: Universe) -> None:
    model = ScriptedModel([{"text": "slow", "delay_s": 60}])
    async with AgentRuntime(u, "scout", model=model) as agent:
        task = asyncio.create_task(agent.run("Wait.", key="k"))
        while not agent.running:
            await asyncio.sleep(0)
        with pytest.raises(Conflict, match="being worked on"):
            await agent.run("Wait.", key="k")
        with pytest.raises(Conflict, match="being worked on"):
            await anext(agent.resume(agent.running[0]))
        await agent.interrupt()
        assert (await task).finish == "interrupted"


async def test_turns_at_once_do_not_see_each_other(u: Universe) -> None:
    model = ScriptedModel([{"text": "a", "delay_s": 0.05}, {"text": "b", "delay_s": 0.01}])
    async with AgentRuntime(u, "scout", model=model) as agent:
        await asyncio.gather(agent.run("first"), agent.run("second"))
    for made in model.calls:
        assert len(made.messages) == 1


async def test_events_reach_the_hub(u: Universe) -> None:
    async with EventHub() as hub:
        tap = hub.tap()
        async with AgentRuntime(u, "scout", model=ScriptedModel(["Yes."]), hub=hub) as agent:
            events = await collect(agent, "Is it?")
        assert [await anext(tap) for _ in events] == events
    assert all(event.agent == "scout" and event.batch for event in events)


async def test_a_handle_of_a_principal_is_refused(u: Universe) -> None:
    from dgent.universe.gate import Principal

    with pytest.raises(InputError, match="acts for eve"):
        AgentRuntime(u.acting(Principal("eve", "friend")), "scout", model=ScriptedModel([]))


async def test_a_turn_that_is_stopped_at_once_is_ended(u: Universe) -> None:
    async with AgentRuntime(u, "scout", model=ScriptedModel(["Yes."])) as agent:
        batch, asked = await agent._begin("Is it?", None, "", None, "", "user_request")
        await agent._start(batch, asked=asked).stop()
        assert agent.running == () and len(await agent.interrupted()) == 1


async def test_a_batch_that_another_process_took_over_is_left_to_it(u: Universe) -> None:
    model = ScriptedModel([{"text": "slow", "delay_s": 0.2}])
    async with AgentRuntime(u, "scout", model=model) as agent:
        turn = asyncio.create_task(collect(agent, "Is it?"))
        while not agent.running:
            await asyncio.sleep(0.001)
        messages, (id,) = Messages(u, "scout"), agent.running
        with pytest.raises(Conflict, match="another process works on"):
            await messages.resume(id, holder="another")
        lease = await messages._log.universe.get(f"message.lease/{id}")
        await messages._log.commit([messages._log.hold(id, "another", timedelta(seconds=60), lease.rev)])
        failed = (await turn)[-1]
        assert isinstance(failed, Failed) and failed.code == "lease_lost"
        assert [each.role for each in await (await messages.get_batch(id)).messages()] == ["user"]
        assert (await messages.get_batch(id)).info.state == "open"


async def test_a_lease_that_was_renewed_meanwhile_is_kept(u: Universe) -> None:
    messages = Messages(u, "scout")
    batch = await messages.begin(holder="me")
    lease = batch._lease
    await batch.renew()
    batch._lease = lease  # as an add sees it that began before
    await batch.add("user", "Hello.")
    assert (await batch.complete()).state == "complete"
    assert await messages._log.universe.get(f"message.lease/{batch.id}") is None
