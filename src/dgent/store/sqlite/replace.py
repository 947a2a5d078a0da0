"""Take a SQLite store out of use, to put another in its place, and keep what must outlive that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import apsw

from dgent.errors import Busy, Corrupt
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import connect, translate_errors
from dgent.store.sqlite.kernel import SQLiteReading
from dgent.store.sqlite.upkeep import looking, one, unforkable

_SALT = "SELECT value FROM meta WHERE name = 'forget_salt'"
_KEEP = (
    "INSERT INTO forgotten (h, last_rev, seq) VALUES (?, ?, ?)"
    " ON CONFLICT (h) DO UPDATE SET last_rev = max(last_rev, excluded.last_rev)"
)

Held = apsw.Connection
"""The connection of a caller that has a store to itself."""
Forgotten = Mapping[bytes, tuple[int, int]]
"""Salted hash of a forgotten id: its last rev, and the seq of the forget."""


@contextmanager
def alone(path: str) -> Iterator[apsw.Connection]:
    """Hold a store exclusively; Busy names the process when anyone has it open, even idle.

    In WAL mode every connection keeps a shared lock on the file as long as it is open, also between
    transactions. A connection in SQLite's exclusive mode needs that lock for itself, and while it has
    it nobody else can open the store. It never checkpoints or removes the log, which may have moved.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    with unforkable(path), translate_errors(path), closing(apsw.Connection(path, flags=flags)) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError):
            connection.close()  # or its own lock would be among those that `holder` sees
            pid = holder(path)
            who = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
            raise Busy(
                f"{path} is in use by {who}", hint="end or close what uses it, then try again", pid=pid
            ) from None
        yield connection


def retire(connection: apsw.Connection) -> None:
    """Checkpoint the log of a store that is held exclusively, and make the file complete without it.

    A process that waits to open it has the file already and will look for its log beside the path, where
    another store's may be by then. Without a log there is none to mistake, and SQLite itself refuses
    to begin one for a file that was moved.
    """
    with translate_errors(connection.filename):
        connection.execute("COMMIT")
        mode = connection.execute("PRAGMA journal_mode = DELETE").fetchall()[0][0]
        if mode != "delete":
            raise Busy(f"{connection.filename} cannot be taken out of use now")
        # The change itself left a journal, done with and still open; in memory it needs no file.
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
    with suppress(FileNotFoundError):
        os.unlink(connection.filename + "-journal")


def holder(path: str) -> int | None:
    """Return the pid of a process that has the store open, where the system reports it."""
    pids: set[int] = set()
    try:
        # stat and /proc only: opening one of SQLite's files here would drop this process's locks.
        inodes = {os.stat(name).st_ino for name in (path, path + "-shm") if os.path.exists(name)}
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                parts = line.split()
                if len(parts) >= 8 and parts[1] != "->" and int(parts[5].rsplit(":", 1)[1]) in inodes:
                    pids.add(int(parts[4]))
    except (OSError, ValueError, IndexError):
        return None
    others = pids - {os.getpid()}
    return min(others or pids, default=None)


# -- what was forgotten -------------------------------------------------------------------


def forgotten_in(connection: apsw.Connection, universe_id: str) -> tuple[bytes | None, Forgotten]:
    """Return the salt of a store of this universe, and its hashes of forgotten ids; none of another one."""
    with translate_errors(connection.filename):
        storage.check(connection, connection.filename)
        try:
            if one(connection, "SELECT value FROM meta WHERE name = 'universe_id'") != universe_id:
                return None, {}
        except (apsw.SQLError, IndexError) as error:
            raise Corrupt(f"{connection.filename} is not a whole store: {error}") from error
        return bytes(one(connection, _SALT)), _forgotten(connection)


def _forgotten(connection: apsw.Connection) -> Forgotten:
    rows: Any = connection.execute("SELECT h, last_rev, seq FROM forgotten").fetchall()
    return {bytes(h): (rev, seq) for h, rev, seq in rows}


def forgotten_since(path: str, salt: bytes, forgotten: Forgotten) -> list[tuple[str, str]]:
    """Return id and schema of a store's records that another store of the same universe has forgotten.

    A record that both forgot alike, and that is there again, was made anew afterwards.
    """
    with looking(path) as connection:
        own_salt, known = bytes(one(connection, _SALT)), _forgotten(connection)
        news = {h for h, entry in forgotten.items() if known.get(h) != entry}
        if own_salt != salt or not news:
            return []
        reading = SQLiteReading(connection)
        reading.refresh()
        # As bytes: an id that is damaged is none that was forgotten, and hides no other.
        sql = "SELECT CAST(d.id AS BLOB), n.text FROM datum d JOIN name n ON n.n = d.schema WHERE d.trail = 0"
        rows: Any = connection.execute(sql)
        ids = ((id.decode("utf-8", "replace"), schema) for id, schema in rows)
        return [(id, schema) for id, schema in ids if reading.catalog.hash(id) in news]


def live_records(
    connection: apsw.Connection, schema: str, prefix: str = ""
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield id, data and content of the live records of a schema in an exclusively held store, by id."""
    sql = (
        "SELECT d.id, d.data, d.content FROM datum d JOIN name n ON n.n = d.schema"
        " WHERE n.text = ? AND d.live = 1 AND d.trail = 0 AND substr(d.id, 1, ?) = ? ORDER BY d.id"
    )
    with translate_errors(connection.filename):
        for id, data, content in connection.execute(sql, (schema, len(prefix), prefix)):
            yield id, bytes(data), bytes(content or b"")


def settle_restored(path: str, salt: bytes | None, forgotten: Forgotten) -> None:
    """Make a restored file a new store: old cursors do not fit it, and forgotten ids stay forgotten."""
    with translate_errors(path), closing(connect(path, "full", wait=True)) as connection, connection:
        ask = connection.execute
        ask("UPDATE meta SET value = ? WHERE name = 'epoch'", (os.urandom(8),))
        if salt is not None and bytes(one(connection, _SALT)) == salt and forgotten:
            connection.executemany(_KEEP, [(h, rev, seq) for h, (rev, seq) in forgotten.items()])
            ask("UPDATE meta SET value = 1 WHERE name = 'forgot'")
        ask("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
