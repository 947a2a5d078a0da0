"""A connection of a SQLite file for statements of callers, under an authorizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any, TypeVar

import apsw

from dgent.errors import Corrupt, Denied
from dgent.store.port.relational import Answer, Row, row_maker
from dgent.store.port.statement import Params, Statement, one
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.authorizer import Authorizer, check_names, check_references, explain, explain_value
from dgent.store.sqlite.connection import Patience, connect

R = TypeVar("R")

_MEMORY_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
LOOP_STEPS = 4_000  # of SQLite's machine, between two looks at the time that a statement takes on the loop
LOOP_BUDGET_S = 0.002  # of the processor; a statement that takes longer begins anew on a thread
LOOP_LENGTH = 1 << 16  # bytes of a text or a row; a function that makes longer ones takes long at a stretch
KEPT = 512  # statements, by their texts
DEFINE = frozenset(("create", "alter", "drop", "analyze", "reindex"))
_NEW_EACH_TIME = DEFINE | {"pragma"}
_CHANGE = frozenset(("insert", "update", "delete", "replace", "with"))


def keep(kept: dict[str, R], query: str, value: R) -> None:
    """Keep what is known of a statement; after many of them all are learnt anew."""
    if len(kept) >= KEPT:
        kept.clear()
    kept[query] = value


class TooLong(TimeoutError):
    """A statement that ran on the loop used up its time."""


class SQLConnection:
    """A connection for statements of callers; its lock is held while one runs, or a transaction is open."""

    def __init__(self, path: str, durability: str, own: frozenset[str], reads_only: bool) -> None:
        self.lock = threading.Lock()
        self.place = path
        self.patience = Patience()
        self.authorizer = Authorizer(own, reads_only)
        self.connection = self._connect(path, durability)
        self._until = 0.0
        self._names: dict[str, Sequence[str]] = {}  # of the columns of answers, by the statement
        self.connection.set_progress_handler(self._is_over, LOOP_STEPS)
        self.connection.authorizer = self.authorizer
        self._longest = self.connection.limit(apsw.SQLITE_LIMIT_LENGTH)
        self.limit_length(True)

    def limit_length(self, brief: bool) -> None:
        """Set how long a text or a row may be: little while statements run on the loop.

        SQLite looks at the time between the steps of its machine, and a call of a function is one step.
        """
        self.connection.limit(apsw.SQLITE_LIMIT_LENGTH, LOOP_LENGTH if brief else self._longest)

    def _connect(self, path: str, durability: str) -> apsw.Connection:
        if path.startswith("file:"):
            made = apsw.Connection(path, flags=_MEMORY_FLAGS, statementcachesize=128)
        else:
            made = connect(path, durability, wait=True)
        try:
            made.set_busy_handler(self.patience)
            made.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            made.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            made.close()
            raise
        return made

    def _is_over(self) -> bool:
        """Return whether a statement on the loop has used up its time; SQLite then ends it."""
        patience = self.patience
        if patience.looks < 0:
            return False  # it may take as long as it takes
        patience.looks += 1
        if patience.looks == 1:
            self._until = thread_time() + LOOP_BUDGET_S
            return False
        return thread_time() > self._until

    def run_briefly(self, work: Callable[[], R]) -> R:
        """Run work on the loop's thread: it waits for nobody, and has little time."""
        self.patience.looks = 0
        try:
            return work()
        except (apsw.InterruptError, apsw.BusyError, apsw.TooBigError):
            raise TooLong from None
        finally:
            self.patience.looks = -1

    # -- statements -----------------------------------------------------------------------

    def fetch(self, statement: Statement, params: Params | None, first: bool = False) -> list[Row]:
        """Return the rows of a statement; with `first` at most one."""
        try:
            cursor = self._start(statement, params)
            names = row_maker([column[0] for column in cursor.get_description()])
            if first:
                row: Any = cursor.fetchone()
                cursor.close(True)
                return [] if row is None else [dict(zip(names, row, strict=True))]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except apsw.ExecutionCompleteError:
            return []  # it has no rows to give
        except apsw.Error as error:
            raise self.explain(error) from error

    def _start(self, statement: Statement, params: Params | None) -> apsw.Cursor:
        self.authorizer.defines, self.authorizer.refusal = statement.first in DEFINE, None
        try:
            if statement.first == "pragma":  # it answers by what the connection knows of the tables
                self.connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
                return self.connection.execute(statement.sql, params, can_cache=False)
            return self.connection.execute(statement.sql, params)
        except (TypeError, OverflowError, UnicodeEncodeError) as error:
            raise explain_value(error, params) from None

    def run(self, statement: Statement, params: Params | None) -> int:
        """Run a statement and return how many rows it changed."""
        before = self.connection.total_changes()
        try:
            for _row in self._start(statement, params):
                pass
        except apsw.Error as error:
            raise self.explain(error) from error
        changed = statement.first in _CHANGE and self.connection.total_changes() != before
        return self.connection.changes() if changed else 0

    def answer(self, statement: Statement, params: Params | None) -> Answer:
        """Run a statement and return all that a driver of SQL is asked for."""
        connection, names = self.connection, self._names.get(statement.sql)
        before = connection.total_changes()
        try:
            if names is None:
                cursor, names = self._describe(statement, params)
            else:
                cursor = self._start(statement, params)
            rows: list[Any] = cursor.fetchall()
        except apsw.Error as error:
            raise self.explain(error) from error
        changed = connection.changes() if connection.total_changes() != before else 0
        return Answer(names, rows, changed, connection.last_insert_rowid())

    def _describe(self, statement: Statement, params: Params | None) -> tuple[apsw.Cursor, Sequence[str]]:
        """Start a statement, and learn the names of its columns, which no rows do not tell."""
        found: list[Sequence[str]] = []

        def look(cursor: apsw.Cursor, _sql: str, _params: object) -> bool:
            found.append(tuple(column[0] for column in cursor.get_description()))
            return True

        self.connection.exec_trace = look
        try:
            cursor = self._start(statement, params)
        finally:
            self.connection.exec_trace = None
        if "*" not in statement.sql and statement.first not in _NEW_EACH_TIME:
            keep(self._names, statement.sql, found[0])
        return cursor, found[0]

    def define(self, statement: Statement, params: Params | None) -> int:
        """Run a statement that changes tables; undone if the file would not be a valid store after it."""
        return self.define_by(lambda: self.run(statement, params))

    def define_by(self, work: Callable[[], R]) -> R:
        """Run work that changes tables; undone if the file would not be a valid store after it."""
        self._own("SAVEPOINT dgent")
        try:
            done = work()
            self.check_store()
        except BaseException:
            if self.connection.in_transaction:
                self._own("ROLLBACK TO dgent")
                self._own("RELEASE dgent")
            raise
        self._own("RELEASE dgent")
        return done

    def check_store(self) -> None:
        """Raise Denied if the file would not be a valid store as it is now."""
        if not self.authorizer.own:
            return
        before, self.authorizer.passes = self.authorizer.passes, True
        try:
            storage.check_harmless(self.connection, self.place)
            storage.check_tables(self.connection, self.place)
            check_references(self.connection)
            check_names(self.connection)
        except Corrupt as error:
            raise Denied(
                f"{error.message}, so it was not made", hint="name the table without quotes and comments"
            ) from None
        finally:
            self.authorizer.passes = before

    def run_judged(self, sql: str) -> None:
        """Run a statement of the caller's amid dgent's own, where it may do what callers may."""
        before, self.authorizer.passes = self.authorizer.passes, False
        try:
            self.run(one(sql, "sqlite"), None)
        finally:
            self.authorizer.passes = before

    def _own(self, sql: str) -> None:
        """Run one of dgent's own statements."""
        self.authorizer.passes = True
        try:
            self.connection.execute(sql)
        finally:
            self.authorizer.passes = False

    def mark(self, step: str, name: str) -> None:
        """Make, release or go back to a savepoint of the caller's."""
        quoted = name.replace('"', '""')
        self._own(f'{step} "{quoted}"')

    def begin(self) -> None:
        """Begin a transaction that may write; waits for others that do."""
        self._own("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction."""
        self._own("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if SQLite has not done that already."""
        if self.connection.in_transaction:
            self._own("ROLLBACK")

    def explain(self, error: apsw.Error) -> Exception:
        """Return the error to raise for one of SQLite's."""
        if isinstance(error, apsw.TooBigError):
            return error  # on a thread there is more room; who runs it there translates it
        return explain(error, self.authorizer.refusal, self.place)
