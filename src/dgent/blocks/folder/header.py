"""What describes a block, as a small file beside its content: what may be edited, and what only tells."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from dgent.blocks.block import Block
from dgent.blocks.document.shape import Field, Shape
from dgent.blocks.folder.format import text_of
from dgent.errors import InputError

TYPES = {"label": str, "description": str, "kind": str, "permission": str, "limit": int, "pinned": bool}
EDITABLE = tuple(TYPES)
_HEAD = "# This describes the block beside it, and may be edited."
_REST = "# This only tells: changes of it are not taken over."


def values_of(block: Block) -> dict[str, Any]:
    """What may be edited of a block's card."""
    card = block._card.value
    return {name: getattr(card, name) for name in EDITABLE}


def encoded(block: Block) -> bytes:
    """The file of a block's card; the same card always gives the same bytes."""
    fixed = {
        "id": block.id,
        "owner": block.owner,
        "document": block.document_kind,
        "template": block.template,
        "allowed": block.permission,
    }
    lines = [_HEAD, *(f"{name} = {_literal(each)}" for name, each in values_of(block).items())]
    lines += ["", _REST, "[block]", *(f"{name} = {_literal(each)}" for name, each in fixed.items() if each)]
    lines += [f"# {line}" for line in _told(block.shape)]
    return ("\n".join(lines) + "\n").encode()


def decoded(given: bytes) -> dict[str, Any]:
    """What a card's file says, what it only tells under `block`; InputError names the line that is wrong."""
    try:
        found = tomllib.loads(text_of(given))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is no TOML: {error}"[:200]) from None
    except (RecursionError, ValueError):  # nested too deep, or a number of thousands of digits
        raise InputError("it is not TOML that can be read") from None
    return found


def edited(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was changed in a card's file; what is left out is as it was."""
    return {
        name: found[name]
        for name in EDITABLE
        if name in found
        and (found[name] != before.get(name) or type(found[name]) is not type(before.get(name)))
    }


def overstepped(block: Block, found: Mapping[str, Any]) -> list[str]:
    """What a card's file says and cannot: what only tells, said otherwise, and names that mean nothing."""
    rest = found.get("block", {})
    fixed = decoded(encoded(block))["block"]
    told = [name for name in found if name not in (*EDITABLE, "block")]
    if not isinstance(rest, dict):
        return [*told, "block"]
    return told + [name for name, each in rest.items() if fixed.get(name) != each]


def _told(shape: Shape, indent: str = "") -> Iterator[str]:
    """The fields of a shape, a line for each: whoever edits the content sees what fits."""
    for section in shape.sections:
        yield f"{indent}{section.name}: {section.shape.document}{', read-only' if section.read_only else ''}"
        yield from _told(section.shape, indent + "  ")
    for field in shape.fields:
        yield f"{indent}{field.name}: {', '.join(_traits(field))}"


def _traits(field: Field) -> Iterator[str]:
    yield f"list of {field.items}" if field.type == "list" else field.type
    if field.required:
        yield "required"
    if field.read_only:
        yield "read-only"
    if field.choices:
        yield f"one of {json.dumps(list(field.choices), ensure_ascii=False)}"
    if field.max_items is not None:
        yield f"at most {field.max_items}"


def _literal(value: Any) -> str:
    """A text, a number or a truth as TOML has it, on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()
