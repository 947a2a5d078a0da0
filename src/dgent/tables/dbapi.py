"""A DB-API driver over sessions of the relational port, for SQLAlchemy: it awaits through greenlets.

There is one SQLite library in a process: this driver has no connections of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from sqlalchemy.util import await_only

from dgent.errors import DgentError
from dgent.store import registry
from dgent.store.port.relational import Answer, IRelationalStore, SQLSession
from dgent.tables.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    translate,
)

R = TypeVar("R")

apilevel, threadsafety, paramstyle = "2.0", 0, "named"
sqlite_version_info = (3, 51, 3)  # the oldest that dgent takes
sqlite_version = "3.51.3"

Binary = bytes


def wait(awaitable: Awaitable[R]) -> R:
    """Await from a greenlet; dgent's errors become the driver's."""
    try:
        return await_only(awaitable)
    except DgentError as error:
        raise translate(error) from error


_PLACES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ | (?P<next>\?)""",
    re.VERBOSE | re.DOTALL,
)
_NUMBERS = re.compile(
    r"""[eE]'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
      | \$(?P<tag>(?:[^\W\d]\w*)?)\$ .*? \$(?P=tag)\$ | \$(?P<number>\d+)""",
    re.VERBOSE | re.DOTALL,
)


def name_places(query: str, params: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement with parameters by name, as the port takes them, for one that has them as `?`."""
    numbers = count(1)
    named = _PLACES.sub(lambda found: f":p{next(numbers)}" if found["next"] else found[0], query)
    return named, _name_values(params)


def name_numbers(query: str, params: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement with parameters by name for one of Postgres, which has them as `$1`."""
    named = _NUMBERS.sub(lambda found: f":p{found['number']}" if found["number"] else found[0], query)
    return named, _name_values(params)


def _name_values(params: Sequence[Any]) -> dict[str, Any]:
    return {f"p{number}": value for number, value in enumerate(params, 1)}


class Cursor:
    """Runs statements, and holds all rows of the last one."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection.session
        self._rows: deque[Any] = deque()  # by the name that cursors of SQLAlchemy's own drivers have
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    def execute(self, query: str, params: Mapping[str, Any] | Sequence[Any] = ()) -> Cursor:
        """Run one statement; parameters are `:name` with a mapping, or `?` with a sequence."""
        if params and not isinstance(params, Mapping):
            query, params = name_places(query, params)
        answer: Answer = wait(self._session.run(query, params or None))  # type: ignore[arg-type]
        if answer.names:
            self.description = [(name, None, None, None, None, None, None) for name in answer.names]
            self.rowcount = answer.changed or -1
        else:
            self.description = None
            self.rowcount = answer.changed
        self._rows = deque(answer.rows)
        self.lastrowid = answer.last_id
        return self

    def executemany(self, query: str, rows: Sequence[Mapping[str, Any]]) -> Cursor:
        """Run one statement for each row of parameters."""
        self.rowcount = wait(self._session.run_many(query, rows))
        self.description, self._rows = None, deque()
        return self

    def fetchone(self) -> Any:
        """Return the next row; None after the last one."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return the next rows, at most `size` of them."""
        wanted = min(self.arraysize if size is None else size, len(self._rows))
        return [self._rows.popleft() for _ in range(wanted)]

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def __iter__(self) -> Iterator[Any]:
        while self._rows:
            yield self._rows.popleft()

    def setinputsizes(self, *sizes: Any) -> None:
        """Do nothing: SQLite asks for no sizes."""

    def setoutputsize(self, *sizes: Any) -> None:
        """Do nothing: SQLite asks for no sizes."""

    async def _async_soft_close(self) -> None:
        """Do nothing: the rows are held here, and no statement is open."""

    def close(self) -> None:
        """Drop the rows."""
        self._rows.clear()


class Connection:
    """A session of the relational port as a connection of a driver."""

    def __init__(self, session: SQLSession, release: Callable[[], Awaitable[None]] | None = None) -> None:
        self.session = session
        self._release = release
        self._closed = False

    @property
    def driver_connection(self) -> SQLSession:
        """The session itself."""
        return self.session

    def run_async(self, work: Callable[[SQLSession], Awaitable[R]]) -> R:
        """Run async work on the session."""
        return wait(work(self.session))

    def cursor(self) -> Cursor:
        """Return a cursor."""
        if self._closed:
            raise InterfaceError("this connection is closed")
        return Cursor(self)

    def execute(self, query: str, params: Mapping[str, Any] = {}) -> Cursor:  # never changed
        """Run one statement with a new cursor."""
        return self.cursor().execute(query, params)

    def mark(self, step: str, name: str) -> None:
        """Make, release or go back to a savepoint."""
        wait(self.session.mark(step, name))  # type: ignore[arg-type]

    def commit(self) -> None:
        """Commit the transaction, if one is open."""
        if self.session.is_open:
            wait(self.session.commit())

    def rollback(self) -> None:
        """Undo the transaction, if one is open."""
        try:
            self.session.rollback()
        except DgentError as error:
            raise translate(error) from error

    def close(self) -> None:
        """Undo the open transaction, and leave the tables; the last connection of a file closes it."""
        release = self._close()
        if release is not None:
            wait(release())

    def terminate(self) -> None:
        """Close where nothing can be awaited: what is left to do is done by the loop."""
        release = self._close()
        if release is not None:
            _hold(asyncio.get_running_loop().create_task(release()))  # type: ignore[arg-type]

    def _close(self) -> Callable[[], Awaitable[None]] | None:
        release, self._release = self._release, None
        if not self._closed:
            self._closed = True
            self.rollback()
        return release


_ending: set[asyncio.Task[Any]] = set()


def _hold(task: asyncio.Task[Any]) -> None:
    _ending.add(task)
    task.add_done_callback(_ending.discard)


class _Shared:
    """The tables of one file, shared by the connections of a loop; the last one closes them."""

    def __init__(self, store: IRelationalStore, key: tuple[int, str]) -> None:
        self.store, self.key, self.users = store, key, 0

    async def release(self) -> None:
        self.users -= 1
        if not self.users:
            _shared.pop(self.key, None)
            await self.store.close()


_shared: dict[tuple[int, str], _Shared] = {}


def connect(url: str = "memory:", *, session: SQLSession | None = None) -> Connection:
    """Return a connection to the tables of a session, or of a file; runs inside of a greenlet."""
    if session is not None:
        return Connection(session)
    try:
        key = (id(asyncio.get_running_loop()), url)
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = _Shared(registry.relational_for(url), key)
        shared.users += 1
        made: Any = shared.store
        return Connection(made.connect_driver(), shared.release)
    except DgentError as error:
        raise translate(error) from error


__all__ = [
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "connect",
]
