"""Verbs that change what a block says; each call is one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dgent.blocks.edit.text import replace_by_pattern
from dgent.errors import InputError
from dgent.verbs import parse
from dgent.verbs.block.answer import Edited, version_of
from dgent.verbs.block.block import ERRORS
from dgent.verbs.block.library import (
    BLOCK,
    Expect,
    Message,
    OneBlock,
    block_of,
    content_of,
    library_of,
    read_json,
)
from dgent.verbs.context import Context
from dgent.verbs.registry import argument, option, verb

if TYPE_CHECKING:
    from dgent.blocks import Block, Section

Text = Annotated[str, argument("the text; - for standard input", words=True, file=True)]
InSection = Annotated[str | None, option("a section of a composite")]


class EditInput(OneBlock, kw_only=True):
    """Input of every edit."""

    section: InSection = None
    message: Message = ""
    expect: Expect = None

    def options(self) -> dict[str, Any]:
        """Return the message to store with the version, and the expected version."""
        return {"message": self.message, "expect": self.expect}


async def find_part(context: Context, ask: EditInput) -> tuple[Block, Block | Section]:
    """The block of a call, and the part of it that is edited."""
    block = await block_of(await library_of(context), ask)
    return block, block if ask.section is None else block.section(ask.section)


async def edited_of(block: Block, node: str | None = None) -> Edited:
    (newest,) = await block.history(1)
    return Edited(block.owner, block.label, block.limit, version_of(newest), node)


class Append(EditInput, kw_only=True):
    """Input of `block.append`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    text: Annotated[
        str, argument("the text; JSON for an item or an entry; - for standard input", words=True, file=True)
    ] = ""
    value: Annotated[Any, option("an item or an entry, instead of text")] = None
    line: Annotated[
        bool, option("begin a new line first, where the text does not end with one", short="l")
    ] = False


@verb("block.append", effect="append", errors=ERRORS)
async def append(context: Context, ask: Append) -> Edited:
    """Add to the end of a block: text to a text, an item to a list, an entry to a log."""
    block, part = await find_part(context, ask)
    added = content_of(ask.text, ask.value)
    if added is None:
        raise InputError("there is nothing to add", hint="give text, or value for an item or an entry")
    if part.document_kind == "text":
        said = await part.text() if ask.line else ""
        await part.append("\n" + added if said and not said.endswith("\n") else added, **ask.options())
        return await edited_of(block)
    added = parse.value(ask.text) if ask.text else read_item(part, added)
    if part.document_kind != "log":
        await part.append(added, **ask.options())
    elif ask.expect is None:
        await part.log(added, message=ask.message)
    else:
        raise InputError("an entry is added whatever the version is", hint="leave out expect")
    return await edited_of(block)


def read_item(part: Block | Section, value: Any) -> Any:
    """Return a value as an item or an entry: one that has fields may come as JSON text."""
    return read_json(value) if part.shape.fields else value


class Write(EditInput, kw_only=True):
    """Input of `block.write`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    text: Text


@verb("block.write", effect="write", errors=ERRORS)
async def write(context: Context, ask: Write) -> Edited:
    """Replace all that a text says."""
    block, part = await find_part(context, ask)
    await part.write(ask.text, **ask.options())
    return await edited_of(block)


class Replace(EditInput, kw_only=True):
    """Input of `block.replace`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    old: Annotated[str, argument("what to replace")]
    new: Annotated[str, argument("what comes instead; nothing if left out")] = ""
    all: Annotated[bool, option("at every place, not only the first", short="a")] = False
    nth: Annotated[int | None, option("only at this place, from 1")] = None
    regex: Annotated[bool, option("what to replace is a regular expression", short="r")] = False


@verb("block.replace", effect="write", errors=ERRORS)
async def replace(context: Context, ask: Replace) -> Edited:
    """Replace part of a text, at the first place, at all of them or at one."""
    if ask.all and ask.nth is not None:
        raise InputError("all places, or one?", hint="give --all or --nth")
    block, part = await find_part(context, ask)
    which: str | int = "all" if ask.all else "first" if ask.nth is None else ask.nth
    if ask.regex:
        await replace_by_pattern(part, ask.old, ask.new, which, **ask.options())
    else:
        await part.replace(ask.old, ask.new, which=which, **ask.options())
    return await edited_of(block)


class Patch(EditInput, kw_only=True):
    """Input of `block.patch`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    patch: Annotated[str, argument("a unified difference; - for standard input", words=True, file=True)]


@verb("block.patch", effect="write", errors=ERRORS)
async def patch(context: Context, ask: Patch) -> Edited:
    """Apply a unified difference to a text; every line of its context must be there."""
    block, part = await find_part(context, ask)
    await part.patch(ask.patch, **ask.options())
    return await edited_of(block)


class EditLines(EditInput, kw_only=True):
    """Input of `block.edit`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    start: Annotated[int, argument("the first line, from 1")]
    end: Annotated[int, argument("the last line")]
    text: Annotated[
        str, argument("what comes instead; nothing if left out; - for standard input", words=True, file=True)
    ] = ""


@verb("block.edit", effect="write", errors=ERRORS)
async def edit(context: Context, ask: EditLines) -> Edited:
    """Replace some lines of a text by others."""
    block, part = await find_part(context, ask)
    await part.edit_range(ask.start, ask.end, ask.text, **ask.options())
    return await edited_of(block)
