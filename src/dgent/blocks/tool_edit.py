"""The operations of the tool `block_edit`: each is one version of a block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dgent.blocks import errors, tool_pattern
from dgent.blocks.block import Block
from dgent.blocks.edit.section import Section
from dgent.blocks.history.version import Version
from dgent.blocks.tool_answer import Answer, done, version_data
from dgent.blocks.tool_call import WHICH, Call, Operation
from dgent.errors import InputError

Editing = Callable[[Block | Section, Call, dict[str, Any]], Awaitable[Version | str]]
_SAID = (*WHICH, "section", "message", "expect")


def _operation(edit: Editing, *needs: str, takes: tuple[str, ...] = ()) -> Operation:
    """An edit as an operation: the block is found, the edit made, and the new version told."""

    async def run(call: Call) -> Answer:
        block = await call.block()
        made = await edit(
            call.part(block), call, {"message": call.get("message", ""), "expect": call["expect"]}
        )
        if isinstance(made, str):
            data = {"version": block.version, "node": made}
            return done(f"{block.label!r} is at version {block.version}; the node is {made}", data)
        return done(f"{block.label!r} is at version {made.number}, {made.diffstat}", version_data(made))

    return Operation(run, ("label", *needs), (*takes, *_SAID))


# -- texts --------------------------------------------------------------------------------------


async def append(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Add to the end of a text, a list or a log."""
    if part.document_kind == "log":
        return await log(part, call, said)
    return await part.append(_added(part, call), **said)


async def write(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Replace all of a text."""
    return await part.write(call["text"], **said)


async def replace(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Replace part of a text."""
    nth, which = call["nth"], call["which"]
    if nth is not None and which is not None:
        raise InputError("which place is meant?", hint="give which or nth, not both")
    where = which or "first" if nth is None else nth
    if call["regex"]:
        return await tool_pattern.replace(part, call["old"], call["new"], where, **said)
    return await part.replace(call["old"], call["new"], which=where, **said)


async def edit_range(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Replace some lines of a text."""
    return await part.edit_range(call["start"], call["end"], call["text"], **said)


async def patch(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Apply a unified difference."""
    return await part.patch(call["text"], **said)


# -- fields and counters ------------------------------------------------------------------------


async def set_field(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Give a field a value."""
    value = call["value"]
    if part.document_kind == "map" and part._shape.field(call["field"]).type not in (
        "text",
        "any",
        "timestamp",
    ):
        value = _read(value)
    return await part.set_field(call["field"], value, **said)


async def clear_field(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Give a field its default again."""
    return await part.clear_field(call["field"], **said)


async def append_to_field(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Put an item at the end of a field that is a list."""
    return await part.append_to_field(call["field"], call["value"], **said)


async def remove_from_field(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Remove an item of a field that is a list."""
    return await part.remove_from_field(call["field"], _place(call["place"]), **said)


async def increment(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Add to a counter."""
    return await part.increment(call["field"] or None, call.get("amount", 1), **said)


# -- items and entries --------------------------------------------------------------------------


async def insert_item(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Put an item into a list."""
    return await part.insert_item(_item(part, call["value"]), _shown(call), **said)


async def set_item(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Change an item of a list."""
    return await part.set_item(_place(call["place"]), _item(part, call["value"]), **said)


async def move_item(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Move an item of a list."""
    return await part.move_item(_place(call["place"]), _place(call["to"]), **said)


async def delete_item(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Remove an item of a list."""
    return await part.delete_item(_place(call["place"]), **said)


async def log(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Add an entry to a log."""
    if said["expect"] is not None:
        raise InputError("an entry is added whatever the version is", hint="leave out expect")
    return await part.log(_added(part, call), message=said["message"])


# -- trees --------------------------------------------------------------------------------------


async def add_node(part: Block | Section, call: Call, said: dict[str, Any]) -> str:
    """Put a node into a tree."""
    return await part.add_node(_read(call["value"]), call["parent"] or None, _shown(call), **said)


async def set_node(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Change a node of a tree."""
    return await part.set_node(call["node"], _read(call["value"]), **said)


async def move_node(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Move a node of a tree."""
    return await part.move_node(call["node"], call["parent"] or None, _shown(call), **said)


async def delete_node(part: Block | Section, call: Call, said: dict[str, Any]) -> Version:
    """Remove a node of a tree."""
    return await part.delete_node(call["node"], **said)


# -- what models write --------------------------------------------------------------------------


def _place(shown: int) -> int:
    """A place as it is shown, from 1, or from the end with -1, as documents count."""
    if shown == 0:
        raise errors.NoMatch("there is no place 0", hint="places are counted from 1, or -1 from the end")
    return shown - 1 if shown > 0 else shown


def _shown(call: Call) -> int | None:
    """The place that was given, if one was."""
    return None if call["place"] is None else _place(call["place"])


def _added(part: Block | Section, call: Call) -> Any:
    """What is added to the end of something."""
    found = call.content()
    if found is None:
        raise InputError("there is nothing to add", hint="give text, or value for an item or an entry")
    return _item(part, found)


def _item(part: Block | Section, value: Any) -> Any:
    """A value as an item or an entry: one with fields may come as JSON text."""
    return _read(value) if part._shape.fields and part.document_kind in ("list", "log") else value


def _read(value: Any) -> Any:
    """A value where no text can be: models often write a map or a number as JSON text."""
    if not isinstance(value, str) or value.lstrip()[:1] not in {*"{[-0123456789tf"}:
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value


_ENTRY = ("text", "value")

OPERATIONS: dict[str, Operation] = {
    "append": _operation(append, takes=_ENTRY),
    "write": _operation(write, "text"),
    "replace": _operation(replace, "old", "new", takes=("which", "nth", "regex")),
    "edit_range": _operation(edit_range, "start", "end", "text"),
    "patch": _operation(patch, "text"),
    "set_field": _operation(set_field, "field", "value"),
    "clear_field": _operation(clear_field, "field"),
    "append_to_field": _operation(append_to_field, "field", "value"),
    "remove_from_field": _operation(remove_from_field, "field", "place"),
    "increment": _operation(increment, takes=("field", "amount")),
    "insert_item": _operation(insert_item, "value", takes=("place",)),
    "set_item": _operation(set_item, "place", "value"),
    "move_item": _operation(move_item, "place", "to"),
    "delete_item": _operation(delete_item, "place"),
    "log": _operation(log, takes=_ENTRY),
    "add_node": _operation(add_node, "value", takes=("parent", "place")),
    "set_node": _operation(set_node, "node", "value"),
    "move_node": _operation(move_node, "node", takes=("parent", "place")),
    "delete_node": _operation(delete_node, "node"),
}
