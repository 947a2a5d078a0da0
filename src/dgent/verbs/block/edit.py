"""Verbs that change what a block says; each call is one version."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from dgent.blocks import errors
from dgent.blocks.document.diff import show_changed
from dgent.blocks.edit.text import replace_by_pattern
from dgent.errors import InputError
from dgent.verbs import parse
from dgent.verbs.block.answer import EditResult, version_of
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
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.registry import argument, option, verb

if TYPE_CHECKING:
    from dgent.blocks import Block, Section, Version

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


async def _find_part(context: Context, ask: EditInput) -> tuple[Block, Block | Section]:
    """Return the block of a call, and the part of it that is edited."""
    block = await block_of(await library_of(context), ask)
    return block, block if ask.section is None else block.section(ask.section)


async def _describe_edit(block: Block, made: Version | None = None, node: str | None = None) -> EditResult:
    """Return the answer to an edit: the newest version of the block, which is the one it made if given."""
    newest = made if made is not None and made.number == block.version else (await block.history(1))[0]
    return EditResult(block.owner, block.label, block.limit, version_of(newest), node)


async def _edit_text(
    context: Context, ask: EditInput, edit: Callable[[Block | Section], Awaitable[Version]]
) -> EditResult:
    """Edit a text, and answer with the lines that are different now."""
    block, part = await _find_part(context, ask)
    plain = part.document_kind == "text"
    before = await part.text() if plain else ""
    made = await edit(part)
    changed = show_changed(before, await part.text()) if plain else ""
    return EditResult(block.owner, block.label, block.limit, version_of(made), changed=changed)


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
async def append(context: Context, ask: Append) -> EditResult:
    """Add to the end of a block: text to a text, an item to a list, an entry to a log."""
    block, part = await _find_part(context, ask)
    added = content_of(ask.text, ask.value)
    if added is None:
        raise InputError("there is nothing to add", hint="give text, or value for an item or an entry")
    if part.document_kind == "text":
        said = await part.text() if ask.line else ""
        made = await part.append("\n" + added if said and not said.endswith("\n") else added, **ask.options())
        return await _describe_edit(block, made)
    added = parse.value(ask.text) if ask.text else _read_item(part, added)
    if part.document_kind != "log":
        made = await part.append(added, **ask.options())
    elif ask.expect is None:
        made = await part.log(added, message=ask.message)
    else:
        raise InputError("an entry is added whatever the version is", hint="leave out expect")
    return await _describe_edit(block, made)


def _read_item(part: Block | Section, value: Any) -> Any:
    """Return a value as an item or an entry: one that has fields may come as JSON text."""
    return read_json(value) if part.shape.fields else value


class Write(EditInput, kw_only=True):
    """Input of `block.write`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    text: Text


@verb("block.write", effect="write", errors=ERRORS)
async def write(context: Context, ask: Write) -> EditResult:
    """Replace all that a text says."""
    return await _edit_text(context, ask, lambda part: part.write(ask.text, **ask.options()))


class Replace(EditInput, kw_only=True):
    """Input of `block.replace`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    old: Annotated[str, argument("what to replace")]
    new: Annotated[str, argument("what comes instead; nothing if left out")] = ""
    all: Annotated[bool, option("at every place; otherwise it must be there once", short="a")] = False
    nth: Annotated[int | None, option("only at this place, from 1")] = None
    regex: Annotated[bool, option("what to replace is a regular expression", short="r")] = False


@verb("block.replace", effect="write", errors=ERRORS)
async def replace(context: Context, ask: Replace) -> EditResult:
    """Replace a part of a text that is there once, or at all its places, or at one of them."""
    if ask.all and ask.nth is not None:
        raise InputError("all and nth cannot be combined", hint="give one of them")
    which: str | int = "all" if ask.all else "only" if ask.nth is None else ask.nth
    if ask.regex:
        return await _edit_text(
            context, ask, lambda part: replace_by_pattern(part, ask.old, ask.new, which, **ask.options())
        )
    return await _edit_text(
        context, ask, lambda part: part.replace(ask.old, ask.new, which=which, **ask.options())
    )


class Patch(EditInput, kw_only=True):
    """Input of `block.patch`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    patch: Annotated[str, argument("a unified difference; - for standard input", words=True, file=True)]


@verb("block.patch", effect="write", errors=ERRORS)
async def patch(context: Context, ask: Patch) -> EditResult:
    """Apply a unified difference to a text; every line of its context must be there."""
    return await _edit_text(context, ask, lambda part: part.patch(ask.patch, **ask.options()))


class EditLines(EditInput, kw_only=True):
    """Input of `block.edit`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    start: Annotated[int, argument("the first line, from 1")]
    end: Annotated[int, argument("the last line")]
    text: Annotated[
        str, argument("what comes instead; nothing if left out; - for standard input", words=True, file=True)
    ] = ""


@verb("block.edit", effect="write", errors=ERRORS)
async def edit(context: Context, ask: EditLines) -> EditResult:
    """Replace some lines of a text by others."""
    return await _edit_text(
        context, ask, lambda part: part.edit_range(ask.start, ask.end, ask.text, **ask.options())
    )


class InsertLines(EditInput, kw_only=True):
    """Input of `block.insert`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    line: Annotated[int, argument("the line to insert behind, from 1; 0 is the top")]
    text: Text


@verb("block.insert", effect="write", errors=ERRORS)
async def insert(context: Context, ask: InsertLines) -> EditResult:
    """Insert lines into a text, behind one of its lines."""
    return await _edit_text(context, ask, lambda part: part.insert(ask.line, ask.text, **ask.options()))


class EditMany(EditInput, kw_only=True):
    """Input of `block.edit-many`."""

    label: Annotated[str, argument(BLOCK, complete="block")]
    edits: Annotated[
        Any,
        argument(
            "a list of {old, new, all}, {line, text} to insert, or {start, end, text}; - for standard input",
            file=True,
        ),
    ]


@verb("block.edit-many", effect="write", errors=ERRORS)
async def edit_many(context: Context, ask: EditMany) -> EditResult:
    """Make several edits of a text as one version, in their order: all of them or none."""
    edits = read_json(ask.edits)
    return await _edit_text(context, ask, lambda part: part.edit_many(edits, **ask.options()))


# -- fields, items and nodes ------------------------------------------------------------------

_NUMBER = re.compile(r"-?\d{1,15}", re.ASCII)
Place = Annotated[int, argument("the place of an item as it is shown, from 1; -1 is the last")]
Node = Annotated[str, argument("the id of a node of a tree")]
Value = Annotated[Any, argument("the value; JSON for what is not a text")]
Parent = Annotated[str | None, option("the id of the node it goes below; the top if left out")]
AtPlace = Annotated[int | None, option("the place it gets, from 1; the end if left out")]


class ClearField(EditInput, kw_only=True):
    """Input of `block.clear-field`."""

    field: Annotated[str, argument("the name of a field")]


class SetField(ClearField, kw_only=True):
    """Input of `block.set-field` and `block.append-to-field`."""

    value: Value


@verb("block.set-field", effect="write", errors=ERRORS)
async def set_field(context: Context, ask: SetField) -> EditResult:
    """Set a field of a map."""
    block, part = await _find_part(context, ask)
    value = ask.value
    if part.document_kind == "map" and part.shape.field(ask.field).type not in ("text", "any", "timestamp"):
        value = read_json(value)
    made = await part.set_field(ask.field, value, **ask.options())
    return await _describe_edit(block, made)


@verb("block.clear-field", effect="write", errors=ERRORS)
async def clear_field(context: Context, ask: ClearField) -> EditResult:
    """Give a field of a map its default again."""
    block, part = await _find_part(context, ask)
    made = await part.clear_field(ask.field, **ask.options())
    return await _describe_edit(block, made)


@verb("block.append-to-field", effect="append", errors=ERRORS)
async def append_to_field(context: Context, ask: SetField) -> EditResult:
    """Add an item to the end of a field that is a list."""
    block, part = await _find_part(context, ask)
    made = await part.append_to_field(ask.field, ask.value, **ask.options())
    return await _describe_edit(block, made)


class RemoveFromField(ClearField, kw_only=True):
    """Input of `block.remove-from-field`."""

    place: Place


@verb("block.remove-from-field", effect="write", errors=ERRORS)
async def remove_from_field(context: Context, ask: RemoveFromField) -> EditResult:
    """Remove an item of a field that is a list."""
    block, part = await _find_part(context, ask)
    made = await part.remove_from_field(ask.field, _index_of(ask.place), **ask.options())
    return await _describe_edit(block, made)


class IncrementBlock(EditInput, kw_only=True):
    """Input of `block.increment`."""

    field: Annotated[str | None, argument("the name of a field; for a counter, the amount or nothing")] = None
    amount: Annotated[int, option("how much to add; may be below 0")] = 1


def only_adding(ask: IncrementBlock) -> Effect | None:
    """Return the lighter effect of adding; taking away changes what others counted."""
    return "append" if ask.amount >= 0 and not (ask.field or "").startswith("-") else None


@verb("block.increment", effect="write", errors=ERRORS, lighter=only_adding)
async def increment(context: Context, ask: IncrementBlock) -> EditResult:
    """Add to a counter, or to a field that is one; for a counter, a number alone is the amount."""
    block, part = await _find_part(context, ask)
    alone = part.document_kind == "counter" and ask.field is not None and _NUMBER.fullmatch(ask.field)
    given: str | int | None = int(ask.field) if alone and ask.field else ask.field
    made = await part.increment(given, ask.amount, **ask.options())
    return await _describe_edit(block, made)


class InsertItem(EditInput, kw_only=True):
    """Input of `block.insert-item`."""

    value: Value
    place: AtPlace = None


@verb("block.insert-item", effect="append", errors=ERRORS)
async def insert_item(context: Context, ask: InsertItem) -> EditResult:
    """Put an item into a list."""
    block, part = await _find_part(context, ask)
    made = await part.insert_item(_read_item(part, ask.value), _optional_index(ask.place), **ask.options())
    return await _describe_edit(block, made)


class DeleteItem(EditInput, kw_only=True):
    """Input of `block.delete-item`."""

    place: Place


class SetItem(DeleteItem, kw_only=True):
    """Input of `block.set-item`."""

    value: Value


@verb("block.set-item", effect="write", errors=ERRORS)
async def set_item(context: Context, ask: SetItem) -> EditResult:
    """Change an item of a list."""
    block, part = await _find_part(context, ask)
    made = await part.set_item(_index_of(ask.place), _read_item(part, ask.value), **ask.options())
    return await _describe_edit(block, made)


class MoveItem(DeleteItem, kw_only=True):
    """Input of `block.move-item`."""

    to: Annotated[int, argument("its new place, from 1")]


@verb("block.move-item", effect="write", errors=ERRORS)
async def move_item(context: Context, ask: MoveItem) -> EditResult:
    """Move an item of a list to another place."""
    block, part = await _find_part(context, ask)
    made = await part.move_item(_index_of(ask.place), _index_of(ask.to), **ask.options())
    return await _describe_edit(block, made)


@verb("block.delete-item", effect="write", errors=ERRORS)
async def delete_item(context: Context, ask: DeleteItem) -> EditResult:
    """Remove an item of a list."""
    block, part = await _find_part(context, ask)
    made = await part.delete_item(_index_of(ask.place), **ask.options())
    return await _describe_edit(block, made)


class AddNode(EditInput, kw_only=True):
    """Input of `block.add-node`."""

    value: Value
    parent: Parent = None
    place: AtPlace = None


@verb("block.add-node", effect="append", errors=ERRORS)
async def add_node(context: Context, ask: AddNode) -> EditResult:
    """Put a node into a tree; the answer has its id."""
    block, part = await _find_part(context, ask)
    node = await part.add_node(read_json(ask.value), ask.parent, _optional_index(ask.place), **ask.options())
    return await _describe_edit(block, node=node)


class DeleteNode(EditInput, kw_only=True):
    """Input of `block.delete-node`."""

    node: Node


class SetNode(DeleteNode, kw_only=True):
    """Input of `block.set-node`."""

    value: Value


@verb("block.set-node", effect="write", errors=ERRORS)
async def set_node(context: Context, ask: SetNode) -> EditResult:
    """Change a node of a tree."""
    block, part = await _find_part(context, ask)
    made = await part.set_node(ask.node, read_json(ask.value), **ask.options())
    return await _describe_edit(block, made)


class MoveNode(DeleteNode, kw_only=True):
    """Input of `block.move-node`."""

    parent: Parent = None
    place: AtPlace = None


@verb("block.move-node", effect="write", errors=ERRORS)
async def move_node(context: Context, ask: MoveNode) -> EditResult:
    """Move a node of a tree below another one."""
    block, part = await _find_part(context, ask)
    made = await part.move_node(ask.node, ask.parent, _optional_index(ask.place), **ask.options())
    return await _describe_edit(block, made)


@verb("block.delete-node", effect="write", errors=ERRORS)
async def delete_node(context: Context, ask: DeleteNode) -> EditResult:
    """Remove a node of a tree."""
    block, part = await _find_part(context, ask)
    made = await part.delete_node(ask.node, **ask.options())
    return await _describe_edit(block, made)


def _index_of(place: int) -> int:
    """Turn a place as it is shown, from 1, or -1 from the end, into an index."""
    if place == 0:
        raise errors.NoMatch("there is no place 0", hint="places are counted from 1, or -1 from the end")
    return place - 1 if place > 0 else place


def _optional_index(place: int | None) -> int | None:
    return None if place is None else _index_of(place)
