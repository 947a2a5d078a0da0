"""The caller's own tables in a SQLite file: that of a store, another one, or one in memory.

Statements run on connections of their own, under an authorizer. Short ones run on the event loop, as long
as nothing has to wait there; what takes longer is stopped and begins anew on a thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from time import monotonic, perf_counter, thread_time
from typing import Any, TypeVar

import apsw

from dgent.errors import Closed, Conflict, Denied, NoBackendAvailable
from dgent.store.port.relational import (
    USUAL,
    Answer,
    IRelationalStore,
    Row,
    SQLRunner,
    SQLSession,
    refuse_write,
)
from dgent.store.port.statement import Dialect, Params, Statement, bind, one, split
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import shared
from dgent.store.sqlite.authorizer import list_own_names
from dgent.store.sqlite.connection import close_inherited, connect, holds_file, translate, use_wal
from dgent.store.sqlite.sql_connection import DEFINE, SQLConnection, TooLong, keep

R = TypeVar("R")

MEMORY = ":memory:"
READERS = 4
QUICK_COMMIT_S = 0.001  # commits that lately took longer run on the thread
HICCUP_S = 2 * QUICK_COMMIT_S  # one commit that took longer says nothing of the next; three in a row do
AUTO_CHECKPOINT = 1000  # pages, in a file that no store checkpoints
SLOW_S = 0.01  # of the processor, that a read on the loop once took
SAMPLE = 8  # of so many commits on the loop, one is timed
GROWN_COMMITS, GROWN_ROWS = 1024, 1000  # after so many the log is checkpointed


def _is_plain(statement: Statement, params: Params | None) -> bool:
    """Return whether the parameters are a dict without NaN, which would be stored as NULL.

    SQLite's driver itself refuses one that lacks a name.
    """
    if params is None:
        return not statement.names
    if type(params) is not dict:
        return False
    for value in params.values():  # noqa: SIM110  # all() takes twice as long
        if value != value:
            return False
    return True


# What is wrong with a statement or its parameters; the usual way says it in words.
_ODD = (apsw.Error, KeyError, TypeError, ValueError, OverflowError)
_SHORT = Statement("", (), ("insert",))


# -- the store ------------------------------------------------------------------------------

_open_transaction: ContextVar[SQLTransaction | None] = ContextVar("dgent_sql", default=None)


def find_open(store: SQLiteRelational) -> SQLTransaction | None:
    """Return the transaction that this task has open on a store."""
    found = _open_transaction.get()
    return found if found is not None and found.belongs_to(store) else None


class SQLiteRelational(IRelationalStore):
    """Tables in a SQLite file, or in memory where the path is `:memory:`.

    `grown` is called when the log has grown, with the writer's lock, where somebody else checkpoints it: the
    store in the file.
    """

    dialect: Dialect = "sqlite"

    def __init__(
        self,
        path: str,
        durability: str = "full",
        *,
        grown: Callable[[threading.Lock], None] | None = None,
    ) -> None:
        self._in_memory = path == MEMORY
        # A name of its own lets several connections use one database in memory.
        self.path = (
            f"file:/dgent-{os.urandom(8).hex()}?vfs=memdb" if path == MEMORY else os.path.realpath(path)
        )
        self._durability, self._grown = durability, grown
        self._own = list_own_names() if grown is not None else frozenset[str]()
        self._loop = asyncio.get_running_loop()
        self._turn, self._room = asyncio.Lock(), asyncio.Semaphore(READERS)
        self._pool = ThreadPoolExecutor(1 + READERS, thread_name_prefix="dgent-sql")
        self._idle: list[SQLConnection] = []  # of threads that read
        self._every: list[SQLConnection] = []
        # Statements that were run, by their texts; reads with the names of their columns.
        self._reads: dict[str, tuple[Statement, Sequence[str]]] = {}
        self._writes: dict[str, Statement] = {}
        self._slow: dict[str, bool] = {}  # reads that held the loop for long
        self._pace_s, self._commits = 0.0, 0
        self._closed = self.inherited = False
        self._paused: list[threading.Lock] = []
        self._writer: SQLConnection | None = None
        self._reader: SQLConnection | None = None
        shared.watch_forks(self)

    # -- connections ----------------------------------------------------------------------

    def _connect(self, reads_only: bool) -> SQLConnection:
        shared.refuse_unsafe(self.path)
        try:
            if not self._every:
                self._prepare()
            made = SQLConnection(self.path, self._durability, self._own, reads_only)
        except apsw.Error as error:
            raise translate(error, self.path) from error
        self._every.append(made)
        return made

    def _prepare(self) -> None:
        """Prepare a file for use; one that is a dgent store is used as such."""
        if self._in_memory or self._grown is not None:
            return
        if not os.path.isdir(os.path.dirname(self.path)):
            raise NoBackendAvailable(f"the folder of {self.path} does not exist", hint="make the folder")
        connection = connect(self.path, self._durability, wait=True)
        try:
            if connection.pragma("application_id") == storage.APPLICATION_ID:
                self._own = list_own_names()
            else:
                use_wal(connection, self.path)
        finally:
            connection.close()

    def _require_writer(self) -> SQLConnection:
        if self._closed or self.inherited:
            hint = "open it again in the child process" if self.inherited else "open it again"
            raise Closed(f"the tables of {self.path} are closed", hint=hint)
        if self._writer is None:
            self._writer = self._connect(False)
            if self._grown is None:
                self._writer.connection.wal_autocheckpoint(AUTO_CHECKPOINT)
        return self._writer

    def _require_reader(self) -> SQLConnection:
        if self._reader is None or self._closed or self.inherited:
            self._require_writer()
            self._reader = self._connect(True)
        return self._reader

    # -- reading --------------------------------------------------------------------------

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        found = self.fetch_now(query, params)
        return await self._fetch(query, params, False) if found is USUAL else found

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        found = self.fetch_now(query, params, True)
        if found is USUAL:
            found = await self._fetch(query, params, True)
        return found[0] if found else None

    def fetch_now(self, query: str, params: Params | None, first: bool = False) -> Any:
        """Return the rows of a statement that was run before; `USUAL` if it has to go the usual way.

        The usual case in few steps: each of them costs a tenth of what SQLite takes for a row.
        """
        known, reader = self._reads.get(query), self._reader
        if known is None or reader is None or _open_transaction.get() is not None:
            return USUAL
        statement, names = known
        if not _is_plain(statement, params) or not reader.lock.acquire(False):
            return USUAL
        patience = reader.patience
        patience.looks = 0
        try:
            cursor = reader.connection.execute(statement.sql, params)
            if not names:
                names = [column[0] for column in cursor.get_description()]
                if "*" not in statement.sql:  # then they stay the same while the tables do
                    self._reads[query] = statement, names
            if first:
                row: Any = cursor.fetchone()
                cursor.close(True)
                return [] if row is None else [dict(zip(names, row))]  # noqa: B905
            return [dict(zip(names, row)) for row in cursor]  # noqa: B905
        except apsw.ExecutionCompleteError:
            return []
        except _ODD:
            return USUAL  # the usual way says what is wrong
        finally:
            patience.looks = -1
            reader.lock.release()

    async def _fetch(
        self, query: str, params: Params | None, first: bool, reads_only: bool = False
    ) -> list[Row]:
        statement = one(query, "sqlite")
        given = bind(statement, params)
        inside = _open_transaction.get()
        if inside is not None and inside.belongs_to(self) and not reads_only:
            return await inside.fetch(statement, given, first)
        if statement.first in DEFINE:
            if reads_only:
                raise refuse_write()
            await self.execute(query, params)  # which looks at what it made
            return []
        if not statement.writes:
            try:
                found = await self.read(query, lambda reader: reader.fetch(statement, given, first))
                if query not in self._slow and statement.first != "pragma":
                    keep(self._reads, query, (statement, ()))
                return found
            except Denied:
                if not self.learn(statement):
                    raise
        if reads_only:
            raise refuse_write()
        return await self._write(lambda writer: writer.fetch(statement, given, first))

    def learn(self, statement: Statement) -> bool:
        """Note that a statement writes, if that was why it was refused where only reads run."""
        wrote = False
        for each in self._every:
            wrote, each.authorizer.wrote = wrote or each.authorizer.wrote, False
        if wrote:
            statement.writes = True
        return wrote

    async def read(self, query: str, work: Callable[[SQLConnection], R]) -> R:
        """Run work that only reads: here if it is short, else on a thread."""
        reader = self._require_reader()
        if query not in self._slow and reader.lock.acquire(blocking=False):
            began = thread_time()
            try:
                return reader.run_briefly(lambda: work(reader))
            except TooLong:
                pass
            finally:
                reader.lock.release()
                # Counting the rows of a large table is one step of SQLite, like a call of a function.
                if thread_time() - began >= SLOW_S:
                    keep(self._slow, query, True)
        async with self._room:
            connection = self._idle.pop() if self._idle else self._connect(True)
            try:
                return await self._on_thread(connection, lambda: work(connection))
            finally:
                self._idle.append(connection)

    async def _on_thread(self, connection: SQLConnection, work: Callable[[], R], held: bool = False) -> R:
        """Run work on a thread; a caller that is cancelled stops the statement, and waits for its end."""

        def run() -> R:
            connection.patience.since = None
            with nullcontext() if held else connection.lock:
                connection.limit_length(False)
                try:
                    return work()
                finally:
                    connection.limit_length(True)

        future = self._loop.run_in_executor(self._pool, run)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            connection.connection.interrupt()
            with suppress(BaseException):
                await asyncio.shield(future)
            raise
        except apsw.Error as error:
            raise translate(error, self.path) from error

    # -- writing --------------------------------------------------------------------------

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""
        done = self.execute_now(query, params)
        if done is not USUAL:
            return done  # type: ignore[no-any-return]
        self._reads.clear()  # it may change tables
        inside = _open_transaction.get()
        if inside is not None and inside.belongs_to(self):
            return await inside.execute(query, params)
        statements = split(query, "sqlite")
        first = statements[0]
        if len(statements) == 1 and first.first not in DEFINE:
            given = bind(first, params)
            changed = await self._write(lambda writer: writer.run(first, given))
            if first.first in ("insert", "update", "delete") and "returning" not in first.names_used:
                keep(self._writes, query, first)
            return changed
        async with self.transaction() as tx:
            return await tx.execute(query, params)

    def execute_now(self, query: str, params: Params | None) -> Any:
        """Run a statement that was run before, if the disk is quick; `USUAL` if it has to go the usual way.

        The lock says that neither a thread nor a transaction, of this task or another one, has the writer.
        """
        statement, writer = self._writes.get(query), self._writer
        if statement is None or writer is None or self._pace_s >= QUICK_COMMIT_S:
            return USUAL
        if type(params) is dict:
            for value in params.values():
                if value != value:
                    return USUAL  # NaN would be stored as NULL; the usual way says so
        elif params is not None or statement.names:
            return USUAL
        if not writer.lock.acquire(False):
            return USUAL
        patience = writer.patience
        patience.looks = 0
        self._commits = commits = self._commits + 1
        started = 0.0 if commits % SAMPLE else perf_counter()
        try:
            connection = writer.connection
            connection.execute(statement.sql, params)
            return connection.changes()
        except _ODD:
            return USUAL  # it is undone; the usual way says what is wrong
        finally:
            patience.looks = -1
            writer.lock.release()
            if started:
                self._count_pace(perf_counter() - started)
                if self._grown is not None and commits % GROWN_COMMITS == 0:
                    self._grown(writer.lock)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""
        async with self.transaction() as tx:
            return await tx.execute_many(query, rows)

    async def _write(self, work: Callable[[SQLConnection], R]) -> R:
        """Run one statement that commits by itself: here if the disk is quick, else on a thread."""
        writer = self._require_writer()
        async with self._turn:
            if self._pace_s < QUICK_COMMIT_S and writer.lock.acquire(blocking=False):
                started = perf_counter()
                try:
                    return writer.run_briefly(lambda: work(writer))
                except TooLong:
                    pass
                finally:
                    writer.lock.release()
                    self._count_pace(perf_counter() - started)

            def run() -> R:
                # Timed here: how long the thread waited for a processor says nothing of the disk.
                started = perf_counter()
                try:
                    return work(writer)
                finally:
                    self._count_pace(perf_counter() - started)

            self._commits += 1
            done = await self._on_thread(writer, run)
            if self._grown is not None and self._commits % GROWN_COMMITS == 0:
                self._grown(writer.lock)
            return done

    async def run_trusted(self, work: Callable[[SQLConnection], R]) -> R:
        """Run dgent's own work on a thread, on the connection that writes; the authorizer lets it pass."""
        writer = self._require_writer()

        def run() -> R:
            writer.authorizer.passes = True
            try:
                return work(writer)
            finally:
                writer.authorizer.passes = False

        async with self._turn:
            before = writer.connection.total_changes()
            done = await self._on_thread(writer, run)
            if self._grown is not None and writer.connection.total_changes() - before > GROWN_ROWS:
                self._grown(writer.lock)
            return done

    def _count_pace(self, took_s: float) -> None:
        self._pace_s += (min(took_s, HICCUP_S) - self._pace_s) / 3

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLRunner]:
        """Run what is done inside in one transaction; an error inside undoes all of it.

        Meanwhile nobody else writes to the file, the universe included: keep it short.
        """
        inside = _open_transaction.get()
        if inside is not None and inside.belongs_to(self):
            yield inside  # one transaction; what is done here is done with the outer one
            return
        made = await self.begin()
        try:
            yield made
            await made.commit()
        finally:
            made.end()

    async def begin(self) -> SQLTransaction:
        """Begin a transaction; the caller ends it. Statements of the store in this task are part of it."""
        writer = self._require_writer()
        await self._turn.acquire()
        try:
            await self._begin(writer)
        except BaseException:
            self._turn.release()
            raise
        return SQLTransaction(self, writer, self._turn)

    async def _begin(self, writer: SQLConnection) -> None:
        while not writer.lock.acquire(blocking=False):
            await asyncio.sleep(0.001)  # a fork is under way
        try:
            try:
                writer.run_briefly(writer.begin)
            except TooLong:
                await self._on_thread(writer, writer.begin, held=True)
        except BaseException:
            with suppress(apsw.Error):
                writer.rollback()
            writer.lock.release()
            raise

    # -- the end --------------------------------------------------------------------------

    def limit_to_reads(self) -> IRelationalStore:
        """Return a handle on the same tables that only reads."""
        return _Reads(self)

    def connect_driver(self) -> SQLSession:
        """Return a session for a driver of SQL; it has no transaction yet."""
        from dgent.store.sqlite.session import SQLiteSession  # loads when it is used

        return SQLiteSession(self)

    @property
    def own_names(self) -> frozenset[str]:
        """The names of dgent's own tables in the file, in lower case."""
        return self._own

    async def close(self) -> None:
        """Close the connections; statements under way end first, what this task left open is undone."""
        if self._closed:
            return
        if (left_open := find_open(self)) is not None:
            left_open.end()  # of this task, which would wait for itself
        async with self._turn:
            self._closed = True
            self._reads.clear()
            self._writes.clear()
        await self._loop.run_in_executor(None, self._pool.shutdown)
        if not self.inherited:
            for each in self._every:
                with each.lock:
                    each.connection.close(True)
        self._every.clear()

    # -- fork -----------------------------------------------------------------------------

    def pause(self, until: float) -> bool:
        """Keep every thread out of SQLite; False while one is in it, or a transaction is open."""
        for each in self._every:
            if not each.lock.acquire(timeout=max(0.0, until - monotonic())):
                return False
            self._paused.append(each.lock)
        return True

    def resume(self) -> None:
        """Let the threads go on."""
        while self._paused:
            self._paused.pop().release()

    def close_inherited(self) -> None:
        """Close inherited connections in a forked child, without a checkpoint of the parent's log."""
        self._reads.clear()
        self._writes.clear()
        for each in self._every:
            close_inherited(each.connection)


class SQLTransaction:
    """An open transaction; its statements run one after another, also those of several tasks."""

    def __init__(self, store: SQLiteRelational, writer: SQLConnection, held: asyncio.Lock) -> None:
        self._store, self._writer, self._held = store, writer, held
        self._turn = asyncio.Lock()
        self._over = False
        self._before = writer.connection.total_changes()
        self._outer = _open_transaction.get(), holds_file.get()
        _open_transaction.set(self)
        holds_file.set(self.holds)

    def holds(self, path: str) -> bool:
        """Return whether this transaction keeps others from writing to a file."""
        return not self._over and self._store.path == path

    def belongs_to(self, store: SQLiteRelational) -> bool:
        """Return whether this is the open transaction of a store."""
        return self._store is store and not self._over

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several, and return how many rows the last one changed."""
        done = 0
        for statement in split(query, "sqlite"):
            given = bind(statement, params)
            work = self._writer.define if statement.first in DEFINE else self._writer.run
            done = await self._run(statement, partial(work, statement, given))
        return done

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters; returns how many rows were given."""
        statement = one(query, "sqlite")
        given = [bind(statement, row) for row in rows]

        def run_all() -> int:
            for each in given:
                self._writer.run(statement, each)
            return len(given)

        return await self._run(None if len(given) > 100 else statement, run_all)

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        statement = one(query, "sqlite")
        return await self.fetch(statement, bind(statement, params), False)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        statement = one(query, "sqlite")
        found = await self.fetch(statement, bind(statement, params), True)
        return found[0] if found else None

    async def fetch(self, statement: Statement, params: Params | None, first: bool) -> list[Row]:
        """Return the rows of a statement."""
        if statement.first in DEFINE:
            await self._run(statement, lambda: self._writer.define(statement, params))
            return []
        return await self._run(statement, lambda: self._writer.fetch(statement, params, first))

    async def answer(self, statement: Statement, params: Params | None) -> Answer:
        """Run a statement and return all that a driver of SQL is asked for."""
        work = partial(self._writer.answer, statement, params)
        if statement.first in DEFINE:
            self._store._reads.clear()
            return await self._run(statement, partial(self._writer.define_by, work))
        return await self._run(statement, work)

    async def answer_many(self, statement: Statement, rows: Sequence[Params | None]) -> int:
        """Run a statement for each row of parameters and return how many rows they changed in all."""

        def run_all() -> int:
            return sum(self._writer.run(statement, each) for each in rows)

        return await self._run(None if len(rows) > 100 else statement, run_all)

    async def mark(self, step: str, name: str) -> None:
        """Make, release or go back to a savepoint."""
        try:
            await self._run(_SHORT, lambda: self._writer.mark(step, name))
        except apsw.Error as error:
            raise self._writer.explain(error) from error

    async def _run(self, statement: Statement | None, work: Callable[[], R]) -> R:
        async with self._turn:
            if self._over:
                raise Closed("this transaction is over", hint="start another one")
            # A statement that is stopped takes the whole transaction with it. So only what is known to be
            # short runs on the loop.
            if statement is not None and statement.first == "insert" and "select" not in statement.names_used:
                with suppress(apsw.TooBigError):  # of which nothing was done
                    return work()
            return await self._store._on_thread(self._writer, work, held=True)

    async def commit(self) -> None:
        """Commit; on the loop if the disk is quick."""
        async with self._turn:
            store, writer = self._store, self._writer
            if not writer.connection.in_transaction:
                raise Conflict("the transaction was undone by an error in it", hint="run it again")
            started = perf_counter()
            try:
                if store._pace_s >= QUICK_COMMIT_S:
                    raise TooLong
                writer.run_briefly(writer.commit)
            except TooLong:
                await store._on_thread(writer, writer.commit, held=True)
            except apsw.Error as error:
                raise writer.explain(error) from error
            store._count_pace(perf_counter() - started)
            if store._grown is not None and writer.connection.total_changes() - self._before > GROWN_ROWS:
                store._grown(writer.lock)

    def end(self) -> None:
        """End the transaction, and undo what is not committed; another task than that which began it may."""
        if self._over:
            return
        self._over = True
        if _open_transaction.get() is self:
            _open_transaction.set(self._outer[0])
            holds_file.set(self._outer[1])
        try:
            self._writer.rollback()
        except apsw.Error as error:
            raise self._writer.explain(error) from error
        finally:
            self._writer.lock.release()
            self._held.release()


class _Reads(IRelationalStore):
    """A handle that only reads; closing it leaves the store open."""

    dialect: Dialect = "sqlite"

    def __init__(self, store: SQLiteRelational) -> None:
        self._store = store

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        return await self._store._fetch(query, params, False, reads_only=True)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        found = await self._store._fetch(query, params, True, reads_only=True)
        return found[0] if found else None

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Refuse: this handle only reads."""
        raise refuse_write()

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Refuse: this handle only reads."""
        raise refuse_write()

    def transaction(self) -> Any:
        """Refuse: this handle only reads."""
        raise refuse_write()

    def limit_to_reads(self) -> IRelationalStore:
        """Return this handle."""
        return self

    async def close(self) -> None:
        """Leave the store open."""
