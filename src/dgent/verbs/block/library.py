"""Shared by the verbs of blocks: the library of a call, and blocks from user input."""

from __future__ import annotations

from typing import Annotated

from dgent.blocks import Block, Library, errors
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, option

BLOCK = "the block's label, owner/label, or its id"

Owner = Annotated[str | None, option("whose block it is, where several share one of this label")]
Kind = Annotated[str | None, option("core, working, archival or log: when it is in the context", short="k")]
Permission = Annotated[
    str | None, option("read_only, partner, human, append, read_write or admin", short="p")
]
Message = Annotated[str, option("why; it is kept with the version", short="m")]
Expect = Annotated[int | None, option("the version it must be at now")]
Limit = Annotated[int, option("at most so many", short="n")]


class OneBlock(Ask):
    """Input of a verb that takes one block."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    owner: Owner = None


async def library_of(context: Context) -> Library:
    """Return the library of the calling agent, with the caller's trust and consent."""
    universe = await context.universe()
    caller = context.caller
    # Only a partner acts as the author that the store was opened for.
    author = universe.author if caller.trust == "partner" else caller.id
    return Library(universe, caller.agent or author, trust=caller.trust, consent=context.consent)


async def block_of(library: Library, ask: OneBlock) -> Block:
    """Find the block of a call: by label, by owner/label, or by id."""
    try:
        return await library.get(ask.label, owner=ask.owner)
    except errors.BlockNotFound as missing:
        error = missing
    if ask.owner is None:
        owner, sign, label = ask.label.partition("/")
        try:
            return await (library.get(label, owner=owner) if sign and label else library.by_id(ask.label))
        except errors.BlockNotFound:
            pass
    error.hint = error.hint.replace(
        "`list(shared=True)` shows them", "`dgent block list --shared` shows them"
    )
    raise error
