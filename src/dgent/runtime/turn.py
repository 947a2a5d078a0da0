"""One turn of an agent: a batch is worked on until the model has answered, each step durable before the next.

The order is the promise: an answer of the model is stored before its tool calls run; a call that cannot be
made twice is recorded as started before it runs; its result is stored before the model is asked again. So
whatever stops the program, the store says what was paid and done, and `resume` goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import BudgetSpent, Closed, ContextTooLong, Denied, DgentError
from dgent.messages.batch import Batch
from dgent.messages.message import Entry, Message
from dgent.messages.messages import BATCH_LEASE
from dgent.messages.part import Part, find_calls, find_result
from dgent.messages.queue import Delivery
from dgent.messages.record import lowest_trust
from dgent.runtime.context.part import AgentContext
from dgent.runtime.event import (
    Done,
    Event,
    Notice,
    Text,
    Thinking,
    ToolFinished,
    ToolStarted,
    UsageReport,
    fail,
)
from dgent.runtime.model.call import (
    NO_USAGE,
    ModelCall,
    Reply,
    Restart,
    SystemPart,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    Turn,
)
from dgent.runtime.tool.belt import ToolCall
from dgent.runtime.tool.rule import Called
from dgent.runtime.tool.tool import Answer as ToolAnswer
from dgent.runtime.tool.tool import CallInfo, refuse
from dgent.universe.lease import send_heartbeats

if TYPE_CHECKING:
    from dgent.runtime.agent import AgentRuntime

REMINDERS = 2  # times that a model is told of a rule by which the turn cannot end yet
UNKNOWN = (
    "The program stopped while this call ran, so its outcome is not known. It was not made again. "
    "Look whether it was done before you call it again."
)
INTERRUPTED = "interrupted"
MAX_NAME = 100  # characters of names and ids that a model makes up


class AgentTurn:
    """The work on one batch, in a task of its own; `next` gives its events.

    `asked` is the message of a batch that has nothing else yet.
    """

    def __init__(
        self,
        agent: AgentRuntime,
        batch: Batch,
        delivery: Delivery | None = None,
        asked: Entry | None = None,
    ) -> None:
        self.agent, self.batch, self.id = agent, batch, batch.id
        self.error: BaseException | None = None
        self.usage: TokenUsage = NO_USAGE
        self._delivery, self._asked = delivery, asked
        self._model = agent.open_model()
        self._calls: list[Called] = []
        self._earlier: dict[str, datetime] = {}
        self._caller, self._origin = "partner", ""
        self._steps = self._reminders = 0
        self._text = ""
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._begun = self._stopped = False
        self._seen: AgentContext | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dgent-turn-{batch.id}")
        self._task.add_done_callback(self._end)

    # -- the reader's side --------------------------------------------------------------------

    async def next(self) -> Event | None:
        """Return the next event; None after the last."""
        while not self._events:
            if self._task.done():
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    async def stop(self) -> None:
        """End the work, if it has not ended, and wait until that is durable."""
        if not self._task.done() and not self._stopped:
            self._stopped = True
            while not self._begun:  # a task that is cancelled before it begins ends nothing
                await asyncio.sleep(0)
            self._task.cancel()
        await asyncio.wait([self._task])

    def _end(self, _: asyncio.Task[None]) -> None:
        self._begun = True
        self.agent.forget_turn(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        with suppress(Closed):  # nobody listens there any more; the reader of the turn may
            self.agent.hub.publish(event)
        self._wake()

    # -- the work -----------------------------------------------------------------------------

    async def _run(self) -> None:
        since, self._begun = asyncio.get_running_loop().time(), True
        try:
            async with (
                asyncio.timeout(self.agent.limits.seconds),
                send_heartbeats(self.batch.renew, BATCH_LEASE.total_seconds(), since),
            ):
                finish = await self._work()
        except asyncio.CancelledError:
            ended = await self._interrupt("the turn was stopped")
            self._emit(self._done("stop" if ended else INTERRUPTED))
        except Exception as error:
            self.error = error
            if isinstance(error, TimeoutError):
                self.error = BudgetSpent(
                    f"the turn took more than {self.agent.limits.seconds:g} seconds", limit="seconds"
                )
            await self._interrupt(fail(self.error).message)
            self._emit(fail(self.error, agent=self.agent.agent, batch=self.id))
        else:
            self._emit(self._done(finish))

    def _done(self, finish: str) -> Done:
        return Done(text=self._text, finish=finish, usage=self.usage, agent=self.agent.agent, batch=self.id)

    async def _interrupt(self, reason: str) -> bool:
        """End the batch so that it can be resumed; return whether it was complete already.

        A call that may have been made gets a result that says so.
        """
        try:
            await self.batch.reload()  # a commit that was cancelled may have been made
            if self.batch.info.state != "open":
                return self.batch.info.state == "complete"
            pending = await self.batch.pending()
            for call in self.batch.info.started:
                if call in pending:
                    await self.batch.add_result(call, _write(_unknown()), error=True)
            await self.batch.interrupt(reason[:500])
        except DgentError as error:  # it stays open, and is found by `interrupted`
            self.error = self.error or error
        return False

    async def _work(self) -> str:
        await self._take_up()
        while True:
            if self._steps >= self.agent.limits.steps:
                raise BudgetSpent(f"the turn took {self._steps} steps", hint="resume it", limit="steps")
            self._steps += 1
            reply = await self._ask()
            self._text = reply.text or self._text
            if not reply.calls:
                entry = self._entry(reply)
                refusal = self.agent.rules.check_exit(self._calls)
                if refusal is None or self._reminders >= REMINDERS:
                    await self._complete(entry)
                    return reply.finish
                self._reminders += 1
                said = f"{refusal.text}: {refusal.hint}"
                await self.batch.add_all([entry, Entry("system", said)])
                self._emit(self._notice(said, "rule"))
                continue
            await self.batch.add_all([self._entry(reply)])
            if await self._run_calls(reply.calls):
                await self._complete(None)
                return "stop"

    def _entry(self, reply: Reply) -> Entry:
        usage = {"model": reply.model, "finish": reply.finish, **msgspec.to_builtins(reply.usage)}
        return Entry("assistant", reply.parts, by=self.agent.agent, usage=usage)

    async def _complete(self, last: Entry | None) -> None:
        usage = msgspec.to_builtins(self.usage)
        if self._delivery is None:
            await self.batch.complete(last=last, usage=usage)
        else:
            async with self.agent.universe.transaction() as tx:
                await self.batch.complete(last=last, usage=usage, tx=tx)
                await self._delivery.done(tx=tx)
        if self._seen is not None:
            await self.agent.builder.mark_seen(self._seen)
            self.agent.compress_later(self._seen)

    # -- the model ----------------------------------------------------------------------------

    async def _ask(self) -> Reply:
        """Ask the model, pass on what it says, and return its whole answer."""
        tools = self.agent.belt.schemas()
        context = await self.agent.builder.build(self.batch, tools=tools)
        if context.overflow:
            raise ContextTooLong(f"the context of this turn is {context.overflow} tokens too long")
        self._seen = context
        self._recall(context)
        if lowest_trust(self.batch.trust, context.trust) != self.batch.trust:
            await self.batch.lower_trust(context.trust)
        call = await self.agent.build_call(context, tools)
        agent, batch = self.agent.agent, self.id
        async with aclosing(self._model.stream(call)) as pieces:
            async for piece in pieces:
                if type(piece) is TextDelta:
                    self._emit(Text(text=piece.text, agent=agent, batch=batch))
                elif type(piece) is ThinkingDelta:
                    self._emit(Thinking(text=piece.text, agent=agent, batch=batch))
                elif type(piece) is Restart:
                    self._emit(self._notice(piece.reason, "restart"))
                elif type(piece) is Reply:
                    reply = await self._rename(piece)
        self.usage = self.usage.add(reply.usage)
        self._emit(UsageReport(model=reply.model, usage=reply.usage, agent=agent, batch=batch))
        return reply

    def _recall(self, context: AgentContext) -> None:
        """Note when tools were called in earlier batches, for rules that ask for a pause."""
        if self._earlier or not self.agent.rules.rules:
            return
        for message in context.history:
            for part in find_calls(message.parts):
                called = ToolCall(part, "", "partner").called
                self._earlier[called.name] = max(message.at, self._earlier.get(called.name, message.at))

    async def _rename(self, reply: Reply) -> Reply:
        """Return an answer whose calls have ids that are new in the batch, and that can be stored at all."""
        taken: set[str] = set()
        if reply.calls:
            taken = {part.call for each in await self.batch.messages() for part in find_calls(each.parts)}
        parts: list[Part] = []
        for part in reply.parts:
            if part.type == "tool_call":
                asked = _name(part.call, "call")
                id, number = asked, 1
                while id in taken:
                    number += 1
                    id = f"{asked}-{number}"
                taken.add(id)
                part = msgspec.structs.replace(part, call=id, name=_name(part.name, "unnamed"))
            parts.append(part)
        return msgspec.structs.replace(reply, parts=tuple(parts) or (Part("text", ""),))

    def _notice(self, text: str, code: str) -> Notice:
        return Notice(text=text, code=code, agent=self.agent.agent, batch=self.id)

    # -- tools --------------------------------------------------------------------------------

    async def _run_calls(self, parts: Sequence[Part]) -> bool:
        """Run the calls of an answer, one after the other; return whether one of them ends the turn."""
        ends = False
        for part in parts:
            called = await self._run_call(part)
            ends = ends or (called.ok and self.agent.rules.is_exit(called))
        return ends

    async def _run_call(self, part: Part, again: bool = False) -> Called:
        """Check a call, make it, and store its result."""
        belt, info = self.agent.belt, self.agent.belt.describe(part)
        call = self._prepare(part, info)
        self._started(part, info)
        began = perf_counter()
        try:
            trust, agreed = await belt.check(call, self._calls, self._earlier)
        except Denied as error:
            return await self._finish(call, refuse(error), began, None)
        self._calls.append(call.called)
        place = len(self._calls) - 1
        if not (info.keyed or info.repeatable or again):
            await self.batch.start_call(part.call)
        answer, read = await belt.run(call, trust, agreed)
        return await self._finish(call, answer, began, place, read)

    def _prepare(self, part: Part, info: CallInfo) -> ToolCall:
        key = self.batch.call_key(part.call)
        return ToolCall(part, key, self.batch.trust, self._caller, self._origin, info)

    def _started(self, part: Part, info: CallInfo) -> None:
        self._emit(
            ToolStarted(
                call=part.call,
                name=part.name,
                arguments=part.arguments,
                kind=info.kind,
                agent=self.agent.agent,
                batch=self.id,
            )
        )

    async def _finish(
        self, call: ToolCall, answer: ToolAnswer, began: float, place: int | None, trust: str | None = None
    ) -> Called:
        """Store the result of a call, with the trust of what it read, and report it."""
        ok, text = bool(answer.get("ok")), _write(answer)
        origin = "" if trust is None else f"tool {call.part.name}"
        await self.batch.add_result(call.part.call, text, error=not ok, trust=trust, origin=origin)
        called = call.called._replace(ok=ok)
        if place is None:
            self._calls.append(called)
        else:
            self._calls[place] = called
        self._emit(
            ToolFinished(
                call=call.part.call,
                name=call.part.name,
                text=text,
                error=not ok,
                ms=(perf_counter() - began) * 1000,
                agent=self.agent.agent,
                batch=self.id,
            )
        )
        return called

    # -- going on after a stop ------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Read what the batch has already, and finish the calls that have no result."""
        if self._asked is not None:
            self._caller, self._origin = self._asked.trust or "partner", self._asked.origin
            return
        messages = await self.batch.messages()
        asked = next((each for each in messages if each.role == "user"), None)
        if asked is not None:
            self._caller, self._origin = asked.trust, asked.origin
        pending = await self.batch.pending()
        results = {part.call: message for message in messages if (part := find_result(message.parts))}
        left: list[Part] = []
        for message in messages:
            if message.role == "assistant":
                self._text = "".join(part.text for part in message.parts if part.type == "text") or self._text
                self._add_usage(message.usage)
            for part in find_calls(message.parts):
                if part.call in pending:
                    left.append(part)
                    continue
                result = results[part.call]
                called = ToolCall(part, "", "partner").called
                failed = any(each.error for each in result.parts)
                self._calls.append(called._replace(at=result.at, ok=not failed))
        for part in left:
            await self._repair(part)

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            known = {name: usage[name] for name in TokenUsage.__struct_fields__ if name in usage}
            self.usage = self.usage.add(msgspec.convert(known, TokenUsage))

    async def _repair(self, part: Part) -> None:
        """Finish a call that the program stopped at: make it, take it from the store, or say so."""
        info = self.agent.belt.describe(part)
        call = self._prepare(part, info)
        done = await self.agent.universe.outcome(call.key)
        if done is not None:
            message = f"this was done before the program stopped, in commit {done.seq}; it was not done again"
            self._started(part, info)
            await self._finish(
                call, {"ok": True, "message": message, "data": {"seq": done.seq}}, perf_counter(), None
            )
            return
        if info.keyed or info.repeatable or part.call not in self.batch.info.started:
            await self._run_call(part)
            return
        self._emit(self._notice(f"the outcome of {part.name} ({part.call}) is not known", "unknown_outcome"))
        try:
            await self.agent.belt.require(
                call, scope="", reason="its outcome is not known; make it again?", again=True
            )
        except Denied:
            self._started(part, info)
            await self._finish(call, _unknown(), perf_counter(), None)
        else:
            await self._run_call(part, again=True)


def _name(given: str, otherwise: str) -> str:
    """Return a name that a model made up, as far as it can be stored."""
    name = given[:MAX_NAME]
    return name if name.isprintable() and name else otherwise


def _unknown() -> ToolAnswer:
    return {"ok": False, "message": UNKNOWN, "data": {"code": "unknown_outcome"}}


def _write(answer: ToolAnswer) -> str:
    return msgspec.json.encode(answer).decode()


def build_turns(context: AgentContext) -> tuple[Turn, ...]:
    """Return the messages of a context as a model is shown them: history, what is new, the batch."""
    turns = [_turn(message) for message in context.history]
    if context.now:
        turns.append(Turn("system", (Part("text", context.now),)))
    turns += [_turn(message) for message in context.batch]
    return tuple(turn for turn in turns if turn.parts)


def _turn(message: Message) -> Turn:
    parts = tuple(part for part in message.parts if part.type != "text" or part.text)
    return Turn(message.role, parts)  # type: ignore[arg-type]  # a role is one of those of the room


def build_system(context: AgentContext) -> tuple[SystemPart, ...]:
    """Return the instructions of a context."""
    return tuple(SystemPart(text) for text in context.system)


def build_request(context: AgentContext, tools: Sequence[Mapping[str, Any]], **more: Any) -> ModelCall:
    """Return the call of a model for a context."""
    return ModelCall(system=build_system(context), messages=build_turns(context), tools=tuple(tools), **more)
