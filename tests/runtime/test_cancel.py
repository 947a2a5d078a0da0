"""A turn cancelled at any await: it can be resumed, and nothing is paid, done or held twice.

Every task that runs meanwhile is watched. When they have been suspended so many times, the caller of the
agent is cancelled, or the turn itself; then one time more, until the turn ends before that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from itertools import count
from pathlib import Path
from random import randrange
from typing import Any

import pytest

import dgent
from dgent.messages import Inbox, Messages, Part
from dgent.messages.part import find_calls, find_result
from dgent.runtime import AgentRuntime, function_tool
from dgent.runtime.event import Done, ToolFinished, ToolStarted
from dgent.runtime.model.call import ModelCall, Piece, Reply, TextDelta, TokenUsage
from dgent.runtime.tool.tool import Call, Tool
from dgent.universe.universe import Universe
from dgent.verbs.room import inspect
from tests.soak import SOAK

LAST = "All is done."
UNKNOWN = "outcome is not known"
MOST = 400  # suspensions that a turn can have
STRIDE = 1 if SOAK > 1 else 9
GIVEN = {"send_message": {"to": "bob", "text": "hello"}, "remember": {"data": {"journey": "coast"}}}


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that reports each time it is suspended."""

    def __init__(self, inner: Coroutine[Any, Any, Any], report: Callable[[], None]) -> None:
        self.inner, self.report = inner, report

    def send(self, value: Any) -> Any:
        """Go on to the next suspension."""
        found = self.inner.send(value)
        self.report()
        return found

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        found = self.inner.throw(*error)
        self.report()
        return found

    def close(self) -> None:
        """Close it."""
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


class Watch:
    """Cancels something when the tasks that began since were suspended so often."""

    def __init__(self, point: int, agent: AgentRuntime, whose: str) -> None:
        self.point, self.agent, self.whose, self.count = point, agent, whose, 0
        self.tasks: list[asyncio.Task[Any]] = []
        self.reached = False

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(Watched(coroutine, self.pass_by), loop=loop, **given)
        self.tasks.append(task)
        return task

    def pass_by(self) -> None:
        """Count a suspension; of a turn, only those since it began."""
        if self.tasks[0].done() or (self.whose == "turn" and not self.agent.running):
            return
        self.count += 1
        if self.count != self.point:
            return
        self.reached = True
        if self.whose == "caller":
            self.tasks[0].cancel()
        for turn in self.agent._turns.values() if self.whose == "turn" else ():
            turn.cancel()  # as `interrupt` does


class Late:
    """Makes commits in a task of their own, so that they happen even when their callers are gone."""

    def __init__(self, u: Universe) -> None:
        backend: Any = u.backend
        self.commit, self.order = backend.commit, asyncio.Lock()
        self.under_way: set[asyncio.Task[Any]] = set()
        backend.commit = self.make

    async def make(self, *given: Any) -> Any:
        """Commit, after a while, in the order of the calls."""
        task = asyncio.Task(self._make(*given))  # not through the factory: it is not watched
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return await asyncio.shield(task)

    async def _make(self, *given: Any) -> Any:
        async with self.order:
            await asyncio.sleep(0)
            done = await self.commit(*given)
            await asyncio.sleep(0)
            return done


class Careful:
    """A model that calls those of its tools that have no result yet, with new ids each time."""

    name = "test:careful"

    def __init__(self, *wanted: str) -> None:
        self.wanted, self.ids = wanted, count()
        self.paid: Counter[tuple[str, ...]] = Counter()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Answer by the results that there are."""
        parts = [part for turn in call.messages for part in turn.parts]
        results = {part.call for part in parts if part.type == "tool_result"}
        have = tuple(sorted(part.name for part in parts if part.type == "tool_call" and part.call in results))
        assert all(part.call in results for part in parts if part.type == "tool_call")
        self.paid[have] += 1
        yield TextDelta("well")
        await asyncio.sleep(0)
        calls = [
            Part("tool_call", call=f"c{next(self.ids)}", name=name, arguments=GIVEN.get(name, {}))
            for name in self.wanted
            if name not in have
        ]
        yield Reply((Part("text", "" if calls else LAST), *calls), TokenUsage(10, 1, cost=0.0), "stop", "m")

    async def close(self) -> None:
        """Do nothing."""


def make_tools(u: Universe, acts: Counter[str]) -> list[Tool]:
    """Return tools that read, act outside, and write under a key."""

    async def act(name: str) -> str:
        await asyncio.sleep(0)
        acts[name] += 1
        await asyncio.sleep(0)
        return name

    async def look() -> str:
        """Look."""
        return await act("look")

    async def charge() -> str:
        """Charge a card."""
        return await act("charge")

    async def book(call: Call) -> str:
        """Book a journey, once for each key."""
        await u.remember({"journey": "coast"}, key=call.key)
        return "booked"

    return [function_tool(look, effect="read"), function_tool(charge), function_tool(book)]


async def count_journeys(u: Universe) -> int:
    return sum("journey" in each.data for each in await u.query(raw=True, limit=None))


async def find_leases(u: Universe) -> list[str]:
    """The leases of batches; a pair of agents that wrote to each other has one for a while."""
    found = await u.query(prefix="message.lease/", raw=True)
    return [each.id for each in found if "/pair/" not in each.id]


async def use(agent: AgentRuntime, how: str) -> None:
    if how in ("run", "work"):
        await (agent.run("Go.") if how == "run" else agent.work())
        return
    async with aclosing(agent.respond("Go.")) as events:
        async for _ in events:
            await asyncio.sleep(0)


async def check_rest(u: Universe, agent: AgentRuntime, model: Careful, acts: Counter[str]) -> None:
    """Nothing is held or half done, and what is left can be resumed, once."""
    assert agent.running == ()
    assert await find_leases(u) == []
    messages = Messages(u, agent.agent)
    shown = [part for each in (await messages.history()).messages for part in each.parts]
    called = [part.call for part in find_calls(shown)]
    assert called == [part.call for part in shown if find_result([part])], "a half batch is seen"
    waiting = await agent.inbox.list()
    batches = await messages.list_batches()
    if not batches and not waiting:
        assert not model.paid and not acts
        return
    left = await agent.interrupted()
    assert [each.id for each in left] == [each.id for each in batches if each.state != "complete"]
    if waiting:
        assert await agent.work() is not None and await agent.inbox.list() == []
        left = []
    events = [event async for event in agent.resume()]
    (batch,) = await messages.list_batches()
    if left:
        assert isinstance(events[-1], Done) and events[-1].text == LAST
    starts = [event.call for event in events if isinstance(event, ToolStarted)]
    assert sorted(starts) == sorted(event.call for event in events if isinstance(event, ToolFinished))
    stored = await (await messages.get_batch(batch.id)).messages()
    assert stored[-1].text == LAST and (await messages.get_batch(batch.id)).info.state == "complete"
    assert await find_leases(u) == []
    assert {each.level for each in await inspect(u, deep=False)} == {"ok"}
    texts = [each.text for each in stored]
    unknown = sum(UNKNOWN in text for text in texts)
    assert sum(model.paid.values()) <= 4 and set(model.paid.values()) <= {1, 2}
    if "charge" in model.wanted:
        assert acts["charge"] == 1 or (unknown == 1 and acts["charge"] == 0)
        assert acts["look"] in (1, 2)
    if "send_message" in model.wanted:
        sent = len(await Inbox(u, "bob").list())
        assert (sent, await count_journeys(u)) in ((1, 1), *([(0, 1), (1, 0)] if unknown == 1 else []))
    if "book" in model.wanted:
        assert await count_journeys(u) == 1 or (unknown == 1 and await count_journeys(u) == 0)


WAYS = [("run", "caller"), ("respond", "caller"), ("work", "caller"), ("run", "turn")]
WANTED = [("look", "charge"), ("remember", "send_message"), ("book",)]


@pytest.fixture(params=["memory", "late", "full", "relaxed"])
def place(request: Any, tmp_path: Path) -> Callable[[int], Universe]:
    def open_one(point: int) -> Universe:
        if request.param in ("memory", "late"):
            return dgent.open("memory:", author="ann")
        return dgent.open(f"sqlite:///{tmp_path}/{point}.db", author="ann", durability=request.param)

    open_one.late = request.param == "late"  # type: ignore[attr-defined]
    return open_one


@pytest.mark.timeout(600)
@pytest.mark.parametrize("wanted", WANTED, ids="-".join)
@pytest.mark.parametrize(("how", "whose"), WAYS)
async def test_cancelled_anywhere(
    place: Callable[[int], Universe], wanted: tuple[str, ...], how: str, whose: str
) -> None:
    threads, reached = threading.active_count(), 0
    for point in range(1 + randrange(STRIDE), MOST, STRIDE):
        async with place(point) as u:
            late = Late(u) if place.late else None  # type: ignore[attr-defined]
            model, acts = Careful(*wanted), Counter[str]()
            own = ("everyday",) if "remember" in wanted else ()
            if how == "work":
                await Inbox(u, "web").send("scout", "Go.", type="user_request")
            async with AgentRuntime(u, "scout", model=model, tools=make_tools(u, acts), own=own) as agent:
                was_reached = await cancel_at(point, agent, how, whose, late)
                await check_rest(u, agent, model, acts)
        if not was_reached:
            break
        reached += 1
    print(f"\n{reached} points")
    assert (5 if SOAK > 1 else 1) <= reached < MOST // STRIDE - 1
    assert threading.active_count() <= threads + 8


async def cancel_at(point: int, agent: AgentRuntime, how: str, whose: str, late: Late | None) -> bool:
    """Use the agent, and cancel at a point; return whether there was such a point."""
    loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
    watch = Watch(point, agent, whose)
    loop.set_task_factory(watch)
    try:
        (task,), _ = await asyncio.wait([loop.create_task(use(agent, how))])
    finally:
        loop.set_task_factory(None)
    assert task.cancelled() or task.exception() is None
    left = asyncio.all_tasks() - before - (late.under_way if late else set())
    assert not left, f"left behind at {point}: {left}"
    if late and late.under_way:
        await asyncio.wait(late.under_way)
    return watch.reached
