"""Verbs for the archive: texts that an agent archives, found by search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dgent.blocks import Hit
from dgent.errors import Conflict, InputError, NotFound
from dgent.verbs.block.answer import ArchiveEntry, BlockShare
from dgent.verbs.block.block import WithAgent, WithGroup, share_answer
from dgent.verbs.block.library import Limit, library_of
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Removed
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb

if TYPE_CHECKING:
    from dgent.blocks import Entry, Library

Tag = Annotated[tuple[str, ...], option("a word to find it by; may be given more than once", short="t")]


class Insert(Ask):
    """Input of `archive.insert`."""

    text: Annotated[str, argument("the text; - for standard input", words=True, file=True)]
    tag: Tag = ()


@verb("archive.insert", effect="append", errors=(InputError,), makes=True)
async def insert(context: Context, ask: Insert) -> ArchiveEntry:
    """Store a text in the archive."""
    return _entry(await (await library_of(context)).archive(ask.text, tags=ask.tag))


class OneEntry(Ask):
    """Input of a verb that takes one entry."""

    id: Annotated[str, argument("the entry's id")]


@verb("archive.get", effect="read", errors=(InputError, NotFound))
async def get(context: Context, ask: OneEntry) -> ArchiveEntry:
    """Show an archival entry."""
    return _entry(await (await library_of(context)).get_archived(ask.id))


class SearchArchive(Ask):
    """Input of `archive.search`."""

    query: Annotated[str, argument("the words to look for", words=True)]
    tag: Tag = ()
    limit: Limit = 10


@verb("archive.search", effect="read", errors=(InputError,))
async def search(context: Context, ask: SearchArchive) -> Items[Hit]:
    """Find archival entries, the best first."""
    library = await library_of(context)
    found = await library.search(ask.query, limit=ask.limit, kind="entry", tags=ask.tag)
    return Items(found)


class DeleteEntry(OneEntry):
    """Input of `archive.delete`."""

    forget: Annotated[bool, option("leave no trace of it; no undo brings it back")] = False


def only_deleting(ask: DeleteEntry) -> Effect | None:
    """Only writes without `forget`: the history still has the entry."""
    return None if ask.forget else "write"


@verb("archive.delete", effect="destroy", errors=(InputError, NotFound), lighter=only_deleting)
async def delete(context: Context, ask: DeleteEntry) -> Removed:
    """Delete an archival entry."""
    await (await library_of(context)).unarchive(ask.id, forget=ask.forget)
    return Removed("archive", ask.id, "")


class ShareArchive(Ask):
    """Input of `archive.share` and `archive.unshare`."""

    with_agent: WithAgent = None
    with_group: WithGroup = None


@verb("archive.share", effect="write", errors=(InputError, NotFound, Conflict))
async def share(context: Context, ask: ShareArchive) -> Items[BlockShare]:
    """Let another agent, or all members of a group, read and search the archive."""
    library = await library_of(context)
    await library.share_archive(with_agent=ask.with_agent, with_group=ask.with_group)
    return await _shares(library)


@verb("archive.unshare", effect="write", errors=(InputError, NotFound))
async def unshare(context: Context, ask: ShareArchive) -> Items[BlockShare]:
    """Take the archive back from an agent or a group; answers with who may read it still."""
    library = await library_of(context)
    if not await library.unshare_archive(with_agent=ask.with_agent, with_group=ask.with_group):
        raise NotFound(f"the archive is not shared with {ask.with_agent or ask.with_group}")
    return await _shares(library)


@verb("archive.shares", effect="read")
async def shares(context: Context, ask: NoInput) -> Items[BlockShare]:
    """List who may read the agent's archive, and whose archives it may read."""
    return await _shares(await library_of(context))


async def _shares(library: Library) -> Items[BlockShare]:
    return Items([share_answer(each) for each in await library.list_archive_shares()])


def _entry(found: Entry) -> ArchiveEntry:
    return ArchiveEntry(found.id, found.agent, found.text, sorted(found.tags), found.at)
