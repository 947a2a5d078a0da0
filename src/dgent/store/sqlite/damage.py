"""Rows that dgent never wrote: a value of another kind, a number out of range, a missing name.

SQLite keeps any kind of value in any column, and a file may be damaged or come from anybody. Nothing of this
is searched while reads and writes succeed. When one fails in an unexpected way, this finds the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any

import apsw

from dgent.errors import Corrupt, DgentError
from dgent.store.backend import KINDS
from dgent.store.engine.row import T_FIRST, T_LAST
from dgent.store.sqlite import format as storage

_KINDS = {"INT": "integer", "INTEGER": "integer", "TEXT": "text", "BLOB": "blob"}
_NUMBERS = ("dk", "rev", "seq", "schema", "sv", "author", "source", "ix", "n", "iv", "of_seq", "last_rev")
_TIMES = ("t", "at")
_NAMES = ("schema", "author", "source")
_PACKED = {  # columns with values of two kinds
    "id": "typeof(id) <> 'text' AND (typeof(id) <> 'blob' OR length(id) <> 16)",
    "tags": "typeof(tags) <> 'text' AND NOT EXISTS (SELECT 1 FROM name WHERE n = tags)",
}
_MOST = 2**47  # of numbers that count something; keys of names have six bytes


def explain(error: BaseException, path: str) -> BaseException:
    """Return the cause of a foreign error: Corrupt when a row is to blame, else the error itself."""
    if isinstance(error, DgentError) or not isinstance(error, Exception):
        return error
    try:
        with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            found = find_bad_row(connection)
    except apsw.Error:
        return error
    return error if found is None else Corrupt(f"{path}: {found}", hint="see `dgent doctor --deep`")


def find_bad_row(connection: apsw.Connection) -> str | None:
    """Return a description of the first row that dgent never wrote; None if none. Reads every row."""
    for table, sql in _questions().items():
        rows: Any = connection.execute(sql).fetchall()
        if rows:
            key, columns = rows[0]
            named = bytes(key or b"").decode("utf-8", "backslashreplace")
            wrong = ", ".join(name for name in str(columns).split() if name) or "a name that is not there"
            return f"the row {named!r:.80} of {table} is damaged: {wrong}"
    return None


@cache
def _questions() -> dict[str, str]:
    """Return for each table a statement that gives its first bad row: its key, and the wrong columns."""
    with closing(apsw.Connection(":memory:")) as made:
        made.execute(storage.TABLES)
        listed: Any = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        tables = [name for (name,) in listed if not name.startswith("sqlite_") and name != "meta"]
        return {table: _question(table, list(_columns(made, table))) for table in tables}


def _columns(connection: apsw.Connection, table: str) -> Iterator[tuple[str, str]]:
    """Yield each column of a table, and the condition under which its value is wrong."""
    rows: Any = connection.execute(f"PRAGMA table_info({table})").fetchall()
    for _, name, declared, needed, _, key in rows:
        wrong = _PACKED[name] if not declared else f"typeof({name}) <> '{_KINDS[declared]}'"
        if name == "cid":  # the cache of a folder of text files keeps it as the lines have it
            wrong = "typeof(cid) NOT IN ('blob', 'text')"
        if name in _NUMBERS and (table, name) != ("trail", "seq"):
            wrong += f" OR {name} NOT BETWEEN 0 AND {_MOST}"
        if (table, name) == ("commits", "kind"):
            wrong += f" OR kind NOT BETWEEN 0 AND {len(KINDS) - 1}"
        if name in _TIMES:
            wrong += f" OR {name} NOT BETWEEN {T_FIRST} AND {T_LAST}"
        if name in _NAMES and table in ("datum", "past", "commits"):
            wrong += f" OR NOT EXISTS (SELECT 1 FROM name WHERE n = {name})"
        yield name, f"({wrong})" if needed or key else f"({name} IS NOT NULL AND ({wrong}))"


def _question(table: str, columns: list[tuple[str, str]]) -> str:
    key = "id" if ("id" in dict(columns) and table != "trail") else columns[0][0]
    wrong_names = " || ' ' || ".join(f"iif({wrong}, '{name}', '')" for name, wrong in columns)
    anything = " OR ".join(wrong for _, wrong in columns)
    return f"SELECT CAST({key} AS BLOB), {wrong_names} FROM {table} WHERE {anything} LIMIT 1"
