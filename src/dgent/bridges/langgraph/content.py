"""The values of channels as contents: each is stored once, and a list in parts, so that a step adds its news.

A reference is a level and a digest: level 0 is a value or an item of a list, level 1 a group of items, level
2 a node of references to groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from dgent import codec
from dgent.bridges.langgraph.record import StoredValue, Typed
from dgent.errors import Corrupt

Dump = Callable[[Any], Typed]
Load = Callable[[Typed], Any]
Contents = dict[bytes, bytes]
"""Stored bytes by reference."""

INLINE = 100  # bytes of a value that is kept in the checkpoint itself
GROUP = 16  # items in a group, and groups in a node
SMALL_GROUP = 256  # of items that take less than a reference to them would
SMALL_ITEM = 48  # bytes
SIZE = 17  # bytes of a reference
MAX_KNOWN = 8 << 20  # bytes
ITEM, LIST, NODE = b"\0", b"\1", b"\2"


class KnownContents:
    """Contents that were read lately; a reference is a digest of its content, so that they never change."""

    def __init__(self) -> None:
        self._found: Contents = {}
        self._size = 0
        self._lock = threading.Lock()
        # What was asked for last, at which seq of the store, and what was found.
        self.last: tuple[object, int, Any] | None = None

    def find(self, references: Iterable[bytes]) -> Contents:
        """Return those contents that are known."""
        found = self._found
        return {each: found[each] for each in references if each in found}

    def add(self, found: Contents) -> None:
        """Keep contents, and drop the oldest ones where they become too many bytes."""
        with self._lock:
            kept = dict(self._found)
            for reference, content in found.items():
                if reference not in kept:
                    kept[reference] = content
                    self._size += len(content)
            while self._size > MAX_KNOWN:
                self._size -= len(kept.pop(next(iter(kept))))
            self._found = kept

    def clear(self) -> None:
        """Drop all, since some were deleted."""
        with self._lock:
            self._found, self._size, self.last = {}, 0, None


def split_value(value: Any, dump: Dump, made: Contents) -> StoredValue:
    """Return a value in its stored form, without a version; its contents are added to `made`."""
    kind, inner = "list", value
    if type(value) is _DeltaSnapshot and type(value.value) is list:
        kind, inner = "delta", value.value
    if type(inner) is list and (len(inner) > GROUP or (inner and len(dump(value)[1]) > INLINE)):
        return StoredValue(None, kind, data=b"".join(_split_list(inner, dump, made)))
    type_, data = dump(value)
    if len(data) <= INLINE:
        return StoredValue(None, "inline", type_, bytes(data))
    return StoredValue(None, "whole", data=_add(ITEM, (type_, data), made))


def _split_list(items: list[Any], dump: Dump, made: Contents) -> list[bytes]:
    first = dump(items[:GROUP])
    small = len(first[1]) < SMALL_ITEM * min(len(items), GROUP)
    size = SMALL_GROUP if small else GROUP
    end = len(items) // size * size
    groups = [_add(LIST, dump(items[at : at + size]), made) for at in range(0, end, size)]
    whole = len(groups) // GROUP * GROUP
    nodes = [_add(NODE, ("refs", b"".join(groups[at : at + GROUP])), made) for at in range(0, whole, GROUP)]
    tail = items[end:]
    if small:
        rest = [_add(LIST, dump(tail), made)] if tail else []
    else:
        rest = [_add(ITEM, dump(each), made) for each in tail]
    return [*nodes, *groups[whole:], *rest]


def _add(level: bytes, typed: Typed, made: Contents) -> bytes:
    name = typed[0].encode() + b"\0"
    reference = level + codec.blake2b(name + typed[1], size=SIZE - 1).digest()
    if reference not in made:
        made[reference] = name + typed[1]
    return reference


def references(values: Iterable[StoredValue]) -> list[bytes]:
    """Return the references of values, each once."""
    found: dict[bytes, None] = {}
    for value in values:
        if value.kind not in ("none", "inline"):
            found |= dict.fromkeys(split_references(value.data))
    return list(found)


def split_references(data: bytes) -> list[bytes]:
    """Return references that were joined."""
    return [data[at : at + SIZE] for at in range(0, len(data), SIZE)]


def join_value(value: StoredValue, contents: Mapping[bytes, bytes], load: Load) -> Any:
    """Return the value of a stored form, of which all contents are at hand."""
    if value.kind == "inline":
        return load((value.type, value.data))
    if value.kind == "whole":
        return load(typed_of(contents, value.data))
    items: list[Any] = []
    for reference in split_references(value.data):
        _join(reference, contents, load, items)
    return _DeltaSnapshot(items) if value.kind == "delta" else items


def _join(reference: bytes, contents: Mapping[bytes, bytes], load: Load, items: list[Any]) -> None:
    typed = typed_of(contents, reference)
    if reference[:1] == NODE:
        for each in split_references(typed[1]):
            _join(each, contents, load, items)
    elif reference[:1] == LIST:
        items += load(typed)
    else:
        items.append(load(typed))


def typed_of(contents: Mapping[bytes, bytes], reference: bytes) -> Typed:
    """Return a content as a serializer takes it."""
    found = contents.get(reference)
    if found is None:
        raise Corrupt(f"the content {reference.hex()} of a checkpoint is missing")
    name, _, data = found.partition(b"\0")
    return name.decode(), data
