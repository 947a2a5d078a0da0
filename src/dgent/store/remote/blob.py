"""Blobs of a store on a server, streamed both ways by `/v1/blobs/<key>`."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from dgent.errors import InputError, NotFound, OutcomeUnknown, Unsupported, VersionConflict
from dgent.store.backend import NEW, Expect
from dgent.store.blob import BlobCalls
from dgent.store.port.blob import (
    CHUNK,
    BlobInfo,
    BlobReader,
    BlobWriter,
    Collected,
    Content,
    check_key,
    check_parts,
    check_type,
    find_sha256,
)
from dgent.store.remote.connection import Answer, Connection
from dgent.store.remote.errors import Broken

if TYPE_CHECKING:
    from dgent.store.remote.backend import RemoteBackend

PATH = "/v1/blobs/"
MOST_LISTED = 1000  # keys that a server is asked for at once
LATE_S = 2.0  # for the answer of a server that stopped reading


class _Blob(msgspec.Struct, frozen=True):
    """A blob as the verbs of a server show it."""

    key: str
    id: str
    size_bytes: int
    content_type: str
    updated_at: datetime | None = None
    rev: int | None = None
    references: int | None = None


class _Stored(msgspec.Struct, frozen=True):
    data: _Blob


class _Items(msgspec.Struct, frozen=True):
    items: builtins.list[_Blob]


class _Erased(msgspec.Struct, frozen=True):
    blobs: int


_stored_decoder = msgspec.json.Decoder(_Stored)


class RemoteBlobs(BlobCalls):
    """The blobs of a store on a server: the calls of `u.storage.blob`, for the agent of a token."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend

    # -- writing --------------------------------------------------------------------------

    @asynccontextmanager
    async def _writer(self, key: str, content_type: str, expect: Expect) -> AsyncIterator[BlobWriter]:
        headers = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        headers |= await self._make_condition(key, expect)
        pool = self._backend.pool
        async with pool.lend(fresh=True) as connection:  # a body cannot be sent twice
            sending = _Sending(connection, pool.address.timeout_s)
            writer = BlobWriter(sending)
            try:
                await sending.send(pool.make_head("PUT", _path_of(key), headers))
                yield writer
                answer = await sending.finish()
            except _Early as early:
                answer = early.answer
            finally:
                await sending.close()
        if answer.status not in (200, 201):
            self._backend.raise_for(answer)
        writer.info = _info_of(_stored_decoder.decode(answer.body).data)

    async def _make_condition(self, key: str, expect: Expect) -> dict[str, str]:
        if expect is None:
            return {}
        if expect in (0, NEW):
            return {"If-None-Match": "*"}
        found = await self.info(key)
        if found is None or found.rev != expect:
            have = "does not exist" if found is None else f"has rev {found.rev}"
            raise VersionConflict(f"the blob {key!r} {have}, and {expect} was expected", key=key)
        return {"If-Match": f'"{found.sha256}"'}

    async def delete(self, key: str, *, expect: Expect = None) -> bool:
        """Delete a key; False when there was none. Its content stays while anything refers to it."""
        given = {"key": check_key(key), **({} if expect is None else {"expect": expect})}
        try:
            await self._backend.call_verb("blob.delete", given, _Blob, reads=False)
        except NotFound:
            return False
        return True

    # -- reading --------------------------------------------------------------------------

    async def info(self, key: Any) -> BlobInfo | None:
        """Return hash, size and type of a blob by its key."""
        found = await self._look(key)
        return None if found is None else _info_of(found)

    async def _look(self, key: Any) -> _Blob | None:
        try:
            found: _Blob = await self._backend.call_verb(
                "blob.info", {"key": _check_plain(key)}, _Blob, reads=True
            )
        except NotFound:
            return None
        return found

    async def exists(self, key: Any) -> bool:
        """Return whether there is a blob of a key."""
        return await self._look(key) is not None

    async def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key, checked by their hash; None where there is no such key."""
        try:
            async with self._reader(key, 0, None) as reader:
                return await reader.read()
        except NotFound:
            return None

    @asynccontextmanager
    async def _reader(self, key: Any, start: int, end: int | None) -> AsyncIterator[BlobReader]:
        key = key.key if isinstance(key, BlobInfo) else _check_plain(key)
        if start < 0 or (end is not None and end < start):
            raise InputError(f"{start} to {end} is not a valid range", field="start")
        info = await self.info(key) if start or end is not None else None
        if info is not None and start >= min(info.size, info.size if end is None else end):
            yield BlobReader(info, _yield_nothing())
            return
        headers = {}
        if start or end is not None:
            headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        pool = self._backend.pool
        async with pool.lend(fresh=False) as connection:
            async with asyncio.timeout(pool.address.timeout_s):
                await connection.send(pool.make_head("GET", _path_of(key), headers))
                status, found = await connection.read_head()
            if status not in (200, 206):
                parts = [part async for part in connection.read_parts(found, CHUNK)]
                self._backend.raise_for(Answer(status, found, b"".join(parts)))
            info = info or _info_in(key, found)
            read = connection.read_parts(found, CHUNK)
            checked = check_parts(read, Content(info.sha256, info.size)) if status == 200 else read
            async with aclosing(checked):
                yield BlobReader(info, checked)

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = MOST_LISTED
    ) -> builtins.list[BlobInfo]:
        """Return a page of blobs in the order of their keys: those after a key, if one is given."""
        given = {"prefix": prefix, "after": after, "limit": limit}
        found: _Items = await self._backend.call_verb("blob.list", given, _Items, reads=True)
        return [_info_of(each) for each in found.items]

    async def references(self, key: Any) -> int:
        """Return how many keys and records refer to the content of a blob."""
        found = await self._look(key)
        return 0 if found is None else found.references or 0

    # -- removing -------------------------------------------------------------------------

    async def collect(self, *, grace: timedelta = timedelta(days=1), dry_run: bool = False) -> Collected:
        """Remove contents that nothing refers to, once they have been so for the time of grace."""
        given = {"grace": f"{int(grace.total_seconds())}s", "dry_run": dry_run}
        found: Collected = await self._backend.call_verb("blob.gc", given, Collected, reads=False)
        return found

    async def forget(self, *keys: str) -> int:
        """Erase keys with their history, and contents that nothing else refers to; return how many keys."""
        given: dict[str, Sequence[str]] = {"keys": [check_key(key) for key in keys]}
        found: _Erased = await self._backend.call_verb("blob.forget", given, _Erased, reads=False)
        return found.blobs

    async def close(self) -> None:
        """Leave the connections to the store."""


class _Early(Exception):
    """The server answered before it had the whole body."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _Sending:
    """A body on its way, in chunks, while the answer is waited for: a server may refuse before the end."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._answer: asyncio.Task[Answer] | None = None
        self._finished = False

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._answer is not None and self._answer.done():
            raise _Early(self._answer.result())
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connection.send(data)
        except (Broken, TimeoutError):
            if await self._has_answer():
                assert self._answer is not None
                raise _Early(self._answer.result()) from None
            raise
        if self._answer is None:
            self._answer = asyncio.create_task(self._connection.read_answer())

    async def _has_answer(self) -> bool:
        """Wait for the answer of a server that reads no more."""
        if self._answer is None:
            return False
        await asyncio.wait([self._answer], timeout=LATE_S)
        return self._answer.done() and self._answer.exception() is None

    async def write(self, part: bytes) -> None:
        """Send one chunk."""
        await self.send(b"%x\r\n%b\r\n" % (len(part), part))

    async def finish(self) -> Answer:
        """Send the end, and return the answer; the outcome is unknown if there is none."""
        await self.send(b"0\r\n\r\n")
        assert self._answer is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await asyncio.shield(self._answer)
            self._finished = True
            return answer
        except (Broken, TimeoutError):
            raise OutcomeUnknown(
                "it is not known whether the server stored the blob", hint="look at it with `info`"
            ) from None

    async def close(self) -> None:
        """Close the connection unless all was sent and answered: the server then stores nothing."""
        if not self._finished:
            self._connection.close()
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.gather(self._answer, return_exceptions=True)


async def _yield_nothing() -> AsyncGenerator[bytes]:
    return
    yield b""


def _path_of(key: str) -> str:
    return PATH + quote(key, safe="")


def _check_plain(key: Any) -> str:
    if find_sha256(getattr(key, "id", None)) is not None:
        raise Unsupported(
            "a server gives blobs by their keys, not by refs to their contents",
            hint="store the key beside the ref, or open the store where it is",
        )
    return check_key(key)


def _info_of(found: _Blob) -> BlobInfo:
    sha256 = found.id.partition(":")[2]
    return BlobInfo(found.key, sha256, found.size_bytes, found.content_type, found.updated_at, found.rev)


def _info_in(key: str, headers: dict[str, str]) -> BlobInfo:
    """Return what the headers of a whole blob say of it."""
    size, kind = int(headers.get("content-length", "0")), headers.get("content-type")
    return BlobInfo(key, headers.get("etag", "").strip('"'), size, check_type(kind))
