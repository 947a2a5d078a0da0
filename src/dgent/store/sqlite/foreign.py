"""Read the rows of a SQLite file that another program made, and that nothing in it is to be believed.

The caller passes a private copy: reading a file in WAL mode may write beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import apsw

from dgent.errors import Corrupt, InputError
from dgent.store.sqlite.connection import check_library
from dgent.store.sqlite.format import APPLICATION_ID

MAX_VALUE_BYTES = 64 << 20
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
    check_library()
    connection = None
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        for option in _OFF:
            connection.config(option, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA cell_size_check = ON")
        if connection.execute("PRAGMA application_id").get == APPLICATION_ID:
            raise InputError(
                "it is a store of dgent, not of its ancestor", hint="`dgent store copy` copies it"
            )
        if (wrong := connection.execute("PRAGMA quick_check(1)").get) != "ok":
            raise Corrupt(f"it is damaged: {wrong!s:.200}")
        for table in sorted(_list_tables(connection), key=lambda name: name not in first):
            quoted = '"' + table.replace('"', '""') + '"'
            cursor = connection.execute(f"SELECT * FROM {quoted}")
            names: list[str] = []
            for number, row in enumerate(cursor, 1):
                names = names or [name for name, _ in cursor.get_description()]
                yield ForeignRow(table, number, dict(zip(names, row, strict=True)))
    except (apsw.Error, UnicodeDecodeError) as error:
        raise Corrupt(f"it cannot be read as a SQLite file: {error!s:.200}") from None
    finally:
        if connection is not None:
            connection.close()


def _list_tables(connection: apsw.Connection) -> list[str]:
    """Return the tables that hold rows themselves: not views, not virtual ones, not SQLite's own."""
    found = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT ?",
        (MAX_TABLES,),
    )
    return [str(name) for (name,) in found]
