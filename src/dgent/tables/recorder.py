"""Record what a session of SQLAlchemy reads and changes, so that a commit can run it again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Computed, event
from sqlalchemy.engine.interfaces import ExecuteStyle
from sqlalchemy.schema import DefaultClause
from sqlalchemy.sql.elements import ReleaseSavepointClause, RollbackToSavepointClause, SavepointClause

from dgent.errors import InputError, Unsupported
from dgent.store.port.attached import BACK, MARK, ExpectedAnswer, Repeat, RowHash
from dgent.tables import dbapi

_CHANGES = re.compile(r"\b(?:insert|update|delete|replace|merge)\b", re.IGNORECASE)
_FIRST = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_LOCK = re.compile(r"\bpg_(?:try_)?advisory", re.IGNORECASE)  # of the session itself
_LITERAL = re.compile(r"[-+]?[\d.]+|'[^']*'|true|false|null", re.IGNORECASE)
_READS = ("select", "values", "with")
_WRITES = ("insert", "update", "delete", "replace", "with")
_SHOWS = ("pragma", "explain", "show")
_SAVEPOINTS = (SavepointClause, RollbackToSavepointClause, ReleaseSavepointClause)
_JSON = (114, 199, 3802, 3807)  # what Postgres calls json, jsonb and lists of them
_MARK, _BACK = Repeat(MARK), Repeat(BACK)


class Recorder:
    """Records the statements of a session, how many rows each changed, and a hash of what it answered.

    What the session takes back, it takes back here. It cannot commit: that is for the transaction to do.
    """

    def __init__(self, numbered: bool) -> None:
        self.done: list[Repeat] = []
        self._numbered = numbered  # whether parameters are written $1, as on Postgres
        self._marks: list[int] = []
        self._written: set[Any] = set()  # tables of which the database may have made values
        self._events: dict[str, Callable[..., None]] = {
            "before_cursor_execute": self._check,
            "after_cursor_execute": self._record,
            "savepoint": self._mark,
            "rollback_savepoint": self._go_back,
            "rollback": self._clear,
            "commit": self._refuse,
        }

    def listen(self, connection: Any) -> None:
        """Begin to record."""
        for name, work in self._events.items():
            event.listen(connection, name, work)

    def stop(self, connection: Any) -> None:
        """End recording."""
        for name, work in self._events.items():
            event.remove(connection, name, work)

    def _check(
        self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        first = _find_first(statement)
        if context._is_server_side:
            raise Unsupported(
                "a stream of rows cannot be part of a transaction of the universe",
                hint="read a limited number of rows with `execute`, or stream them before the transaction",
            )
        if first in _READS or first in _WRITES or first in _SHOWS or _is_savepoint(context):
            return
        raise Unsupported(
            f"{first.upper()} cannot be part of a transaction of the universe",
            hint="run it before, with a session of `place.sessions`",
        )

    def _record(
        self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        first = _find_first(statement)
        if first in _SHOWS or _is_savepoint(context):
            return
        writes = first in _WRITES and _CHANGES.search(statement) is not None
        compared = writes or _FROM.search(statement) is not None
        # A function of Postgres may change something, though its statement names no table.
        if not compared and (not self._numbered or first == "values" or _LOCK.search(statement)):
            return
        if writes:
            _check_ids(context)
            self._written.add(_get_table(context))
        many = context.execute_style is ExecuteStyle.EXECUTEMANY
        query, params = self._name_parameters(statement, parameters if many else [parameters])
        rows = cursor.rowcount if writes and cursor.rowcount >= 0 else None
        answer = self._hash(cursor, statement, context) if compared and cursor.description else None
        self.done.append(Repeat(query, params, rows, answer, not writes))

    def _name_parameters(self, statement: str, rows: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return a statement and its rows of parameters as a transaction takes them."""
        if all(isinstance(each, dict) for each in rows):
            return statement, list(rows)
        name = dbapi.name_numbers if self._numbered else dbapi.name_places
        named = [name(statement, each) for each in rows]
        return named[0][0], [params for _query, params in named]

    def _hash(self, cursor: Any, statement: str, context: Any) -> ExpectedAnswer:
        """Return a hash of the rows that a statement answered, which are all in its cursor."""
        columns = getattr(context.compiled, "_result_columns", None) or ()
        skipped: frozenset[int] = frozenset()
        if len(columns) == len(cursor.description):
            skipped = frozenset(at for at, column in enumerate(columns) if self._is_made(column.objects))
        found = RowHash(_ORDER.search(statement) is not None, skipped)
        found.add(cursor._rows)
        kinds = [column[1] for column in cursor.description] if self._numbered else []
        decoded = frozenset(at for at, kind in enumerate(kinds) if kind in _JSON)
        return ExpectedAnswer(found.digest(), found.ordered, skipped, decoded)

    def _is_made(self, objects: Any) -> bool:
        """Return whether an answer has a value that the database makes for rows of this session.

        It makes another one when the commit runs, so nothing can rest on it.
        """
        return any(
            isinstance(each, Column) and each.table in self._written and _is_made_by_database(each)
            for each in objects or ()
        )

    def _mark(self, connection: Any, name: str | None) -> None:
        self._marks.append(len(self.done))

    def _go_back(self, connection: Any, name: str, context: Any) -> None:
        # Savepoints of a connection are named by their number, which `_mark` is not told.
        self._take_back(self._marks[int(name.rpartition("_")[2]) - 1])

    def _clear(self, connection: Any) -> None:
        self._take_back(0)

    def _take_back(self, start: int) -> None:
        """Leave out what was written since a point; what was read is still proven."""
        steps = self.done[start:]
        first = next((at for at, step in enumerate(steps) if not step.reads), None)
        if first is None:
            return
        # Reads that saw those writes are proven with them, and both are then undone.
        last = max((at for at, step in enumerate(steps) if _is_proof(step)), default=-1)
        inside = [_MARK, *steps[first : last + 1], _BACK] if last >= first else []
        self.done[start:] = [*steps[:first], *inside]

    def _refuse(self, connection: Any) -> None:
        raise InputError(
            "a session in a transaction of the universe cannot commit by itself",
            hint="leave the commit out: its changes are made when the transaction commits",
        )


def _is_proof(step: Repeat) -> bool:
    return step is _BACK or step.answer is not None


def _find_first(statement: str) -> str:
    """Return the first word of a statement, in lower case."""
    found = _FIRST.match(statement)
    return found[1].lower() if found else ""


def _is_savepoint(context: Any) -> bool:
    """Return whether SQLAlchemy itself makes a savepoint, or ends one."""
    return isinstance(getattr(context.compiled, "statement", None), _SAVEPOINTS)


def _get_table(context: Any) -> Any:
    """Return the table that a statement of SQLAlchemy's writes; None for one of text."""
    return getattr(getattr(context.compiled, "compile_state", None), "dml_table", None)


def _is_made_by_database(column: Column[Any]) -> bool:
    """Return whether a column gets its values by SQL that may give another one each time, such as now()."""
    if any(each is not None and each.is_clause_element for each in (column.default, column.onupdate)):
        return True
    if column.server_onupdate is not None and not isinstance(column.server_onupdate, Computed):
        return True
    made = column.server_default
    if isinstance(made, DefaultClause):
        return not isinstance(made.arg, str) and not _LITERAL.fullmatch(str(made.arg).strip("()"))
    return made is not None and not isinstance(made, Computed)


def _check_ids(context: Any) -> None:
    """Refuse an INSERT whose id the database makes: it would make another one when the commit runs."""
    table = _get_table(context)
    if not context.isinsert or table is None or context.compiled.statement.select is not None:
        return
    for column in table.primary_key:
        for given in context.compiled_parameters:
            if given.get(column.key, given.get(f"{column.key}_m0")) is None:
                raise InputError(
                    f"the {column.name} of a row of {table.name} is made by the database, and would be"
                    " another one when the transaction commits",
                    hint=f"give the {column.name} with the row",
                    field=column.name,
                )
