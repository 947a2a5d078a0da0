"""The calls of blobs that are the same beside a store and over HTTP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from dgent.errors import InputError
from dgent.store.backend import Expect
from dgent.store.port.blob import BlobInfo, BlobReader, BlobWriter, Data, check_key, check_type


class BlobCalls(ABC):
    """Puts and opens blobs by streams that a place of blobs has."""

    async def put(
        self, key: str, data: Data, content_type: str | None = None, *, expect: Expect = None
    ) -> BlobInfo:
        """Store bytes under a key: all of an open file, or parts as a generator yields them.

        `expect` is the rev that the key must have, 0 for a key that must not exist.
        """
        async with self._writer(check_key(key), check_type(content_type), expect) as writer:
            await writer.write(data)
        assert writer.info is not None
        return writer.info

    def open(
        self,
        key: Any,
        mode: Literal["r", "w"] = "r",
        *,
        content_type: str | None = None,
        expect: Expect = None,
        start: int = 0,
        end: int | None = None,
    ) -> AbstractAsyncContextManager[Any]:
        """Open a blob to read it (`"r"`), of a part from `start` to before `end`, or to write it (`"w"`)."""
        if mode == "r":
            return self._reader(key, start, end)
        if mode != "w":
            raise InputError(f"{mode!r} is not a valid mode", hint="use 'r' or 'w'", field="mode")
        return self._writer(check_key(key), check_type(content_type), expect)

    async def iterate(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """Yield all blobs in the order of their keys, a page at a time."""
        after = None
        while page := await self.list(prefix, after=after):
            for info in page:
                yield info
            after = page[-1].key

    @abstractmethod
    async def list(self, prefix: str = "", *, after: str | None = None, limit: int = 1000) -> list[BlobInfo]:
        """Return a page of blobs in the order of their keys: those after a key, if one is given."""

    @abstractmethod
    def _writer(self, key: str, content_type: str, expect: Expect) -> AbstractAsyncContextManager[BlobWriter]:
        """Open a stream to write to; the blob is there when its context ends."""

    @abstractmethod
    def _reader(self, key: Any, start: int, end: int | None) -> AbstractAsyncContextManager[BlobReader]:
        """Open a stream to read from."""
