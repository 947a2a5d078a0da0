"""Shared by the verbs of blocks: the library of a call, and blocks from user input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from dgent import blocks
from dgent.blocks import errors
from dgent.blocks.kind import BlockKind
from dgent.blocks.kind import Permission as PermissionName
from dgent.errors import InputError
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, AsOf, argument, option

if TYPE_CHECKING:
    from dgent.blocks import Block, Library

BLOCK = "the block's label, owner/label, or its id"

Owner = Annotated[str | None, option("whose block it is, where several share one of this label")]
Kind = Annotated[
    BlockKind | None,
    option("core is always in the context, working when pinned, archival by search, log its end", short="k"),
]
Permission = Annotated[PermissionName | None, option("what may be done to what it says", short="p")]
FoundKind = Literal["core", "working", "archival", "log", "entry"]
Message = Annotated[str, option("why; it is kept with the version", short="m")]
Expect = Annotated[int | None, option("the version it must be at now")]
Limit = Annotated[int, option("at most so many", short="n")]


class OneBlock(Ask):
    """Input of a verb that takes one block."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    owner: Owner = None


class OnePastBlock(OneBlock, kw_only=True):
    """Input of a verb that takes one block, as it was."""

    as_of: AsOf = None


async def library_of(context: Context, as_of: str | None = None) -> Library:
    """Return the library of the calling agent, with its trust and its way to ask for consent.

    With `as_of` as it was then, for reading.
    """
    given = context.library
    if given is not None and as_of is None:
        return given
    universe = await context.universe(as_of)
    if given is not None:
        return blocks.Library(universe, given.agent, trust=given.trust)
    caller = context.caller
    # Only a caller that speaks for the partner acts as the author that the store was opened for.
    author = universe.author if caller.trust == "partner" else caller.id
    return blocks.Library(universe, caller.agent or author, trust=caller.trust, consent=context.consent)


async def block_of(library: Library, ask: OneBlock) -> Block:
    """Find the block of a call: by label, by owner/label, or by id."""
    try:
        return await library.get(ask.label, owner=ask.owner)
    except errors.BlockNotFound as missing:
        error = missing
    if ask.owner is None:
        owner, sign, label = ask.label.partition("/")
        try:
            return await (library.get(label, owner=owner) if sign and label else library.get_by_id(ask.label))
        except errors.BlockNotFound:
            pass
    error.hint = error.hint.replace(
        "`list(shared=True)` shows them", "`dgent block list --shared` shows them"
    )
    raise error


def content_of(text: str, value: Any) -> Any:
    """Return what was given as `text` or as `value`; None for neither, InputError for both."""
    if text and value is not None:
        raise InputError("text and value are the same thing", hint="give one of them")
    return text or value


def read_json(value: Any) -> Any:
    """Read a map, a list, a number or a flag that was written as JSON text; leave anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in {*"{[-0123456789tf"}:
        return value
    return parse.value(value)
