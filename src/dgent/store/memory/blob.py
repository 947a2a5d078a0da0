"""Contents of blobs in this process."""

from __future__ import annotations

import builtins
import hashlib
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from dgent.store.backend import Op
from dgent.store.port.blob import CHUNK, Content, make_damage_error


class MemoryContents:
    """Keeps contents in a dictionary, for tests and short work."""

    place = "memory"

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.held: Counter[str] = Counter()  # by uploads that have not ended
        self.lock = threading.Lock()  # of what is held: handles of other threads share a named store

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[MemoryUpload]:
        """Begin an upload; it ends with the context, and so does its hold on the content."""
        made = MemoryUpload(self)
        try:
            yield made
        finally:
            self._release(made.held)

    @asynccontextmanager
    async def hold(self, contents: Sequence[Content]) -> AsyncIterator[dict[str, Sequence[Op]]]:
        """Keep contents that are stored here from being removed until the context ends."""
        with self.lock:
            found = [each.sha256 for each in contents if self._has(each)]
            self.held.update(found)
        try:
            yield dict.fromkeys(found, ())
        finally:
            self._release(found)

    def _has(self, content: Content) -> bool:
        return len(self.contents.get(content.sha256, b"")) == content.size and content.sha256 in self.contents

    def _release(self, held: Sequence[str]) -> None:
        with self.lock:
            self.held -= Counter(held)

    async def read(self, sha256: str, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes from `start` to before `end`; Corrupt where there are none."""
        found = self.contents.get(sha256)
        if found is None:
            raise make_damage_error(sha256, "it is missing")
        last = len(found) if end is None else min(end, len(found))
        for at in range(start, last, CHUNK):
            yield found[at : min(at + CHUNK, last)]

    async def size(self, sha256: str) -> int | None:
        """Return how many bytes a content has; None where it is missing."""
        found = self.contents.get(sha256)
        return None if found is None else len(found)

    async def stamp(self, sha256: str) -> object:
        """Return the identity of the bytes; None where they are missing."""
        found = self.contents.get(sha256)
        return None if found is None else id(found)

    async def note_user(self, user: str) -> builtins.list[str]:
        """Return nobody: no other store can reach this memory."""
        return []

    async def list(self, after: str = "", limit: int = 500) -> list[str]:
        """Return hashes after one, in order."""
        names = sorted(self.contents)
        first = bisect_right(names, after)
        return names[first : first + limit]

    async def remove(self, sha256: str, is_used: Callable[[], Awaitable[bool]]) -> bool:
        """Remove a content unless an upload holds it, or it is used."""
        if sha256 not in self.contents or await is_used():
            return False
        with self.lock:
            removed = None if self.held[sha256] else self.contents.pop(sha256, None)
        if removed is not None and await is_used():  # another thread was faster
            self.contents[sha256] = removed
            return False
        return removed is not None

    async def sweep(self) -> int:
        """Return 0: an upload that ended leaves nothing."""
        return 0

    async def close(self) -> None:
        """Do nothing: the contents are there as long as the store is."""


class MemoryUpload:
    """One upload."""

    ops: Sequence[Op] = ()

    def __init__(self, contents: MemoryContents) -> None:
        self._contents = contents
        self._parts: list[bytes] = []
        self.held: tuple[str, ...] = ()

    async def write(self, part: bytes) -> None:
        """Add bytes."""
        self._parts.append(part)

    async def publish(self) -> tuple[Content, bool]:
        """Store the bytes under their hash; True if they were stored before."""
        data = b"".join(self._parts)
        sha256 = hashlib.sha256(data).hexdigest()
        with self._contents.lock:
            known = self._contents.contents.get(sha256) == data
            self._contents.contents[sha256] = data
            self._contents.held[sha256] += 1
        self.held = (sha256,)
        return Content(sha256, len(data)), known
