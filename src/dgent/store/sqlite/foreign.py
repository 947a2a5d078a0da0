"""Read the rows of a SQLite file that another program made, and that nothing in it is to be believed.

The caller passes a private copy where the file has a log: reading one in WAL mode may write beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from dgent.errors import Corrupt, InputError
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import check_library
from dgent.store.sqlite.format import APPLICATION_ID

MAX_VALUE_BYTES = 64 << 20
MAX_WHOLE_BYTES = 512 << 20  # of a value that an import takes apart
MAX_TABLES = 10_000
_OFF = (
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER,
    apsw.SQLITE_DBCONFIG_ENABLE_VIEW,
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION,
)


class ForeignRow(NamedTuple):
    """A row of a table, by its number in it, with its values by column."""

    table: str
    number: int
    values: dict[str, Any]


def read_rows(path: str, first: Sequence[str] = ()) -> Generator[ForeignRow]:
    """Yield the rows of all ordinary tables, by name, some `first`; raises Corrupt for a damaged file.

    Raises InputError for a store of dgent.
    """
    connection = None
    try:
        connection = _open(path, apsw.SQLITE_OPEN_READWRITE)
        if (wrong := connection.execute("PRAGMA quick_check(1)").get) != "ok":
            raise Corrupt(f"it is damaged: {wrong!s:.200}")
        for table in sorted(_list_tables(connection), key=lambda name: name not in first):
            cursor = connection.execute(f"SELECT * FROM {_quote(table)}")
            names: list[str] = []
            for number, row in enumerate(cursor, 1):
                names = names or [name for name, _ in cursor.get_description()]
                yield ForeignRow(table, number, dict(zip(names, row, strict=True)))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise _damage(error) from None
    finally:
        if connection is not None:
            connection.close()


class ForeignDatabase:
    """The ordinary tables of a file, to be read one by one; what is damaged in one does not hide the others.

    With `untouched` the file itself is read, without locks: it must have no log, and nobody may write to it.
    """

    def __init__(self, path: str, *, untouched: bool) -> None:
        uri, flags = path, apsw.SQLITE_OPEN_READWRITE
        if untouched:
            uri, flags = f"{storage.uri(path)}?mode=ro&immutable=1", apsw.SQLITE_OPEN_READONLY
        try:
            self._connection = _open(uri, flags | apsw.SQLITE_OPEN_URI)
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_WHOLE_BYTES)
            self.tables = {name: self._list_columns(name) for name in _list_tables(self._connection)}
            self._encoding = str(self._connection.execute("PRAGMA encoding").get)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _damage(error) from None

    def _list_columns(self, table: str) -> list[str]:
        found = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return [str(name) for (name,) in found]

    def count(self, table: str) -> int:
        """Return the number of rows of a table; 0 where it cannot be counted."""
        try:
            return int(self._connection.execute(f"SELECT count(*) FROM {_quote(table)}").get)
        except apsw.Error:
            return 0

    def read(
        self, table: str, order: Sequence[str] = (), where: Mapping[str, Any] | None = None
    ) -> Generator[ForeignRow]:
        """Yield the rows of a table, or those with some values; raises Corrupt where it is damaged.

        A text that is not valid in the encoding of the file is given as its bytes.
        """
        names = self.tables[table]
        columns = ", ".join(
            f"typeof({name}), CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
            for name in map(_quote, names)
        )
        sorting = ", ".join(_quote(name) for name in order if name in names)
        wanted = " AND ".join(f"{_quote(name)} = ?" for name in where or ())
        statement = f"SELECT {columns} FROM {_quote(table)}" + (f" WHERE {wanted}" if wanted else "")
        statement += f" ORDER BY {sorting}" if sorting else ""
        try:
            found = self._connection.execute(statement, tuple((where or {}).values()))
            for number, row in enumerate(found, 1):
                values = map(self._decode, row[::2], row[1::2])
                yield ForeignRow(table, number, dict(zip(names, values, strict=True)))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _damage(error) from None

    def _decode(self, kind: str, value: Any) -> Any:
        if kind != "text":
            return value
        try:
            return value.decode(self._encoding)
        except UnicodeDecodeError:
            return value

    def close(self) -> None:
        """Close the file."""
        self._connection.close(True)


def _open(path: str, flags: int) -> apsw.Connection:
    """Open a file that may do nothing but be read."""
    check_library()
    connection = apsw.Connection(path, flags=flags)
    try:
        for option in _OFF:
            connection.config(option, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA cell_size_check = ON")
        if connection.execute("PRAGMA application_id").get == APPLICATION_ID:
            raise InputError(
                "it is a store of dgent, not of another program", hint="`dgent store copy` copies it"
            )
    except BaseException:
        connection.close(True)
        raise
    return connection


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _damage(error: Exception) -> Corrupt:
    return Corrupt(f"it cannot be read as a SQLite file: {error!s:.200}")


def _list_tables(connection: apsw.Connection) -> list[str]:
    """Return the tables that hold rows themselves: not views, not virtual ones, not SQLite's own."""
    found = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT ?",
        (MAX_TABLES,),
    )
    return [str(name) for (name,) in found]
