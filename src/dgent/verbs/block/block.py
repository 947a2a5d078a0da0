"""Verbs for blocks, the memory documents of agents: make them, look at them, manage them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dgent.blocks import errors
from dgent.blocks.document.diff import number_lines
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.kind import Permission as PermissionName
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.universe.origin import drop_marks, find_marks
from dgent.verbs import parse
from dgent.verbs.block.answer import (
    BlockField,
    BlockHeader,
    BlockInfo,
    Blocks,
    BlockSection,
    BlockShare,
    BlockText,
    header_of,
)
from dgent.verbs.block.library import (
    Kind,
    OneBlock,
    OnePastBlock,
    Owner,
    Permission,
    block_of,
    content_of,
    library_of,
)
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Removed
from dgent.verbs.origin import LowTrust, mark_of
from dgent.verbs.registry import Ask, Items, NoInput, PastAsk, argument, option, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgent.blocks import Block, Shape

ERRORS = (InputError, NotFound, Conflict, Denied)
TEMPLATES = "persona, human, scratchpad, organization, partner_profile, task_list or observation_log"


class CreateBlock(Ask):
    """Input of `block.create`."""

    label: Annotated[str, argument("its label: free among the agent's blocks")]
    text: Annotated[
        str,
        argument(
            "what it says at first; JSON unless it is a text; - for standard input", words=True, file=True
        ),
    ] = ""
    value: Annotated[Any, option("what it holds at first, instead of text, where it is not a text")] = None
    template: Annotated[str | None, option(f"what it is made after: {TEMPLATES}", short="t")] = None
    document: Annotated[str | None, option("text, map, list, log, tree or counter, without a template")] = (
        None
    )
    description: Annotated[str | None, option("what belongs into it", short="d")] = None
    kind: Kind = None
    limit: Annotated[int | None, option("how many characters it may have")] = None
    permission: Permission = None
    unpinned: Annotated[bool, option("leave it out of the context until it is pinned")] = False
    shared: Annotated[bool, option("make it for all agents of the constellation")] = False


@verb("block.create", effect="write", errors=ERRORS, makes=True)
async def create(context: Context, ask: CreateBlock) -> BlockHeader:
    """Make a block, a memory document of an agent."""
    from dgent.blocks.document.template import find_template

    library = await library_of(context)
    plain = find_template(ask.template, ask.document).shape.document == "text"
    first = content_of(ask.text, ask.value)
    if ask.text and not plain:
        first = parse.value(ask.text)
    made = await library.create(
        ask.label,
        template=ask.template,
        document=ask.document,
        description=ask.description,
        kind=ask.kind,
        limit=ask.limit,
        permission=ask.permission,
        pinned=False if ask.unpinned else None,
        value=first or None,
        owner=CONSTELLATION if ask.shared else None,
    )
    return header_of(made)


class ListBlocks(PastAsk):
    """Input of `block.list`."""

    folder: Annotated[str | None, argument("only labels in this folder, as projects/x")] = None
    kind: Kind = None
    shared: Annotated[bool, option("also those of others that the agent may see", short="s")] = False


@verb("block.list", effect="read", errors=(InputError,))
async def list_(context: Context, ask: ListBlocks) -> Blocks:
    """List an agent's blocks."""
    library = await library_of(context, ask.as_of)
    found = await library.list(ask.folder, kind=ask.kind, shared=ask.shared)
    sizes = await library.sizes(found)
    origins = zip(found, await _find_origins(context, found), strict=True)
    items = [header_of(each, sizes.get(each.id), origin) for each, origin in origins]
    gone = await library.list_deleted()
    if ask.shared:
        gone += [f"{CONSTELLATION}/{each}" for each in await library.list_deleted(owner=CONSTELLATION)]
    return Blocks(items, library.agent, gone)


class GetBlock(OnePastBlock):
    """Input of `block.get`."""

    section: Annotated[str | None, option("only this section of a composite")] = None
    lines: Annotated[
        str | None, option("only these lines, with their numbers: 5, 5-9, 5- or 1-", short="l")
    ] = None


@verb("block.get", effect="read", errors=(InputError, NotFound))
async def get(context: Context, ask: GetBlock) -> BlockText:
    """Show what a block says."""
    block = await block_of(await library_of(context, ask.as_of), ask)
    origin = (await _find_origins(context, [block]))[0]
    part = block if ask.section is None else block.section(ask.section)
    found = await part.current()
    if ask.lines is None:
        return BlockText(block.owner, found.label, found.version, found.text, found.value, origin=origin)
    every = found.text.splitlines()
    first, last = parse.line_range(ask.lines, len(every))
    shown = number_lines(every[first - 1 : last], first)
    return BlockText(block.owner, found.label, found.version, shown, {}, len(every), origin)


async def _find_origins(context: Context, blocks: Sequence[Block]) -> list[LowTrust]:
    """Return the origin of each of some blocks, as answers have it."""
    marked = await find_marks(await context.universe(), [each.id for each in blocks])
    return [mark_of(marked.get(each.id, "partner")) for each in blocks]


@verb("block.info", effect="read", errors=(InputError, NotFound))
async def info(context: Context, ask: OnePastBlock) -> BlockInfo:
    """Show what a block is: its kind, limit, permission, shares, checkpoints."""
    library = await library_of(context, ask.as_of)
    block = await block_of(library, ask)
    size = len(await block.text())
    return BlockInfo(
        header_of(block, origin=(await _find_origins(context, [block]))[0]),
        block.version,
        size,
        _fields(block.shape),
        [
            BlockSection(each.name, each.shape.document, each.read_only, _fields(each.shape))
            for each in block.shape.sections
        ],
        await block.checkpoints(),
        [share_answer(each) for each in await library.list_shares() if each.block == block.id],
    )


def _fields(shape: Shape) -> list[BlockField]:
    return [
        BlockField(each.name, each.type, each.description, each.required, each.read_only, list(each.choices))
        for each in shape.fields
    ]


class DescribeBlock(OneBlock):
    """Input of `block.describe`."""

    description: Annotated[str | None, option("what belongs into it", short="d")] = None
    kind: Kind = None
    limit: Annotated[int | None, option("how many characters it may have")] = None
    permission: Permission = None
    template: Annotated[
        str | None, option("another template, whose kind of document and fields it fits", short="t")
    ] = None


@verb("block.describe", effect="write", errors=ERRORS)
async def describe(context: Context, ask: DescribeBlock) -> BlockHeader:
    """Change what a block is for, its kind, limit, permission or template."""
    given = {
        name: value
        for name, value in msgspec.structs.asdict(ask).items()
        if value is not None and name not in ("label", "owner")
    }
    if not given:
        raise InputError("there is nothing to change", hint="give --description, --kind, --limit …")
    library = await library_of(context)
    block = await block_of(library, ask)
    return header_of(await library.describe(block.label, owner=block.owner, **given))


class Rename(Ask):
    """Input of `block.rename`."""

    label: Annotated[str, argument("the block's label, or its id", complete="block")]
    to: Annotated[str, argument("its new label")]
    owner: Owner = None


@verb("block.rename", effect="write", errors=ERRORS)
async def rename(context: Context, ask: Rename) -> BlockHeader:
    """Give a block another label."""
    library = await library_of(context)
    block = await block_of(library, OneBlock(label=ask.label, owner=ask.owner))
    return header_of(await library.rename(block.label, ask.to, owner=block.owner))


class MoveFolder(Ask):
    """Input of `block.move-folder`."""

    folder: Annotated[str, argument("the folder of labels, as projects/x")]
    to: Annotated[str, argument("the folder they go to")]


@verb("block.move-folder", effect="write", errors=ERRORS)
async def move_folder(context: Context, ask: MoveFolder) -> Blocks:
    """Move all blocks whose labels are in a folder to another one, in one commit."""
    library = await library_of(context)
    moved = await library.move_folder(ask.folder, ask.to)
    return Blocks([header_of(each) for each in moved], library.agent)


class OneFolder(Ask):
    """Input of `block.delete-folder`."""

    folder: Annotated[str, argument("the folder of labels, as projects/x")]


@verb("block.delete-folder", effect="write", errors=ERRORS)
async def delete_folder(context: Context, ask: OneFolder) -> Items[Removed]:
    """Remove all blocks whose labels are in a folder, in one commit; restore brings each back."""
    gone = await (await library_of(context)).delete_folder(ask.folder)
    return Items([Removed("block", each.id, each.label) for each in gone])


@verb("block.pin", effect="write", errors=ERRORS)
async def pin(context: Context, ask: OneBlock) -> BlockHeader:
    """Keep a working block in the context."""
    library = await library_of(context)
    block = await block_of(library, ask)
    return header_of(await library.pin(block.label, owner=block.owner))


@verb("block.unpin", effect="write", errors=ERRORS)
async def unpin(context: Context, ask: OneBlock) -> BlockHeader:
    """Keep a working block in the context no longer."""
    library = await library_of(context)
    block = await block_of(library, ask)
    return header_of(await library.pin(block.label, False, owner=block.owner))


@verb("block.vouch", effect="write", errors=ERRORS, partner=True)
async def vouch(context: Context, ask: OneBlock) -> BlockHeader:
    """Trust a block as it is now, whoever wrote to it: the mark of its origin goes."""
    block = await block_of(await library_of(context), ask)
    await drop_marks(await context.universe(), block.id)
    return header_of(block)


@verb("block.archive", effect="write", errors=ERRORS)
async def archive(context: Context, ask: OneBlock) -> BlockHeader:
    """Put a block where only search finds it; not a core block, which is always in the context."""
    library = await library_of(context)
    block = await block_of(library, ask)
    if block.kind == "core":
        raise errors.WrongKind(
            f"{block.label!r} is core, which is always in the context",
            hint="`dgent block describe LABEL --kind archival` does it all the same",
        )
    return header_of(await library.describe(block.label, owner=block.owner, kind="archival"))


class ViewBlock(OneBlock, kw_only=True):
    """Input of `block.view`."""

    label: Annotated[str, argument("the block's label, or its id", complete="block")]
    start: Annotated[int, argument("the first line")] = 1
    lines: Annotated[int | None, argument("how many lines; all if left out")] = None


@verb("block.view", effect="write", errors=ERRORS)
async def view(context: Context, ask: ViewBlock) -> BlockHeader:
    """Show only some lines of a long text in the context, from one on."""
    library = await library_of(context)
    block = await block_of(library, ask)
    return header_of(await library.view(block.label, ask.start, ask.lines, owner=block.owner))


@verb("block.delete", effect="write", errors=ERRORS)
async def delete(context: Context, ask: OneBlock) -> Removed:
    """Remove a block; its label is free at once, and restore brings it back with its history."""
    library = await library_of(context)
    block = await block_of(library, ask)
    await library.delete(block.label, owner=block.owner)
    return Removed("block", block.id, block.label)


class RestoreBlock(Ask):
    """Input of `block.restore`."""

    label: Annotated[str, argument("the label it had")]
    to: Annotated[str | None, option("another label for it")] = None
    shared: Annotated[bool, option("one that belonged to all agents", short="s")] = False


@verb("block.restore", effect="write", errors=ERRORS)
async def restore(context: Context, ask: RestoreBlock) -> BlockHeader:
    """Bring back the block of a label that was deleted last, with its history."""
    owner = CONSTELLATION if ask.shared else None
    return header_of(await (await library_of(context)).restore(ask.label, to=ask.to, owner=owner))


WithAgent = Annotated[str | None, option("the other agent", short="w", complete="agent")]
WithGroup = Annotated[str | None, option("a group, with all its members", short="g", complete="group")]


class UnshareBlock(OneBlock):
    """Input of `block.unshare`."""

    with_agent: WithAgent = None
    with_group: WithGroup = None


class ShareBlock(UnshareBlock):
    """Input of `block.share`."""

    permission: Annotated[PermissionName, option("what they may do with it", short="p")] = "append"


@verb("block.share", effect="write", errors=ERRORS)
async def share(context: Context, ask: ShareBlock) -> Items[BlockShare]:
    """Give a block to another agent or a group; again to change what they may do with it."""
    library = await library_of(context)
    block = await block_of(library, ask)
    await library.share(
        block.label,
        with_agent=ask.with_agent,
        with_group=ask.with_group,
        permission=ask.permission,
        owner=block.owner,
    )
    return Items([share_answer(each) for each in await library.list_shares() if each.block == block.id])


@verb("block.unshare", effect="write", errors=ERRORS)
async def unshare(context: Context, ask: UnshareBlock) -> Items[BlockShare]:
    """Take a block back from an agent or a group; answers with who has it still."""
    library = await library_of(context)
    block = await block_of(library, ask)
    had = await library.unshare(
        block.label, with_agent=ask.with_agent, with_group=ask.with_group, owner=block.owner
    )
    if not had:
        raise NotFound(f"{block.label!r} is not shared with {ask.with_agent or ask.with_group}")
    return Items([share_answer(each) for each in await library.list_shares() if each.block == block.id])


@verb("block.shares", effect="read")
async def shares(context: Context, ask: NoInput) -> Items[BlockShare]:
    """List what an agent gave to others, and what others gave to it."""
    return Items([share_answer(each) for each in await (await library_of(context)).list_shares()])


def share_answer(found: Any) -> BlockShare:
    """Return a share as a verb answers it."""
    return BlockShare(
        found.owner, found.label, found.agent, found.group, found.permission, found.by, found.at
    )
