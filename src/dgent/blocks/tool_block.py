"""The operations of the tool `block`: making, finding and managing blocks."""

from __future__ import annotations

from typing import Any

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.document.shape import Field, Shape
from dgent.blocks.tool_answer import MOST_ROWS, Answer, done, noted, part_of_rows, part_of_text, small
from dgent.blocks.tool_call import WHICH, Call, Operation
from dgent.errors import InputError

_CARD = ("description", "kind", "limit", "permission")
MOST_NOTICES = 200
_DIFFS, _DIFF = 20, 1000  # how many differences a notice shows, and how many characters of each
_SAID = 500  # characters of a description
_NAMED = ("kind", "description", "limit", "permission")


async def create(call: Call) -> Answer:
    """Make a block."""
    given = call.some("template", "document", *_CARD, "pinned")
    first = call.content() or None
    block = await call.library.create(call["label"], **given, value=first, owner=call["owner"] or None)
    return done(f"made the {block.document_kind} block {block.label!r}", card(block))


async def list_(call: Call) -> Answer:
    """List the blocks that the agent may see."""
    found = await call.library.list(kind=call["kind"], shared=call.get("shared", True))
    part = part_of_rows(found, call.offset)
    rows = [
        {
            "owner": each.owner,
            "label": each.label,
            "kind": each.kind,
            "document": each.document_kind,
            "description": each.description[:200],
            "permission": each.permission,
            "pinned": each.pinned,
        }
        for each in part.shown
    ]
    gone = (await call.library.deleted())[:MOST_ROWS]
    return done(noted(f"{len(found)} blocks", part.note), {"blocks": rows, "deleted": gone})


async def load(call: Call) -> Answer:
    """Read a block, or a section of one."""
    block = await call.block()
    of = call.part(block)
    text, value = await of.text(), None
    if of.document_kind != "text":
        value = small(await of.value())
    part = part_of_text(text, call.offset)
    data = {"owner": block.owner, "label": block.label, "version": block.version, "text": part.shown}
    data |= {} if value is None else {"value": value}
    return done(noted(f"{block.label!r} at version {block.version}", part.note), data)


async def info(call: Call) -> Answer:
    """Tell what a block is, without what it says."""
    block = await call.block()
    text = await block.text()
    shares = [
        {"agent": each.agent, "group": each.group, "permission": each.permission}
        for each in await call.library.shared()
        if each.block == block.id
    ]
    data = {
        **card(block),
        "version": block.version,
        "size": len(text),
        "shared_with": shares[:MOST_ROWS],
        "checkpoints": dict(list((await block.checkpoints()).items())[-MOST_ROWS:]),
        **_shape(block.shape),
    }
    return done(f"{block.label!r} has {len(text)} of {block.limit} characters", data)


def card(block: Block) -> dict[str, Any]:
    """What a block is."""
    return {
        "id": block.id,
        "owner": block.owner,
        "label": block.label,
        "description": block.description[:_SAID],
        "kind": block.kind,
        "document": block.document_kind,
        "template": block.template,
        "limit": block.limit,
        "permission": block.permission,
        "pinned": block.pinned,
        **({"over_limit": True} if block.over_limit else {}),
    }


def _shape(shape: Shape) -> dict[str, Any]:
    made: dict[str, Any] = {"fields": [_field(each) for each in shape.fields]} if shape.fields else {}
    sections = [
        {
            "name": each.name,
            "read_only": each.read_only,
            "document": each.shape.document,
            **_shape(each.shape),
        }
        for each in shape.sections
    ]
    return made | ({"sections": sections} if sections else {})


def _field(field: Field) -> dict[str, Any]:
    made: dict[str, Any] = {"name": field.name, "type": field.type, "description": field.description[:_SAID]}
    made |= {"required": True} if field.required else {}
    made |= {"read_only": True} if field.read_only else {}
    return made | ({"choices": list(field.choices)} if field.choices else {})


async def describe(call: Call) -> Answer:
    """Change what a block is."""
    given = call.some(*_CARD, "template")
    if not given:
        raise InputError("there is nothing to change", hint=f"give one of {', '.join(_NAMED)}, template")
    block = await call.block()
    changed = await call.library.describe(block.label, owner=block.owner, **given)
    return done(f"changed {', '.join(given)} of {block.label!r}", card(changed))


async def rename(call: Call) -> Answer:
    """Give a block another label."""
    block = await call.block()
    before = block.label
    renamed = await call.library.rename(before, call["to"], owner=block.owner)
    return done(f"{before!r} is called {renamed.label!r} now", card(renamed))


async def pin(call: Call) -> Answer:
    """Keep a block in the context."""
    block = await call.block()
    changed = await call.library.pin(block.label, owner=block.owner)
    message = f"{block.label!r} stays in the context"
    if block.kind not in ("core", "working"):
        message = f"{block.label!r} is pinned, which counts once its kind is working; it is {block.kind}"
    return done(message, card(changed))


async def unpin(call: Call) -> Answer:
    """Keep a block in the context no longer."""
    block = await call.block()
    changed = await call.library.pin(block.label, False, owner=block.owner)
    return done(f"{block.label!r} is in the context only when it is referred to", card(changed))


async def archive(call: Call) -> Answer:
    """Put a block where only search finds it."""
    block = await call.block()
    if block.kind == "core":
        raise errors.WrongKind(
            f"{block.label!r} is core, which is always in the context",
            hint="if you really mean it, describe it with kind archival",
        )
    changed = await call.library.describe(block.label, owner=block.owner, kind="archival")
    return done(f"{block.label!r} is archival: search and load find it", card(changed))


async def view(call: Call) -> Answer:
    """Show only some lines of a long text in the context."""
    block = await call.block()
    lines = call["lines"]
    await call.library.view(block.label, call.get("start", 1), lines, owner=block.owner)
    shown = "all of it" if lines is None else f"{lines} lines from line {call.get('start', 1)} on"
    return done(f"the context shows {shown} of {block.label!r}")


async def share(call: Call) -> Answer:
    """Give a block to others."""
    block, to = await call.block(), _to(call)
    permission = call.get("permission", "append")
    await call.library.share(block.label, **to, permission=permission, owner=block.owner)
    who = next(iter(to.values()))
    return done(f"{who} has {block.label!r} with the permission {permission}")


async def unshare(call: Call) -> Answer:
    """Take a block back from others."""
    block, to = await call.block(), _to(call)
    was = await call.library.unshare(block.label, **to, owner=block.owner)
    who = next(iter(to.values()))
    return done(f"{who} no longer has {block.label!r}" if was else f"{block.label!r} was not with {who}")


def _to(call: Call) -> dict[str, str]:
    given = {name: value for name, value in call.some("with_agent", "with_group").items() if value}
    if len(given) != 1:
        raise InputError("a block is shared with an agent or a group", hint="give with_agent or with_group")
    return given


async def delete(call: Call) -> Answer:
    """Remove a block."""
    block = await call.block()
    label, mine = block.label, block.owner == call.library.agent
    await call.library.delete(label, owner=block.owner)
    back = "; restore brings it back" if mine else ""
    return done(f"deleted {label!r}{back}")


async def restore(call: Call) -> Answer:
    """Bring back a block that was deleted."""
    block = await call.library.restore(call["label"], to=call["to"] or None)
    return done(f"{block.label!r} is back", card(block))


async def notices(call: Call) -> Answer:
    """Tell what others did since the agent last looked."""
    found = await call.library.notices(mark=True)
    rows = [
        {
            "owner": each.owner,
            "label": each.label,
            "by": list(each.by),
            "since": each.since,
            "version": each.version,
            "diff": each.diff.text[:_DIFF] if place < _DIFFS else "",
        }
        for place, each in enumerate(found[:MOST_NOTICES])
    ]
    return done(f"others changed {len(found)} blocks" if found else "others changed nothing", rows)


OPERATIONS: dict[str, Operation] = {
    "create": Operation(
        create, ("label",), ("text", "value", "template", "document", *_NAMED, "pinned", "owner")
    ),
    "list": Operation(list_, (), ("kind", "shared", "offset")),
    "load": Operation(load, ("label",), (*WHICH, "section", "offset")),
    "info": Operation(info, ("label",), WHICH),
    "describe": Operation(describe, ("label",), (*WHICH, *_NAMED, "template")),
    "rename": Operation(rename, ("label", "to"), WHICH),
    "pin": Operation(pin, ("label",), WHICH),
    "unpin": Operation(unpin, ("label",), WHICH),
    "archive": Operation(archive, ("label",), WHICH),
    "view": Operation(view, ("label",), (*WHICH, "start", "lines")),
    "share": Operation(share, ("label",), (*WHICH, "with_agent", "with_group", "permission")),
    "unshare": Operation(unshare, ("label",), (*WHICH, "with_agent", "with_group")),
    "delete": Operation(delete, ("label",), WHICH),
    "restore": Operation(restore, ("label",), ("to",)),
    "notices": Operation(notices),
}
