"""Verbs for the versions of a block: look at them, compare them, go back to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from dgent.blocks import errors
from dgent.errors import InputError, NotFound
from dgent.verbs import parse
from dgent.verbs.block.answer import (
    BlockBranches,
    BlockDiff,
    BlockText,
    BlockVersions,
    Checkpoint,
    Checkpoints,
    EditResult,
    Stretch,
    version_of,
)
from dgent.verbs.block.block import ERRORS
from dgent.verbs.block.library import (
    BLOCK,
    Expect,
    Limit,
    Message,
    OneBlock,
    OnePastBlock,
    block_of,
    library_of,
)
from dgent.verbs.context import Context
from dgent.verbs.registry import argument, option, verb

if TYPE_CHECKING:
    from dgent.blocks import Block, Version

VERSION = "a version's number, or the name of a checkpoint"


class BlockHistory(OnePastBlock, kw_only=True):
    """Input of `block.history`."""

    limit: Limit = 20
    offset: Annotated[int, option("leave out so many first")] = 0


@verb("block.history", effect="read", errors=(InputError, NotFound))
async def history(context: Context, ask: BlockHistory) -> BlockVersions:
    """List the versions of a block, newest first."""
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    block = await block_of(await library_of(context, ask.as_of), ask)
    found = await block.history()
    return BlockVersions(
        [version_of(each) for each in found[max(ask.offset, 0) :][: ask.limit]],
        *(block.owner, block.label, len(found)),
    )


class DiffBlock(OnePastBlock, kw_only=True):
    """Input of `block.diff`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    before: Annotated[str | None, argument(f"{VERSION}; the one before if left out")] = None
    after: Annotated[str | None, argument("another one; the newest if left out")] = None


@verb("block.diff", effect="read", errors=(InputError, NotFound))
async def diff(context: Context, ask: DiffBlock) -> BlockDiff:
    """Show how two versions of a block differ."""
    block = await block_of(await library_of(context, ask.as_of), ask)
    before = None if ask.before is None else await _number(block, ask.before)
    after = None if ask.after is None else await _number(block, ask.after)
    found = await block.diff(before, after)
    return BlockDiff(block.owner, block.label, found.before, found.after, found.text, found.changes)


class At(OnePastBlock, kw_only=True):
    """Input of `block.at`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    version: Annotated[str, argument(f"{VERSION}, or a time such as 2h or 2026-01-31")]


@verb("block.at", effect="read", errors=(InputError, NotFound))
async def at(context: Context, ask: At) -> BlockText:
    """Show what a block said at a version or at a time."""
    block = await block_of(await library_of(context, ask.as_of), ask)
    try:
        view = await block.at(await _number(block, ask.version))
    except errors.VersionNotFound as missing:
        if ask.version.isdigit():
            raise
        try:
            moment = parse.moment(ask.version, "version")
        except InputError:
            raise missing from None
        view = await block.at(time=moment)
    return BlockText(block.owner, block.label, view.version, view.text, view.value)


class Rollback(OneBlock, kw_only=True):
    """Input of `block.rollback`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    version: Annotated[str, argument(VERSION)]
    message: Message = ""
    expect: Expect = None


@verb("block.rollback", effect="write", errors=ERRORS)
async def rollback(context: Context, ask: Rollback) -> EditResult:
    """Make a block what it was at a version, as a new version."""
    block = await block_of(await library_of(context), ask)
    number = await _number(block, ask.version)
    return _edit_of(block, await block.rollback(number, message=ask.message, expect=ask.expect))


class UndoEdit(OneBlock, kw_only=True):
    """Input of `block.undo` and `block.redo`."""

    expect: Expect = None


@verb("block.undo", effect="write", errors=ERRORS)
async def undo(context: Context, ask: UndoEdit) -> EditResult:
    """Take back the last edit of a block; a new edit then starts a branch."""
    block = await block_of(await library_of(context), ask)
    return _edit_of(block, await block.undo(expect=ask.expect))


@verb("block.redo", effect="write", errors=ERRORS)
async def redo(context: Context, ask: UndoEdit) -> EditResult:
    """Do again what was undone last."""
    block = await block_of(await library_of(context), ask)
    return _edit_of(block, await block.redo(expect=ask.expect))


class Visit(OneBlock, kw_only=True):
    """Input of `block.visit`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    version: Annotated[str, argument(VERSION)]


@verb("block.visit", effect="write", errors=ERRORS)
async def visit(context: Context, ask: Visit) -> EditResult:
    """Go to a version on any branch, as undo and redo do."""
    block = await block_of(await library_of(context), ask)
    return _edit_of(block, await block.visit(await _number(block, ask.version)))


@verb("block.branches", effect="read", errors=(InputError, NotFound))
async def branches(context: Context, ask: OnePastBlock) -> BlockBranches:
    """Show the tree of edits that undo has made of a block's history."""
    block = await block_of(await library_of(context, ask.as_of), ask)
    versions = (await block.history())[::-1]
    here = versions[-1].node if versions else 0
    return BlockBranches(await block.branches(), block.owner, block.label, here, stretches(versions))


def stretches(versions: Sequence[Version]) -> list[Stretch]:
    """Split the tree of edits into stretches without a fork inside, each after its parent."""
    nodes = [each for each in versions if each.node == each.number]
    known = {each.number for each in nodes}
    children: dict[int, int] = {}
    for each in nodes:
        children[each.parent] = children.get(each.parent, 0) + 1
    here = versions[-1].node if versions else 0
    lines: dict[int, list[Version]] = {}  # by their first
    line_of: dict[int, int] = {}
    for each in nodes:
        follows = each.parent in known and each.parent != each.number and children[each.parent] == 1
        first = line_of[each.parent] if follows else each.number
        lines.setdefault(first, []).append(each)
        line_of[each.number] = first
    return [
        Stretch(
            first,
            line[-1].number,
            line[0].parent,
            len(line),
            list(dict.fromkeys(each.by for each in line)),
            line[-1].at,
            here in (each.number for each in line),
        )
        for first, line in lines.items()
    ]


class NameVersion(OneBlock, kw_only=True):
    """Input of `block.checkpoint`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    name: Annotated[str, argument("a name for the version it has now")]


@verb("block.checkpoint", effect="append", errors=ERRORS)
async def checkpoint(context: Context, ask: NameVersion) -> Checkpoint:
    """Give the present version of a block a name, under which it is kept."""
    block = await block_of(await library_of(context), ask)
    return Checkpoint(ask.name, await block.checkpoint(ask.name))


@verb("block.checkpoints", effect="read", errors=(InputError, NotFound))
async def checkpoints(context: Context, ask: OnePastBlock) -> Checkpoints:
    """List the versions of a block that have names."""
    block = await block_of(await library_of(context, ask.as_of), ask)
    found = await block.checkpoints()
    return Checkpoints([Checkpoint(name, number) for name, number in found.items()], block.label)


async def _number(block: Block, given: str) -> int:
    """Return the version of a number or a checkpoint name; a name that is a number is looked up first."""
    named = await block.checkpoints()
    if given in named:
        return named[given]
    if given.isascii() and given.isdigit():
        return parse.number(given, "version")
    known = ", ".join(list(named)[:10])
    raise errors.VersionNotFound(
        f"{block.label!r} has no checkpoint {given!r:.80}",
        hint=f"there is {known}" if known else "`dgent block history` lists the versions",
    )


def _edit_of(block: Block, made: Version) -> EditResult:
    return EditResult(block.owner, block.label, block.limit, version_of(made))
