"""The base of embedded engines: a kernel in this process that answers without waiting."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from dgent.errors import Busy
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Page, View
from dgent.store.engine import read
from dgent.store.engine.backend import INLINE_IDS, KernelBackend
from dgent.store.engine.check import check_as_of, check_ids
from dgent.store.engine.errors import TooLong
from dgent.store.engine.kernel import Reading
from dgent.store.search import SearchPage, SearchRequest

R = TypeVar("R")

INLINE_ROWS = 100  # up to so many rows are read on the event loop


class EmbeddedBackend(KernelBackend):
    """A backend whose kernel is called directly: short reads run on the caller's thread."""

    @abstractmethod
    def _read_now(self, work: Callable[[Reading], R]) -> R:
        """Run a short read of one moment on this thread."""

    @abstractmethod
    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""

    @abstractmethod
    def get_many_now(self, ids: Sequence[str]) -> list[Datum | None]:
        """Return one answer for each of a few ids, read at one moment on this thread."""

    async def _inline(self, work: Callable[[Reading], R]) -> R:
        """Run a short read on the loop's thread, unless it would have to wait for someone."""
        try:
            return self._read_now(work)
        except Busy:
            return await self._read(work)

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq."""
        if as_of is None:
            try:
                return self.get_now(id, lazy)
            except Busy:
                pass  # the read below waits on another thread
        return await super().get(id, as_of, lazy)

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id, read at one moment; a few are read on this thread."""
        wanted = check_ids(ids)
        if as_of is None and len(wanted) <= INLINE_IDS:
            try:
                return self.get_many_now(wanted)
            except Busy:
                pass  # the read below waits on another thread
        return await super().get_many(wanted, as_of)

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records in order; a short one is read on this thread."""
        check_as_of(as_of)
        planned = None
        if as_of is None:
            try:
                tried = self._read_now(lambda reading: self._try_query(reading, query, view))
            except Busy:
                tried = None  # the read below waits on another thread
            if isinstance(tried, Page):
                return tried
            planned = tried
        return await self._read(lambda reading: self._query(reading, query, view, as_of, planned))

    def _try_query(self, reading: Reading, query: Query, view: View) -> Page | read.Planned | None:
        """Return the page if it is short, else the plan for reading it on another thread."""
        reading.refresh()
        return read.try_query(reading, query, view, self.epoch, INLINE_ROWS)

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records match, ignoring limit, offset and cursor; a few on this thread."""

        def work(reading: Reading) -> int | None:
            reading.refresh()
            return read.try_count(reading, query, view, INLINE_ROWS)

        if as_of is None:
            try:
                tried = self._read_now(work)
            except Busy:
                tried = None  # the read below waits on another thread
            if tried is not None:
                await asyncio.sleep(0)  # whoever counts until something is there lets others run
                return tried
        return await super().count(query, view, as_of)

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words; few are looked for on this thread."""
        short = request.limit <= INLINE_ROWS and request.as_of is None and not request.own
        if short and not request.query.narrows:

            def work(reading: Reading) -> SearchPage | None:
                try:
                    return self._search(reading, request, short=True)
                except TooLong:
                    return None

            try:
                tried = self._read_now(work)
            except Busy:
                tried = None  # the read below waits on another thread
            if tried is not None:
                return tried
        return await super().search(request)


async def wait_by_polling(newest: Callable[[], int], since: int, timeout_s: float, pause_s: float) -> int:
    """Ask for the newest seq again and again until it passes `since` or time is up."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        seq = newest()
        left = deadline - asyncio.get_running_loop().time()
        if seq > since or left <= 0:
            return seq
        await asyncio.sleep(min(pause_s, left))
