"""Verbs for activity in blocks: changes of others, the memory context, search."""

from __future__ import annotations

from typing import Annotated

from dgent.blocks import Context as MemoryContext
from dgent.blocks import Hit
from dgent.errors import InputError
from dgent.verbs import parse
from dgent.verbs.block.answer import BlockActivity, BlockNotice, RefusalInfo
from dgent.verbs.block.library import FoundKind, Limit, library_of
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, PastAsk, argument, option, verb


class ListNotices(Ask):
    """Input of `block.notices`."""

    mark: Annotated[bool, option("record that the agent has seen them: each is reported once")] = False


def only_looking(ask: ListNotices) -> Effect | None:
    """Only reads without `mark`."""
    return None if ask.mark else "read"


@verb("block.notices", effect="append", lighter=only_looking)
async def notices(context: Context, ask: ListNotices) -> Items[BlockNotice]:
    """Show what others did to an agent's blocks since it last looked."""
    library = await library_of(context)
    return Items(
        [
            BlockNotice(each.owner, each.label, each.since, each.version, list(each.by), each.diff.text)
            for each in await library.notices(mark=ask.mark)
        ]
    )


class ActivitySince(Ask):
    """Input of `block.activity`."""

    since: Annotated[str | None, option("after this commit, or this time, such as 2h or 2026-01-31")] = None
    limit: Limit = 50


@verb("block.activity", effect="read", errors=(InputError,))
async def activity(context: Context, ask: ActivitySince) -> Items[BlockActivity]:
    """Show who did what to blocks, entries, crumbs and trails that an agent may see, newest first."""
    library = await library_of(context)
    found = await library.activity(parse.point(ask.since, "since"), limit=ask.limit)
    return Items(
        [
            BlockActivity(
                *(each.seq, each.at, each.by, each.what, each.owner, each.label, each.version, each.message),
                *(each.kind, each.block),
            )
            for each in found
        ]
    )


class Refused(Ask):
    """Input of `block.refusals`."""

    limit: Limit = 20


@verb("block.refusals", effect="read", errors=(InputError,))
async def refusals(context: Context, ask: Refused) -> Items[RefusalInfo]:
    """Show what an agent was refused, and what others were refused of its blocks, newest first."""
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    found = await (await library_of(context)).refusals(ask.limit)
    return Items(
        [
            RefusalInfo(
                *(each.at, each.agent, each.trust, each.owner, each.label),
                *(each.what, each.verdict, each.reason),
            )
            for each in found
        ]
    )


class Render(PastAsk):
    """Input of `block.render`."""

    budget: Annotated[int | None, option("at most so many tokens", short="b")] = None
    referenced: Annotated[tuple[str, ...], option("a working block that is spoken of", short="r")] = ()
    changes: Annotated[bool, option("with what others changed since the agent last looked")] = False


@verb("block.render", effect="read", errors=(InputError,))
async def render(context: Context, ask: Render) -> MemoryContext:
    """Show the memory part of an agent's prompt."""
    library = await library_of(context, ask.as_of)
    return await library.context(ask.budget, list(ask.referenced), changes=ask.changes)


class SearchBlocks(Ask):
    """Input of `block.search`."""

    query: Annotated[str, argument("the words to look for", words=True)]
    kind: Annotated[
        FoundKind | None, option("only blocks of this kind, or entry for the archive", short="k")
    ] = None
    tag: Annotated[tuple[str, ...], option("only archival entries with this word", short="t")] = ()
    owner: Annotated[str | None, option("only what belongs to this agent")] = None
    limit: Limit = 10


@verb("block.search", effect="read", errors=(InputError,))
async def search(context: Context, ask: SearchBlocks) -> Items[Hit]:
    """Find words in the blocks and archival entries that an agent may see."""
    library = await library_of(context)
    found = await library.search(ask.query, limit=ask.limit, kind=ask.kind, owner=ask.owner, tags=ask.tag)
    return Items(found)
