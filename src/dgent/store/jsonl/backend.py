"""The JSONL engine: a folder of text files that people and git can read, and a SQLite cache of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from dgent.errors import (
    Busy,
    Closed,
    Corrupt,
    FormatTooNew,
    FormatTooOld,
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
from dgent.store.jsonl.cache import (
    LOOK_S,
    NAME,
    RecordConflict,
    Report,
    discard_cache,
    find_cache,
    make_private,
    remove_private,
)
from dgent.store.jsonl.compact import Compaction, Compactor
from dgent.store.jsonl.damage import settle_damaged
from dgent.store.jsonl.folder import CACHE, FORMAT, FORMAT_FILE, StoreFolder
from dgent.store.jsonl.forget import has_unknown_records
from dgent.store.jsonl.fsync import Policy, Strategy
from dgent.store.jsonl.kernel import JSONLKernel
from dgent.store.jsonl.scan import LINK
from dgent.store.jsonl.settle import accept_record
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.store.sqlite.shared import Opening, Shared, _on_a_loop, release
from dgent.store.sqlite.writer import LOOP_BUDGET_S, WriteJob, WriterThread
from dgent.store.upgrade import Upgrade
from dgent.system.progress import Progress
from dgent.system.threads import in_thread

if TYPE_CHECKING:
    from dgent.store.upkeep import Upkeep

R = TypeVar("R")

CACHE_FAILS = (Busy, Corrupt, NoBackendAvailable, StorageFull, Unavailable)
QUIET_S = 0.01  # after so long without a commit, held commits are written to the cache


@dataclass(frozen=True)
class KernelFactory:
    """Makes the kernel of a folder; handles with equal factories share one kernel."""

    path: str
    policy: Policy
    private: bool = False

    def __call__(self, connection: Any) -> JSONLKernel:
        """Return the kernel over a connection to the cache."""
        return JSONLKernel(connection, StoreFolder(self.path), self.policy, self.private)


class JSONLBackend(SQLiteBackend):
    """An engine that stores records in a folder, one text file for each schema.

    `sync` says when a commit is on the disk: `immediate` (the default) before its call returns,
    `batch` after `sync_every` commits or `sync_interval` seconds, `on_close` when the store is closed.
    """

    name = "jsonl"
    extends = False
    any_thread = False
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
        self.policy = Policy(sync, sync_every, sync_interval).validate()
        self._cache_folder = os.path.join(self.folder, CACHE) if cache is None else os.path.realpath(cache)
        self._bringing: asyncio.TimerHandle | None = None
        self._moving: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[Any] | None = None
        self._leaving: list[asyncio.Future[None]] = []  # failed caches that are being closed
        self._private: str | None = None  # the folder of the private cache, if this handle uses one
        # A lost cache is rebuilt from the files, so it never waits for the disk.
        super().__init__(os.path.join(self._cache_folder, NAME), "relaxed", wrap)

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Check whether the folder, or the parent it would be created in, is writable."""
        target = self.folder if os.path.isdir(self.folder) else os.path.dirname(self.folder)
        return os.path.isdir(target) and os.access(target, os.R_OK | os.W_OK | os.X_OK)

    def _opening_of(self) -> Opening:
        return _FolderOpening(self.folder, self._cache_folder, self._wrap, self.policy)

    async def upgrade(
        self, *, backup: bool = True, dry_run: bool = False, progress: Progress | None = None
    ) -> Upgrade:
        """Report that there is nothing to upgrade: lines never change, and a cache is built anew."""
        if not os.path.exists(os.path.join(self.folder, FORMAT_FILE)):
            raise NotFound(f"there is no store at {self.folder}", hint="give the folder of a store")
        size = await in_thread(lambda _: _measure(self.folder))
        note = "lines never change; a cache of another format is built anew from them"
        return Upgrade(self.folder, self.name, FORMAT, FORMAT, [], size, note=note, dry_run=dry_run)

    @property
    def kernel(self) -> JSONLKernel:
        """The writing kernel; attributes that readers use are replaced atomically."""
        kernel = self._require_open().writer.kernel
        assert isinstance(kernel, JSONLKernel)
        return kernel

    async def open(self) -> None:
        """Open or create the folder, and read the files that changed."""
        await super().open()
        self._use_cache(self._require_open())

    def _use_cache(self, shared: Shared) -> None:
        """Use an opened cache from now on."""
        self._shared, self.path = shared, shared.path
        self._private = os.path.dirname(shared.path) if self.kernel.private else None
        self.epoch = self.kernel.epoch

    async def close(self) -> None:
        """Finish queued work and release the files; raises if that work may not be on the disk."""
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
        """Update the cache if the files changed; on an event loop raise Busy instead."""
        kernel = self.kernel
        if kernel.epoch != self.epoch:
            self.epoch = kernel.epoch  # the cache was rebuilt
        kernel.was_read = True
        if not kernel.late and (kernel.writing or not kernel.files.are_changed()):
            return
        writer = self._require_open().writer
        if not _on_a_loop():
            writer.run_alone(lambda: kernel.catch_up(LOOK_S), LOOK_S)
        elif not kernel.late or not writer.try_now([_empty_job()]):
            raise Busy(f"{self.folder} was changed by others")

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""
        self._refresh()
        return super().get_now(id, lazy)

    def get_many_now(self, ids: Sequence[str]) -> list[Datum | None]:
        """Return one answer for each of a few ids, read at one moment on this thread."""
        self._refresh()
        return super().get_many_now(ids)

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        self._refresh()
        try:
            return super()._read_now(work)
        except Corrupt as error:
            # The read on another thread, which follows, replaces the cache.
            raise Busy(f"the cache of {self.folder} is damaged") from error

    async def _read(self, work: Callable[[Reading], R]) -> R:
        """Read on another thread; switch to a private cache if the shared one fails or cannot be updated."""
        shared = self._require_open()
        try:
            return await self._read_from(shared, work)
        except CACHE_FAILS as error:
            if self._shared is shared:
                await self._use_private_cache(shared, error)
            return await self._read_from(self._require_open(), work)

    async def _read_from(self, shared: Shared, work: Callable[[Reading], R]) -> R:
        assert self._loop is not None

        def fresh() -> R:
            self._refresh()
            return shared.read(work)

        return await self._loop.run_in_executor(shared.pool, fresh)

    put_fresh = None  # type: ignore[assignment]  # a damaged cache is replaced for each commit by itself

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do one atomic commit; a damaged cache is replaced by a private one first."""
        shared = self._require_open()
        try:
            return await super().commit(commit, view)
        except Corrupt as error:
            if self._shared is shared:
                await self._use_private_cache(shared, error)
            return await super().commit(commit, view)

    async def _use_private_cache(self, failed: Shared, error: StorageError) -> None:
        """Switch to a private cache built from the files; raise the error if the failed cache is private."""
        if self.kernel.private or not os.path.lexists(os.path.join(self.folder, FORMAT_FILE)):
            raise error
        if self._moving is None:
            assert self._loop is not None
            self._moving = self._loop.create_task(
                self._open_private_cache(failed, isinstance(error, Corrupt))
            )
        try:
            await asyncio.shield(self._moving)
        finally:
            if self._moving is not None and self._moving.done():
                self._moving = None

    async def _open_private_cache(self, failed: Shared, damaged: bool) -> None:
        assert self._loop is not None
        if damaged:
            discard_cache(self._cache_folder)
        opening = _FolderOpening(self.folder, None, self._wrap, self.policy)
        opened = await self._loop.run_in_executor(None, opening.run)
        if self._shared is not failed:  # closed meanwhile
            await self._loop.run_in_executor(None, release, opened)
            remove_private(os.path.dirname(opened.path))
            return
        self._use_cache(opened)
        self._leaving.append(self._loop.run_in_executor(None, release, failed))

    def _when_busy(self) -> None:
        # Another thread updates the cache from the files.
        if self._looking is None or self._looking.done():
            assert self._loop is not None
            self._looking = self._loop.create_task(_run_quietly(self._read(lambda reading: None)))

    def _fits_the_loop(self, jobs: Sequence[WriteJob], writer: WriterThread) -> bool:
        if len(jobs) > 1 and self.policy.strategy == "immediate":
            return False
        return writer.pace_s < LOOP_BUDGET_S and super()._fits_the_loop(jobs, writer)

    def _flush(self) -> None:
        super()._flush()
        if self._bringing is None:
            self._write_cache()

    def _write_cache(self) -> None:
        """Have the writer's thread write held commits to the cache, once no more arrive."""
        self._bringing = None
        shared, loop = self._shared, self._loop
        if shared is None or loop is None or shared.inherited or not self.kernel.late:
            return
        left = self.kernel.held_at + QUIET_S - monotonic()
        if left > 0:
            self._bringing = loop.call_later(left, self._write_cache)
            return
        with suppress(Closed):
            shared.writer.submit([_empty_job()])

    # -- rewriting ------------------------------------------------------------------------

    async def rewrite(self, *, history: bool) -> Compaction:
        """Rewrite the files in canonical form; without `history`, keep only the newest versions."""
        if not history:
            await self.compact(Keep(versions=0))
        return await self._rewrite(lambda kernel: Compactor(kernel).run())

    async def settle_damaged(self, *, accept: bool) -> int:
        """Keep the remaining lines of damaged commits, or remove them; return the number of such commits."""
        return await self._rewrite(lambda kernel: settle_damaged(kernel, accept))

    async def _rewrite(self, work: Callable[[JSONLKernel], R]) -> R:
        """Run a rewrite of files under the folder's lock, and return its result."""
        done: Future[R] = Future()

        def ask(_: Ledger) -> None:
            self.kernel.wanted = work, done

        await self._write(ask)
        return done.result(0)

    async def settle(self, id: str, author: str) -> int:
        """Accept the current version of a record in conflict, and return its new rev.

        Raises NotFound if the record has no conflict.
        """
        if id not in {each.id for each in (await self.check_lines())[1]}:
            raise NotFound(f"{id!r} has no conflict to settle", hint="`dgent jsonl check` lists conflicts")
        return await self._write(lambda ledger: accept_record(ledger, id, author))

    # -- upkeep ---------------------------------------------------------------------------

    async def _erase_traces(self) -> bool:
        """Rewrite the cache too; forgetting has rewritten the files already.

        False as long as lines that do not count may hold the same text under an id that nobody knows.
        """
        erased = await super()._erase_traces()

        def may_be_left(reading: Reading) -> bool:
            ask = self._require_open()._reader().own._all
            return bool(ask(cache.PURGING)) or has_unknown_records(self.kernel.folder, reading, ask)

        return erased and not await self._read(may_be_left)

    async def check_lines(self) -> tuple[list[Report], list[RecordConflict]]:
        """Return reports of unusual lines, and records that two copies changed in the same fields."""

        def work(_: Reading) -> tuple[list[Report], list[RecordConflict]]:
            ask = self._require_open()._reader().own._execute
            links = [Report(name, 0, LINK, "it is not read") for name in self.kernel.folder.irregular_files()]
            return links + cache.list_reports(ask), cache.list_conflicts(ask)

        return await self._read(work)

    def upkeep(self) -> Upkeep:
        """Return the maintenance interface of this store."""
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
            "odd_lines": len(cache.list_reports(ask)),
            "conflicts": len(cache.list_conflicts(ask)),
        }


class _FolderOpening(Opening):
    """Opens the cache of a folder, and updates it from the files before anyone reads."""

    def __init__(self, folder: str, place: str | None, wrap: Wrap, policy: Policy) -> None:
        super().__init__("", "relaxed", wrap, KernelFactory(folder, policy))
        self._folder, self._place, self._policy = folder, place, policy

    def run(self) -> Shared:
        """Open the cache in the folder, or a private one if that cannot be used."""
        for _ in range(2):
            path = self._cache_path()
            if path is None:
                break
            try:
                return self._open(path)
            except (Corrupt, FormatTooNew, FormatTooOld):
                discard_cache(os.path.dirname(path))  # the cache is derived, so nothing is lost
            except CACHE_FAILS:
                break
        private = make_private()
        try:
            return self._open(os.path.join(private, NAME), private=True)
        except BaseException:
            remove_private(private)
            raise

    def _cache_path(self) -> str | None:
        folder = StoreFolder(self._folder)  # creates it, or raises if it cannot be used
        try:
            return None if self._place is None else find_cache(folder, self._place)
        finally:
            folder.close()

    def _open(self, path: str, private: bool = False) -> Shared:
        self._asked = path, "relaxed", self._asked[2], KernelFactory(self._folder, self._policy, private)
        shared = super().run()
        kernel = shared.writer.kernel
        assert isinstance(kernel, JSONLKernel)
        try:
            shared.writer.run_alone(lambda: kernel.catch_up(LOOK_S), LOOK_S)
            shared.writer.scrub()  # what an interrupted forget left in the cache
        except BaseException:
            with suppress(StorageError):
                release(shared)
            raise
        return shared


def _measure(path: str) -> int:
    folder = StoreFolder(path)  # also refuses a newer format
    try:
        return folder.size()
    finally:
        folder.close()


async def _run_quietly(work: Awaitable[Any]) -> None:
    with suppress(StorageError):
        await work


def _empty_job() -> WriteJob:
    """Return a job that does nothing: its transaction writes the held commits."""
    return WriteJob(lambda _: None, Future(), work=lambda _: None)
