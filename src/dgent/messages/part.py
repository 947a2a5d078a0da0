"""The parts of a message: texts, thoughts, calls of tools and their results, images and blobs.

A message is stored as its searchable text and, unless it is one text alone, a list of its parts. The list
says how much of the text each part has, so that no text is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from dgent import codec, ids
from dgent.errors import InputError
from dgent.model.tokens import estimate
from dgent.store.port.blob import find_sha256

PartType = Literal["text", "thinking", "tool_call", "tool_result", "image", "blob"]
PART_TYPES: tuple[str, ...] = get_args(PartType)
MAX_PARTS = 1000
IMAGE_TOKENS = 1200
GAP = "\n\n"

_SEARCHED = ("text", "tool_result")
_TEXT_FIELDS = ("type", "text", "call", "name", "blob", "media_type", "signature")


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a message; `text` belongs to texts, thoughts and results.

    `call` is the id of a tool call, in the call and in its result; `name` the tool's, or the file's of a
    blob. `blob` is the id of a stored content, as `blob:…`. `signature` is what a provider wants back with
    its thoughts. `error` says that a tool failed.
    """

    type: PartType
    text: str = ""
    call: str = ""
    name: str = ""
    arguments: Any = None
    error: bool = False
    blob: str = ""
    media_type: str = ""
    signature: str = ""


Content: TypeAlias = str | Part | Sequence[Part]


def check_content(content: object) -> tuple[Part, ...]:
    """Return the parts of a content; raises InputError for what cannot be one."""
    given: Any = (content,) if isinstance(content, str | Part) else content
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InputError(
            f"a message is a text or a list of parts, not {type(content).__name__}", field="content"
        )
    if not 1 <= len(given) <= MAX_PARTS:
        raise InputError(f"a message has 1 to {MAX_PARTS} parts, not {len(given)}", field="content")
    return tuple(map(_check_part, given))


def _check_part(given: Any) -> Part:
    part = Part("text", given) if isinstance(given, str) else given
    if isinstance(part, dict):
        try:
            part = msgspec.convert(part, Part)
        except (msgspec.ValidationError, TypeError) as error:
            raise InputError(f"a part of a message is wrong: {error}", field="content") from None
    if not isinstance(part, Part) or part.type not in PART_TYPES:
        raise InputError(
            f"{part!r:.80} is not a part of a message", hint=f"its type is one of {', '.join(PART_TYPES)}"
        )
    for name in _TEXT_FIELDS:
        value = getattr(part, name)
        if type(value) is not str or not codec.is_text(value):
            raise InputError(f"{name} of a {part.type} must be a text, not {value!r:.60}", field=name)
    if part.type in ("tool_call", "tool_result"):
        ids.check_name(part.call, "call")
    if part.type == "tool_call":
        ids.check_name(part.name, "name")
    if part.type in ("image", "blob") and find_sha256(part.blob) is None:
        raise InputError(
            f"{part.blob!r:.80} is not the id of a stored content",
            hint="store it with u.storage.blob, and give the id of its content",
            field="blob",
        )
    return part


def encode(parts: Sequence[Part]) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the searchable text of some parts, and the rest as it is stored; None for one plain text."""
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text, None
    stored: list[dict[str, Any]] = []
    for part in parts:
        made: dict[str, Any] = msgspec.to_builtins(part)
        if part.type in _SEARCHED:
            made["chars"] = len(made.pop("text", ""))
        stored.append(made)
    return GAP.join(part.text for part in parts if part.type in _SEARCHED), stored


def decode(text: str, stored: Any) -> tuple[Part, ...]:
    """Return the parts of a stored message."""
    if stored is None:
        return (Part("text", text),)
    parts: list[Part] = []
    start = 0
    for each in stored:
        fields = dict(each)
        chars = fields.pop("chars", None)
        if chars is not None:
            fields["text"] = text[start : start + chars]
            start += chars + len(GAP)
        parts.append(msgspec.convert(fields, Part))
    return tuple(parts)


def estimate_parts(parts: Iterable[Part]) -> int:
    """Estimate the tokens of a message."""
    return sum(map(_estimate, parts))


def _estimate(part: Part) -> int:
    if part.type == "image":
        return IMAGE_TOKENS
    more = 0 if part.arguments is None else estimate(msgspec.json.encode(part.arguments).decode())
    return estimate(part.text) + estimate(part.name) + more


def find_calls(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the calls of tools among some parts."""
    return (part for part in parts if part.type == "tool_call")


def find_result(parts: Sequence[Part]) -> Part | None:
    """Return the result of a tool, of which a message has at most one."""
    found = [part for part in parts if part.type == "tool_result"]
    if len(found) > 1 or (found and any(find_calls(parts))):
        raise InputError(
            "a message has one tool result and no call beside it", hint="add each result by itself"
        )
    return found[0] if found else None


def show(parts: Iterable[Part]) -> str:
    """Return parts as text, for a summariser or a reader."""
    return GAP.join(filter(None, map(_show, parts)))


def _show(part: Part) -> str:
    if part.type == "tool_call":
        given = "" if part.arguments is None else msgspec.json.encode(part.arguments).decode()
        return f"[calls {part.name} {given}]"
    if part.type == "tool_result":
        return f"[{'error' if part.error else 'result'}] {part.text}"
    if part.type in ("image", "blob"):
        return f"[{part.type} {part.name or part.blob}]"
    return "" if part.type == "thinking" else part.text
