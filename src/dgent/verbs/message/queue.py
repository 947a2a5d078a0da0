"""Verbs for the queue of incoming messages."""

from __future__ import annotations

from typing import Annotated, Literal

from dgent.errors import Conflict, InputError, NotFound
from dgent.messages import Inbox, Incoming
from dgent.verbs.context import Context
from dgent.verbs.message.message import Limit, Trust, agent_of
from dgent.verbs.registry import Ask, Items, argument, option, verb

IncomingId = Annotated[str, argument("its id, as `message queue` shows it")]


async def inbox_of(context: Context) -> Inbox:
    """Return the queue of the calling agent."""
    universe = await context.universe()
    return Inbox(universe, agent_of(context, universe.author))


class SendMessage(Ask):
    """Input of `message.send`."""

    to: Annotated[str, argument("the agent that gets it", complete="agent")]
    text: Annotated[str, argument("what is said; - for standard input", words=True, file=True)]
    type: Annotated[
        Literal["user_request", "agent_to_agent", "system_trigger"],
        option("what it is; two agents have to wait between messages", short="t"),
    ] = "agent_to_agent"
    trust: Annotated[Trust | None, option("how far its origin is trusted; never more than the caller")] = None
    origin: Annotated[str, option("where it comes from, as a URL or a channel")] = ""
    priority: Annotated[int, option("from 0 to 9: the highest is delivered first", short="p")] = 5
    key: Annotated[str | None, option("a second call with the same key sends nothing")] = None


@verb("message.send", effect="append", errors=(InputError, Conflict), makes=True)
async def send(context: Context, ask: SendMessage) -> Incoming:
    """Send a message to an agent: it waits in its queue."""
    inbox = await inbox_of(context)
    id = await inbox.send(
        ask.to,
        ask.text,
        type=ask.type,
        trust=ask.trust,
        origin=ask.origin,
        priority=ask.priority,
        key=ask.key,
    )
    return await inbox.get_sent(id)


class ListQueue(Ask):
    """Input of `message.queue`."""

    state: Annotated[Literal["waiting", "taken", "dead"] | None, option("only those in this state")] = None
    limit: Limit = 50


@verb("message.queue", effect="read")
async def queue(context: Context, ask: ListQueue) -> Items[Incoming]:
    """List the agent's incoming messages: taken, waiting and dead ones."""
    return Items(await (await inbox_of(context)).list(ask.state, ask.limit))


class TakeMessage(Ask):
    """Input of `message.take`."""

    lease: Annotated[float, option("seconds until it is delivered again, unless it is done")] = 300.0


@verb("message.take", effect="write", errors=(InputError, NotFound))
async def take(context: Context, ask: TakeMessage) -> Incoming:
    """Take the next incoming message; done takes it out of the queue, release puts it back."""
    inbox = await inbox_of(context)
    found = await inbox.take(holder=context.caller.agent, lease_s=ask.lease)
    if found is None:
        raise NotFound("no message waits")
    return found.message


class DoneMessage(Ask):
    """Input of `message.done`."""

    id: IncomingId


@verb("message.done", effect="write", errors=(NotFound, Conflict))
async def done(context: Context, ask: DoneMessage) -> Incoming:
    """Take a message out of the queue for good, whatever its state."""
    return await (await inbox_of(context)).drop(ask.id)


class ReleaseMessage(Ask):
    """Input of `message.release`."""

    id: IncomingId
    error: Annotated[str, option("what went wrong", short="m")] = ""
    delay: Annotated[float, option("seconds before it is delivered again")] = 0.0


@verb("message.release", effect="write", errors=(NotFound, Conflict))
async def release(context: Context, ask: ReleaseMessage) -> Incoming:
    """Put a taken or dead message back into the queue."""
    return await (await inbox_of(context)).release(ask.id, ask.error, delay_s=ask.delay)
