"""The SQLite engine: one file, any number of processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import msgspec

from dgent.errors import Busy, Closed, Conflict, FormatTooOld, InputError, StorageError, Unsupported
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Commit, Committed, Page, View
from dgent.store.engine.check import check_seq
from dgent.store.engine.commit import Ledger, Prepared, prepare
from dgent.store.engine.embedded import EmbeddedBackend, wait_by_polling
from dgent.store.engine.fresh import MOST, FreshGroup, FreshKind
from dgent.store.engine.kernel import Reading, Wrap, no_wrap
from dgent.store.engine.read import Planned, look_up_all
from dgent.store.port.attached import check_attached
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import holds_file
from dgent.store.sqlite.shared import Opening, Shared, release
from dgent.store.sqlite.writer import LOOP_BUDGET_S, WriteJob, WriterThread
from dgent.store.upgrade import Upgrade, check_policy
from dgent.system import files
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread, return_to_loop, visit, wait_away

if TYPE_CHECKING:
    from dgent.store.port.attached import BoundStatement
    from dgent.store.port.own_tables import OwnTables
    from dgent.store.port.relational import IRelationalStore
    from dgent.store.port.statement import Params
    from dgent.store.upkeep import Upkeep

R = TypeVar("R")

POLL_S = 0.025  # how soon a commit of another process is noticed by `wait`
LOOP_BYTES = 1 << 18  # larger commits go to the writer thread
LOOP_STEPS = 4_000  # of SQLite's machine, between two looks at the time that a query takes on an event loop
QUERY_BUDGET_S = 0.002  # of the processor; a query that takes longer begins anew on a thread
STALL_S = 0.02  # a query that the disk keeps waiting for so long does, too
DURABILITIES = ("full", "relaxed")
_NOBODY: Future[Any] = Future()  # waits for the answer of a job that is done at once


class SQLiteBackend(EmbeddedBackend):
    """Keeps everything in one SQLite file in WAL mode.

    `durability="full"` (the default): a commit is on disk before its call returns. `"relaxed"`: a
    power cut may lose the last moments' commits, never part of one; a killed process loses nothing.

    A file of an older storage format is upgraded when it is opened, after a backup beside it.
    `upgrade="no-backup"` makes none, `"never"` raises FormatTooOld instead.
    """

    name = "sqlite"
    priority = 50
    any_thread = True  # short reads and commits can be done on any thread

    def __init__(
        self,
        path: str,
        durability: str = "full",
        wrap: Wrap = no_wrap,
        upgrade: str = "backup",
        read_only: bool = False,
    ) -> None:
        if durability not in DURABILITIES:
            raise InputError(
                f"durability is {durability!r}; it is one of {', '.join(DURABILITIES)}", field="durability"
            )
        # The real name: SQLite's log lies beside the file itself, not beside a link to it.
        self.path = os.path.realpath(path)
        self.durability = durability
        self._wrap = wrap
        self._upgrade_policy = "never" if read_only else check_policy(upgrade)
        self.read_only = read_only
        self.upgraded: Upgrade | None = None  # the upgrade of the format that `open` made
        self.progress: Progress | None = None  # called while `open` upgrades
        self.epoch = b""
        self._shared: Shared | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[WriteJob] = []
        self._turn_ends = 0.0  # until then, a commit may be done without a turn of the loop
        self._deliver = self._answer  # one bound method, so that a group is answered at once

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Return whether the file, or its folder if there is none yet, can be written."""
        if self.read_only:
            return True  # only opening it can say what is missing
        target = self.path if os.path.exists(self.path) else os.path.dirname(self.path)
        return os.path.isdir(os.path.dirname(self.path)) and os.access(target, os.R_OK | os.W_OK)

    async def open(self) -> None:
        """Open or create the file; upgrade its format if need be."""
        if self._shared is not None:
            raise Closed(f"{self.path} is open already", hint="make another backend")
        self._loop = asyncio.get_running_loop()
        while True:
            before = _file(self.path)
            try:
                self._shared = await self._opening()
                break
            except FormatTooOld:
                if self._upgrade_policy == "never":
                    raise
                backup = self._upgrade_policy == "backup"
                self.upgraded = await self.upgrade(backup=backup, progress=self.progress)
            except StorageError:
                # Another store was put in its place while this waited: that is the one to open.
                if before is None or _file(self.path) in (before, None):
                    raise
        self.epoch = self._shared.epoch

    async def _opening(self) -> Shared:
        assert self._loop is not None
        opening = self._opening_of()
        try:
            return await asyncio.shield(self._loop.run_in_executor(None, opening.run))
        except asyncio.CancelledError:
            opening.disown()
            raise

    def _opening_of(self) -> Opening:
        if self.read_only:
            from dgent.store.sqlite.read_only import ReadOnlyOpening  # loads when it is used

            return ReadOnlyOpening(self.path, self.durability, self._wrap)
        return Opening(self.path, self.durability, self._wrap)

    async def upgrade(
        self, *, backup: bool = True, dry_run: bool = False, progress: Progress | None = None
    ) -> Upgrade:
        """Upgrade the format of the file; raises Busy while somebody has it open in an older one."""
        from dgent.store.sqlite.upgrade import plan_upgrade, upgrade  # loads when it is used

        planned = await in_thread(lambda _: plan_upgrade(self.path, backup))
        if dry_run or not planned.steps:
            return msgspec.structs.replace(planned, dry_run=dry_run)
        pace = ProgressReporter(progress)
        return await in_thread(lambda stopped: upgrade(self.path, backup, pace, stopped))

    async def close(self) -> None:
        """Finish queued work and release the file; the last handle checkpoints the log."""
        self._flush()  # what was handed in this tick was handed in before the close
        shared, self._shared = self._shared, None
        if shared is not None and not shared.inherited:
            # Shielded: a close that is cancelled still closes. On this loop: the own one may be gone.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, release, shared))

    def _require_open(self) -> Shared:
        shared = self._shared
        if shared is None:
            raise Closed(f"{self.path} is not open")
        if shared.inherited:
            raise Closed(f"{self.path} was opened before fork", hint="open it again in the child process")
        return shared

    # -- reads ----------------------------------------------------------------------------

    def get_now(self, id: str, lazy: bool = False) -> Datum | None:
        """Return the live version, read on this thread without an event loop."""
        return self._require_open().get(id, lazy)

    def get_many_now(self, ids: Sequence[str]) -> list[Datum | None]:
        """Return one answer for each of a few ids, read at one moment on this thread."""
        found = self._require_open().get_many(ids)
        return self._read_now(lambda reading: look_up_all(reading, ids, None)) if found is None else found

    def _read_now(self, work: Callable[[Reading], R]) -> R:
        return self._require_open().read(work)

    def _try_query(self, reading: Reading, query: Query, view: View) -> Page | Planned | None:
        if len(query.tags) + len(query.filter.parts) < 2 and query.author is None and query.source is None:
            return super()._try_query(reading, query, view)
        # It may walk far in one index to find a few entries that are in the others too.
        connection: apsw.Connection = reading.connection  # type: ignore[attr-defined]
        # Not by the number of steps alone: SQLite counts on where the same statement ended the last time. Not
        # by the clock either: a thread does not get a busy processor sooner, and has colder caches.
        end, latest = thread_time() + QUERY_BUDGET_S, perf_counter() + STALL_S
        connection.set_progress_handler(lambda: thread_time() > end or perf_counter() > latest, LOOP_STEPS)
        try:
            return super()._try_query(reading, query, view)
        except apsw.InterruptError:
            return None
        finally:
            connection.set_progress_handler(None)

    def known_seq(self) -> int | None:
        """Return the newest seq if it is known without a read; None if it is not."""
        if self.read_only:
            return None
        return self._require_open().writer.known_seq()

    async def last_seq(self) -> int:
        """Return the newest seq."""
        known = self.known_seq()
        return await super().last_seq() if known is None else known

    async def _read(self, work: Callable[[Reading], R]) -> R:
        await return_to_loop()
        shared = self._require_open()
        assert self._loop is not None
        return await self._loop.run_in_executor(shared.pool, shared.read, work)

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")

        def newest() -> int:
            try:
                return self._read_now(lambda reading: reading.newest()[0])
            except Busy:
                self._when_busy()
                return since  # asked again after the pause

        return await wait_by_polling(newest, since, timeout_s, POLL_S)

    def _when_busy(self) -> None:
        """Wait while another process blocks this one; the engine itself needs nothing done here."""

    # -- writes ---------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none; at once if nothing else can happen in this turn of the loop."""
        prepared = prepare(commit)
        job = self._commit_alone(prepared, view)
        if job is None:
            holds = holds_file.get()
            if holds is not None and holds(self.path):
                raise Conflict(
                    "a transaction on own tables is open in this task, so this commit would wait for itself",
                    hint="commit after it, or use `tx.execute` on a transaction of the universe",
                )
            if visit.away:
                return await wait_away(self._submit(prepared, view))
            return await self._commit(prepared, view)
        if job.error is not None:
            raise job.error
        result: Committed = job.result
        return result

    def _commit_alone(self, prepared: Prepared, view: View) -> WriteJob | None:
        """Commit on this thread, without a turn of the loop; None when others may commit in this turn too.

        A turn of the loop takes longer than the work on a record. Callers who never wait for anything else
        still give the loop its turns: only what fits into the first moments after one is done like this.
        """
        busy = self._waiting or getattr(self._loop, "_ready", True) or perf_counter() > self._turn_ends
        if busy and not visit.away:  # a visitor holds up its own thread alone
            return None
        shared = self._require_open()
        job = WriteJob(self._deliver, _NOBODY, prepared, view)
        fits = self._fits_the_loop((job,), shared.writer) and shared.writer.try_now((job,))
        return job if fits else None

    def _commit(self, prepared: Prepared, view: View) -> asyncio.Future[Committed]:
        """Commit at the end of this tick, together with all others of the tick."""
        self._require_open()
        assert self._loop is not None
        answer: asyncio.Future[Committed] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(WriteJob(self._deliver, answer, prepared, view))
        return answer

    def _submit(self, prepared: Prepared | None = None, view: View | None = None) -> Future[Any]:
        """Have the writer thread commit, for a caller on any thread."""
        answer: Future[Any] = Future()
        self._require_open().writer.submit([WriteJob(_settle, answer, prepared, view)])
        return answer

    def settle_here(self) -> Future[None]:
        """Return what is done when every commit that was submitted before has happened or never will."""
        return self._submit()

    def has_company(self) -> bool:
        """Return whether others may commit in this turn of the loop."""
        return bool(self._waiting or getattr(self._loop, "_ready", False))

    def put_fresh(
        self, kind: FreshKind, data: dict[str, Any], tags: frozenset[Any]
    ) -> asyncio.Future[Datum | None] | None:
        """Put a new record at the end of this tick, together with others of its kind.

        None if it has to go the usual way. The future gives None if that turns out later; then nothing was
        written.
        """
        if holds_file.get() is not None:
            return None  # `commit` refuses what would wait for itself
        loop, waiting = self._loop, self._waiting
        assert loop is not None
        group = waiting[-1].answer if waiting else None
        if type(group) is not FreshGroup or group.kind is not kind or len(group.answers) >= MOST:
            if kind.closed[0]:
                return None
            self._require_open()
            group = FreshGroup(kind)
            if not waiting:
                loop.call_soon(self._flush)
            waiting.append(WriteJob(self._deliver, group, work=group.write))
        answer: asyncio.Future[Datum | None] = loop.create_future()
        group.add(data, tags, answer)
        return answer

    async def _write(self, work: Callable[[Ledger], R]) -> R:
        """Have the writer thread do work; cancelled before it starts, it never happens."""
        await return_to_loop()
        shared = self._require_open()
        assert self._loop is not None
        answer: asyncio.Future[R] = self._loop.create_future()
        shared.writer.submit([WriteJob(self._deliver, answer, work=work)])
        return await answer

    async def settle_commits(self) -> None:
        """Wait until every commit whose call was cancelled has happened or never will."""
        if self._shared is not None and not self._shared.inherited:
            assert self._loop is not None
            answer: asyncio.Future[None] = self._loop.create_future()
            self._shared.writer.submit([WriteJob(self._deliver, answer)])
            await answer

    def _flush(self) -> None:
        self._turn_ends = perf_counter() + LOOP_BUDGET_S
        waiting, self._waiting = self._waiting, []
        jobs = [job for job in waiting if _is_wanted(job)]
        if not jobs:
            return
        shared = self._shared
        writer = None if shared is None or shared.inherited else shared.writer
        if writer is not None and self._fits_the_loop(jobs, writer) and writer.try_now(jobs):
            _settle(jobs)
            return
        try:
            self._require_open().writer.submit(jobs)
        except Closed as error:
            for job in jobs:
                job.error = error
            _settle(jobs)

    def _fits_the_loop(self, jobs: Sequence[WriteJob], writer: WriterThread) -> bool:
        """Return whether a commit on this thread would end sooner than a wake-up of the writer thread.

        A hop to the writer thread and back costs more than a quick disk needs for a durable commit.
        When several wait, or the disk is slow, the loop must not be held up.
        """
        if sum([job.size for job in jobs]) > LOOP_BYTES:
            return False
        if any(job.prepared is not None and job.prepared.commit.statements for job in jobs):
            return False  # nobody knows how long those take
        if self.durability == "relaxed" or visit.patient:
            return True
        return len(jobs) == 1 and jobs[0].commits == 1 and writer.pace_s < LOOP_BUDGET_S

    def _answer(self, jobs: Sequence[WriteJob]) -> None:
        """Wake the loop once for all of a group; called on the writer's thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            # The loop is gone, and with it everyone who waited; the commits stand.
            return

    async def _erase_traces(self) -> bool:
        """Rewrite the file, empty the log and remove backups of upgrades: all may hold forgotten bytes."""
        from dgent.store.sqlite.upgrade import remove_backups  # loads when it is used

        shared = self._require_open()
        assert self._loop is not None
        await self._loop.run_in_executor(None, remove_backups, self.path)
        return await self._loop.run_in_executor(None, shared.scrub)

    def upkeep(self) -> Upkeep:
        """The upkeep of this store."""
        from dgent.store.sqlite.upkeep import SQLiteUpkeep  # loads when it is used

        return SQLiteUpkeep(self)

    async def check_statement(self, query: str, params: Params | None, reads: bool = False) -> BoundStatement:
        """Return a statement on the caller's own tables that a commit may run."""
        if self.name != "sqlite":  # tables in the cache of another engine would not last
            raise Unsupported(f"{self.name} has no tables", hint="sqlite and postgres have")
        return check_attached(query, params, "sqlite", reads)

    def relational(self) -> IRelationalStore:
        """Return the caller's own tables in this file; the caller closes them."""
        from dgent.store.sqlite.relational import SQLiteRelational  # loads when it is used

        return SQLiteRelational(self.path, self.durability, grown=self._require_open().writer.checkpoint_soon)

    def own_tables(self) -> OwnTables:
        """Return the caller's own tables as a whole; the caller closes them."""
        from dgent.store.sqlite.relational import SQLiteRelational
        from dgent.store.sqlite.tables import SQLiteTables

        made = self.relational()
        assert isinstance(made, SQLiteRelational)
        return SQLiteTables(made)

    # -- parts of `stats` -------------------------------------------------------------------

    def _place(self) -> str:
        return self.path

    def _size_bytes(self) -> int:
        return sum(files.size(self.path + suffix) for suffix in ("", "-wal"))

    def _details(self) -> dict[str, Any]:
        return {
            "sqlite": apsw.sqlite_lib_version(),
            "durability": self.durability,
            "wal_bytes": files.size(self.path + "-wal"),
            "format": storage.FORMAT,
        }


def _is_wanted(job: WriteJob) -> bool:
    """Return whether somebody waits for a job; encodes the records of a group."""
    group = job.answer
    if type(group) is not FreshGroup:
        return not group.cancelled()
    encoded = group.encode()
    job.size, job.commits = group.size, len(group.answers)
    return encoded


def _settle(jobs: Sequence[WriteJob]) -> None:
    for job in jobs:
        if job.answer.done():
            continue
        with suppress(InvalidStateError):  # cancelled just now, by another thread
            if job.error is not None:
                job.answer.set_exception(job.error)
            else:
                job.answer.set_result(job.result)


def _file(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file at a path; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
