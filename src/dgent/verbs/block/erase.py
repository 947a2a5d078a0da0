"""Verbs that erase the content of versions of a block: for the partner only, and not undone."""

from __future__ import annotations

from typing import Annotated

from dgent.errors import InputError
from dgent.verbs import parse
from dgent.verbs.block.answer import BlockCompaction, BlockHeader, RedactResult, header_of
from dgent.verbs.block.block import ERRORS
from dgent.verbs.block.library import BLOCK, Message, OneBlock, block_of, library_of
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Removed
from dgent.verbs.registry import argument, option, verb


class Redact(OneBlock, kw_only=True):
    """Input of `block.redact`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    first: Annotated[int, argument("the version that brought it")]
    last: Annotated[int | None, argument("the last of several versions")] = None
    message: Message = ""
    clear_messages: Annotated[bool, option("clear the messages of these versions too")] = False


@verb("block.redact", effect="destroy", errors=ERRORS)
async def redact(context: Context, ask: Redact) -> RedactResult:
    """Remove the text that a version added from every version of a block, for good."""
    block = await block_of(await library_of(context), ask)
    done = await block.redact(ask.first, ask.last, message=ask.message, clear_messages=ask.clear_messages)
    return RedactResult(
        *(block.owner, block.label, done.version, list(done.versions), list(done.elsewhere)),
        *(done.erased, list(done.messages)),
    )


class CompactBlock(OneBlock, kw_only=True):
    """Input of `block.compact`."""

    keep: Annotated[int | None, option("keep so many of the newest versions")] = None
    older_than: Annotated[str | None, option("only what is older: 30d, or 2026-01-31")] = None


@verb("block.compact", effect="destroy", errors=ERRORS)
async def compact(context: Context, ask: CompactBlock) -> BlockCompaction:
    """Prune the content of old versions of a block; the history still lists who did what."""
    if ask.keep is None and ask.older_than is None:
        raise InputError("nothing says what to keep", hint="give --keep or --older-than")
    moment = None if ask.older_than is None else parse.moment(ask.older_than, "older_than")
    block = await block_of(await library_of(context), ask)
    return BlockCompaction(block.owner, block.label, await block.compact(ask.keep, older_than=moment))


class Retain(OneBlock, kw_only=True):
    """Input of `block.retain`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    keep: Annotated[int | None, argument("how many of the newest versions, from 64; all if left out")] = None


@verb("block.retain", effect="destroy", errors=ERRORS)
async def retain(context: Context, ask: Retain) -> BlockHeader:
    """Keep only so many of a block's newest versions from now on, and those with a checkpoint."""
    library = await library_of(context)
    block = await block_of(library, ask)
    return header_of(await library.retain(block.label, ask.keep, owner=block.owner))


class Drop(OneBlock, kw_only=True):
    """Input of `block.drop-checkpoint`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    name: Annotated[str, argument("the checkpoint's name")]


@verb("block.drop-checkpoint", effect="destroy", errors=ERRORS)
async def drop_checkpoint(context: Context, ask: Drop) -> Removed:
    """Take the name from a version of a block; the version stays."""
    block = await block_of(await library_of(context), ask)
    return Removed("checkpoint", ask.name, f"version {await block.drop_checkpoint(ask.name)}")
