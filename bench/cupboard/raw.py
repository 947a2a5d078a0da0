"""The other side: crumbs, values and links in plain tables, written by hand with apsw.

It keeps no history and no feed, checks no rule and counts no waiting: `ready` asks the links each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from dgent import ids

_TABLES = """
CREATE TABLE crumb (id TEXT PRIMARY KEY, name TEXT, state TEXT, rank INT, at INT, holder TEXT) WITHOUT ROWID;
CREATE INDEX crumb_state ON crumb (state, rank, at);
CREATE TABLE value (crumb TEXT, property TEXT, value TEXT, PRIMARY KEY (crumb, property)) WITHOUT ROWID;
CREATE INDEX value_by ON value (property, value);
CREATE TABLE link (id TEXT PRIMARY KEY, type TEXT, start TEXT, target TEXT) WITHOUT ROWID;
CREATE INDEX link_start ON link (start, type);
CREATE INDEX link_target ON link (target, type);
"""
_READY = (
    "SELECT c.id, c.name, c.rank, c.at FROM crumb c WHERE c.state = 'ready' AND NOT EXISTS ("
    " SELECT 1 FROM link l JOIN crumb p ON p.id = l.target"
    " WHERE l.start = c.id AND l.type = 'child_of' AND p.state <> 'pebble')"
    " ORDER BY c.rank, c.at"
)
_TAKE = (
    "UPDATE crumb SET state = 'taken', holder = ? WHERE id ="
    " (SELECT id FROM crumb WHERE state = 'ready' ORDER BY rank, at LIMIT 1) RETURNING id"
)


class Raw:
    """One connection to tables made by hand."""

    def __init__(self, path: str) -> None:
        self.connection = apsw.Connection(path, statementcachesize=128)
        self.connection.set_busy_timeout(60_000)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16384"):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        self.execute = self.connection.cursor().execute
        self.many = self.connection.cursor().executemany

    def create_tables(self) -> None:
        """Make the tables, in a new file."""
        self.connection.execute(_TABLES)

    def close(self) -> None:
        """Close the connection, which also folds the log into the file."""
        self.connection.close()

    def build(
        self,
        crumbs: Sequence[tuple[str, str, str, int]],
        values: Iterable[tuple[str, str, str]],
        links: Iterable[tuple[str, str, str]],
    ) -> None:
        """Everything in one transaction: crumbs, their values, and their links."""
        with self.connection:
            rows = ((id, name, state, rank, at) for at, (id, name, state, rank) in enumerate(crumbs))
            self.many("INSERT INTO crumb VALUES (?, ?, ?, ?, ?, NULL)", rows)
            self.many("INSERT INTO value VALUES (?, ?, ?)", values)
            self.many("INSERT INTO link VALUES (?, ?, ?, ?)", ((ids.new_id(), *link) for link in links))

    def get(self, id: str) -> tuple[Any, dict[str, Any]]:
        """A crumb with its values."""
        crumb = self.execute("SELECT * FROM crumb WHERE id = ?", (id,)).fetchall()[0]
        return crumb, dict(
            self.execute("SELECT property, value FROM value WHERE crumb = ?", (id,)).fetchall()
        )

    def create(self, name: str, values: dict[str, str]) -> str:
        """A crumb with its values, in one transaction."""
        id = ids.new_id()
        self.execute("BEGIN IMMEDIATE")
        self.execute("INSERT INTO crumb VALUES (?, ?, 'draft', 9, 0, NULL)", (id, name))
        self.many("INSERT INTO value VALUES (?, ?, ?)", [(id, *pair) for pair in values.items()])
        self.execute("COMMIT")
        return id

    def update(self, id: str, value: str) -> None:
        """Another owner of a crumb."""
        self.execute("BEGIN IMMEDIATE")
        self.execute("UPDATE value SET value = ? WHERE crumb = ? AND property = 'owner'", (value, id))
        self.execute("COMMIT")

    def ready(self) -> list[Any]:
        """What can be taken, by rank and age."""
        return self.execute(_READY).fetchall()

    def take(self, agent: str) -> str | None:
        """Claim the next one."""
        found = self.execute(_TAKE, (agent,)).fetchall()
        return found[0][0] if found else None

    def abandon(self, members: Sequence[str]) -> None:
        """Crumbs go, with their values and links."""
        each = [(id,) for id in members]
        with self.connection:
            for table, column in (("value", "crumb"), ("link", "start"), ("link", "target"), ("crumb", "id")):
                self.many(f"DELETE FROM {table} WHERE {column} = ?", each)
