"""The caller's own tables, as a universe shows them: on any engine that has them, to partners only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dgent.errors import Closed, Denied
from dgent.model.polynomial import StorageOp
from dgent.store.port.relational import (
    USUAL,
    Answer,
    IRelationalStore,
    Isolation,
    Row,
    SQLRunner,
    SQLSession,
    refuse_write,
)
from dgent.store.port.statement import Dialect, Params, one, split
from dgent.universe.machine import StorageMachine, machine_of

if TYPE_CHECKING:
    from dgent.universe.universe import Universe
    from dgent.universe.views import Views

R = TypeVar("R")

Make = Callable[[], IRelationalStore]

_READS = frozenset(("select", "values", "pragma", "explain"))
KEPT = 512  # statements that are known to name no records of rooms


def _wait(query: str, params: Params | None) -> Any:
    """Have every statement go the usual way."""
    return USUAL


class _Runner:
    """Runs statements, those that name records of rooms with the records that they name."""

    def __init__(self, universe: Universe, make: Make) -> None:
        self._universe, self._make = universe, make
        self.store: IRelationalStore | None = None
        self._views: Views | None = None
        self.plain: set[str] = set()
        self._closed = False
        # Calls of an engine that can run some statements without waiting for anything.
        self.execute_now: Callable[..., Any] = _wait
        self.fetch_now: Callable[..., Any] = _wait

    def open(self) -> IRelationalStore:
        """Return the engine's store, made when it is first used."""
        if self._closed:
            raise Closed("these tables are closed", hint="open the universe again")
        if self.store is None:
            self.store = self._make()
            self.execute_now = getattr(self.store, "execute_now", _wait)
            self.fetch_now = getattr(self.store, "fetch_now", _wait)
        return self.store

    def is_plain(self, query: str) -> bool:
        """Return whether a query names no records of rooms."""
        if query in self.plain:
            return True
        store = self.open()
        if self._views is None:
            from dgent.universe.views import Views  # loads when it is used

            self._views = Views(self._universe, store.dialect)
        if self._views.find_names(split(query, store.dialect)):
            return False
        if len(self.plain) >= KEPT:
            self.plain.clear()
        self.plain.add(query)
        return True

    async def write(self, query: str, rows: Sequence[Params], runner: SQLRunner, inside: bool) -> int:
        """Run a statement that names records of rooms for each row of parameters."""
        views, dialect = self._views, self.open().dialect
        assert views is not None
        statements = split(query, dialect)
        targets = [views.find_target(each) for each in statements]
        if len(statements) > 1:
            raise Denied(
                "a statement with records of a room runs by itself", hint="run each of the statements alone"
            )
        if targets[0] is None:
            done = 0
            for params in rows:
                asked, given = await views.attach(query, params, views.find_names(statements))
                done = await runner.execute(asked, given)
            return done
        if statements[0].first == "create" and "exists" in statements[0].words[:5]:
            return 0  # it does exist
        insert = views.read_insert(query)
        if inside:
            raise Denied(
                f"a row of {targets[0]} is a commit of its own, and no part of this transaction",
                hint="insert it before or after the transaction",
            )
        return await views.insert(insert, rows, runner)

    async def attach(self, query: str, params: Params | None) -> tuple[str, Params | None]:
        """Return a query that only reads with the records of rooms that it names."""
        views = self._views
        assert views is not None
        statements = split(query, self.open().dialect)
        if any(views.find_target(each) for each in statements):
            raise Denied(
                "a statement that fetches cannot write records of a room", hint="use execute for INSERT"
            )
        return await views.attach(query, params, views.find_names(statements))

    async def close(self) -> None:
        """Close the engine's store."""
        self._closed = True
        await self.reopen()

    async def reopen(self) -> None:
        """Let go of the engine's store; the next statement makes another one."""
        store, self.store = self.store, None
        self.execute_now = self.fetch_now = _wait
        self.plain.clear()
        if store is not None:
            await store.close()


class RelationalTransaction:
    """An open transaction: `async with u.storage.relational.transaction() as tx`."""

    def __init__(self, tables: _Runner, runner: SQLRunner) -> None:
        self._tables, self._runner = tables, runner

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several, and return how many rows the last one changed."""
        if self._tables.is_plain(query):
            return await self._runner.execute(query, params)
        return await self._tables.write(query, [params or {}], self._runner, True)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters; returns how many rows were given."""
        if self._tables.is_plain(query):
            return await self._runner.execute_many(query, rows)
        await self._tables.write(query, rows, self._runner, True)
        return len(rows)

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        if not self._tables.is_plain(query):
            query, params = await self._tables.attach(query, params)
        return await self._runner.fetch_all(query, params)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        if not self._tables.is_plain(query):
            query, params = await self._tables.attach(query, params)
        return await self._runner.fetch_one(query, params)


class _Session(SQLSession):
    """A session of the engine, whose statements and transactions begin and end by the storage machine."""

    def __init__(self, tables: _Runner, machine: StorageMachine) -> None:
        self._tables, self._machine = tables, machine
        self._inner: SQLSession | None = None
        self._writes = False  # whether the machine counts the open transaction
        self.joined = False  # whether it is part of a transaction of the universe
        self.isolation: Isolation = "READ COMMITTED"

    def _open(self) -> SQLSession:
        """Return the engine's session: a new one after each transaction, since the store may be reopened."""
        if self._inner is None:
            self._inner = self._tables.open().connect_driver()  # type: ignore[attr-defined]
        self._inner.isolation = self.isolation
        return self._inner

    @property
    def is_open(self) -> bool:
        """True while a transaction is open."""
        return self._inner is not None and self._inner.is_open

    @property
    def own_names(self) -> frozenset[str]:
        """The names of dgent's own tables, in lower case."""
        return self._open().own_names

    async def run(self, query: str, params: Params | None = None) -> Answer:
        """Run one statement; the first one that writes begins a transaction."""
        if not self._tables.is_plain(query):
            if self.joined:
                raise Denied(
                    "records of a room are not read by a session in a transaction of the universe",
                    hint="read them with the transaction itself, which then notices if they change",
                )
            query, params = await self._tables.attach(query, params)
        reads = self.isolation != "SERIALIZABLE" and one(query, "sqlite").first in _READS
        return await self._guard(
            partial(self._open().run, query, params), StorageOp.READ if reads else StorageOp.WRITE
        )

    async def run_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters and return how many rows they changed."""
        if not self._tables.is_plain(query):
            raise Denied("rows of a room are not written by a driver", hint="use u.storage.relational")
        return await self._guard(partial(self._open().run_many, query, rows))

    async def mark(self, step: Literal["SAVEPOINT", "RELEASE", "ROLLBACK TO"], name: str) -> None:
        """Make, release or go back to a savepoint; the first one begins a transaction."""
        await self._guard(partial(self._open().mark, step, name))

    async def _guard(self, call: Callable[[], Awaitable[R]], op: StorageOp = StorageOp.WRITE) -> R:
        """Run a call: inside the transaction, or as an operation, which lasts as long as what it begins."""
        if self._writes:
            return await call()
        await self._machine.begin(op)
        failed: BaseException | None = None
        try:
            return await call()
        except BaseException as error:
            failed = error
            raise
        finally:
            if self.is_open:
                self._writes = True
            else:
                await self._machine.end(op, failed)

    async def commit(self) -> None:
        """Commit the transaction, if one is open; one that cannot be committed is undone."""
        if not self.is_open:
            return
        failed: BaseException | None = None
        try:
            assert self._inner is not None
            await self._inner.commit()
        except BaseException as error:
            failed = error
            raise
        finally:
            self._inner, self._writes = None, False
            await self._machine.end(StorageOp.WRITE, failed)

    def rollback(self) -> None:
        """Undo the transaction, if one is open; waits for nothing."""
        inner, self._inner = self._inner, None
        if inner is None:
            return
        inner.rollback()
        if self._writes:
            self._writes = False
            self._machine.end_soon(StorageOp.WRITE)


class RelationalStore:
    """The caller's own tables: `u.storage.relational`. Parameters are written `:name` and given by name.

    They are in the database that holds the store, unless the settings name another place. Tables of dgent
    itself cannot be read or written through it; records of the membrane are tables that can be read, and
    that INSERT adds to.
    """

    def __init__(self, universe: Universe, make: Make, *, reads_only: bool = False) -> None:
        self._universe, self._reads_only = universe, reads_only
        self._tables = _Runner(universe, make)

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQL: `sqlite` or `postgres`."""
        return self._tables.open().dialect

    # An engine knows only statements that ran there as they are, which name no records of rooms.

    def _execute_now(self, query: str, params: Params | None) -> Any:
        """Run a statement without waiting for anything; `USUAL` if that cannot be, and nothing happened."""
        return self._tables.execute_now(query, params)

    def _fetch_all_now(self, query: str, params: Params | None) -> Any:
        """Return the rows of a statement without waiting for anything; `USUAL` if that cannot be."""
        return self._tables.fetch_now(query, params)

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""
        tables = self._tables
        if tables.is_plain(query):
            return await tables.open().execute(query, params)
        self._check_writes()
        return await tables.write(query, [params or {}], tables.open(), False)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""
        tables = self._tables
        if tables.is_plain(query):
            return await tables.open().execute_many(query, rows)
        self._check_writes()
        await tables.write(query, rows, tables.open(), False)
        return len(rows)

    def _check_writes(self) -> None:
        if self._reads_only:
            raise refuse_write()

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        tables = self._tables
        if not tables.is_plain(query):
            query, params = await tables.attach(query, params)
        return await tables.open().fetch_all(query, params)

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        tables = self._tables
        if not tables.is_plain(query):
            query, params = await tables.attach(query, params)
        return await tables.open().fetch_one(query, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RelationalTransaction]:
        """Run what is done inside in one transaction; an error inside undoes all of it.

        Statements of the store itself, run in the same task, are part of it. On SQLite nobody else writes to
        the file meanwhile, the universe included: keep it short.
        """
        async with self._tables.open().transaction() as runner:
            yield RelationalTransaction(self._tables, runner)

    def limit_to_reads(self) -> RelationalStore:
        """Return a handle on the same tables that only reads."""
        make = self._tables.open
        return RelationalStore(self._universe, lambda: make().limit_to_reads(), reads_only=True)

    async def reopen(self) -> None:
        """Let go of the connections; the next statement opens new ones."""
        await self._tables.reopen()

    async def close(self) -> None:
        """Close the tables; statements under way end first."""
        await self._tables.close()


def open_session(tables: RelationalStore) -> SQLSession:
    """Return a session for a driver of SQL, whose transaction ends by a call; only SQLite has such."""
    return _Session(tables._tables, machine_of(tables._universe))


async def open_driver(tables: RelationalStore) -> Any:
    """Return a connection of Postgres' own driver, as the role of the tables; the caller closes it.

    dgent does not read what is run on it.
    """
    store: Any = tables._tables.open()
    return await store.connect_driver()
