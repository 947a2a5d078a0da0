"""The caller's own tables on Postgres: in a schema of their own, by a role that may not touch dgent's.

Both are called `<universe>_sql`. The session's role does the work; what could change the role back, or run
SQL from a text, is refused before it is sent.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import asyncpg

from dgent.errors import (
    Busy,
    Closed,
    Conflict,
    Denied,
    DgentError,
    InputError,
    OutcomeUnknown,
    QueryError,
    Unsupported,
)
from dgent.store.port.attached import ATTACHED_S, BoundStatement, RowHash, refuse_long
from dgent.store.port.relational import IRelationalStore, Row, SQLRunner, refuse_row, refuse_write, row_maker
from dgent.store.port.statement import Dialect, Params, Statement, bind, one, split
from dgent.store.postgres import errors
from dgent.store.postgres.address import Address
from dgent.store.postgres.format import queue_up
from dgent.store.postgres.pool import Pool

R = TypeVar("R")

KEPT = 512
FETCHED = 1000  # rows that a commit fetches at once, to compare them with those that were read
_READS = frozenset(("select", "values", "table", "explain", "show"))
# They end or change the session, run SQL from a text, or work with files of the server.
_COMMANDS = frozenset(
    (
        *("set", "reset", "discard", "do", "call", "copy", "load", "listen", "unlisten", "notify"),
        *("prepare", "execute", "deallocate", "declare", "fetch", "move", "close", "checkpoint", "reassign"),
    )
)
_DEFINES = frozenset(
    ("function", "procedure", "extension", "language", "role", "user", "database", "aggregate", "operator")
)
# They change the role, run SQL from a text that could, use files, or lock for longer than a transaction.
# They are looked for in all of the SQL, quotes and comments too: a reader that errs must not open the way.
_FUNCTIONS = re.compile(
    r"set_config|pg_settings|(?:query|cursor)_to_xml\w*|ts_stat|ts_rewrite|crosstab\w*|connectby|xpath_table"
    r"|dblink\w*|pg_notify|(?<!\w)lo_\w+|(?<!\w)lo(?:read|write)|pg_temp\w*|pg_(?:try_)?advisory_(?:un)?lock(?:_shared|_all)?(?!\w)"
    r"|u&\"",
    re.IGNORECASE,
)


def role_of(universe: str) -> str:
    """Return the name of the role that runs statements of callers, and of the schema of their tables."""
    return f"{universe}_sql"


def check_statement(statement: Statement, universe: str) -> None:
    """Refuse a statement that could leave the role it runs as, or that names dgent's own schema."""
    first, words = statement.first, statement.words
    if first in _COMMANDS:
        raise Denied(f"{first.upper()} is not run as a statement", hint=_hint(first))
    if first in ("create", "alter", "drop"):
        made = next((word for word in words[1:5] if word in _DEFINES), None)
        if made is not None:
            raise Denied(
                f"{first.upper()} {made.upper()} is not run as a statement",
                hint="do it with your own login, and grant its use to the role",
            )
    if _makes_temporary(words):
        raise Denied(
            "temporary tables are not kept between statements",
            hint="others get the connection next: make a table, or use WITH",
        )
    if found := _FUNCTIONS.search(statement.sql):
        raise Denied(
            f"{found[0]} is not allowed in a statement, nor in a text or a comment of it",
            hint="it could run as another role, or outlast the statement; a text can be given as a parameter",
        )
    if universe in statement.names_used:
        raise Denied(
            f"the schema {universe} belongs to dgent",
            hint="read and write records with the universe's own calls; call a table or column otherwise",
        )


def _makes_temporary(words: Sequence[str]) -> bool:
    """Return whether a statement makes a table, view or sequence that lasts as long as its session."""
    for at, word in enumerate(words):
        if word in ("temp", "temporary"):
            before = [each for each in words[max(0, at - 4) : at] if each not in ("global", "local")]
            if before[-1:] == ["into"] or before in (["create"], ["create", "or", "replace"]):
                return True
    return False


def _hint(first: str) -> str:
    if first in ("set", "reset", "discard"):
        return "the settings of the session are dgent's"
    return "use your own login for it" if first != "copy" else "use `execute_many`"


async def prepare(connection: asyncpg.Connection, universe: str) -> None:
    """Make the role and the schema of the caller's tables, unless they are there; check both."""
    role = role_of(universe)
    state = await connection.fetchrow(_STATE, role, universe)
    if not (state["role"] and state["schema"] and state["member"]):
        async with connection.transaction():
            await queue_up(connection, f"sql.{universe}")
            state = await connection.fetchrow(_STATE, role, universe)
            await _create(connection, role, state)
            state = await connection.fetchrow(_STATE, role, universe)
    if state["strong"]:
        raise Denied(
            f"the role {role} may use the tables of the universe {universe!r}",
            hint=f'take its rights away: REVOKE ALL ON SCHEMA "{universe}" FROM "{role}", and from PUBLIC',
        )
    if state["taken"]:
        raise Denied(f"the schema {role} holds a universe of dgent", hint="give the universe another name")


async def _create(connection: asyncpg.Connection, role: str, state: Any) -> None:
    """Create what is missing; Denied with the SQL for an administrator where that is not allowed."""
    steps = []
    if not state["role"]:
        steps.append(f'CREATE ROLE "{role}" NOLOGIN')
    if not state["member"]:
        steps.append(f'GRANT "{role}" TO "{state["me"]}"')
    if not state["schema"]:
        steps.append(f'CREATE SCHEMA "{role}" AUTHORIZATION "{role}"')
    try:
        async with connection.transaction():
            for step in steps:
                await connection.execute(step)
    except asyncpg.InsufficientPrivilegeError as error:
        raise Denied(
            f"the role {role} for your own tables cannot be made: {error}",
            hint=f"let an administrator run once: {'; '.join(steps)}",
        ) from None


# A role without the right to use a schema can touch nothing in it; a superuser is asked as if they had it.
_STATE = """
SELECT current_user::text AS me,
    EXISTS (SELECT FROM pg_roles WHERE rolname = $1) AS role,
    EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS schema,
    coalesce((SELECT pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles WHERE rolname = $1), false)
        AS member,
    coalesce((SELECT rolsuper OR has_schema_privilege(r.oid, n.oid, 'USAGE')
            OR pg_has_role(r.oid, n.nspowner, 'MEMBER')
        FROM pg_roles r, pg_namespace n WHERE r.rolname = $1 AND n.nspname = $2), false) AS strong,
    (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname IN ('meta', 'clock')) = 2 AS taken
"""


async def run_attached(
    connection: asyncpg.Connection, statements: Sequence[BoundStatement], address: Address
) -> None:
    """Run statements of a commit in its transaction, as the role of callers until that ends."""
    role = role_of(address.universe)
    await connection.execute(
        f"SET LOCAL statement_timeout TO {int(ATTACHED_S * 1000)};"
        f' SET LOCAL ROLE "{role}"; SET LOCAL search_path TO "{role}", public'
    )
    for each in statements:
        found = None if each.answer is None else each.answer.hash()
        try:
            changed = await _run_attached(connection, each, found)
        except (*errors.FAILURES, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, errors.FAILURES) and errors.is_gone(error):
                raise  # the writer finds out whether the commit happened
            if getattr(error, "sqlstate", None) == "57014":
                raise refuse_long() from None
            raise each.explain(explain(error, address.place)) from None
        each.check(changed, found)


async def _run_attached(connection: asyncpg.Connection, each: BoundStatement, found: RowHash | None) -> int:
    """Run a statement of a commit, hash its rows, and return how many it changed."""
    statement = each.statement
    if each.is_mark:
        await connection.execute(statement.sql)
        return 0
    changed = 0
    for params in (each.params, *each.more):
        values = _values(statement, params)
        if found is None:
            changed += _count(await _execute(connection, statement, values))
            continue
        assert each.answer is not None
        if each.answer.length > FETCHED:
            async for row in connection.cursor(statement.sql, *values, prefetch=FETCHED):
                found.add((_decode(row, each.answer.json),))
        else:
            rows = await connection.fetch(statement.sql, *values)
            found.add(_decode(row, each.answer.json) for row in rows)
    return changed if found is None else found.count


def _decode(row: Sequence[Any], columns: frozenset[int]) -> Sequence[Any]:
    """Return a row with some of its columns decoded from JSON."""
    if not columns:
        return row
    return [_decode_json(value) if at in columns else value for at, value in enumerate(row)]


def _decode_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode_json(each) for each in value]
    return value if value is None else json.loads(value)


def explain(error: BaseException, place: str) -> Exception:
    """Return the error to raise for one of the driver's."""
    state = getattr(error, "sqlstate", None) or ""
    text = " ".join(str(error).split())
    if isinstance(error, asyncpg.DataError | TypeError) or state.startswith("22"):
        return InputError(text, hint="give the type that the column has, or write CAST(:name AS type)")
    if state.startswith("23"):
        return refuse_row(text)
    if state == "2BP01":
        return Conflict(text, hint="drop what depends on it first")
    if state.startswith("42") and state != "42501":
        return QueryError(text, field="query")
    if state == "42501":
        return Denied(text, hint="statements run as a role of their own; grant it what it needs")
    if state == "25006":
        return refuse_write()
    if state in ("40001", "40P01"):
        return Conflict(text, hint="run the transaction again")
    return errors.translate(error, place)


_open_transaction: ContextVar[SQLTransaction | None] = ContextVar("dgent_pg_sql", default=None)


class PostgresRelational(IRelationalStore):
    """Tables in the schema `<universe>_sql` of a Postgres database.

    `admin` is the pool of the store, which makes role and schema. Without one the address has a login of
    its own, and that is the role.
    """

    dialect: Dialect = "postgres"

    def __init__(self, address: Address, admin: Pool | None, *, reads_only: bool = False) -> None:
        self._address, self._admin, self._reads_only = address, admin, reads_only
        self._role = role_of(address.universe)
        settings = {"application_name": "dgent sql"}
        if not address.pgbouncer:
            settings["search_path"] = f'"{self._role}", public'
            # A cancelled call closes its connection; the server would go on with the statement for ever.
            settings["client_connection_check_interval"] = "500ms"
            if admin is not None:
                settings["role"] = self._role
            if reads_only:
                settings["default_transaction_read_only"] = "on"
        self._pool = Pool(address, address.dsn, settings=settings)
        self._readers: list[PostgresRelational] = []
        self._known: dict[str, Statement] = {}  # statements that were checked
        self._ready = admin is None
        self._preparing = asyncio.Lock()
        self._closed = False

    async def _prepare(self) -> None:
        if self._closed:
            raise Closed("these tables are closed", hint="open them again")
        async with self._preparing:
            if self._admin is not None and not self._ready:
                await self._admin.call(lambda connection: prepare(connection, self._address.universe))
            self._ready = True

    # -- statements -----------------------------------------------------------------------

    def check(self, query: str) -> Statement:
        """Return the one statement of a query, if it may be run."""
        found = self._known.get(query)
        return self.check_each(one(query, "postgres"), query) if found is None else found

    def check_each(self, statement: Statement, query: str | None = None) -> Statement:
        """Return a statement, if it may be run; with `query` it is not checked again."""
        check_statement(statement, self._address.universe)
        statement.writes = statement.first not in _READS
        if query is not None:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[query] = statement
        return statement

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        statement = self.check(query)
        values = _values(statement, params)
        return rows_of(
            await self._run(statement, lambda connection: connection.fetch(statement.sql, *values))
        )

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        statement = self.check(query)
        values = _values(statement, params)
        row = await self._run(statement, lambda connection: connection.fetchrow(statement.sql, *values))
        return None if row is None else rows_of([row])[0]

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""
        statements = split(query, "postgres")
        if len(statements) > 1:
            async with self.transaction() as tx:
                return await tx.execute(query, params)
        statement = self.check(query)
        values = _values(statement, params)
        return _count(await self._run(statement, lambda connection: _execute(connection, statement, values)))

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""
        async with self.transaction() as tx:
            return await tx.execute_many(query, rows)

    async def _run(self, statement: Statement, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        """Run work on a connection; only reads are repeated when it breaks."""
        inside = _open_transaction.get()
        if inside is not None and inside.belongs_to(self):
            return await inside.run(work)
        if not self._ready or self._closed:
            await self._prepare()
        if self._address.pgbouncer:
            async with self.transaction() as tx:
                assert isinstance(tx, SQLTransaction)
                return await tx.run(work)
        connection = self._pool.take_idle()
        if connection is None:
            if not statement.writes:
                return await self._pool.call(lambda connection: self._run_explained(work, connection))
            connection = await self._take()
        try:
            answer = await work(connection)
        except asyncpg.PostgresError as error:
            self._give_back(connection, error)
            if errors.is_gone(error) and not statement.writes:
                return await self._pool.call(lambda connection: self._run_explained(work, connection))
            raise explain(error, self._address.place) from None
        except BaseException as error:
            self._pool.drop(connection)
            if isinstance(error, errors.FAILURES) and errors.is_gone(error) and not statement.writes:
                return await self._pool.call(lambda connection: self._run_explained(work, connection))
            raise self._explain_loss(error) from None
        self._pool.give(connection)
        return answer

    async def _run_explained(self, work: Callable[[asyncpg.Connection], Awaitable[R]], connection: Any) -> R:
        try:
            return await work(connection)
        except errors.FAILURES as error:
            if errors.is_gone(error):
                raise  # the pool tries again elsewhere
            raise explain(error, self._address.place) from None

    def _explain_loss(self, error: BaseException) -> BaseException:
        if isinstance(error, asyncio.CancelledError | DgentError) or not isinstance(error, Exception):
            return error
        if isinstance(error, asyncpg.DataError | TypeError | ValueError | OverflowError):
            return explain(error, self._address.place)  # of the driver, before anything was sent
        if isinstance(error, errors.FAILURES) and errors.is_gone(error):
            return OutcomeUnknown(
                f"{self._address.place} did not say whether the statement was done",
                hint="read the table to find out; statements of a transaction are done when it has ended",
            )
        return explain(error, self._address.place)

    def _give_back(self, connection: asyncpg.Connection, error: BaseException) -> None:
        if errors.is_gone(error) or connection.is_closed() or connection.is_in_transaction():
            self._pool.drop(connection)
        else:
            self._pool.give(connection)

    async def _take(self) -> asyncpg.Connection:
        """Return a connection; one that cannot be had in time is Busy or Unavailable."""
        try:
            async with asyncio.timeout(self._address.timeout):
                return await self._pool.take()
        except TimeoutError:
            raise Busy(
                f"all {self._address.pool} connections were in use for {self._address.timeout:g} s",
                hint="raise `pool=` in the URL, or do less at once",
            ) from None
        except errors.FAILURES as error:
            raise errors.translate(error, self._address.place) from None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLRunner]:
        """Run what is done inside in one transaction; an error inside undoes all of it."""
        inside = _open_transaction.get()
        if inside is not None and inside.belongs_to(self):
            yield inside  # one transaction; what is done here is done with the outer one
            return
        if not self._ready or self._closed:
            await self._prepare()
        connection = self._pool.take_idle() or await self._take()
        token = None
        made = SQLTransaction(self, connection, self._address.place)
        try:
            await made.begin(self._local_settings())
            token = _open_transaction.set(made)
            yield made
            await made.commit()
        finally:
            if token is not None:
                _open_transaction.reset(token)
            await made.end()
            if connection.is_closed() or connection.is_in_transaction():
                self._pool.drop(connection)
            else:
                self._pool.give(connection)

    def _local_settings(self) -> str | None:
        """Return what a transaction begins with, where a pooler keeps no settings of a session."""
        if not self._address.pgbouncer:
            return None
        role = f'SET LOCAL ROLE "{self._role}"; ' if self._admin is not None else ""
        only = "SET TRANSACTION READ ONLY; " if self._reads_only else ""
        return f'{only}{role}SET LOCAL search_path TO "{self._role}", public'

    async def connect_driver(self) -> asyncpg.Connection:
        """Return a connection of the driver, as the role of these tables; the caller closes it."""
        if self._address.pgbouncer:
            raise Unsupported(
                "behind PgBouncer a connection keeps no role", hint="give a URL of the server itself"
            )
        if not self._ready or self._closed:
            await self._prepare()
        try:
            return await self._pool.connect()
        except errors.FAILURES as error:
            raise errors.translate(error, self._address.place) from None

    def limit_to_reads(self) -> IRelationalStore:
        """Return a handle on the same tables that only reads, with connections of its own."""
        if self._reads_only:
            return self
        made = PostgresRelational(self._address, self._admin, reads_only=True)
        self._readers.append(made)
        return made

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for each in self._readers:
            await each.close()
        await self._pool.close()


class SQLTransaction:
    """An open transaction on one connection; its statements run one after another."""

    def __init__(
        self,
        store: PostgresRelational,
        connection: asyncpg.Connection,
        place: str,
    ) -> None:
        self._store, self._connection, self._place = store, connection, place
        self._transaction = connection.transaction()
        self._turn = asyncio.Lock()
        self._over = False
        self._sent = False  # whether it may be committed

    def belongs_to(self, store: PostgresRelational) -> bool:
        """Return whether this is the open transaction of a store."""
        return self._store is store and not self._over

    async def begin(self, settings: str | None) -> None:
        """Begin the transaction, with settings that end with it."""
        try:
            await self._transaction.start()
            if settings is not None:
                await self._connection.execute(settings)
        except errors.FAILURES as error:
            raise errors.translate(error, self._place) from None

    async def run(self, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        """Run work on the connection; an error of the server ends the transaction's use."""
        async with self._turn:
            if self._over:
                raise Closed("this transaction is over", hint="start another one")
            try:
                return await work(self._connection)
            except (*errors.FAILURES, TypeError, ValueError, OverflowError) as error:
                raise explain(error, self._place) from None

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several, and return how many rows the last one changed."""
        done = ""
        for each in split(query, "postgres"):
            statement = self._store.check_each(each)
            values = _values(statement, params)
            done = await self.run(partial(_execute, statement=statement, values=values))
        return _count(done)

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters; returns how many rows were given."""
        statement = self._store.check(query)
        given = [_values(statement, row) for row in rows]
        await self.run(lambda connection: connection.executemany(statement.sql, given))
        return len(given)

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        statement = self._store.check(query)
        values = _values(statement, params)
        return rows_of(await self.run(lambda connection: connection.fetch(statement.sql, *values)))

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        statement = self._store.check(query)
        values = _values(statement, params)
        row = await self.run(lambda connection: connection.fetchrow(statement.sql, *values))
        return None if row is None else rows_of([row])[0]

    async def commit(self) -> None:
        """Commit; the outcome is unknown if the connection breaks meanwhile."""
        async with self._turn:
            self._over = self._sent = True
            try:
                await self._transaction.commit()
            except errors.FAILURES as error:
                if errors.is_gone(error) and self._connection.is_closed():
                    raise OutcomeUnknown(
                        f"{self._place} did not say whether the transaction was committed",
                        hint="read the tables to find out",
                    ) from None
                raise explain(error, self._place) from None

    async def end(self) -> None:
        """Undo what is not committed."""
        self._over = True
        if not self._sent and not self._connection.is_closed() and self._connection.is_in_transaction():
            try:
                await self._transaction.rollback()
            except errors.FAILURES:
                self._connection.terminate()


def rows_of(records: Sequence[Any]) -> list[Row]:
    """Return records as dicts by column."""
    if records:
        row_maker(list(records[0].keys()))
    return [dict(record) for record in records]


def _values(statement: Statement, params: Params | None) -> list[Any]:
    given = bind(statement, params)
    return [] if given is None else [given[name] for name in statement.names]


async def _execute(connection: asyncpg.Connection, statement: Statement, values: Sequence[Any]) -> str:
    done: str
    if values:
        done = await connection.execute(statement.sql, *values)
        return done
    # Without parameters `execute` would run a text of several statements, which were not checked.
    prepared = await connection.prepare(statement.sql)
    await prepared.fetch()
    done = prepared.get_statusmsg()
    return done


def _count(status: str) -> int:
    number = status.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0
