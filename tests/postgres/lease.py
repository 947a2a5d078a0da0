"""Empty universes for tests, on one server for each test process.

Making a universe takes some forty tables; emptying one that was used takes milliseconds.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import asyncpg

from dgent.store.postgres import format as storage
from tests.postgres.server import ENV, HASTY, Server, with_universe

R = TypeVar("R")

ROUND = 16  # a test never uses so many places; after that the oldest is free again
_TABLES = (
    *("meta", "clock", "name", "datum", "past", "entry", "commits", "once", "ix", "schema", "lag"),
    *("forgotten", "trail"),
)

# Made when they are first used.
_BESIDE = ("telemetry", "blob_chunk", "blob_upload", "blob_content", "blob_user")

_names: dict[Path, str] = {}
_made: set[str] = set()
_turn = itertools.count()
_prefix = f"t{uuid.uuid4().hex[:8]}"


@cache
def server_url() -> str:
    """Where the tests' server is: one given by the environment, or one started here."""
    given = os.environ.get(ENV)
    if given:
        return given
    server = Server(HASTY).create().start()
    atexit.register(server.remove)
    return server.url


def url_for(folder: Path) -> str:
    """The URL of an empty universe; the same for the same folder."""
    url = server_url()  # on this thread: the server ends with the thread that started it
    name = _names.get(folder)
    if name is None:
        name = f"{_prefix}_{next(_turn) % ROUND}"
        for old in [place for place, used in _names.items() if used == name]:
            del _names[old]
        _names[folder] = name
        _aside(lambda connection: _emptied(connection, name))
    return with_universe(url, name)


def ask_server(sql: str, *values: object) -> object:
    """Ask the tests' server something that callers may not see."""
    return _aside(lambda connection: connection.fetchval(sql, *values))


def _aside(work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
    """Run something on the server from wherever this is called, also inside an event loop."""
    thread, runner, connection = _connected()
    return thread.submit(lambda: runner.run(work(connection))).result()


@cache
def _connected() -> tuple[ThreadPoolExecutor, asyncio.Runner, asyncpg.Connection]:
    """Connect once, on a thread with an event loop of its own: a connection for each test would cost more."""
    url, thread, runner = server_url(), ThreadPoolExecutor(1), asyncio.Runner()
    connection = thread.submit(lambda: runner.run(asyncpg.connect(url))).result()
    atexit.register(_leave, runner, connection)
    return thread, runner, connection


def _leave(runner: asyncio.Runner, connection: asyncpg.Connection) -> None:
    """Disconnect, and leave nothing on a server that outlives the tests; at exit the thread is gone."""
    with runner:
        if os.environ.get(ENV):
            for name in _made:
                runner.run(connection.execute(f'DROP SCHEMA "{name}" CASCADE'))
        runner.run(connection.close())


async def _emptied(connection: asyncpg.Connection, name: str) -> None:
    if name not in _made:
        await storage.prepare(connection, name)
        _made.add(name)
        return
    # Somebody may still be letting go of it.
    await connection.execute(
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND l.pid <> pg_backend_pid()",
        name,
    )
    await connection.execute(";".join(f'DELETE FROM "{name}".{table}' for table in _TABLES))
    beside = ", ".join(f'"{name}".{table}' for table in _BESIDE)
    await connection.execute(f"DROP TABLE IF EXISTS {beside}")
    await storage.fill(connection, name)
