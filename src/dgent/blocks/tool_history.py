"""The operations of the tool `block` that are about its versions."""

from __future__ import annotations

from typing import Any

import msgspec

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.history.version import Version
from dgent.blocks.tool_answer import (
    MOST_ROWS,
    Answer,
    done,
    noted,
    part_of_rows,
    part_of_text,
    small,
    version_data,
)
from dgent.blocks.tool_call import WHICH, Call, Operation
from dgent.errors import InputError

_ROWS = 20


async def history(call: Call) -> Answer:
    """List the versions of a block."""
    block = await call.block()
    found = await block.history()
    part = part_of_rows(found, call.offset, _ROWS)
    rows = [version_data(each) for each in part.shown]
    return done(noted(f"{block.label!r} has {len(found)} versions, newest first", part.note), rows)


async def at(call: Call) -> Answer:
    """Read a block as it was."""
    block = await call.block()
    view = await block.at(await _number(call, block))
    part = part_of_text(view.text, call.offset)
    data: dict[str, Any] = {"label": view.label, "version": view.version, "text": part.shown}
    value = None if block.document_kind == "text" else small(view.value)
    data |= {} if value is None else {"value": value}
    return done(noted(f"{view.label!r} as it was at version {view.version}", part.note), data)


async def diff(call: Call) -> Answer:
    """Tell what changed between two versions."""
    block = await call.block()
    found = await block.diff(call["before"], call["after"])
    part = part_of_text(found.text, call.offset)
    data: dict[str, Any] = {"before": found.before, "after": found.after, "text": part.shown}
    changes = small(msgspec.to_builtins(found.changes))
    data |= {"changes": changes} if changes else {}
    message = f"{block.label!r} from version {found.before} to {found.after}"
    message += "" if found else ": no difference"
    return done(noted(message, part.note), data)


async def rollback(call: Call) -> Answer:
    """Make a block what it was."""
    block = await call.block()
    number = await _number(call, block)
    made = await block.rollback(number, message=call.get("message", ""), expect=call["expect"])
    return _moved(block, made, f"is what it was at version {number}")


async def undo(call: Call) -> Answer:
    """Take back the last edit."""
    block = await call.block()
    return _moved(block, await block.undo(expect=call["expect"]), "has its last edit taken back")


async def redo(call: Call) -> Answer:
    """Do again what was undone."""
    block = await call.block()
    return _moved(block, await block.redo(expect=call["expect"]), "has the edit again that was undone")


async def visit(call: Call) -> Answer:
    """Go to a version on any branch."""
    block = await call.block()
    number = await _number(call, block)
    return _moved(block, await block.visit(number), f"is at version {number} of its tree")


def _moved(block: Block, made: Version, how: str) -> Answer:
    return done(f"{block.label!r} {how}; that is version {made.number}", version_data(made))


async def branches(call: Call) -> Answer:
    """List the lines of edits."""
    block = await call.block()
    found = await block.branches()
    rows = [
        {"tip": each.tip, "fork": each.fork, "length": each.length, "current": each.current} for each in found
    ]
    return done(f"{block.label!r} has {len(found)} branches, newest first", rows[:MOST_ROWS])


async def checkpoint(call: Call) -> Answer:
    """Give the present version a name."""
    block = await call.block()
    number = await block.checkpoint(call["name"])
    return done(f"version {number} of {block.label!r} is called {call['name']!r}", {"version": number})


async def checkpoints(call: Call) -> Answer:
    """List the versions that have names."""
    block = await call.block()
    found = await block.checkpoints()
    part = part_of_rows(list(found.items()), call.offset)
    rows = [{"name": name, "version": number} for name, number in part.shown]
    return done(noted(f"{block.label!r} has {len(found)} checkpoints", part.note), rows)


async def _number(call: Call, block: Block) -> int:
    """The version that is meant, by its number or its name."""
    name = call["name"]
    if bool(name) == (call["version"] is not None):
        raise InputError("which version is meant?", hint="give version, or the name of a checkpoint")
    if not name:
        return int(call["version"])
    found = await block.checkpoints()
    if name not in found:
        known = ", ".join(list(found)[:10]) or "none"
        raise errors.VersionNotFound(
            f"{block.label!r} has no checkpoint {name!r:.80}", hint=f"there is {known}"
        )
    return found[name]


_VERSION = (*WHICH, "version", "name")

OPERATIONS: dict[str, Operation] = {
    "history": Operation(history, ("label",), (*WHICH, "offset")),
    "at": Operation(at, ("label",), (*_VERSION, "offset")),
    "diff": Operation(diff, ("label",), (*WHICH, "before", "after", "offset")),
    "rollback": Operation(rollback, ("label",), (*_VERSION, "message", "expect")),
    "undo": Operation(undo, ("label",), (*WHICH, "expect")),
    "redo": Operation(redo, ("label",), (*WHICH, "expect")),
    "visit": Operation(visit, ("label",), _VERSION),
    "branches": Operation(branches, ("label",), WHICH),
    "checkpoint": Operation(checkpoint, ("label", "name"), WHICH),
    "checkpoints": Operation(checkpoints, ("label",), (*WHICH, "offset")),
}
