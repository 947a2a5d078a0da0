"""The header file of a block: a small TOML file beside its content, of which one part may be edited."""

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
    """Return the editable fields of a block's header."""
    header = block._header.value
    return {name: getattr(header, name) for name in EDITABLE}


def encode(block: Block) -> bytes:
    """Return the header file of a block; the same header always gives the same bytes."""
    fixed = {
        "id": block.id,
        "owner": block.owner,
        "document": block.document_kind,
        "template": block.template,
        "allowed": block.permission,
    }
    lines = [_HEAD, *(f"{name} = {_literal(each)}" for name, each in values_of(block).items())]
    lines += ["", _REST, "[block]", *(f"{name} = {_literal(each)}" for name, each in fixed.items() if each)]
    lines += [f"# {line}" for line in _describe_shape(block.shape)]
    return ("\n".join(lines) + "\n").encode()


def decode(given: bytes) -> dict[str, Any]:
    """Parse a header file; `block` has the fields that cannot be edited. InputError names the bad line."""
    try:
        found = tomllib.loads(text_of(given))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is not valid TOML: {error}"[:200]) from None
    except (RecursionError, ValueError):  # nested too deep, or a number of thousands of digits
        raise InputError("it is not valid TOML") from None
    return found


def find_edited(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were changed in a header file; those left out are unchanged."""
    return {
        name: found[name]
        for name in EDITABLE
        if name in found
        and (found[name] != before.get(name) or type(found[name]) is not type(before.get(name)))
    }


def find_uneditable(block: Block, found: Mapping[str, Any]) -> list[str]:
    """Return the names in a header file that cannot be edited and were, or that are not known."""
    rest = found.get("block", {})
    fixed = decode(encode(block))["block"]
    unknown = [name for name in found if name not in (*EDITABLE, "block")]
    if not isinstance(rest, dict):
        return [*unknown, "block"]
    return unknown + [name for name, each in rest.items() if fixed.get(name) != each]


def _describe_shape(shape: Shape, indent: str = "") -> Iterator[str]:
    """Yield a line for each field of a shape, so that an editor of the content sees what fits."""
    for section in shape.sections:
        yield f"{indent}{section.name}: {section.shape.document}{', read-only' if section.read_only else ''}"
        yield from _describe_shape(section.shape, indent + "  ")
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
    """Return a text, a number or a boolean in TOML, on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()
