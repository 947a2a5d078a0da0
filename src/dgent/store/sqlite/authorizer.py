"""The limits of callers' SQL in a store's file: anything with their own tables, nothing with dgent's.

SQLite asks the authorizer about every table, column and action when it prepares a statement, including
those of triggers, views, foreign keys and virtual tables. So no spelling of a statement gets around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import Any

import apsw

from dgent.errors import Denied, InputError, QueryError
from dgent.store.port.attached import ATTACHED_S, BoundStatement, refuse_long
from dgent.store.port.relational import RESERVED, refuse_row
from dgent.store.port.statement import Params, is_plain
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import translate

_TABLE_WRITES = (apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE)
_MAKES = {
    apsw.SQLITE_CREATE_TABLE: "table",
    apsw.SQLITE_CREATE_VIEW: "view",
    apsw.SQLITE_CREATE_VTABLE: "table",
    apsw.SQLITE_CREATE_INDEX: "index",
    apsw.SQLITE_CREATE_TRIGGER: "trigger",
}
_DROPS = (
    apsw.SQLITE_DROP_TABLE,
    apsw.SQLITE_DROP_VTABLE,
    apsw.SQLITE_DROP_VIEW,
    apsw.SQLITE_DROP_INDEX,
    apsw.SQLITE_DROP_TRIGGER,
)
_TEMPORARY = (
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
    apsw.SQLITE_DROP_TEMP_INDEX,
    apsw.SQLITE_DROP_TEMP_TABLE,
    apsw.SQLITE_DROP_TEMP_TRIGGER,
    apsw.SQLITE_DROP_TEMP_VIEW,
)
_MODULES = frozenset(("fts5", "fts5vocab", "rtree", "rtree_i32", "geopoly"))
# They read about a table, and change nothing. SQLite itself asks for the last two.
_PRAGMAS = frozenset(
    (
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
        *("foreign_key_list", "foreign_key_check", "function_list", "collation_list", "compile_options"),
        *("quick_check", "data_version"),
    )
)
_STEPS = 50_000  # of SQLite's machine, between two looks at the time that statements of a commit take
_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer"))
_INSIDE = frozenset(("dbstat", "sqlite_dbpage", "sqlite_stmt", "sqlite_ptrmap"))


@cache
def list_own_names() -> frozenset[str]:
    """Return the names of dgent's own tables and indexes."""
    names = (name.lower() for _kind, name in storage.own_objects())
    return frozenset(name for name in names if not name.startswith("sqlite_"))


class Authorizer:
    """Decides for one connection; `refusal` is the reason of the last no.

    `passes` while dgent's own statements run, `defines` while a statement does that changes tables. With
    `reads_only` a statement that changes anything is refused, and `wrote` says so.
    """

    def __init__(self, own: frozenset[str], reads_only: bool) -> None:
        self.own, self.reads_only = own, reads_only
        self.passes = self.defines = self.wrote = False
        self.refusal: Denied | None = None

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, inner: str | None
    ) -> int:
        if self.passes or action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE):
            return apsw.SQLITE_OK
        self.refusal = self._judge(action, first or "", second or "")
        return apsw.SQLITE_OK if self.refusal is None else apsw.SQLITE_DENY

    def _judge(self, action: int, first: str, second: str) -> Denied | None:
        if action == apsw.SQLITE_READ:
            return self._judge_table(first)
        if action == apsw.SQLITE_FUNCTION:
            return _refuse(f"the function {second} is not allowed") if second in _FUNCTIONS else None
        if action == apsw.SQLITE_PRAGMA:
            if first.lower() in _PRAGMAS or (first.lower() == "page_size" and not second):
                return None  # an R-tree asks for the size of a page
            return _refuse(f"PRAGMA {first} is not allowed", "it is a setting of the whole store")
        if self.reads_only:
            self.wrote = True
            return _refuse("the statement changes something")
        if action in _TABLE_WRITES:
            if first.lower().startswith("sqlite_") and not self.defines:
                return _refuse(f"the table {first} belongs to SQLite")
            return self._judge_table(first)
        return self._judge_definition(action, first, second)

    def _judge_table(self, name: str) -> Denied | None:
        lower = name.lower()
        if lower in self.own or lower in _INSIDE:
            return _refuse(
                f"the table {name} belongs to dgent", "read and write records with the universe's own calls"
            )
        return None

    def _judge_definition(self, action: int, first: str, second: str) -> Denied | None:
        if action in _MAKES:
            made = _MAKES[action]
            if self.own and (first.lower() in self.own or first.lower().startswith(RESERVED)):
                return _refuse(f"the name {first} is kept for dgent", f"give the {made} another name")
            if action == apsw.SQLITE_CREATE_VTABLE and second.lower() not in _MODULES:
                return _refuse(f"virtual tables of {second} are not allowed")
            return self._judge_table(second)
        if action in _DROPS:
            return self._judge_table(first) or self._judge_table(second)
        if action == apsw.SQLITE_ALTER_TABLE:
            return self._judge_table(second)
        if action in (apsw.SQLITE_ANALYZE, apsw.SQLITE_REINDEX):
            _, automatic, table = first.lower().rpartition("sqlite_autoindex_")
            return self._judge_table(table.rpartition("_")[0] if automatic else first)
        if action in _TEMPORARY:
            return _refuse("temporary tables are not kept between statements", "make a table, or use WITH")
        if action in (apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH):
            return _refuse("other files are not for this connection", "ATTACH and VACUUM are dgent's")
        return _refuse("this is not allowed in a statement", "use `transaction()` for transactions")


def check_names(connection: apsw.Connection) -> None:
    """Raise Denied if a table has a name that is kept for dgent: SQLite does not ask about new names."""
    rows: Any = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    for (name,) in rows:
        if str(name).lower().startswith(RESERVED) and str(name).lower() not in list_own_names():
            raise _refuse(f"the name {name} is kept for dgent", "give it another name")


def check_references(connection: apsw.Connection) -> None:
    """Raise Denied if a table refers to one of dgent's: a foreign key could keep dgent from deleting rows."""
    rows: Any = connection.execute(_REFERENCES).fetchall()
    for name, table in rows:
        if str(table).lower() in list_own_names():
            raise _refuse(f"the table {name} refers to {table}, which belongs to dgent", "drop the reference")


_REFERENCES = (
    'SELECT m.name, f."table" FROM sqlite_schema m JOIN pragma_foreign_key_list(m.name) f'
    " WHERE m.type = 'table'"
)


class AttachedStatements:
    """Statements of callers on the connection that writes records, inside its transactions."""

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        check_references(connection)
        self._connection, self._place = connection, place
        self._authorizer = Authorizer(list_own_names(), False)
        self._authorizer.passes = True
        connection.execute("PRAGMA foreign_keys = ON")
        connection.authorizer = self._authorizer

    def run(self, statements: Sequence[BoundStatement]) -> None:
        """Run statements; raises what is wrong with one, and the transaction is then undone."""
        authorizer, end = self._authorizer, monotonic() + ATTACHED_S
        authorizer.refusal, authorizer.passes = None, False
        self._connection.set_progress_handler(lambda: monotonic() > end, _STEPS)
        try:
            for each in statements:
                authorizer.passes = each.is_mark
                self._run(each)
        except apsw.InterruptError:
            raise refuse_long() from None
        except apsw.Error as error:
            raise each.explain(explain(error, authorizer.refusal, self._place)) from error
        finally:
            authorizer.passes = True
            self._connection.set_progress_handler(None)

    def _run(self, each: BoundStatement) -> None:
        """Run one statement, and check what it changed and answered."""
        found = None if each.answer is None else each.answer.hash()
        changed = 0
        for params in (each.params, *each.more):
            try:
                # Not from the cache: one of dgent's own with the same text was not judged.
                rows = self._connection.execute(each.statement.sql, params, can_cache=False)
            except (TypeError, OverflowError, UnicodeEncodeError) as error:
                raise explain_value(error, params) from None
            if found is None:
                rows.fetchall()
            else:
                found.add(rows)
            changed += self._connection.changes()
        each.check(changed, found)


def explain(error: apsw.Error, refusal: Denied | None, place: str) -> Exception:
    """Return the error to raise for one of SQLite's; those that mean "try elsewhere" stay as they are."""
    if isinstance(error, apsw.InterruptError | apsw.BusyError):
        return error
    if isinstance(error, apsw.AuthError | apsw.SQLError) and refusal is not None:
        return refusal
    if isinstance(error, apsw.ConstraintError):
        return refuse_row(str(error))
    if isinstance(error, apsw.SQLError | apsw.BindingsError | apsw.MismatchError | apsw.RangeError):
        return QueryError(str(error), field="query")
    return translate(error, place)


def explain_value(error: Exception, params: Params | None) -> InputError:
    """Return the error for a parameter that SQLite cannot store."""
    for name, value in (params or {}).items():
        if not is_plain(value):
            kind = type(value).__name__
            return InputError(
                f"the parameter {name!r} is a {kind}, which SQLite cannot store",
                hint="give text, a number, bytes or None",
                field=name,
            )
    return InputError(f"a parameter cannot be stored: {error}", hint="integers have 64 bits", field="params")


def _refuse(message: str, hint: str = "") -> Denied:
    return Denied(message, hint=hint)
