"""Verbs for messages of agents: list, add, search, edit, compress, and files of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dgent.errors import Ambiguous, Conflict, InputError, NotFound, StorageFull
from dgent.exchange import folders
from dgent.messages import (
    BatchInfo,
    Compressed,
    ImportedMessages,
    Message,
    MessageHit,
    MessagePage,
    Messages,
    Summary,
)
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, AsOf, Items, PastAsk, argument, option, verb

STREAM = "-"
LAST = "last"

Trust = Literal["partner", "friend", "conversant", "untrusted"]
Limit = Annotated[int, option("how many at most", short="n")]
MessageRef = Annotated[
    str, argument("the message's id, the beginning of it, or last for the newest", complete="message")
]
BatchRef = Annotated[
    str, argument("the batch's id, the beginning of it, or last for the newest", complete="batch")
]


async def messages_of(context: Context, as_of: str | None = None) -> Messages:
    """Return the messages of the calling agent; with `as_of` as they were then, for reading."""
    universe = await context.universe(as_of)
    return Messages(universe, agent_of(context, universe.author))


def agent_of(context: Context, author: str) -> str:
    """Return the agent whose messages a call is about: the caller's own."""
    # Only a caller that speaks for the partner acts as the author that the store was opened for.
    caller = context.caller
    return caller.agent or (author if caller.trust == "partner" else caller.id)


async def find_id(messages: Messages, ref: str, kind: Literal["message", "batch"]) -> str:
    """Return the id of a message or batch that a caller names; raises NotFound or Ambiguous."""
    if ref == LAST:
        found = (await messages.page(1)).items if kind == "message" else await messages.list_batches(limit=1)
        if not found:
            raise NotFound(f"{messages.agent} has no {kind} yet")
        return found[0].id
    near = await messages.find_ids(ref, kind)
    if not near:
        raise NotFound(f"{messages.agent} has no {kind} {ref!r}", hint="`dgent message list`", id=ref)
    if len(near) > 1:
        raise Ambiguous(f"{ref!r} is the beginning of several ids", candidates=near)
    return near[0]


class ListMessages(PastAsk):
    """Input of `message.list`."""

    batch: Annotated[str | None, option("only of this batch", complete="batch")] = None
    role: Annotated[
        Literal["user", "assistant", "system", "tool"] | None, option("only of this role", short="r")
    ] = None
    limit: Limit = 50
    cursor: Annotated[str | None, option("go on from here: the cursor of the page before")] = None


@verb("message.list", effect="read", errors=(InputError, NotFound))
async def list_(context: Context, ask: ListMessages) -> MessagePage:
    """List messages of the agent, newest first."""
    messages = await messages_of(context, ask.as_of)
    batch = None if ask.batch is None else await find_id(messages, ask.batch, "batch")
    return await messages.page(ask.limit, cursor=ask.cursor, batch=batch, role=ask.role)


class GetMessage(PastAsk):
    """Input of `message.get`."""

    id: MessageRef


@verb("message.get", effect="read", errors=(NotFound, Ambiguous))
async def get(context: Context, ask: GetMessage) -> Message:
    """Show a message with all its parts, its origin and its trust."""
    messages = await messages_of(context, ask.as_of)
    return await messages.get(await find_id(messages, ask.id, "message"))


class AddMessage(Ask):
    """Input of `message.add`."""

    text: Annotated[str, argument("what is said; - for standard input", words=True, file=True)]
    role: Annotated[
        Literal["user", "assistant", "system"], option("who says it: user, assistant or system", short="r")
    ] = "user"
    batch: Annotated[str | None, option("add it to this open batch", complete="batch")] = None
    trust: Annotated[Trust | None, option("how far its origin is trusted; never more than the caller")] = None
    origin: Annotated[str, option("where it comes from, as a URL or a channel")] = ""
    key: Annotated[str | None, option("a second call with the same key adds nothing")] = None


@verb("message.add", effect="append", errors=(InputError, NotFound, Conflict), makes=True)
async def add(context: Context, ask: AddMessage) -> Message:
    """Add a message, as a complete batch of its own or to an open one."""
    messages = await messages_of(context)
    if ask.batch is None:
        return await messages.add(ask.role, ask.text, trust=ask.trust, origin=ask.origin, key=ask.key)
    batch = await messages.get_batch(await find_id(messages, ask.batch, "batch"))
    return await batch.add(ask.role, ask.text, trust=ask.trust, origin=ask.origin, key=ask.key)


class SearchMessages(PastAsk):
    """Input of `message.search`."""

    query: Annotated[str, argument("the words to look for", words=True)]
    limit: Limit = 10


@verb("message.search", effect="read", errors=(InputError,))
async def search(context: Context, ask: SearchMessages) -> Items[MessageHit]:
    """Find messages and summaries by their words, archived ones too, the best first."""
    return Items(await (await messages_of(context, ask.as_of)).search(ask.query, ask.limit))


class EditMessage(Ask):
    """Input of `message.edit`."""

    id: MessageRef
    text: Annotated[str, argument("what it says instead; - for standard input", words=True, file=True)]


@verb("message.edit", effect="write", errors=(InputError, NotFound, Ambiguous, Conflict))
async def edit(context: Context, ask: EditMessage) -> Message:
    """Replace the text of a message; the version before stays in its history."""
    messages = await messages_of(context)
    return await messages.edit(await find_id(messages, ask.id, "message"), ask.text)


class MessagesRemoved(msgspec.Struct, frozen=True):
    """The number of messages that a call removed or changed."""

    messages: int


class DeleteMessage(Ask):
    """Input of `message.delete`."""

    id: MessageRef
    batch: Annotated[bool, option("it names a batch, which goes with all its messages")] = False
    forget: Annotated[bool, option("leave no trace of it, nor of summaries of it; no undo")] = False


def only_deleting(ask: DeleteMessage) -> Effect | None:
    """Only writes without `forget`: the history still has the message."""
    return None if ask.forget else "write"


@verb("message.delete", effect="destroy", errors=(NotFound, Ambiguous, Conflict), lighter=only_deleting)
async def delete(context: Context, ask: DeleteMessage) -> MessagesRemoved:
    """Delete a message with the results of its calls, or a batch."""
    messages = await messages_of(context)
    id = await find_id(messages, ask.id, "batch" if ask.batch else "message")
    return MessagesRemoved(await (messages.forget(id) if ask.forget else messages.delete(id)))


class RedactMessages(Ask):
    """Input of `message.redact`."""

    text: Annotated[str, argument("the text to take out of all messages", words=True)]
    instead: Annotated[str, option("what comes in its place")] = "[redacted]"


@verb("message.redact", effect="destroy", errors=(InputError,))
async def redact(context: Context, ask: RedactMessages) -> MessagesRemoved:
    """Replace a text in all messages and summaries, and erase each version that had it."""
    return MessagesRemoved(await (await messages_of(context)).redact(ask.text, ask.instead))


# -- batches ------------------------------------------------------------------------------------


class ListBatches(PastAsk):
    """Input of `message.batches`."""

    open: Annotated[bool, option("only those that are open, as after a crash")] = False
    limit: Limit = 20


@verb("message.batches", effect="read", errors=(InputError,))
async def batches(context: Context, ask: ListBatches) -> Items[BatchInfo]:
    """List batches, newest first: each is a request with its answer."""
    messages = await messages_of(context, ask.as_of)
    return Items(await messages.list_batches(limit=ask.limit, open_only=ask.open))


class InterruptBatch(Ask):
    """Input of `message.interrupt`."""

    id: BatchRef
    reason: Annotated[str, option("why, in words", short="m")] = ""


@verb("message.interrupt", effect="write", errors=(NotFound, Ambiguous, Conflict))
async def interrupt(context: Context, ask: InterruptBatch) -> BatchInfo:
    """End an open batch: calls without results are dropped, which the answer says."""
    messages = await messages_of(context)
    batch = await messages.get_batch(await find_id(messages, ask.id, "batch"))
    return await batch.interrupt(ask.reason)


# -- compression --------------------------------------------------------------------------------


class CompressMessages(Ask):
    """Input of `message.compress`."""

    strategy: Annotated[
        Literal["truncate", "recursive_summary", "importance", "time_decay"],
        option("what to archive", short="s"),
    ] = "truncate"
    keep: Annotated[int, option("how many of the newest messages stay at least")] = 100
    messages: Annotated[int | None, option("only if there are more messages than this")] = None
    tokens: Annotated[int | None, option("only if there are more tokens than this; as many stay")] = None
    hours: Annotated[float, option("of time_decay: the age at which messages are archived")] = 24.0
    important: Annotated[int, option("of importance: how many older batches stay")] = 10
    summary: Annotated[str, option("of recursive_summary: the text that stands for what is archived")] = ""


_OWN = {"importance": "important", "time_decay": "hours"}


@verb("message.compress", effect="write", errors=(InputError,))
async def compress(context: Context, ask: CompressMessages) -> Compressed:
    """Archive older batches behind a summary; they stay searchable, and restore takes it back."""
    given: dict[str, object] = {"strategy": ask.strategy, "keep": ask.keep}
    if ask.strategy in _OWN:
        given[_OWN[ask.strategy]] = getattr(ask, _OWN[ask.strategy])
    if ask.strategy == "recursive_summary":
        given |= {"calls": 1, "chunk_tokens": 10**9}  # one text stands for all of it

    async def summarise(parts: object) -> str:
        return ask.summary

    messages = await messages_of(context)
    return await messages.compress(
        given, messages=ask.messages, tokens=ask.tokens, summarise=summarise if ask.summary else None
    )


class ListSummaries(Ask):
    """Input of `message.summaries`."""

    limit: Limit = 20


@verb("message.summaries", effect="read")
async def summaries(context: Context, ask: ListSummaries) -> Items[Summary]:
    """List the archives of compressed messages, newest first."""
    return Items(await (await messages_of(context)).list_summaries(ask.limit))


class RestoreMessages(Ask):
    """Input of `message.restore`."""

    id: Annotated[str | None, argument("an archive: it and all newer ones; the newest unless given")] = None


@verb("message.restore", effect="write", errors=(NotFound, Conflict))
async def restore(context: Context, ask: RestoreMessages) -> Items[Summary]:
    """Take archives back: their messages are in the history again."""
    return Items(await (await messages_of(context)).restore(ask.id))


# -- files --------------------------------------------------------------------------------------


class ExportedMessages(msgspec.Struct, frozen=True):
    """The number of lines that an export wrote, and the file."""

    lines: int
    to: str


class ExportMessages(Ask):
    """Input of `message.export`."""

    to: Annotated[str, option("a new file; - writes to standard output", short="o")] = "-"
    as_of: AsOf = None


@verb(
    "message.export",
    effect="read",
    errors=(InputError, StorageFull),
    local=True,
    unless=lambda ask: ask.to == STREAM,
)
async def export(context: Context, ask: ExportMessages) -> ExportedMessages:
    """Write the agent's messages, batches and archives as lines of JSON."""
    messages = await messages_of(context, ask.as_of)
    count = 0
    if ask.to == STREAM:
        if context.out is None:
            raise InputError("there is no standard output here", hint="name a file", field="to")
        async for line in messages.export():
            count += 1
            context.out(f"{line}\n".encode())
        return ExportedMessages(count, ask.to)
    target = folders.check_path(Path(ask.to), "to")
    with folders.translate_errors(target):
        try:
            with target.open("x", encoding="utf-8") as file:
                async for line in messages.export():
                    count += 1
                    file.write(f"{line}\n")
        except FileExistsError:
            raise InputError(f"{target} exists already", hint="name a new file", field="to") from None
        except BaseException:
            with suppress(OSError):
                target.unlink()
            raise
    return ExportedMessages(count, ask.to)


class ImportMessages(Ask):
    """Input of `message.import`."""

    path: Annotated[str, argument("a file that export wrote", complete="file")]


@verb(
    "message.import",
    effect="write",
    errors=(InputError, NotFound, Conflict),
    local=True,
    makes=True,
)
async def import_(context: Context, ask: ImportMessages) -> ImportedMessages:
    """Read messages from lines that export wrote; a damaged file imports nothing."""
    path = Path(ask.path)
    if not path.is_file():
        raise NotFound(f"there is no file {ask.path}", path=ask.path)
    messages = await messages_of(context)
    with path.open(encoding="utf-8", errors="replace") as lines:
        return await messages.load(lines)
