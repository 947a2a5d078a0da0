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
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import BudgetSpent, Closed, ContextTooLong, DgentError
from dgent.messages.batch import Batch
from dgent.messages.errors import LeaseLost
from dgent.messages.message import Entry, Message
from dgent.messages.messages import BATCH_LEASE
from dgent.messages.part import Part, find_calls
from dgent.messages.queue import Delivery
from dgent.runtime.calls import TurnCalls
from dgent.runtime.context.part import AgentContext, mark_parts
from dgent.runtime.event import (
    Done,
    Event,
    Notice,
    Text,
    Thinking,
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
from dgent.runtime.tool.rule import Refusal
from dgent.universe.lease import send_heartbeats
from dgent.universe.origin import lowest_trust

if TYPE_CHECKING:
    from dgent.runtime.agent import AgentRuntime

REMINDERS = 2  # times that a model is told of a rule by which the turn cannot end yet
INTERRUPTED, STOPPED = "interrupted", "the turn was stopped"
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
        self._calls = TurnCalls(agent, batch, self._emit)
        self._reply: Reply | None = None  # the newest answer of the model, as long as it is not stored
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

    def cancel(self) -> None:
        """Have the work end, if it has not ended."""
        if not self._task.done() and not self._stopped:
            self._stopped = True
            if self._begun:  # a task that is cancelled before it begins would end nothing
                self._task.cancel()

    async def stop(self) -> None:
        """End the work, if it has not ended, and wait until that is durable."""
        self.cancel()
        await asyncio.wait([self._task])

    def _end(self, _: asyncio.Task[None]) -> None:
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
            if self._stopped:
                raise asyncio.CancelledError
            async with (
                asyncio.timeout(self.agent.limits.seconds),
                send_heartbeats(self.batch.renew, BATCH_LEASE.total_seconds(), since),
            ):
                finish = await self._work()
        except asyncio.CancelledError:
            ended = await self._interrupt(STOPPED)
            self._emit(self._done("stop" if ended else INTERRUPTED))
        except Exception as error:
            self.error = error
            if isinstance(error, TimeoutError):
                self.error = BudgetSpent(
                    f"the turn took more than {self.agent.limits.seconds:g} seconds", limit="seconds"
                )
            if await self._interrupt(fail(self.error).message) and not isinstance(error, LeaseLost):
                self.error = None  # the answer was stored before
                self._emit(self._done("stop"))
            else:
                self._emit(fail(self.error, agent=self.agent.agent, batch=self.id))
        else:
            self._emit(self._done(finish))

    def _done(self, finish: str) -> Done:
        return Done(text=self._text, finish=finish, usage=self.usage, agent=self.agent.agent, batch=self.id)

    async def _interrupt(self, reason: str) -> bool:
        """End the batch so that it can be resumed; return whether it was complete already.

        An answer that was paid and not stored yet ends the batch, if it was the last one.
        """
        try:
            await self.batch.catch_up()  # a commit that was cancelled may have been made
            if self.batch.info.state != "open":
                return self.batch.info.state == "complete"
            if self._reply is not None and not self._reply.calls and self._find_refusal() is None:
                await self._complete(self._entry(self._reply))
                return True
            await self._calls.settle()
            await self.batch.interrupt(reason[:500])
        except DgentError as error:  # it stays open, and is found by `interrupted`
            self.error = self.error or error
        finally:
            self._calls.close()
        return False

    def _find_refusal(self) -> Refusal | None:
        """Return the rule by which the turn may not end yet; None when the model was reminded enough."""
        return None if self._reminders >= REMINDERS else self.agent.rules.check_exit(self._calls.made)

    async def _work(self) -> str:
        await self.agent.servers.ready()
        for text in self.agent.servers.take_notices():
            self._emit(self._notice(text, "mcp"))
        if await self._take_up():
            await self._complete(None)
            return "stop"
        while True:
            if self._steps >= self.agent.limits.steps:
                raise BudgetSpent(f"the turn took {self._steps} steps", hint="resume it", limit="steps")
            self._steps += 1
            reply = await self._ask()
            if not reply.calls:
                entry = self._entry(reply)
                refusal = self._find_refusal()
                if refusal is None:
                    await self._complete(entry)
                    return reply.finish
                self._reminders += 1
                said = f"{refusal.text}: {refusal.hint}"
                await self.batch.add_all([entry, Entry("system", said)])
                self._reply = None
                self._emit(self._notice(said, "rule"))
                continue
            await self.batch.add_all([self._entry(reply)])
            self._reply = None
            if await self._calls.run_all(reply.calls):
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
        self._calls.recall(context.history)
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
                    self.usage = self.usage.add(piece.usage)
                    self._text = piece.text or self._text
                    self._reply = reply = await self._rename(piece)
        self._emit(UsageReport(model=reply.model, usage=reply.usage, agent=agent, batch=batch))
        return reply

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

    # -- going on after a stop ------------------------------------------------------------------

    async def _take_up(self) -> bool:
        """Read what the batch has, and finish the calls without results; return whether one ends the turn."""
        if self._asked is not None:
            self._calls.caller, self._calls.origin = self._asked.trust or "partner", self._asked.origin
            return False
        messages = await self.batch.messages()
        asked = next((each for each in messages if each.role == "user"), None)
        if asked is not None:
            self._calls.caller, self._calls.origin = asked.trust, asked.origin
        for message in messages:
            if message.role == "assistant":
                self._text = "".join(part.text for part in message.parts if part.type == "text") or self._text
                self._add_usage(message.usage)
        return await self._calls.take_up(messages)

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            known = {name: usage[name] for name in TokenUsage.__struct_fields__ if name in usage}
            self.usage = self.usage.add(msgspec.convert(known, TokenUsage))


def _name(given: str, otherwise: str) -> str:
    """Return a name that a model made up, as far as it can be stored."""
    name = given[:MAX_NAME]
    return name if name.isprintable() and name else otherwise


def build_turns(context: AgentContext) -> tuple[Turn, ...]:
    """Return the messages of a context as a model is shown them: history, what is new, the batch."""
    turns = [_turn(message) for message in context.history]
    if context.now:
        turns.append(Turn("system", (Part("text", context.now),)))
    turns += [_turn(message) for message in context.batch]
    return tuple(turn for turn in turns if turn.parts)


def _turn(message: Message) -> Turn:
    parts = mark_parts(message)
    if len(parts) != 1 or not parts[0].text:  # most messages of a history are one text
        parts = tuple(part for part in parts if part.type != "text" or part.text)
    return Turn(message.role, parts)  # type: ignore[arg-type]  # a role is one of those of the room


def build_system(context: AgentContext) -> tuple[SystemPart, ...]:
    """Return the instructions of a context."""
    return tuple(SystemPart(text) for text in context.system)


def build_request(context: AgentContext, tools: Sequence[Mapping[str, Any]], **more: Any) -> ModelCall:
    """Return the call of a model for a context."""
    return ModelCall(system=build_system(context), messages=build_turns(context), tools=tuple(tools), **more)
