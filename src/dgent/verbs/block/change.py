"""Verbs that change the fields, items and nodes of a block; each call is one version."""

from __future__ import annotations

from typing import Annotated, Any

from dgent.blocks import errors
from dgent.verbs.block.answer import Edited
from dgent.verbs.block.block import ERRORS
from dgent.verbs.block.edit import EditInput, edited_of, find_part, read_item
from dgent.verbs.block.library import read_json
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.registry import argument, option, verb

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
async def set_field(context: Context, ask: SetField) -> Edited:
    """Set a field of a map."""
    block, part = await find_part(context, ask)
    value = ask.value
    if part.document_kind == "map" and part.shape.field(ask.field).type not in ("text", "any", "timestamp"):
        value = read_json(value)
    await part.set_field(ask.field, value, **ask.options())
    return await edited_of(block)


@verb("block.clear-field", effect="write", errors=ERRORS)
async def clear_field(context: Context, ask: ClearField) -> Edited:
    """Give a field of a map its default again."""
    block, part = await find_part(context, ask)
    await part.clear_field(ask.field, **ask.options())
    return await edited_of(block)


@verb("block.append-to-field", effect="append", errors=ERRORS)
async def append_to_field(context: Context, ask: SetField) -> Edited:
    """Add an item to the end of a field that is a list."""
    block, part = await find_part(context, ask)
    await part.append_to_field(ask.field, ask.value, **ask.options())
    return await edited_of(block)


class RemoveFromField(ClearField, kw_only=True):
    """Input of `block.remove-from-field`."""

    place: Place


@verb("block.remove-from-field", effect="write", errors=ERRORS)
async def remove_from_field(context: Context, ask: RemoveFromField) -> Edited:
    """Remove an item of a field that is a list."""
    block, part = await find_part(context, ask)
    await part.remove_from_field(ask.field, _index_of(ask.place), **ask.options())
    return await edited_of(block)


class IncrementBlock(EditInput, kw_only=True):
    """Input of `block.increment`."""

    field: Annotated[str | None, argument("the name of a field; left out for a counter")] = None
    amount: Annotated[int, option("how much to add; may be below 0")] = 1


def only_adding(ask: IncrementBlock) -> Effect | None:
    """Return the lighter effect of adding; taking away changes what others counted."""
    return "append" if ask.amount >= 0 else None


@verb("block.increment", effect="write", errors=ERRORS, lighter=only_adding)
async def increment(context: Context, ask: IncrementBlock) -> Edited:
    """Add to a counter, or to a field that is one."""
    block, part = await find_part(context, ask)
    await part.increment(ask.field, ask.amount, **ask.options())
    return await edited_of(block)


class InsertItem(EditInput, kw_only=True):
    """Input of `block.insert-item`."""

    value: Value
    place: AtPlace = None


@verb("block.insert-item", effect="append", errors=ERRORS)
async def insert_item(context: Context, ask: InsertItem) -> Edited:
    """Put an item into a list."""
    block, part = await find_part(context, ask)
    await part.insert_item(read_item(part, ask.value), _optional_index(ask.place), **ask.options())
    return await edited_of(block)


class DeleteItem(EditInput, kw_only=True):
    """Input of `block.delete-item`."""

    place: Place


class SetItem(DeleteItem, kw_only=True):
    """Input of `block.set-item`."""

    value: Value


@verb("block.set-item", effect="write", errors=ERRORS)
async def set_item(context: Context, ask: SetItem) -> Edited:
    """Change an item of a list."""
    block, part = await find_part(context, ask)
    await part.set_item(_index_of(ask.place), read_item(part, ask.value), **ask.options())
    return await edited_of(block)


class MoveItem(DeleteItem, kw_only=True):
    """Input of `block.move-item`."""

    to: Annotated[int, argument("its new place, from 1")]


@verb("block.move-item", effect="write", errors=ERRORS)
async def move_item(context: Context, ask: MoveItem) -> Edited:
    """Move an item of a list to another place."""
    block, part = await find_part(context, ask)
    await part.move_item(_index_of(ask.place), _index_of(ask.to), **ask.options())
    return await edited_of(block)


@verb("block.delete-item", effect="write", errors=ERRORS)
async def delete_item(context: Context, ask: DeleteItem) -> Edited:
    """Remove an item of a list."""
    block, part = await find_part(context, ask)
    await part.delete_item(_index_of(ask.place), **ask.options())
    return await edited_of(block)


class AddNode(EditInput, kw_only=True):
    """Input of `block.add-node`."""

    value: Value
    parent: Parent = None
    place: AtPlace = None


@verb("block.add-node", effect="append", errors=ERRORS)
async def add_node(context: Context, ask: AddNode) -> Edited:
    """Put a node into a tree; the answer has its id."""
    block, part = await find_part(context, ask)
    node = await part.add_node(read_json(ask.value), ask.parent, _optional_index(ask.place), **ask.options())
    return await edited_of(block, node)


class DeleteNode(EditInput, kw_only=True):
    """Input of `block.delete-node`."""

    node: Node


class SetNode(DeleteNode, kw_only=True):
    """Input of `block.set-node`."""

    value: Value


@verb("block.set-node", effect="write", errors=ERRORS)
async def set_node(context: Context, ask: SetNode) -> Edited:
    """Change a node of a tree."""
    block, part = await find_part(context, ask)
    await part.set_node(ask.node, read_json(ask.value), **ask.options())
    return await edited_of(block)


class MoveNode(DeleteNode, kw_only=True):
    """Input of `block.move-node`."""

    parent: Parent = None
    place: AtPlace = None


@verb("block.move-node", effect="write", errors=ERRORS)
async def move_node(context: Context, ask: MoveNode) -> Edited:
    """Move a node of a tree below another one."""
    block, part = await find_part(context, ask)
    await part.move_node(ask.node, ask.parent, _optional_index(ask.place), **ask.options())
    return await edited_of(block)


@verb("block.delete-node", effect="write", errors=ERRORS)
async def delete_node(context: Context, ask: DeleteNode) -> Edited:
    """Remove a node of a tree."""
    block, part = await find_part(context, ask)
    await part.delete_node(ask.node, **ask.options())
    return await edited_of(block)


def _index_of(place: int) -> int:
    """Turn a place as it is shown, from 1, or -1 from the end, into an index."""
    if place == 0:
        raise errors.NoMatch("there is no place 0", hint="places are counted from 1, or -1 from the end")
    return place - 1 if place > 0 else place


def _optional_index(place: int | None) -> int | None:
    return None if place is None else _index_of(place)
