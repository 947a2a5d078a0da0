"""The JSONL engine: a folder of text files that people and git can read, and a SQLite cache of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from dgent.errors import (
    Busy,
    Closed,
    Corrupt,
    FormatTooNew,
    NoBackendAvailable,
    NotFound,
    StorageError,
    StorageFull,
    Unavailable,
)
from dgent.model.datum import Datum
from dgent.store.backend import Commit, Committed, Keep, View
from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import Reading, Wrap, no_wrap
from dgent.store.jsonl import cache
from dgent.store.jsonl import folder as filename
from dgent.store.jsonl.cache import Conflict, Report
from dgent.store.jsonl.cache_path import (
    LOOK_S,
    NAME,
    discard_cache,
    make_private,
    proven_cache,
    remove_private,
)
from dgent.store.jsonl.compact import Compacting, Compaction
from dgent.store.jsonl.folder import CACHE, FORMAT, Folder
from dgent.store.jsonl.fsync import Policy, Strategy
from dgent.store.jsonl.kernel import JSONLKernel, Wanted
from dgent.store.jsonl.scan import LINK
from dgent.store.jsonl.settle import accept
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.store.sqlite.shared import Opening, Shared, _on_a_loop, release
from dgent.store.sqlite.writer import LOOP_BUDGET_S, WriteJob, WriterThread

if TYPE_CHECKING:
    from dgent.store.upkeep import Upkeep

R = TypeVar("R")

CACHE_FAILS = (Busy, Corrupt, NoBackendAvailable, StorageFull, Unavailable)
QUIET_S = 0.01  # after so long without a commit, the cache gets what it lacks


@dataclass(frozen=True)
class Making:
    """Makes the kernel of a folder; equal ones make alike, so that handles can share it."""

    path: str
    policy: Policy
    private: bool = False

    def __call__(self, connection: Any) -> JSONLKernel:
        """The kernel over a connection to the cache."""
        return JSONLKernel(connection, Folder(self.path), self.policy, self.private)


class JSONLBackend(SQLiteBackend):
    """Keeps everything in a folder with one text file for each schema.

    `sync` says when a commit is on the disk: `immediate` (the default) before its call returns,
    `batch` after `sync_every` commits or `sync_interval` seconds, `on_close` when the store is closed.
    """

    name = "jsonl"
    priority = 60
    remains = "git history and other copies of the folder"

    def __init__(
        self,
        path: str,
        sync: Strategy = "immediate",
        sync_every: int = 100,
        sync_interval: float = 0.5,
        cache: str | None = None,
        wrap: Wrap = no_wrap,
    ) -> None:
        self.folder = os.path.realpath(path)
        self.policy = Policy(sync, sync_every, sync_interval).checked()
        self._cache_folder = os.path.join(self.folder, CACHE) if cache is None else os.path.realpath(cache)
        self._bringing: asyncio.TimerHandle | None = None
        self._moving: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[Any] | None = None
        self._leaving: list[asyncio.Future[None]] = []  # caches that failed, until they are closed
        self._private: str | None = None  # the folder of a cache of this handle alone
        # What the cache has lost, the files still have, so it never waits for the disk.
        super().__init__(os.path.join(self._cache_folder, NAME), "relaxed", wrap)

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Whether the folder, or the one it would be made in, can be written."""
        target = self.folder if os.path.isdir(self.folder) else os.path.dirname(self.folder)
        return os.path.isdir(target) and os.access(target, os.R_OK | os.W_OK | os.X_OK)

    def _opening_of(self) -> Opening:
        return _OpeningFolder(self.folder, self._cache_folder, self._wrap, self.policy)

    @property
    def kernel(self) -> JSONLKernel:
        """The writing kernel; its attributes that readers use are set in one go."""
        kernel = self._require_open().writer.kernel
        assert isinstance(kernel, JSONLKernel)
        return kernel

    async def open(self) -> None:
        """Open or create the folder, and read what changed in it."""
        await super().open()
        self._know(self._require_open())

    def _know(self, shared: Shared) -> None:
        """Use a cache that was opened."""
        self._shared, self.path = shared, shared.path
        self._private = os.path.dirname(shared.path) if self.kernel.private else None
        self.epoch = self.kernel.epoch

    async def close(self) -> None:
        """Finish what is queued and release the files; raises when that may not be on the disk."""
        shared, private, looking = self._shared, self._private, self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        try:
            await super().close()
            while self._leaving:
                await self._leaving.pop()
        finally:
            if private is not None and shared is not None and not shared.inherited:
                await asyncio.to_thread(remove_private, private)

    # -- reads ----------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Bring the cache up to date if the files changed; on an event loop that is Busy instead."""
        kernel = self.kernel
        if kernel.epoch != self.epoch:
            self.epoch = kernel.epoch  # the cache was built anew
        kernel.was_read = True
        if not kernel.late and (kernel.writing or not kernel.changed()):
            return
        writer = self._require_open().writer
        if not _on_a_loop():
            writer.run_alone(lambda: kernel.look(LOOK_S), LOOK_S)
        elif not kernel.late or not writer.try_now([WriteJob(_ignored, work=_nothing)]):
            raise Busy(f"{self.folder} was changed by others")

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """The live version, read on this thread without an event loop."""
        self._refresh()
        return super().get_now(id, lazy)

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        self._refresh()
        return super()._read_now(work)

    async def _read(self, work: Callable[[Reading], R]) -> R:
        """Read on another thread; with a private cache, when the other one fails or cannot be brought up."""
        shared = self._require_open()
        try:
            return await self._read_from(shared, work)
        except CACHE_FAILS as error:
            if self._shared is shared:
                await self._move(shared, error)
            return await self._read_from(self._require_open(), work)

    async def _read_from(self, shared: Shared, work: Callable[[Reading], R]) -> R:
        assert self._loop is not None

        def fresh() -> R:
            self._refresh()
            return shared.read(work)

        return await self._loop.run_in_executor(shared.pool, fresh)

    async def commit(self, commit: Commit, view: View) -> Committed:
        """One atomic commit; a damaged cache is set aside first."""
        shared = self._require_open()
        try:
            return await super().commit(commit, view)
        except Corrupt as error:
            if self._shared is shared:
                await self._move(shared, error)
            return await super().commit(commit, view)

    async def _move(self, failed: Shared, error: StorageError) -> None:
        """Go on with a private cache, which is made from the files; raises the error when this is one."""
        if self.kernel.private or not os.path.lexists(os.path.join(self.folder, filename.FORMAT_FILE)):
            raise error
        if self._moving is None:
            assert self._loop is not None
            self._moving = self._loop.create_task(self._moved(failed, isinstance(error, Corrupt)))
        try:
            await asyncio.shield(self._moving)
        finally:
            if self._moving is not None and self._moving.done():
                self._moving = None

    async def _moved(self, failed: Shared, damaged: bool) -> None:
        assert self._loop is not None
        if damaged:
            discard_cache(self._cache_folder)
        opening = _OpeningFolder(self.folder, None, self._wrap, self.policy)
        opened = await self._loop.run_in_executor(None, opening.run)
        if self._shared is not failed:  # closed meanwhile
            await self._loop.run_in_executor(None, release, opened)
            remove_private(os.path.dirname(opened.path))
            return
        self._know(opened)
        self._leaving.append(self._loop.run_in_executor(None, release, failed))

    def _when_busy(self) -> None:
        # Another thread brings the cache up to what the files say.
        if self._looking is None or self._looking.done():
            assert self._loop is not None
            self._looking = self._loop.create_task(_quietly(self._read(lambda reading: None)))

    def _fits_the_loop(self, jobs: Sequence[WriteJob], writer: WriterThread) -> bool:
        if len(jobs) > 1 and self.policy.strategy == "immediate":
            return False
        return writer.pace_s < LOOP_BUDGET_S and super()._fits_the_loop(jobs, writer)

    def _flush(self) -> None:
        super()._flush()
        if self._bringing is None and self._shared is not None and self.kernel.late:
            self._bring_after(QUIET_S)

    def _bring_after(self, pause_s: float) -> None:
        assert self._loop is not None
        self._bringing = self._loop.call_later(pause_s, self._bring)

    def _bring(self) -> None:
        """Have the writer's thread bring to the cache what is held, once no more comes."""
        self._bringing = None
        shared = self._shared
        if shared is None or shared.inherited or not self.kernel.late:
            return
        left = self.kernel.held_at + QUIET_S - monotonic()
        if left > 0:
            self._bring_after(left)
            return
        with suppress(Closed):
            shared.writer.submit([WriteJob(_ignored, work=_nothing)])

    # -- rewriting ------------------------------------------------------------------------

    async def rewrite(self, *, history: bool) -> Compaction:
        """Write the files in their canonical form; without `history`, only the newest versions stay."""
        if not history:
            await self.compact(Keep(versions=0))
        done: Compaction = await self._rewrite(lambda kernel: Compacting(kernel).run())
        return done

    async def settle_damaged(self, *, accept: bool) -> int:
        """Keep what is left of commits that lost lines, or remove it; how many commits there were."""
        many: int = await self._rewrite(lambda kernel: kernel.settle_damaged(accept))
        return many

    async def _rewrite(self, work: Callable[[JSONLKernel], R]) -> R:
        """Have files rewritten under the folder's lock."""
        wanted = Wanted(work)

        def ask(_: Ledger) -> None:
            self.kernel.wanted = wanted

        await self._write(ask)
        if wanted.error is not None:
            raise wanted.error
        result: R = wanted.result
        return result

    async def settle(self, id: str, author: str) -> int:
        """Accept a record as it is that two copies changed in the same fields; its new rev.

        NotFound when there is no such conflict.
        """
        if id not in {each.id for each in (await self.oddities())[1]}:
            raise NotFound(f"{id!r} has no conflict to settle", hint="`dgent jsonl check` lists conflicts")
        return await self._write(lambda ledger: accept(ledger, id, author))

    # -- upkeep ---------------------------------------------------------------------------

    async def _erase_traces(self) -> bool:
        """Rewrite the cache too; the files were rewritten by the forget itself."""
        erased = await super()._erase_traces()
        left = await self._read(lambda reading: self._asked("SELECT 1 FROM meta WHERE name = 'purging'"))
        return erased and not left

    def _asked(self, sql: str) -> list[Any]:
        own = self._require_open()._reader().own
        return own._all(sql)

    async def oddities(self) -> tuple[list[Report], list[Conflict]]:
        """The lines that are odd, and the records that two copies changed in the same fields."""

        def work(_: Reading) -> tuple[list[Report], list[Conflict]]:
            ask = self._require_open()._reader().own._execute
            links = [Report(name, 0, LINK, "it is not read") for name in self.kernel.folder.strange()]
            return links + cache.reports(ask), cache.conflicts(ask)

        return await self._read(work)

    def upkeep(self) -> Upkeep:
        """What inspects this store."""
        from dgent.store.jsonl.inspect import JSONLUpkeep  # loads when it is used

        return JSONLUpkeep(self)

    def _place(self) -> str:
        return self.folder

    def _size_bytes(self) -> int:
        return self.kernel.folder.size()

    def _details(self) -> dict[str, Any]:
        ask = self._require_open()._reader().own._execute
        return {
            "format": FORMAT,
            "durability": "full" if self.policy.strategy == "immediate" else "relaxed",
            "sync": self.policy.strategy,
            "power_cut_loses": self.policy.loses,
            "cache": "private" if self.kernel.private else self.path,
            "odd_lines": len(cache.reports(ask)),
            "conflicts": len(cache.conflicts(ask)),
        }


class _OpeningFolder(Opening):
    """Opens the cache of a folder, and brings it up to date before anyone reads."""

    def __init__(self, folder: str, place: str | None, wrap: Wrap, policy: Policy) -> None:
        super().__init__("", "relaxed", wrap, Making(folder, policy))
        self._folder, self._place, self._policy = folder, place, policy

    def run(self) -> Shared:
        """Open, on the thread for it: the cache in the folder, or a private one when that cannot be used."""
        for _ in range(2):
            path = self._cache_path()
            if path is None:
                break
            try:
                return self._open(path)
            except (Corrupt, FormatTooNew):
                discard_cache(os.path.dirname(path))  # it is derived, so nothing is lost with it
            except CACHE_FAILS:
                break
        private = make_private()
        try:
            return self._open(os.path.join(private, NAME), private=True)
        except BaseException:
            remove_private(private)
            raise

    def _cache_path(self) -> str | None:
        folder = Folder(self._folder)  # makes it, or says why it cannot be used
        try:
            return None if self._place is None else proven_cache(folder, self._place)
        finally:
            folder.close()

    def _open(self, path: str, private: bool = False) -> Shared:
        self._asked = path, "relaxed", self._asked[2], Making(self._folder, self._policy, private)
        shared = super().run()
        kernel = shared.writer.kernel
        assert isinstance(kernel, JSONLKernel)
        try:
            shared.writer.run_alone(lambda: kernel.look(LOOK_S), LOOK_S)
            shared.writer.scrub()  # what a forget that was cut short has left in the cache
        except BaseException:
            _release_failed(shared)
            raise
        return shared


def _release_failed(shared: Shared) -> None:
    """Release a cache that failed; that it fails again on the way is nothing new."""
    with suppress(StorageError):
        release(shared)


async def _quietly(work: Awaitable[Any]) -> None:
    with suppress(StorageError):
        await work


def _nothing(_: Ledger) -> None:
    """A transaction of its own is all that is wanted."""


def _ignored(_: Sequence[WriteJob]) -> None:
    """Nobody waits for the answer."""
