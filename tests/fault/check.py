"""Looks inside a SQLite store and says whether everything in it fits together.

Nothing here goes through the universe: it reads the tables, and works out from each live row which
index entries it must have. The only dgent code it trusts is `Ledger.entries_of`.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import msgspec

from dgent.store.engine.commit import Ledger
from dgent.store.engine.kernel import DELETE, FORGET, QUIET, SAME
from dgent.store.engine.row import Row, columns_of
from dgent.store.sqlite.connection import connect
from dgent.store.sqlite.kernel import SQLiteKernel

_ROWS = "SELECT {} FROM {} ORDER BY dk, rev".format(", ".join(columns_of(Row)), "{}")


def check_store(path: str) -> dict[str, int]:
    """Raise AssertionError when anything is out of step; else how much there was to check."""
    connection = connect(path, "full", wait=True)
    try:
        ask = connection.execute
        assert ask("PRAGMA integrity_check").fetchall() == [("ok",)]
        kernel = SQLiteKernel(connection)
        kernel.begin()
        try:
            heads = [Row._make(found) for found in ask(_ROWS.format("datum"))]
            past = [Row._make(found) for found in ask(_ROWS.format("past"))]
            commits = _check_log(ask, kernel.catalog.floor)
            _check_versions(heads, past, commits, kernel.catalog.floor)
            entries = _check_entries(ask, kernel, [row for row in heads if row.live])
            _check_names(ask)
        finally:
            kernel.rollback()
    finally:
        connection.close()
    return {"commits": len(commits), "rows": len(heads), "past": len(past), "entries": entries}


def store_threads() -> list[str]:
    """The threads that open stores have in this process; the one of dgent.sync serves no store."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("dgent-") and name != "dgent-sync"]


def _check_log(ask: Any, floor: int) -> dict[int, tuple[int, list[tuple[int, int, int]]]]:
    """Above the floor commits follow each other without a gap, and their times never go back."""
    commits = {}
    last_at = 0
    for seq, at, ops in ask("SELECT seq, at, ops FROM commits ORDER BY seq"):
        assert at >= last_at, f"commit {seq} is older than the one before"
        last_at = at
        if seq > floor:
            assert seq == floor + 1 + len(commits), f"there is no commit {floor + 1 + len(commits)}"
            commits[seq] = (at, msgspec.msgpack.decode(ops, type=list[tuple[int, int, int]]))
    return commits


def _check_versions(heads: list[Row], past: list[Row], commits: dict[int, Any], floor: int) -> None:
    """Every version was made by exactly the commit that says so, and every commit made its versions."""
    made = {}
    for seq, (at, ops) in commits.items():
        named = [record_key for _, record_key, _ in ops if record_key]  # 0: a keyed op on what was not there
        assert len(set(named)) == len(named), f"commit {seq} names a record twice"
        for code, record_key, rev in ops:
            if code & ~QUIET not in (SAME, FORGET):
                made[record_key, rev] = (seq, at, int(code & ~QUIET != DELETE))
    versions = [*heads, *past]
    assert len({(row.record_key, row.rev) for row in versions}) == len(versions), "a version is stored twice"
    # Below the floor the history is no longer whole, and the log no longer there.
    stored = {(row.record_key, row.rev): (row.seq, row.at, row.live) for row in versions if row.seq > floor}
    known = {row.record_key for row in heads}
    assert {row.record_key for row in past} <= known, "history of a record that is not there"
    forgotten = {
        record_key for _, ops in commits.values() for code, record_key, _ in ops if code & ~QUIET == FORGET
    }
    assert {key: was for key, was in made.items() if key[0] not in forgotten} == stored


def _check_entries(ask: Any, kernel: SQLiteKernel, live: list[Row]) -> int:
    """The index holds what the live rows call for, nothing less and nothing more."""
    ledger = Ledger(kernel)
    wanted = {entry for row in live for entry in ledger.entries_of(row)}
    # Versions that wait for a text index do not follow from the rows.
    waiting = {index for (index,) in ask("SELECT ix FROM ix WHERE path LIKE '@text:%'")}
    found = {entry for entry in _entries(ask) if entry[0] not in waiting}
    assert not wanted - found, f"{len(wanted - found)} entries are missing: {list(wanted - found)[:3]}"
    assert not found - wanted, f"{len(found - wanted)} entries lead nowhere: {list(found - wanted)[:3]}"
    lagging = {(row.schema, row.record_key) for row in live if row.field_keys == b""}
    assert set(ask("SELECT schema, dk FROM lag")) == lagging
    return len(found)


def _entries(ask: Any) -> set[Any]:
    """What is in the indexes, with the changes that commits have left behind them."""
    counts = Counter(ask("SELECT ix, key, t, dk FROM entry"))
    for (body,) in ask("SELECT body FROM tail"):
        for t, dk, *changes in msgspec.msgpack.decode(body):
            for count, numbers, keys in ((1, *changes[:2]), (-1, *changes[2:])):
                for ix, key in zip(numbers, keys, strict=True):
                    counts[ix, key, t, dk] += count
    assert set(counts.values()) <= {0, 1}, "an entry was added twice, or removed where none was"
    return {entry for entry, count in counts.items() if count}


async def move_entries(backend: Any) -> None:
    """Let no index entry wait behind its commit."""
    await backend._write(lambda ledger: ledger.kernel.move_entries())


def _check_names(ask: Any) -> None:
    """Every small number that stands for a name has one."""
    known = {n for (n,) in ask("SELECT n FROM name")}
    tables = {"datum": "schema author source", "past": "schema author source", "commits": "author"}
    for table, columns in tables.items():
        for column in columns.split():
            used = {n for (n,) in ask(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")}
            assert used <= known, f"{table}.{column} uses unknown names {used - known}"
