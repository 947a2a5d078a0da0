"""SQLAlchemy's dialect for SQLite tables of dgent: `sqlite+dgent:///file.db`, or those of a universe."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import pool, types
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite import base
from sqlalchemy.engine import URL

from dgent.errors import Closed, InputError
from dgent.store.port.relational import Isolation, SQLSession
from dgent.tables import dbapi
from dgent.tables import types as own

LEVELS = ("READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT")


class DgentCompiler(base.SQLiteCompiler):
    """Writes parameters as `:name`, with names that the reader of SQL takes."""

    bindname_escape_characters = {  # noqa: RUF012  # as SQLAlchemy has it
        chr(code): f"_x{code:x}_" for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")
    }

    def bindparam_string(self, name: str, *args: Any, **options: Any) -> str:
        """Return a parameter; one that begins with a digit gets a letter before it."""
        if name[:1].isdigit() and not options.get("escaped_from"):
            options["escaped_from"] = name
            name = "d_" + re.sub(r"\W", "_", name)
        made: str = super().bindparam_string(name, *args, **options)
        return made


class DgentDialect(base.SQLiteDialect):
    """SQLite by sessions of the relational port.

    Transactions begin with the first statement that writes; see `SQLSession` for the levels of isolation.
    dgent's own tables are not shown by reflection.
    """

    driver = "dgent"
    is_async = True
    has_terminate = True
    default_paramstyle = "named"
    supports_statement_cache = True
    supports_native_decimal = True
    supports_sane_multi_rowcount = True
    returns_native_bytes = True
    statement_compiler = DgentCompiler
    default_isolation_level = "READ COMMITTED"
    colspecs = {  # noqa: RUF012  # as SQLAlchemy has it
        **base.SQLiteDialect.colspecs,
        types.DateTime: own.DateTime,
        types.Time: own.Time,
        types.Numeric: own.Numeric,
        types.Float: own.Float,
    }

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the driver."""
        return dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Return the kind of pool: the connections of one hold the tables of a file open."""
        return pool.AsyncAdaptedQueuePool

    def create_connect_args(self, url: URL) -> Any:
        """Return the arguments of `dbapi.connect` for a URL."""
        if url.host or url.username or url.password or url.port or url.query:
            raise InputError(
                f"{url.render_as_string()} is not a valid place of SQLite tables",
                hint="write sqlite+dgent:///relative.db or sqlite+dgent:////absolute.db, without settings",
            )
        memory = url.database in (None, "", ":memory:")
        return ["memory:" if memory else f"sqlite:///{url.database}"], {}

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        return dbapi.sqlite_version_info

    # -- transactions ---------------------------------------------------------------------

    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        """Return the levels of isolation there are."""
        return list(LEVELS)

    def get_isolation_level(self, dbapi_connection: Any) -> Isolation:
        """Return the level of isolation of a connection."""
        session: SQLSession = dbapi_connection.session
        return session.isolation

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Set the level of isolation of a connection."""
        dbapi_connection.session.isolation = level

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        """Return whether each statement of a connection is a transaction."""
        return bool(dbapi_conn.session.isolation == "AUTOCOMMIT")

    def do_savepoint(self, connection: Any, name: str) -> None:
        """Make a savepoint."""
        connection.connection.dbapi_connection.mark("SAVEPOINT", name)

    def do_rollback_to_savepoint(self, connection: Any, name: str) -> None:
        """Go back to a savepoint."""
        connection.connection.dbapi_connection.mark("ROLLBACK TO", name)

    def do_release_savepoint(self, connection: Any, name: str) -> None:
        """Release a savepoint."""
        connection.connection.dbapi_connection.mark("RELEASE", name)

    def do_terminate(self, dbapi_connection: Any) -> None:
        """Close a connection where nothing can be awaited, as when a task was cancelled."""
        dbapi_connection.terminate()

    def get_driver_connection(self, connection: Any) -> Any:
        """Return the session of a connection."""
        return connection.session

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Return whether an error says that a connection is of no more use."""
        return isinstance(e.__cause__, Closed)

    # -- reflection -----------------------------------------------------------------------

    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        """Return the names of schemas: no other file is attached."""
        return ["main"]

    def get_table_names(  # type: ignore[override]  # of what SQLAlchemy leaves untyped
        self, connection: Any, schema: Any = None, **options: Any
    ) -> list[str]:
        """Return the names of tables, without dgent's own."""
        hidden = _find_hidden(connection)
        found: list[str] = super().get_table_names(connection, schema, **options)
        return [name for name in found if name.lower() not in hidden]

    def _get_table_pragma(self, connection: Any, pragma: str, table_name: str, schema: Any = None) -> Any:
        if table_name.lower() in _find_hidden(connection):
            return []
        return super()._get_table_pragma(connection, pragma, table_name, schema)


def _find_hidden(connection: Any) -> frozenset[str]:
    session: SQLSession = connection.connection.dbapi_connection.session
    return session.own_names


registry.register("sqlite.dgent", __name__, "DgentDialect")
