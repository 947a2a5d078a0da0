"""Blobs: the contract of the store, and of the place where an engine keeps their bytes.

The bytes are kept once, by their SHA-256; the names are records of the universe (`universe/blob.py`). So an
engine knows hashes and never a key: no key can become a path or SQL.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import os
import re
import socket
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec

from dgent.errors import Corrupt, InputError

CHUNK = 1 << 20
"""The bytes that are read or written at once; no blob needs more memory than a few of these."""

HASHED_AT_ONCE = 1 << 18
"""The bytes that are hashed without a thread: it takes as long as handing them to one."""

MAX_KEY_BYTES = 1024
OCTETS = "application/octet-stream"
PREFIX = "blob:"
"""The beginning of the id of a content, which is followed by its SHA-256."""

_ID = re.compile(r"blob:[0-9a-f]{64}", re.ASCII)
_TYPE = re.compile(r"[!-~]+/[!-~]+(?:[ ]*;[ -~]*)?", re.ASCII)
MAX_TYPE = 200

Data: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
"""Bytes, a file that is read to its end, or parts in order, as a generator yields them."""


class Content(NamedTuple):
    """Stored bytes: their SHA-256 in hexadecimal, and how many there are."""

    sha256: str
    size: int


class BlobInfo(msgspec.Struct, frozen=True):
    """A blob as the store knows it; `rev` counts the times that its key was written."""

    key: str
    sha256: str
    size: int
    content_type: str = OCTETS
    updated_at: datetime | None = None
    rev: int | None = None

    @property
    def id(self) -> str:
        """The id of its content: a `Ref` to it in a record keeps the content, also without the key."""
        return PREFIX + self.sha256


class Collected(msgspec.Struct, frozen=True):
    """The result of a collection: contents removed and their bytes, and those that wait for their time.

    `leftovers` are unfinished uploads of processes that ended.
    """

    removed: int
    removed_bytes: int
    waiting: int
    kept: int
    leftovers: int = 0


class PartWriter(Protocol):
    """A place that takes bytes part by part."""

    async def write(self, part: bytes) -> None:
        """Add bytes."""
        ...


class Upload(PartWriter, Protocol):
    """Bytes on their way in: nobody sees them before `publish`, and no collection removes them after it
    until the upload ends.

    `ops`, once it is published, must be part of the commit that refers to the content.
    """

    ops: Sequence[Any]  # of `store/backend.py`

    async def publish(self) -> tuple[Content, bool]:
        """Make the bytes durable under their hash; True if they were stored before."""
        ...


@runtime_checkable
class BlobContents(Protocol):
    """The place of an engine for bytes by their hash."""

    place: str

    def upload(self) -> AbstractAsyncContextManager[Upload]:
        """Begin an upload; what was not published when it ends is removed."""
        ...

    def hold(self, contents: Sequence[Content]) -> AbstractAsyncContextManager[Mapping[str, Sequence[Any]]]:
        """Keep contents that are stored here from being removed until the context ends.

        Yields, by hash, the ops that must be part of the commit that refers to a content; contents that are
        missing, have another size or are just being removed are left out.
        """
        ...

    def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes from `start` to before `end`, unchecked; Corrupt where there are none."""
        ...

    async def size(self, sha256: str) -> int | None:
        """Return how many bytes a content has; None where it is missing."""
        ...

    async def stamp(self, sha256: str) -> object:
        """Return a value that another content in its place would not have; None where it is missing."""
        ...

    async def list(self, after: str = "", limit: int = 500) -> list[str]:
        """Return hashes after one, in order."""
        ...

    async def remove(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        """Remove a content unless an upload holds it, or it is used; asked when no upload can begin."""
        ...

    async def sweep(self) -> int:
        """Remove what ended processes left of unfinished uploads; return how many."""
        ...

    async def note_user(self, user: str) -> builtins.list[str]:
        """Note that a store keeps contents here, by its host and place; return the others that do."""
        ...

    async def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


@runtime_checkable
class IBlobStore(Protocol):
    """Bytes under keys. Any text of up to 1,024 bytes is a key, and is found exactly as it was written."""

    async def put(
        self, key: str, data: Data, content_type: str | None = None, *, expect: int | None = None
    ) -> BlobInfo:
        """Store bytes under a key; they are durable when it returns."""
        ...

    async def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key or a ref, checked; None where there are none."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete a key; False when there was none."""
        ...

    async def exists(self, key: str) -> bool:
        """Return whether there is a blob of a key."""
        ...

    async def info(self, key: Any) -> BlobInfo | None:
        """Return hash, size and type of a blob."""
        ...

    async def list(self, prefix: str = "", *, after: str | None = None, limit: int = 1000) -> list[BlobInfo]:
        """Return a page of blobs in the order of their keys: those after a key."""
        ...

    def open(
        self, key: Any, mode: Literal["r", "w"] = "r", *, content_type: str | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """Open a blob to read or write it part by part."""
        ...

    async def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


# -- checks ---------------------------------------------------------------------------------


def check_key(key: object) -> str:
    """Return the key; InputError when it cannot be stored."""
    if not isinstance(key, str):
        raise InputError(f"a blob's key must be text, not {type(key).__name__}", field="key")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InputError("a blob's key contains half of a surrogate pair", field="key") from None
    if not 0 < size <= MAX_KEY_BYTES:
        raise InputError(f"a blob's key has 1 to {MAX_KEY_BYTES} bytes, not {size}", field="key")
    return str.__str__(key)


def check_type(content_type: object) -> str:
    """Return a content type, which must be safe in a header; the usual one for None."""
    if content_type is None:
        return OCTETS
    if not isinstance(content_type, str) or len(content_type) > MAX_TYPE or not _TYPE.fullmatch(content_type):
        raise InputError(
            f"{content_type!r} is not a valid content type",
            hint="write one like image/png",
            field="content_type",
        )
    return content_type


def find_sha256(id: object) -> str | None:
    """Return the hash in the id of a content; None for any other id."""
    return id.removeprefix(PREFIX) if isinstance(id, str) and _ID.fullmatch(id) else None


def name_user(path: str) -> str:
    """Return how a store of this machine is noted at a place that stores may share."""
    return f"{socket.gethostname()} {os.path.realpath(path)}"


def is_gone(user: str) -> bool:
    """Return whether a store of this machine that was noted is not there any more."""
    host, _, path = user.partition(" ")
    return host == socket.gethostname() and os.path.isabs(path) and not os.path.exists(path)


# -- streams --------------------------------------------------------------------------------


async def split(data: Data) -> AsyncIterator[bytes]:
    """Yield data in parts of at most `CHUNK` bytes."""
    if isinstance(data, AsyncIterable):
        async for part in data:
            for piece in _pieces(part):
                yield piece
    elif isinstance(data, bytes | bytearray | memoryview):
        for piece in _pieces(data):
            yield piece
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for part in read_parts(data) if is_file(data) else data:
            for piece in _pieces(part):
                yield piece
    else:
        raise InputError(f"a blob is bytes, not {type(data).__name__}", field="data")


def is_file(data: object) -> TypeGuard[BinaryIO]:
    """Return whether data is an open file, which would yield lines."""
    return hasattr(data, "read") and not isinstance(data, AsyncIterable)


def read_parts(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file from where it is to its end."""
    while part := file.read(CHUNK):
        yield part


def check_part(part: object) -> bytes | bytearray | memoryview:
    """Return a part of a blob, which must be bytes."""
    if not isinstance(part, bytes | bytearray | memoryview):
        raise InputError(f"a blob is bytes, and a part of it was {type(part).__name__}", field="data")
    return part


def _pieces(part: object) -> Iterable[bytes]:
    part = check_part(part)
    if isinstance(part, bytes) and len(part) <= CHUNK:
        return (part,) if part else ()
    whole = memoryview(part).cast("B")
    return (bytes(whole[at : at + CHUNK]) for at in range(0, len(whole), CHUNK))


class BlobReader:
    """A blob that is read part by part; the parts are checked, and the last one comes after the check."""

    def __init__(self, info: BlobInfo, parts: AsyncGenerator[bytes]) -> None:
        self.info = info
        self._parts, self._rest = parts, b""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end; all that are left without a size."""
        taken = [self._rest]
        have = len(self._rest)
        while size < 0 or have < size:
            part = await anext(self._parts, b"")
            if not part:
                break
            taken.append(part)
            have += len(part)
        whole = b"".join(taken)
        wanted = len(whole) if size < 0 else size
        self._rest = whole[wanted:]
        return whole[:wanted]


class BlobWriter:
    """A blob that is written part by part; it is there when the context ends without an error."""

    def __init__(self, upload: PartWriter) -> None:
        self._upload = upload
        self.info: BlobInfo | None = None  # once it is stored

    async def write(self, data: Data) -> None:
        """Add bytes, or all of a file."""
        if type(data) is bytes and 0 < len(data) <= CHUNK:
            await self._upload.write(data)
            return
        take_file = getattr(self._upload, "take_file", None)
        if take_file is not None and is_file(data):
            await take_file(data)
            return
        async for part in split(data):
            await self._upload.write(part)


async def check_parts(parts: AsyncGenerator[bytes], content: Content) -> AsyncGenerator[bytes]:
    """Yield the parts of a whole content; raises Corrupt, before the last part, if they are not its bytes.

    A part is hashed on a thread while the next one is read.
    """
    loop, hashed, size = asyncio.get_running_loop(), hashlib.sha256(), 0
    held: bytes | None = None
    async with aclosing(parts):
        async for part in parts:
            if held is not None:
                yield held
            size += len(part)
            held = part
            if len(part) <= HASHED_AT_ONCE:
                hashed.update(part)
            else:
                await loop.run_in_executor(None, hashed.update, part)
    if size != content.size or hashed.hexdigest() != content.sha256:
        raise make_damage_error(content.sha256, f"{size} bytes that are not those that were stored")
    if held is not None:
        yield held


def make_damage_error(sha256: str, what: str) -> Corrupt:
    """Return the error for a content that is missing or not as it was stored."""
    return Corrupt(
        f"the content {PREFIX}{sha256} is damaged: {what}",
        hint="store it again, or restore a backup; nothing was overwritten",
        sha256=sha256,
    )
