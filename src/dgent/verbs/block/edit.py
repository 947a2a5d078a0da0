"""Verbs that change what a block says; each call is one version."""

from __future__ import annotations

from typing import Annotated, Any

from dgent.blocks import Block, Section, tool_edit, tool_pattern, tool_schema
from dgent.blocks.tool_call import Call, check
from dgent.blocks.tools import Toolbox
from dgent.errors import InputError
from dgent.verbs import parse as text
from dgent.verbs.block.answer import Edited, version_of
from dgent.verbs.block.block import ERRORS
from dgent.verbs.block.library import BLOCK, Expect, Message, OneBlock, Owner, block_of, library_of
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, argument, nearest, option, verb

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


async def _parts(context: Context, ask: EditInput) -> tuple[Block, Block | Section]:
    """Return the block of a call, and the part of it that is edited."""
    block = await block_of(await library_of(context), ask)
    return block, block if ask.section is None else block.section(ask.section)


async def _newest_edit(block: Block, node: str | None = None) -> Edited:
    (newest,) = await block.history(1)
    return Edited(block.owner, block.label, block.limit, version_of(newest), node)


class Append(EditInput, kw_only=True):
    """Input of `block.append`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    text: Annotated[
        str, argument("the text; JSON for an item or an entry; - for standard input", words=True, file=True)
    ]
    line: Annotated[
        bool, option("begin a new line first, where the text does not end with one", short="l")
    ] = False


@verb("block.append", effect="append", errors=ERRORS)
async def append(context: Context, ask: Append) -> Edited:
    """Add to the end of a block: text to a text, an item to a list, an entry to a log."""
    block, part = await _parts(context, ask)
    if part.document_kind == "text":
        begin = ""
        if ask.line:
            said = await part.text()
            begin = "\n" if said and not said.endswith("\n") else ""
        await part.append(begin + ask.text, **ask.options())
    elif part.document_kind == "log":
        await part.log(text.value(ask.text), message=ask.message)
    else:
        await part.append(text.value(ask.text), **ask.options())
    return await _newest_edit(block)


class Write(EditInput, kw_only=True):
    """Input of `block.write`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    text: Text


@verb("block.write", effect="write", errors=ERRORS)
async def write(context: Context, ask: Write) -> Edited:
    """Replace all that a text says."""
    block, part = await _parts(context, ask)
    await part.write(ask.text, **ask.options())
    return await _newest_edit(block)


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
        raise InputError("--all and --nth cannot be combined", hint="give one of them")
    block, part = await _parts(context, ask)
    which: str | int = "all" if ask.all else "first" if ask.nth is None else ask.nth
    if ask.regex:
        await tool_pattern.replace(part, ask.old, ask.new, which, **ask.options())
    else:
        await part.replace(ask.old, ask.new, which=which, **ask.options())
    return await _newest_edit(block)


class Patch(EditInput, kw_only=True):
    """Input of `block.patch`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    patch: Annotated[str, argument("a unified difference; - for standard input", words=True, file=True)]


@verb("block.patch", effect="write", errors=ERRORS)
async def patch(context: Context, ask: Patch) -> Edited:
    """Apply a unified difference to a text; every line of its context must be there."""
    block, part = await _parts(context, ask)
    await part.patch(ask.patch, **ask.options())
    return await _newest_edit(block)


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
    block, part = await _parts(context, ask)
    await part.edit_range(ask.start, ask.end, ask.text, **ask.options())
    return await _newest_edit(block)


class ChangeBlock(Ask):
    """Input of `block.change`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    operation: Annotated[str, argument("set_field, increment, insert_item, set_item, add_node, …")]
    values: Annotated[
        tuple[str, ...], argument("name=value: field=name value=Ann, place=1, amount=2, …")
    ] = ()
    owner: Owner = None
    section: InSection = None
    message: Message = ""
    expect: Expect = None


@verb("block.change", effect="write", errors=ERRORS)
async def change(context: Context, ask: ChangeBlock) -> Edited:
    """Change fields, items, entries, nodes or a counter of a block."""
    if ask.operation not in tool_edit.OPERATIONS:
        hint = nearest(ask.operation, tool_edit.OPERATIONS) or f"use one of {', '.join(tool_edit.OPERATIONS)}"
        raise InputError(f"there is no operation {ask.operation!r}", hint=hint, field="operation")
    library = await library_of(context)
    block = await block_of(library, OneBlock(label=ask.label, owner=ask.owner))
    given: dict[str, Any] = _values(ask.values) | {"id": block.id, "message": ask.message}
    given |= {"section": ask.section, "expect": ask.expect}
    operation = tool_edit.OPERATIONS[ask.operation]
    known = tool_schema.parameters_of(Toolbox.block_edit)
    told = tool_schema.checked(known, {"operation": ask.operation} | given)
    del told["operation"]
    answer = await operation.run(Call(library, check(ask.operation, operation, told)))
    return await _newest_edit(block, answer["data"].get("node"))


def _values(given: tuple[str, ...]) -> dict[str, Any]:
    """Parse name=value inputs; values of text parameters stay as typed."""
    values: dict[str, Any] = {}
    known = tool_schema.parameters_of(Toolbox.block_edit)
    for each in given:
        name, sign, raw = each.partition("=")
        if not sign:
            raise InputError(f"{each!r} is not name=value", hint="write field=name value=Ann", field="values")
        if name not in known:
            raise InputError(f"there is no {name!r}", hint=tool_schema.hint(name, known), field="values")
        values[name] = raw if known[name].type == "string" else text.value(raw)
    return values
