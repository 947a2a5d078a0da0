"""The records of LangGraph's threads: their schemas, their ids, and their bytes.

A checkpoint is one record: fields that people read in its data, what LangGraph needs in its content. The
values of channels are records of their own, named by a digest of their bytes, which checkpoints refer to.
"""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec
import zstandard

from dgent import codec, ids
from dgent.model.datum import Datum
from dgent.model.schema import Schema

# Checkpoints are never changed, only deleted, and a deleted one must free its space: no history.
CHECKPOINT: Schema[Any] = Schema(
    "langgraph.checkpoint", indexes=("place", "run"), text={"preview": 1}, history="none"
)
WRITES: Schema[Any] = Schema("langgraph.writes", indexes=("place",), history="none")
CONTENT: Schema[Any] = Schema("langgraph.content", history="none", feed=False)

HEAD = "langgraph/"
MIN_COMPRESS = 200  # bytes
MAX_NOTE = 200  # characters
MAX_PART = 150  # bytes of a thread or a namespace in an id; a longer one is hashed

_RAW, _ZSTD = b"\0", b"\1"
_local = threading.local()  # a compressor may be used by one thread at a time

Typed = tuple[str, bytes]
"""A value as a serializer of LangGraph gives it: its type, and bytes."""


class StoredValue(msgspec.Struct, array_like=True):
    """The value of a channel: the bytes themselves, or references to contents.

    `kind` is "none", "inline", "whole" for one reference, "list" for those of a list's parts, and "delta" for
    those of a list within a snapshot of a delta channel. `data` has the bytes, or the references.
    """

    version: Any
    kind: str = "none"
    type: str = ""
    data: bytes = b""


class StoredCheckpoint(msgspec.Struct, array_like=True):
    """The content of a checkpoint's record."""

    name: tuple[bytes, bytes]  # thread and namespace; as bytes, since a text may be half a surrogate pair
    id: str
    parent: str | None
    rest: Typed
    metadata: Typed
    values: dict[str, StoredValue]

    @property
    def thread(self) -> str:
        """The thread's id."""
        return self.name[0].decode(errors="surrogatepass")

    @property
    def namespace(self) -> str:
        """The namespace of checkpoints."""
        return self.name[1].decode(errors="surrogatepass")

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that names this checkpoint."""
        return config_of(self.thread, self.namespace, self.id)

    @property
    def parent_config(self) -> dict[str, Any] | None:
        """The configuration that names the parent."""
        return config_of(self.thread, self.namespace, self.parent) if self.parent else None


class StoredWrite(msgspec.Struct, array_like=True):
    """One write of a task."""

    index: int
    channel: str
    type: str
    data: bytes


class StoredWrites(msgspec.Struct, array_like=True):
    """The content of the record of a task's writes."""

    task: str
    path: str
    writes: list[StoredWrite]


encode = msgspec.msgpack.Encoder().encode
_checkpoint = msgspec.msgpack.Decoder(StoredCheckpoint)
_writes = msgspec.msgpack.Decoder(StoredWrites)


def config_of(thread: str, namespace: str, id: str) -> dict[str, Any]:
    """Return the configuration that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}}


def part_of(text: str) -> str:
    """Return a text as part of an id: readable, or hashed where it is long or cannot be stored."""
    escaped = ids.escape(text)
    try:
        fits = len(escaped.encode()) <= MAX_PART and "\0" not in escaped
    except UnicodeEncodeError:
        fits = False
    return escaped if fits else "~h" + codec.blake2b(bytes_of(text), size=16).hexdigest()


def bytes_of(text: str) -> bytes:
    """Return bytes of any text, also of half a surrogate pair."""
    return text.encode(errors="surrogatepass")


def thread_prefix(thread: str) -> str:
    """Return the beginning of the ids and places of a thread."""
    return f"{HEAD}{part_of(thread)}/"


def line_prefix(thread: str, namespace: str) -> str:
    """Return the beginning of the ids and places of a thread's namespace."""
    return f"{thread_prefix(thread)}{part_of(namespace)}/"


def content_id(thread: str, reference: bytes) -> str:
    """Return the id of a content; no namespace is escaped to `~=`."""
    return f"{thread_prefix(thread)}~=/{urlsafe_b64encode(reference).decode().rstrip('=')}"


def writes_id(checkpoint: str, task: str) -> str:
    """Return the id of the writes of a task at the checkpoint with an id."""
    return f"{checkpoint}/{codec.blake2b(bytes_of(task), size=12).hexdigest()}"


def make_checkpoint(id: str, stored: StoredCheckpoint, metadata: Mapping[str, Any], preview: str) -> Datum:
    """Return the record of a checkpoint."""
    data: dict[str, Any] = {"place": id, "thread": stored.thread, "namespace": stored.namespace}
    data |= {"checkpoint": stored.id, "metadata": dict(metadata)}
    if isinstance(run := metadata.get("run_id"), str):
        data["run"] = run
    if preview:
        data["preview"] = preview
    parent = stored.parent and line_prefix(stored.thread, stored.namespace) + stored.parent
    return _make(CHECKPOINT, id, data, encode(stored), parent or None)


def describe(checkpoint: Datum) -> str:
    """Return what a timeline says of a checkpoint's commit: its thread, its step, and what made it."""
    data = checkpoint.data
    metadata = data["metadata"]
    where = f"{data['thread']} ({data['namespace']})" if data["namespace"] else data["thread"]
    text = f"thread {where}: step {metadata.get('step', '?')}, {metadata.get('source', 'unknown')}"
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_NOTE])


def make_writes(checkpoint: str, thread: str, namespace: str, stored: StoredWrites) -> Datum:
    """Return the record of a task's writes at the checkpoint with an id."""
    data = {"place": checkpoint, "thread": thread, "namespace": namespace, "task": stored.task}
    data["channels"] = [each.channel for each in stored.writes]  # type: ignore[assignment]
    return _make(WRITES, writes_id(checkpoint, stored.task), data, encode(stored))


def make_content(stored: StoredCheckpoint, reference: bytes, content: bytes) -> Datum:
    """Return the record of a content that a checkpoint brings.

    It names the checkpoint, so that a content that is stored again is a new version: see `thread.sweep`.
    """
    data = {"thread": stored.thread, "checkpoint": stored.id}
    return _make(CONTENT, content_id(stored.thread, reference), data, content)


def _make(
    schema: Schema[Any], id: str, data: dict[str, Any], content: bytes, parent: str | None = None
) -> Datum:
    return Datum(
        id,
        data=printable(data),
        content=pack(content),
        parent_id=parent,
        schema=schema.name,
        schema_version=schema.version,
    )


def read_checkpoint(datum: Datum) -> StoredCheckpoint:
    """Return what LangGraph needs of a checkpoint's record."""
    return _checkpoint.decode(unpack(datum.content))


def read_writes(datum: Datum) -> StoredWrites:
    """Return the writes of a record."""
    return _writes.decode(unpack(datum.content))


def printable(value: Any, depth: int = 0) -> Any:
    """Return a value for people to read: JSON, with a text in place of what dgent cannot hold."""
    if isinstance(value, str):
        return value if codec.is_text(value) else ascii(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)
    if depth < codec.MAX_DEPTH // 2:
        if isinstance(value, Mapping):
            return {printable(str(key)): printable(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [printable(each, depth + 1) for each in value]
    return printable(repr(value)[:200])


def pack(content: bytes) -> bytes:
    """Return a content as it is stored: compressed where that helps."""
    if len(content) >= MIN_COMPRESS:
        if not hasattr(_local, "compress"):
            _local.compress = zstandard.ZstdCompressor(level=3).compress
        packed: bytes = _local.compress(content)
        if len(packed) < len(content):
            return _ZSTD + packed
    return _RAW + content


def unpack(stored: bytes) -> bytes:
    """Return the content that `pack` was given."""
    if stored[:1] == _RAW:
        return stored[1:]
    if not hasattr(_local, "decompress"):
        _local.decompress = zstandard.ZstdDecompressor().decompress
    found: bytes = _local.decompress(stored[1:])
    return found
