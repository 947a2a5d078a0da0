"""The tool calls of a turn: check them, run them, store their results, and settle those that a stop left.

Calls of one answer that only read run together. One that may change something, that a rule orders or that
needs consent runs alone: after all calls before it have ended, and before any after it begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from dgent.errors import Denied
from dgent.messages.batch import Batch
from dgent.messages.message import Message
from dgent.messages.part import Part, find_calls, find_result
from dgent.runtime.event import Event, Notice, ToolFinished, ToolStarted
from dgent.runtime.tool.belt import ToolCall
from dgent.runtime.tool.rule import Called
from dgent.runtime.tool.tool import Answer as ToolAnswer
from dgent.runtime.tool.tool import refuse
from dgent.runtime.trust import is_at_least

if TYPE_CHECKING:
    from dgent.runtime.agent import AgentRuntime

TOGETHER = 8  # calls of one answer that run at once
STOPPED = "The turn was stopped before this call ended."
UNKNOWN = (
    "The program stopped while this call ran, so its outcome is not known. It was not made again. "
    "Look whether it was done before you call it again."
)


class TurnCalls:
    """The calls of one turn. `made` are those that rules look at, in the order of the model's answers."""

    def __init__(self, agent: AgentRuntime, batch: Batch, emit: Callable[[Event], None]) -> None:
        self.agent, self.batch, self._emit = agent, batch, emit
        self.made: list[Called] = []
        self.caller, self.origin = "partner", ""
        self._earlier: dict[str, datetime] = {}
        self._begun: set[str] = set()  # calls that may have acted
        self._open: dict[str, tuple[str, float]] = {}  # those reported as started: the tool, and since when
        self._storing = asyncio.Lock()  # a batch takes one change after the other
        self._asking = asyncio.Lock()  # the partner gets one question after the other

    def recall(self, history: Iterable[Message]) -> None:
        """Note when tools were called in earlier batches, for rules that ask for a pause."""
        if self._earlier or not self.agent.rules.looks_back:
            return
        for message in history:
            for part in find_calls(message.parts):
                called = ToolCall(part, "", "partner").called
                self._earlier[called.name] = max(message.at, self._earlier.get(called.name, message.at))

    # -- running ------------------------------------------------------------------------------

    async def run_all(self, parts: Sequence[Part]) -> bool:
        """Run the calls of an answer; return whether one of them ends the turn."""
        ends, left = False, list(parts)
        while left:
            # Prepared anew for each group: a result may have lowered the trust of the batch.
            group = [*takewhile(self._may_join, map(self._prepare, left))] or [self._prepare(left[0])]
            left = left[len(group) :]
            for called in await self._run_group(group):
                ends = ends or self._ends(called)
        return ends

    def _ends(self, called: Called) -> bool:
        return called.ok and self.agent.rules.is_exit(called)

    def _may_join(self, call: ToolCall) -> bool:
        """Check whether a call may run while others of its answer do."""
        info = call.info
        reads = info.effect == "read" or (info.effect == "network" and info.repeatable)
        return reads and is_at_least(call.trust, info.least) and not self.agent.rules.is_ordered(call.called)

    async def _run_group(self, group: Sequence[ToolCall]) -> list[Called]:
        if len(group) == 1:
            return [await self._run(group[0])]
        gate = asyncio.Semaphore(TOGETHER)

        async def run(call: ToolCall) -> Called:
            async with gate:
                return await self._run(call)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(run(call)) for call in group]
        except BaseExceptionGroup as failed:  # only the store fails here: what tools raise is an answer
            raise failed.exceptions[0] from None
        return [each.result() for each in running]

    async def _run(self, call: ToolCall, again: bool = False) -> Called:
        """Check a call, make it, and store its result."""
        belt, info, id = self.agent.belt, call.info, call.part.call
        self._start(call)
        try:
            trust, agreed = await belt.check(call, self.made, self._earlier)
        except Denied as error:
            return await self._finish(call, refuse(error), None)
        self.made.append(call.called)
        place = len(self.made) - 1
        if not (info.keyed or info.repeatable or again):
            async with self._storing:
                await self.batch.start_call(id)
        self._begun.add(id)
        answer, read = await belt.run(call, trust, agreed, self._asking)
        return await self._finish(call, answer, place, read)

    def _prepare(self, part: Part) -> ToolCall:
        key, info = self.batch.call_key(part.call), self.agent.belt.describe(part)
        return ToolCall(part, key, self.batch.trust, self.caller, self.origin, info)

    def _start(self, call: ToolCall) -> None:
        part = call.part
        self._open[part.call] = part.name, perf_counter()
        self._emit(
            ToolStarted(
                call=part.call,
                name=part.name,
                arguments=part.arguments,
                kind=call.info.kind,
                agent=self.agent.agent,
                batch=self.batch.id,
            )
        )

    async def _finish(
        self, call: ToolCall, answer: ToolAnswer, place: int | None, trust: str | None = None
    ) -> Called:
        """Store the result of a call, with the trust of what it read, and report it."""
        ok, id = bool(answer.get("ok")), call.part.call
        origin = "" if trust is None else f"tool {call.part.name}"
        text = _write(answer)
        async with self._storing:
            await self.batch.add_result(id, text, error=not ok, trust=trust, origin=origin)
        called = call.called._replace(ok=ok)
        if place is None:
            self.made.append(called)
        else:
            self.made[place] = called
        self._report(id, text, not ok)
        return called

    def _report(self, id: str, text: str, error: bool) -> None:
        name, began = self._open.pop(id)
        self._emit(
            ToolFinished(
                call=id,
                name=name,
                text=text,
                error=error,
                ms=(perf_counter() - began) * 1000,
                agent=self.agent.agent,
                batch=self.batch.id,
            )
        )

    # -- before and after a stop ----------------------------------------------------------------

    async def settle(self) -> None:
        """Store what is known of the calls that a stop cut short, before the batch is interrupted.

        One that may have acted gets a result that says so. One that only read, or had not begun, gets none:
        it is dropped with the rest of the answer.
        """
        pending = await self.batch.pending()
        parts = [part for each in await self.batch.messages() for part in find_calls(each.parts)]
        for part in parts:
            if part.call not in pending:
                continue
            reads = self.agent.belt.describe(part).effect == "read"
            answer = None if reads else await self._find_done(part.call)
            if part.call in self.batch.info.started or (part.call in self._begun and not reads):
                answer = answer or _unknown()
            if answer is not None:
                text, error = _write(answer), not answer["ok"]
                await self.batch.add_result(part.call, text, error=error)
                if part.call in self._open:
                    self._report(part.call, text, error)

    def close(self) -> None:
        """Report the calls that had no end as ended, so that each that started also finishes."""
        for id in [*self._open]:
            self._report(id, STOPPED, True)

    async def _find_done(self, id: str) -> ToolAnswer | None:
        """Return the answer for a call whose commit is in the store; None where there is none."""
        done = await self.agent.universe.outcome(self.batch.call_key(id))
        if done is None:
            return None
        message = f"this was done before the program stopped, in commit {done.seq}; it was not done again"
        return {"ok": True, "message": message, "data": {"seq": done.seq}}

    async def take_up(self, messages: Sequence[Message]) -> bool:
        """Read the calls of a batch and finish those without results; return whether one ends the turn."""
        pending = await self.batch.pending()
        results = {part.call: message for message in messages if (part := find_result(message.parts))}
        left: list[Part] = []
        last: list[Called] = []  # of the newest answer
        for message in messages:
            if message.role == "assistant":
                last = []
            for part in find_calls(message.parts):
                if part.call in pending:
                    left.append(part)
                    continue
                result = results[part.call]
                called = ToolCall(part, "", "partner").called
                failed = any(each.error for each in result.parts)
                last.append(called._replace(at=result.at, ok=not failed))
                self.made.append(last[-1])
        last += [await self._repair(part) for part in left]
        return any(self._ends(called) for called in last)

    async def _repair(self, part: Part) -> Called:
        """Finish a call that the program stopped at: make it, take it from the store, or say so."""
        call = self._prepare(part)
        done = await self._find_done(part.call)
        if done is not None:
            self._start(call)
            return await self._finish(call, done, None)
        info = call.info
        if info.keyed or info.repeatable or part.call not in self.batch.info.started:
            return await self._run(call)
        text = f"the outcome of {part.name} ({part.call}) is not known"
        self._emit(Notice(text=text, code="unknown_outcome", agent=self.agent.agent, batch=self.batch.id))
        try:
            await self.agent.belt.require(
                call, scope="", reason="its outcome is not known; make it again?", again=True
            )
        except Denied:
            self._start(call)
            return await self._finish(call, _unknown(), None)
        return await self._run(call, again=True)


def _unknown() -> ToolAnswer:
    return {"ok": False, "message": UNKNOWN, "data": {"code": "unknown_outcome"}}


def _write(answer: ToolAnswer) -> str:
    return msgspec.json.encode(answer).decode()
