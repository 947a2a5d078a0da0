"""Small contents of blobs as records, which are stored in the very commit of their key.

A file needs one wait for the disk, and its key another one. Bytes of a few pages cost a database no more than
a file does, so they share the commit: a put waits once, and no kill can come between content and key.

A collection notes a content as unused, looks for references once more, and removes it together with that note
as it was. Each put removes the note. So a put that comes in between makes the removal fail, in any process.
"""

from __future__ import annotations

import builtins
import hashlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from dgent import clock
from dgent.errors import VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Delete, Op, Put
from dgent.store.port.blob import CHUNK, BlobContents, Content, Upload, check_part, read_parts

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

ROOM = "blobs"
MOST_BYTES = 256 << 10
"""The size up to which a content is a record; larger ones are files."""

_ALWAYS = clock.from_us(0)  # the time of each content: the same bytes again are nothing new


class BlobContent(msgspec.Struct, frozen=True):
    """A content whose bytes are those of the record."""

    sha256: str


class BlobOrphan(msgspec.Struct, frozen=True):
    """A content that a collection found without references, since when."""

    content: str
    since_us: int


CONTENT = Schema(
    "blob.content", contract=BlobContent, indexes=("sha256",), history="none", feed=False, owner=ROOM
)
ORPHAN = Schema("blob.orphan", contract=BlobOrphan, history="none", feed=False, owner=ROOM)


def content_id(sha256: str) -> str:
    """Return the id of the record of a small content."""
    return f"{CONTENT.name}/{sha256}"


def orphan_id(sha256: str) -> str:
    """Return the id of the note that a content is unused."""
    return f"{ORPHAN.name}/{sha256}"


def note_orphan(sha256: str, now_us: int) -> Put:
    """Return the op that notes a content as unused."""
    data = {"content": sha256, "since_us": now_us}
    return Put(Datum(orphan_id(sha256), data=data, schema=ORPHAN.name, schema_version=ORPHAN.version))


class RecordContents:
    """Keeps small contents in records of a store, and all others in the place that it had before.

    `most_bytes` is 0 where the settings place contents elsewhere: what is in records stays readable.
    """

    def __init__(self, universe: Universe, inner: BlobContents, most_bytes: int) -> None:
        self.inner, self.place, self.most_bytes = inner, inner.place, most_bytes
        self._universe = universe  # for the room, without limits

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[RecordUpload]:
        """Begin an upload; it ends with the context, and so does its hold on the content."""
        async with AsyncExitStack() as held:
            yield RecordUpload(self, held)

    @asynccontextmanager
    async def hold(self, contents: Sequence[Content]) -> AsyncIterator[dict[str, Sequence[Op]]]:
        """Keep contents that are stored here: a record is put again with its key, a file is not removed."""
        found: dict[str, Sequence[Op]] = {}
        records = await self._universe.get_many([content_id(each.sha256) for each in contents], raw=True)
        for each, record in zip(contents, records, strict=True):
            if record is not None and len(record.content) == each.size:
                found[each.sha256] = _put_ops(each.sha256, record.content)
        async with self.inner.hold([each for each in contents if each.sha256 not in found]) as files:
            yield {**files, **found}

    async def _find(self, sha256: str) -> Datum | None:
        found: Datum | None = await self._universe.get(content_id(sha256), raw=True)
        return found

    async def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes from `start` to before `end`; Corrupt where there are none."""
        found = await self._find(sha256)
        if found is None:
            async for part in self.inner.read(sha256, start, end):
                yield part
            return
        data = found.content[start:end]
        for at in range(0, len(data), CHUNK):
            yield data[at : at + CHUNK]

    async def size(self, sha256: str) -> int | None:
        """Return how many bytes a content has; None where it is missing."""
        found = await self._find(sha256)
        return await self.inner.size(sha256) if found is None else len(found.content)

    async def stamp(self, sha256: str) -> object:
        """Return that of a file; None for a record, which is so small that it is checked each time."""
        return None if await self._find(sha256) is not None else await self.inner.stamp(sha256)

    async def list(self, after: str = "", limit: int = 500) -> builtins.list[str]:
        """Return hashes after one, in order."""
        wanted = Query(
            schema=CONTENT.name,
            where={"sha256": {"$gt": after}},
            order_by="sha256",
            descending=False,
            limit=limit,
            content=False,
        )
        records = [
            each.data["sha256"]
            for each in await self._universe.query(wanted, raw=True)
            if each.problem is None  # a damaged one is found by its key
        ]
        files = await self.inner.list(after, limit)
        return [*dict.fromkeys(heapq.merge(records, files))][:limit]

    async def remove(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        """Remove a content unless an upload holds it, or it is used."""
        removed = False
        if await self._find(sha256) is not None:
            removed = await self._remove_record(sha256, is_used)
            if not removed:
                return False
        return await self.inner.remove(sha256, is_used) or removed

    async def _remove_record(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        noted = await self._universe.get(orphan_id(sha256), raw=True)
        rev = noted and noted.rev
        if rev is None:
            done = await self._universe.commit([note_orphan(sha256, clock.now_us())], note="collect blobs")
            rev = done.written[0].rev
        ops: builtins.list[Op] = [Delete(orphan_id(sha256), rev)]
        used = await is_used()
        if not used:
            ops.append(Delete(content_id(sha256)))
        try:
            await self._universe.commit(ops, note="collect blobs")
        except VersionConflict:
            return False  # it was stored again in between, or another collection was faster
        return not used

    async def sweep(self) -> int:
        """Remove what ended processes left of unfinished uploads; return how many."""
        return await self.inner.sweep()

    async def note_user(self, user: str) -> builtins.list[str]:
        """Note that a store keeps contents at the place of the large ones; return the others that do."""
        return await self.inner.note_user(user)

    async def close(self) -> None:
        """Close the place of the large ones."""
        await self.inner.close()


class RecordUpload:
    """One upload, in memory as long as it is small, and then one of the other place."""

    def __init__(self, contents: RecordContents, held: AsyncExitStack) -> None:
        self._contents, self._held = contents, held
        self._parts: list[bytes] = []
        self._size = 0
        self._inner: Upload | None = None
        self.ops: Sequence[Op] = ()

    async def write(self, part: bytes) -> None:
        """Add bytes."""
        if self._inner is None:
            self._parts.append(part)
            self._size += len(part)
            if self._size <= self._contents.most_bytes:
                return
            await self._begin()
        else:
            await self._inner.write(part)

    async def take_file(self, file: BinaryIO) -> None:
        """Add a file, up to its end."""
        while self._inner is None:
            part = file.read(self._contents.most_bytes + 1 - self._size)
            if not part:
                return
            check_part(part)
            await self.write(part)
        take_file = getattr(self._inner, "take_file", None)
        if take_file is not None:
            await take_file(file)
            return
        for part in read_parts(file):
            await self._inner.write(bytes(check_part(part)))

    async def _begin(self) -> Upload:
        """Begin an upload at the other place, with what came so far."""
        self._inner = await self._held.enter_async_context(self._contents.inner.upload())
        parts, self._parts = self._parts, []
        for part in parts:
            await self._inner.write(part)
        return self._inner

    async def publish(self) -> tuple[Content, bool]:
        """Return the content, whose record is in `ops`; or make the bytes durable at the other place."""
        if self._inner is not None or not self._contents.most_bytes:
            return await (self._inner or await self._begin()).publish()
        data = b"".join(self._parts)
        content = Content(hashlib.sha256(data).hexdigest(), len(data))
        if await self._contents.inner.size(content.sha256) is not None:
            return await (await self._begin()).publish()  # each content is kept once
        self.ops = _put_ops(content.sha256, data)
        return content, False


def _put_ops(sha256: str, data: bytes) -> tuple[Op, Op]:
    """Return the ops that store a content, and end the note that it is unused."""
    return _put_content(sha256, data), Delete(orphan_id(sha256))


def _put_content(sha256: str, data: bytes) -> Put:
    fields: dict[str, Any] = {"data": {"sha256": sha256}, "content": data, "author": "system"}
    return Put(
        Datum(content_id(sha256), _ALWAYS, schema=CONTENT.name, schema_version=CONTENT.version, **fields)
    )
