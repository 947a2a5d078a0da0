"""Copy and check the caller's own tables of a SQLite file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import apsw

from dgent.store.port.own_tables import quote
from dgent.store.port.relational import RESERVED
from dgent.store.sqlite.authorizer import list_own_names
from dgent.store.sqlite.relational import SQLiteRelational
from dgent.store.sqlite.sql_connection import SQLConnection

_SOURCE = "dgent_source"  # the name of the other file while it is copied from
_LATER = "('index', 'view', 'trigger')"


class SQLiteTables:
    """The caller's own tables of a SQLite file: tables, virtual tables, and what belongs to them."""

    def __init__(self, store: SQLiteRelational) -> None:
        self._store = store

    async def names(self) -> list[str]:
        """Return the names of the tables."""
        return await self._store.run_trusted(lambda held: _list(held, "main", "'table', 'virtual'"))

    async def digest(self, name: str) -> str:
        """Return the number of rows of a table and a hash of them; of a virtual one, of its inner tables."""
        return await self._store.run_trusted(lambda held: _digest(held, name))

    async def shape(self) -> str:
        """Return a hash of the definitions of tables, indexes, views and triggers."""
        return await self._store.run_trusted(_hash_shape)

    async def copy_from(
        self, source: SQLiteTables, replaced: Sequence[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Copy all tables, indexes, views and triggers of another file, in one transaction."""
        path = source._store.path
        return await self._store.run_trusted(lambda held: _copy(held, path, replaced)), []

    async def find_broken(self) -> list[str]:
        """Return a sentence for each table with rows that refer to rows that are not there."""
        return await self._store.run_trusted(_find_broken)

    async def close(self) -> None:
        """Close the connections."""
        await self._store.close()


def _rows(held: SQLConnection, sql: str, *values: str) -> list[Any]:
    found: list[Any] = held.connection.execute(sql, values).fetchall()
    return found


def _list(held: SQLConnection, schema: str, kinds: str) -> list[str]:
    """Return the names of own tables of some kinds, in the order of their making."""
    sql = (
        f"SELECT t.name FROM pragma_table_list t JOIN {schema}.sqlite_schema m ON m.name = t.name"
        f" WHERE t.schema = ? AND m.type = 'table' AND t.type IN ({kinds}) ORDER BY m.rowid"
    )
    return [name for (name,) in _rows(held, sql, schema) if _is_own(name)]


def _is_own(name: str) -> bool:
    lower = name.lower()
    return lower not in list_own_names() and not lower.startswith(("sqlite_", RESERVED))


def _digest(held: SQLConnection, name: str) -> str:
    count, total = 0, hashlib.sha256()
    sql = "SELECT t.type, m.sql FROM pragma_table_list(?) t JOIN main.sqlite_schema m ON m.name = t.name"
    kind, text = _rows(held, f"{sql} WHERE t.schema = 'main'", name)[0]
    total.update(text.encode())
    inner = [each for each in _list(held, "main", "'shadow'") if each.startswith(f"{name}_")]
    for table in inner if kind == "virtual" else [name]:
        # Without an index, so that the order is always that of the table itself.
        for row in held.connection.execute(f"SELECT * FROM main.{quote(table)} NOT INDEXED"):
            total.update(repr(row).encode("utf-8", "surrogatepass"))
            count += 1
    return f"{count}:{total.hexdigest()}"


def _hash_shape(held: SQLConnection) -> str:
    rows = _rows(held, "SELECT name, tbl_name, sql FROM main.sqlite_schema ORDER BY rowid")
    own = [row for row in rows if _is_own(row[0]) and _is_own(row[1])]
    return hashlib.sha256(repr(own).encode("utf-8", "surrogatepass")).hexdigest()


def _copy(held: SQLConnection, path: str, replaced: Sequence[str]) -> dict[str, str]:
    connection = held.connection
    _rows(held, f"ATTACH ? AS {_SOURCE}", path)
    try:
        # Rows come before those they refer to, and the inner tables of virtual ones are written, too.
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("BEGIN")
        # Takes the lock of this file alone: BEGIN IMMEDIATE would keep others from writing to the source.
        connection.execute("DELETE FROM main.sqlite_sequence WHERE 0")
        _copy_all(held, replaced)
        held.check_store()
        digests = {name: _digest(held, name) for name in _list(held, _SOURCE, "'table', 'virtual'")}
        connection.execute("COMMIT")
        return digests
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"DETACH {_SOURCE}")


def _copy_all(held: SQLConnection, replaced: Sequence[str]) -> None:
    names = _list(held, _SOURCE, "'table', 'virtual'")
    later = _rows(
        held,
        f"SELECT type, name, tbl_name, sql FROM {_SOURCE}.sqlite_schema"
        f" WHERE type IN {_LATER} AND sql IS NOT NULL ORDER BY rowid",
    )
    views = [name for kind, name, _table, _sql in later if kind == "view"]
    for name in views:
        if _rows(held, "SELECT 1 FROM main.sqlite_schema WHERE type = 'view' AND name = ?", name):
            held.connection.execute(f"DROP VIEW main.{quote(name)}")
    for name in replaced:
        held.connection.execute(f"DROP TABLE main.{quote(name)}")
    for name in names:
        sql = f"SELECT sql FROM {_SOURCE}.sqlite_schema WHERE type = 'table' AND name = ?"
        held.run_judged(_rows(held, sql, name)[0][0])
    for name in [*_list(held, _SOURCE, "'table'"), *_list(held, _SOURCE, "'shadow'")]:
        _copy_rows(held, name)
    if _rows(held, f"SELECT 1 FROM {_SOURCE}.sqlite_schema WHERE name = 'sqlite_sequence'"):
        for name in names:
            held.connection.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (name,))
            held.connection.execute(
                f"INSERT INTO main.sqlite_sequence SELECT * FROM {_SOURCE}.sqlite_sequence WHERE name = ?",
                (name,),
            )
    for _kind, name, table, sql in later:
        if _is_own(name) and (table in names or table in views):
            held.run_judged(sql)


def _copy_rows(held: SQLConnection, name: str) -> None:
    """Copy the rows of a table with their row ids, which other tables may refer to."""
    columns = _rows(held, f"SELECT name, hidden FROM pragma_table_xinfo(?, '{_SOURCE}')", name)
    taken = {column.lower() for column, _hidden in columns}
    wanted = [quote(column) for column, hidden in columns if hidden == 0]
    row_id = next((each for each in ("rowid", "_rowid_", "oid") if each not in taken), None)
    without = _rows(held, f"SELECT wr FROM pragma_table_list(?) WHERE schema = '{_SOURCE}'", name)[0][0]
    if row_id is not None and not without:
        wanted.insert(0, row_id)
    listed = ", ".join(wanted)
    held.connection.execute(f"DELETE FROM main.{quote(name)}")
    held.connection.execute(
        f"INSERT INTO main.{quote(name)} ({listed}) SELECT {listed} FROM {_SOURCE}.{quote(name)}"
    )


def _find_broken(held: SQLConnection) -> list[str]:
    found: dict[tuple[str, str], int] = {}
    for table, _row, parent, _key in _rows(held, "PRAGMA foreign_key_check"):
        found[table, parent] = found.get((table, parent), 0) + 1
    return [
        f"1 row of {table} refers to a row of {parent} that is not there"
        if count == 1
        else f"{count:,} rows of {table} refer to rows of {parent} that are not there"
        for (table, parent), count in sorted(found.items())
    ]
