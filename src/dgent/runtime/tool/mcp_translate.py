"""MCP tools and results as dgent's own: names, schemas, effects and answers, each bounded.

A server may be anybody's. What it says of its tools is a hint: only a server that the partner trusts is
believed that a tool reads only, or may be called twice.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from dgent.runtime.tool.tool import Answer, Effect, Kind, shorten

SEPARATOR = "__"
MAX_NAME = 64
MAX_DESCRIPTION = 2_000
MAX_SCHEMA = 20_000  # characters of JSON
MAX_DEPTH = 20
MAX_EXPANDED = 10_000  # values in a schema with its references written out
_DEFINED = ("$defs", "definitions")
MAX_TEXT = 50_000  # characters of an answer
MAX_STRUCTURED = 100_000  # characters of JSON
MAX_IMAGES = 8
MAX_IMAGE = 5 * 1024 * 1024  # bytes
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


def name_tools(server: str, names: Iterable[str]) -> dict[str, str]:
    """Return the name for the model of each tool of a server: unique, and of letters that all models take.

    The same names give the same result in any order, so that a model finds a tool again.
    """
    given: dict[str, str] = {}
    taken: set[str] = set()
    plain = sorted(set(names), key=lambda name: (_ODD.search(name) is not None, len(name), name))
    for name in plain:  # those that need no change get their own name
        base = f"{server}{SEPARATOR}{_ODD.sub('_', name).strip('_') or 'tool'}"
        made, number = base[:MAX_NAME], 2
        while made in taken:
            end = f"_{number}"
            made, number = base[: MAX_NAME - len(end)] + end, number + 1
        taken.add(made)
        given[name] = made
    return given


def check_schema(schema: Any) -> str:
    """Return why a model cannot be given a schema; empty where it can."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its arguments are not an object"
    if measure_depth(schema) > MAX_DEPTH:
        return f"its schema is more than {MAX_DEPTH} levels deep"
    if len(json.dumps(schema)) > MAX_SCHEMA:
        return f"its schema has more than {MAX_SCHEMA} characters"
    if not _can_expand(schema):
        return "its schema refers to itself, or grows without end when it is written out"
    return ""


def _can_expand(schema: dict[str, Any]) -> bool:
    """Check that a schema stays small with its references written out, as some providers do."""
    waiting: list[Any] = [schema]
    for _ in range(MAX_EXPANDED):
        if not waiting:
            return True
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += (each for key, each in value.items() if value is not schema or key not in _DEFINED)
            ref = value.get("$ref")
            if isinstance(ref, str):
                waiting.append(_find(schema, ref))
    return not waiting


def _find(schema: dict[str, Any], ref: str) -> Any:
    found: Any = schema
    for step in ref.removeprefix("#").strip("/").split("/"):
        if step:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def measure_depth(value: Any, most: int = 100) -> int:
    """Return how deep a JSON value is, as far as `most`."""
    level, depth = [value], 0
    while level and depth <= most:
        nested = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in nested for inner in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth


def judge(hints: Any, trusted: bool) -> tuple[Effect, Kind, bool]:
    """Return effect, kind and repeatability of a tool by its annotations."""
    reads = bool(getattr(hints, "read_only_hint", None))
    destroys = bool(getattr(hints, "destructive_hint", None)) and not reads
    outside = bool(getattr(hints, "open_world_hint", None))
    same = reads or bool(getattr(hints, "idempotent_hint", None))
    kind: Kind = "fetch" if reads and outside else "read" if reads else "delete" if destroys else "other"
    effect: Effect = "read" if reads and trusted else "destroy" if destroys else "write"
    return effect, kind, same and trusted


def describe(tool: Any) -> str:
    """Return what a model is told of a tool, in a bounded text."""
    said = tool.description or getattr(tool, "title", None) or tool.name
    return shorten(" ".join(str(said).split()) or "a tool", MAX_DESCRIPTION)


class Result:
    """A result of a tool, as far as an answer has room for it."""

    def __init__(self, content: Sequence[Any], structured: Any, failed: bool) -> None:
        self.failed = failed
        self.images: list[tuple[bytes, str]] = []
        self.left_out: list[str] = []
        texts: list[str] = []
        for each in content:
            self._add(each, texts)
        self.text = "\n".join(texts)
        self.structured = self._check_structured(structured)
        if self.structured is not None and _is_same(self.text, self.structured):
            self.text = ""  # servers repeat the value as text for older clients
        if len(self.text) > MAX_TEXT:
            self.left_out.append(f"{len(self.text) - MAX_TEXT} characters of text")
            self.text = self.text[:MAX_TEXT]

    def _add(self, part: Any, texts: list[str]) -> None:
        kind = getattr(part, "type", "")
        if kind == "text":
            texts.append(part.text)
        elif kind == "image":
            self._add_image(part, texts)
        elif kind == "resource" and isinstance(getattr(part.resource, "text", None), str):
            texts.append(f"[{part.resource.uri}]\n{part.resource.text}")
        elif kind == "resource_link":
            texts.append(f"[{part.name}]({part.uri})")
        else:
            self.left_out.append(f"content of the kind {kind or type(part).__name__}")

    def _add_image(self, part: Any, texts: list[str]) -> None:
        media = str(part.mime_type)
        try:
            too_long = len(part.data) > MAX_IMAGE * 4 // 3 + 4
            data = b"" if too_long else base64.b64decode(part.data, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if not data or len(self.images) == MAX_IMAGES or not re.fullmatch(r"image/[\w.+-]{1,60}", media):
            self.left_out.append("an image")
            return
        self.images.append((data, media))
        texts.append(f"[image {len(self.images)}, {media}, {len(data)} bytes]")

    def _check_structured(self, value: Any) -> Any:
        if value is None:
            return None
        if measure_depth(value) > MAX_DEPTH or len(json.dumps(value)) > MAX_STRUCTURED:
            self.left_out.append("the structured value, which is too large")
            return None
        return value

    def answer(self, blobs: Sequence[dict[str, Any]] = ()) -> Answer:
        """Return the answer for the model; a failure's message is what the tool said of it."""
        data: dict[str, Any] = {}
        if self.text:
            data["text"] = self.text
        if self.structured is not None:
            data["structured"] = self.structured
        if blobs:
            data["images"] = list(blobs)
        message = shorten(self.text or "the tool failed") if self.failed else "done"
        if self.failed:
            data |= {"code": "tool_failed", "hint": "", "retryable": False}
        if self.left_out:
            message = shorten(message, 1_500) + f"; left out: {shorten(', '.join(self.left_out), 300)}"
        return {"ok": not self.failed, "message": message, "data": data}


def _is_same(text: str, value: Any) -> bool:
    if not text.startswith(("{", "[")) or len(text) > 2 * MAX_STRUCTURED:
        return False
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False
