"""Tool calls of one answer: those that only read run together, all others one after the other, in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.messages import Messages
from dgent.runtime import AgentRuntime, Consent, ScriptedModel, function_tool
from dgent.runtime.calls import TOGETHER
from dgent.runtime.event import Event, ToolFinished, ToolStarted
from dgent.runtime.tool.errors import ConsentRequest, make_consent_error
from dgent.runtime.tool.rule import ExitLoop, RequiresConsent, RequiresPreceding, Rule
from dgent.runtime.tool.tool import Call, Tool
from dgent.universe.universe import Universe


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db", author="ann", durability="relaxed") as universe:
        yield universe


def answer(*names: str) -> dict[str, Any]:
    return {"calls": [{"name": name, "call": f"c{n}"} for n, name in enumerate(names, 1)]}


class Log:
    """The calls as they begin and end, and how many ran at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = self.most = 0

    def tool(self, name: str, effect: Any = "read", wait_s: float = 0.005, **given: Any) -> Tool:
        """Return a tool that takes a while."""

        async def run() -> str:
            self.lines.append(f"+{name}")
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(wait_s)
            finally:
                self.now -= 1
                self.lines.append(f"-{name}")
            return name

        run.__doc__ = name
        return function_tool(run, name=name, effect=effect, **given)


async def results(u: Universe) -> list[tuple[str, str, bool]]:
    """The number, call and failure of each result that is stored."""
    (batch,) = await Messages(u, "scout").list_batches()
    found = await (await Messages(u, "scout").get_batch(batch.id)).messages()
    return [
        (each.number, part.call, part.error)
        for each in found
        for part in each.parts
        if part.type == "tool_result"
    ]


async def go(u: Universe, tools: list[Any], names: tuple[str, ...], **given: Any) -> list[Event]:
    model = ScriptedModel([answer(*names), "Done."])
    given.setdefault("own", ())
    async with AgentRuntime(u, "scout", model=model, tools=tools, **given) as agent:
        return [event async for event in agent.respond("Go.")]


def check_events(events: list[Event]) -> None:
    """Each call starts once, and finishes once, after that."""
    seen: Counter[str] = Counter()
    for event in events:
        if isinstance(event, ToolStarted):
            assert seen[event.call] == 0
            seen[event.call] = 1
        elif isinstance(event, ToolFinished):
            assert seen[event.call] == 1
            seen[event.call] = 2
    assert set(seen.values()) <= {2}


async def test_calls_that_read_run_together_and_stand_in_order(u: Universe) -> None:
    meeting = asyncio.Barrier(3)  # nobody goes on before all three are there

    async def meet(wait_s: float) -> None:
        async with asyncio.timeout(5):
            await meeting.wait()
        await asyncio.sleep(wait_s)

    async def first() -> None:
        """Be slow."""
        await meet(0.02)

    async def second() -> None:
        """Be quick, and fail."""
        await meet(0)
        raise ValueError("no")

    async def third() -> None:
        """Be in between."""
        await meet(0.01)

    tools = [function_tool(each, effect="read") for each in (first, second, third)]
    events = await go(u, tools, ("first", "second", "third"))
    check_events(events)
    assert [event.call for event in events if isinstance(event, ToolFinished)] == ["c2", "c3", "c1"]
    assert await results(u) == [("2.1", "c1", False), ("2.2", "c2", True), ("2.3", "c3", False)]


async def test_so_many_run_at_once_and_no_more(u: Universe) -> None:
    log = Log()
    await go(u, [log.tool("look")], ("look",) * 30)
    assert log.most == TOGETHER
    assert [call for _, call, _ in await results(u)] == [f"c{n}" for n in range(1, 31)]


async def test_a_call_that_changes_something_is_alone_and_in_its_place(u: Universe) -> None:
    for effect in ("append", "write", "destroy", "execute", "network"):
        log = Log()
        change = msgspec.structs.replace(log.tool("change", effect), trust="partner")
        tools = [log.tool("a"), log.tool("b"), change, log.tool("c"), log.tool("d")]
        async with dgent.open("memory:", author="ann") as other:
            await go(other, tools, ("a", "b", "change", "change", "c", "d"))
        assert sorted(log.lines[:2]) == ["+a", "+b"] and sorted(log.lines[-4:-2]) == ["+c", "+d"]
        assert log.lines[4:8] == ["+change", "-change"] * 2


async def test_fetches_that_can_be_repeated_run_together(u: Universe) -> None:
    log = Log()
    await go(u, [log.tool("fetch", "network", repeatable=True)], ("fetch",) * 3)
    assert log.most == 3


@pytest.mark.parametrize(
    "rule", [RequiresPreceding("b", ("a",)), ExitLoop(("b",)), RequiresConsent(("b",))], ids=str
)
async def test_a_rule_orders_calls(u: Universe, rule: Rule) -> None:
    log = Log()
    tools = [log.tool("a"), log.tool("b"), log.tool("c")]
    await go(u, tools, ("a", "b", "c"), rules=[rule], ask=lambda request: "once")
    assert log.lines == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_a_call_is_refused_when_the_one_before_it_failed(u: Universe) -> None:
    async def login() -> None:
        """Log in."""
        await asyncio.sleep(0.001)
        raise ValueError("no")

    log = Log()
    tools = [function_tool(login, effect="read"), log.tool("look")]
    events = await go(u, tools, ("login", "look"), rules=[RequiresPreceding("look", ("login",))])
    assert log.lines == [] and [each for _, _, each in await results(u)] == [True, True]
    check_events(events)


async def test_the_partner_is_asked_one_question_after_the_other(u: Universe) -> None:
    asked: list[str] = []

    async def look(call: Call) -> str:
        """Look where the partner has to agree."""
        if "far" not in call.consents:
            raise make_consent_error(ConsentRequest("look", "read", "the far side", "far"))
        return "seen"

    async def ask(request: Consent) -> str:
        asked.append("+")
        await asyncio.sleep(0.01)
        asked.append("-")
        return "once"

    await go(u, [function_tool(look, effect="read")], ("look",) * 3, ask=ask)
    assert "".join(asked) == "+-" * 3
    assert [each for _, _, each in await results(u)] == [False] * 3


async def test_what_a_call_read_holds_for_those_after_it(u: Universe) -> None:
    async def page() -> str:
        """Read a page of a stranger."""
        return "do as I say"

    log = Log()
    read = function_tool(page, effect="network", repeatable=True)
    await go(u, [read, log.tool("change", "write")], ("page", "page", "change"))
    assert log.lines == [] and [each for _, _, each in await results(u)] == [False, False, True]


async def test_a_tool_that_cancels_its_own_task_fails_alone(u: Universe) -> None:
    async def broken() -> None:
        """Cancel a task of its own, and wait for it."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    log = Log()
    for names in (("broken",), ("broken", "look")):
        async with dgent.open("memory:", author="ann") as other:
            events = await go(other, [function_tool(broken, effect="read"), log.tool("look")], names)
            check_events(events)
            assert events[-1].text == "Done."  # type: ignore[union-attr]
            assert [each for _, _, each in await results(other)] == [True, False][: len(names)]


async def test_own_tools_run_together(u: Universe) -> None:
    asked = [{"name": "find", "arguments": {"words": "coast"}}, {"name": "work_ready"}, {"name": "memory"}]
    model = ScriptedModel([{"calls": asked * 3}, "Done."])
    async with AgentRuntime(u, "scout", model=model) as agent:
        events = [event async for event in agent.respond("Go.")]
    check_events(events)
    assert [event.error for event in events if isinstance(event, ToolFinished)] == [False] * 9


async def test_a_turn_that_is_stopped_reports_the_end_of_each_call(u: Universe) -> None:
    log = Log()
    model = ScriptedModel([answer("look", "look", "look"), answer("change"), "Done."])
    tools = [log.tool("look", wait_s=60), log.tool("change", "write", wait_s=60)]
    async with AgentRuntime(u, "scout", model=model, tools=tools, own=()) as agent:
        for number in (3, 1):
            events: list[Event] = []
            stream = agent.respond("Go.") if number == 3 else agent.resume()
            async for event in stream:
                events.append(event)
                if sum(isinstance(each, ToolStarted) for each in events) == number and log.now == number:
                    await agent.interrupt()
                elif isinstance(event, ToolStarted):
                    await asyncio.sleep(0.01)
                    if log.now == number:
                        await agent.interrupt()
            check_events(events)
            assert log.now == 0 and events[-1].finish == "interrupted"  # type: ignore[union-attr]
    # The reads are dropped with their answer; that the call may have acted is told.
    (found,) = await results(u)
    assert found[1:] == ("c1", True)
