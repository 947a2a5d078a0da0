"""Read and write serialized values without making the objects in them.

An import must not call classes that a file names, nor need the modules of the program that wrote it. What
LangGraph's serializer keeps of an object stays as its bytes, and is made by the program that reads it later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import ormsgpack

from dgent.bridges.langgraph.content import Dump
from dgent.bridges.langgraph.record import Typed

MAX_PREVIEW = 160  # characters
PLAIN = ("null", "bytes", "bytearray")
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged or hostile value may raise."""


class Opaque:
    """An object inside a value, as the bytes that its serializer made of it."""

    __slots__ = ("data", "tag")

    def __init__(self, tag: int, data: bytes) -> None:
        self.tag, self.data = tag, data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and (self.tag, self.data) == (other.tag, other.data)

    def __hash__(self) -> int:
        return hash((self.tag, self.data))


class Raw(NamedTuple):
    """A serialized value that stays as it is."""

    kind: str
    data: bytes


def check_typed(kind: Any, data: Any) -> str | None:
    """Return why a serialized value cannot be imported; None if it can."""
    if not isinstance(kind, str):
        return "it has no type"
    if kind == "pickle":
        return "its value is pickled, and nothing is unpickled"
    if "+" in kind:
        return f"its value is encrypted ({kind:.40})"
    if kind not in (*PLAIN, "json", "msgpack"):
        return f"{kind!r:.60} is not a type of LangGraph's serializer"
    if not isinstance(data, bytes) and not (kind == "null" and data is None):
        return "its value is not bytes"
    try:
        load_typed(kind, data)
    except DAMAGE as error:
        return f"its value is damaged: {error!s:.120}"
    return None


def load_typed(kind: str, data: Any) -> Any:
    """Return a value with its objects left as they are; ValueError for a damaged one."""
    if kind == "json":
        return json.loads(data)
    if kind == "msgpack":
        return ormsgpack.unpackb(data, ext_hook=Opaque, option=ormsgpack.OPT_NON_STR_KEYS)
    return None if kind == "null" else data


def dump_msgpack(value: Any) -> Typed:
    """Serialize a value that `load_typed` read from msgpack, as LangGraph does."""
    if isinstance(value, Raw):
        return value.kind, value.data
    if value is None:
        return "null", b""
    if isinstance(value, bytes):
        return "bytes", value
    return "msgpack", ormsgpack.packb(value, default=_restore, option=ormsgpack.OPT_NON_STR_KEYS)


def _restore(value: Any) -> Any:
    if isinstance(value, Opaque):
        return ormsgpack.Ext(value.tag, value.data)
    raise TypeError(f"{type(value).__name__} cannot be serialized")


def dump_json(value: Any) -> Typed:
    """Serialize a value that `load_typed` read from JSON; objects in it are dicts."""
    return "json", json.dumps(value).encode()


DUMPS: Mapping[str, Dump] = {"json": dump_json, "msgpack": dump_msgpack}


def find_preview(values: Mapping[str, Any]) -> str:
    """Return the beginning of the newest message among the values of channels, for people."""
    for value in values.values():
        if isinstance(value, list) and value:
            text = _find_text(value[-1])
            if isinstance(text, str) and text:
                return text[:MAX_PREVIEW]
    return ""


def _find_text(message: Any) -> Any:
    if isinstance(message, Opaque):
        try:
            message = load_typed("msgpack", message.data)[2]
        except (*DAMAGE, IndexError):
            return None
    if not isinstance(message, dict):
        return None
    inner = message.get("kwargs")
    return inner.get("content") if isinstance(inner, dict) else message.get("content")


def check_versions(versions: Any) -> bool:
    """Return whether the versions of channels are of the kinds that savers make."""
    return isinstance(versions, dict) and all(
        isinstance(name, str) and type(version) in (str, int, float) for name, version in versions.items()
    )
