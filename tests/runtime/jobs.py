"""What worker processes do with an agent; each function is one job, named by the test that starts it.

A worker kills itself at a point that it is told: points are before and after each commit, each payment of the
model and each effect of a tool.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import dgent.tools
from dgent.messages import Part
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.event import Notice
from dgent.runtime.model.call import ModelCall, Piece, Reply, TextDelta, TokenUsage
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Call, Tool
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from tests.fault.nursery import say

assert dgent.tools.Toolbox  # here, so that no worker spends its life importing
LAST = "All is done."


class Points:
    """The points of a run; the process ends at one of them."""

    def __init__(self, folder: Path, kill_at: int) -> None:
        self.folder, self.kill_at, self.count = folder, kill_at, 0

    def pass_by(self, name: str) -> None:
        """Come to a point."""
        self.count += 1
        if self.count == self.kill_at:
            self.record("killed", name)
            os.kill(os.getpid(), signal.SIGKILL)

    def record(self, file: str, line: str) -> None:
        """Write a line that survives the process."""
        with open(self.folder / file, "a") as out:
            out.write(line + "\n")

    def watch_commits(self, u: Universe) -> None:
        """Make a point before and after each commit."""
        backend: Any = u.backend
        commit = backend.commit

        async def watched(*given: Any) -> Any:
            self.pass_by("before a commit")
            done = await commit(*given)
            self.pass_by("after a commit")
            return done

        backend.commit = watched


class Clerk:
    """A model that always answers the same to the same context, and is paid for each answer."""

    name = "test:clerk"

    def __init__(self, points: Points) -> None:
        self.points = points

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Answer by the number of results that there are."""
        step = sum(part.type == "tool_result" for turn in call.messages for part in turn.parts)
        self.points.pass_by("before a payment")
        self.points.record("paid", str(step))
        self.points.pass_by("after a payment")
        yield TextDelta("well")
        names = {0: ("look", "gaze", "charge", "block_create"), 4: ("book", "send_message")}.get(step, ())
        given = {
            "block_create": {"label": "places", "text": "coast"},
            "send_message": {"to": "bob", "text": "hello"},
        }
        calls = [
            Part("tool_call", call=f"c-{name}", name=name, arguments=given.get(name, {})) for name in names
        ]
        said = "I work." if calls else LAST
        yield Reply((Part("text", said), *calls), TokenUsage(10, 1, cost=0.0), "stop", self.name)

    async def close(self) -> None:
        """Do nothing."""


def make_tools(u: Universe, points: Points) -> list[Tool]:
    """Return tools of each kind: one that reads, one that acts outside, one that writes under its key."""

    async def act(name: str) -> str:
        points.pass_by(f"before {name}")
        await asyncio.sleep(0.001)  # so that calls which run together are all under way
        points.record("acts", name)
        points.pass_by(f"after {name}")
        return name

    async def look() -> str:
        """Look."""
        return await act("look")

    async def gaze() -> str:
        """Look again, at the same time."""
        return await act("gaze")

    async def charge() -> str:
        """Charge a card."""
        return await act("charge")

    async def book(call: Call) -> str:
        """Book a journey, once for each key."""
        await u.remember({"journey": "coast"}, tags=["journey"], key=call.key)
        return await act("book")

    reads = [function_tool(each, effect="read") for each in (look, gaze)]
    return [*reads, function_tool(charge), function_tool(book)]


def answer(url: str, folder: str, kill_at: int) -> None:
    """Answer a message, and end at a point."""

    async def main() -> None:
        points = Points(Path(folder), kill_at)
        async with open_universe(url, author="ann") as u:
            points.watch_commits(u)
            async with AgentRuntime(u, "scout", model=Clerk(points), tools=make_tools(u, points)) as agent:
                say((await agent.run("Go.")).text)

    asyncio.run(main())


def go_on(url: str, folder: str, kill_at: int = 0) -> None:
    """Resume what was interrupted; say the notices, and the number of batches."""

    async def main() -> None:
        points = Points(Path(folder), kill_at)
        async with open_universe(url, author="ann") as u:
            points.watch_commits(u)
            async with AgentRuntime(u, "scout", model=Clerk(points), tools=make_tools(u, points)) as agent:
                left = len(await agent.interrupted())
                notices = [event.code async for event in agent.resume() if isinstance(event, Notice)]
                say([left, notices])

    asyncio.run(main())
