"""Rows that no dgent has written, in every column of every table: each ends in an error of ours, or is told.

A query gives a record that cannot be read raw, with the reason in `problem`. No other error comes out, and
whoever asks `doctor` gets an answer.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Corrupt, DgentError
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.damage import find_bad_row
from dgent.store.upkeep import upkeep_of
from tests.fault.jobs import NOTE, Note
from tests.soak import some

DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000
BAD_ZSTD = b"\x28\xb5\x2f\xfd" + b"\xff" * 9
VALUES: tuple[Any, ...] = (None, -1, 2**63 - 1, 1.5, "text", b"\xff\xfe", b"[" * 100_000, DEEP, BAD_ZSTD)
ROWS = {
    "datum": ("id = 'r3'", "id = 'k'"),
    "past": ("id = 'r3'",),
    "commits": ("seq = 8",),
    "name": ("n = 2", "n = 1"),
    "schema": ("true",),
    "meta": tuple(f"name = '{name}'" for name in storage._META),
}


def _tables() -> dict[str, list[str]]:
    with closing(apsw.Connection(":memory:")) as made:
        made.execute(storage.TABLES)
        names: Any = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: [row[1] for row in made.execute(f"PRAGMA table_info({name})").fetchall()]
            for (name,) in names
            if not name.startswith("sqlite_")
        }


TABLES = _tables()


async def store(path: Path) -> None:
    async with dgent.open(f"sqlite:///{path}", author="ann") as u:
        u.register(NOTE)
        for i in range(6):
            await u.remember(Note(i, f"o{i % 3}", "x" * (i * 300)), id=f"r{i}", tags={"t"})
        for n in range(4):
            await u.remember(Note(n, "later", "y" * 700), id="r3")
        await u.delete("r4")
        await u.forget("r5")
        await u.put(dgent.Datum(id="k", content=b"c" * 900), key="once")
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    assert find_bad_row(connection) is None
    connection.close()


def forge(base: Path, path: Path, sql: str, value: Any) -> bool:
    """A copy of a store with one value changed; False when SQLite itself refuses it."""
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(base, path)
    connection = apsw.Connection(str(path))
    try:
        connection.execute(sql, (value,))
    except apsw.Error:
        return False
    finally:
        connection.close()
    return True


def calls(u: dgent.Universe) -> Iterator[Callable[[], Awaitable[Any]]]:
    """Everything that reads rows, and what writes over them."""
    notes = dgent.Query(schema=NOTE.name, limit=None)
    queries = [
        dgent.Query(limit=None),
        notes,
        notes.replace(order_by="n"),
        notes.replace(where={"owner": "o1"}),
    ]
    queries += [dgent.Query(prefix="r"), dgent.Query(tags={"t"}), notes.replace(where={"text": {"$ne": "?"}})]
    for query in queries:
        yield lambda query=query: u.query(query)
        yield lambda query=query: u.count(query)
    yield lambda: u.get("r3")
    yield lambda: u.get("r3", raw=True)
    yield lambda: u.get_many(["r0", "r3", "k"])
    yield lambda: u.history("r3")
    yield lambda: u.get("r3", as_of=7)
    yield lambda: u.changes(0)
    yield lambda: u.outcome("once")
    yield lambda: u.stats()
    yield lambda: u.schemas()
    yield lambda: upkeep_of(u.backend).inspect(deep=True)
    yield lambda: u.undo(8)
    yield lambda: u.remember(Note(9, "new"), id="r3")
    yield lambda: u.delete("r0")
    yield lambda: u.put(dgent.Datum(id="new"))
    yield lambda: u.compact(keep=1)
    yield lambda: u.forget("r3")


async def try_all(path: Path) -> None:
    with suppress(DgentError):
        async with dgent.open(f"sqlite:///{path}", author="ann") as u:
            u.register(NOTE)
            for call in calls(u):
                with suppress(DgentError):
                    answer = await call()
                    for each in answer if isinstance(answer, list) else [answer]:
                        repr(each)
                        if isinstance(each, dgent.Datum):
                            assert each.problem or isinstance(each.data, dict)


@pytest.mark.parametrize("table", TABLES)
async def test_a_forged_row_is_never_a_raw_error(tmp_path: Path, table: str) -> None:
    base, path = tmp_path / "base.db", tmp_path / "forged.db"
    await store(base)
    forged = 0
    for column in TABLES[table]:
        # In a long look each value in each column of each of these rows, in a short one some of them.
        for row, value in some(itertools.product(ROWS.get(table, ("true",)), VALUES), 3):
            if forge(base, path, f"UPDATE {table} SET {column} = ? WHERE {row}", value):
                forged += 1
                await try_all(path)
    assert forged or not TABLES[table]


@pytest.mark.parametrize(
    ("sql", "value", "named"),
    [
        ("UPDATE datum SET t = ? WHERE id = 'r3'", "text", "'r3' of datum is damaged: t"),
        ("UPDATE datum SET author = ? WHERE id = 'r3'", 999, "'r3' of datum is damaged: author"),
        ("UPDATE commits SET kind = ? WHERE seq = 8", 77, "'8' of commits is damaged: kind"),
        ("UPDATE past SET rev = ? WHERE rev = 1", b"x", "of past is damaged: rev"),
    ],
)
async def test_the_row_is_named(tmp_path: Path, sql: str, value: Any, named: str) -> None:
    await store(tmp_path / "base.db")
    assert forge(tmp_path / "base.db", tmp_path / "forged.db", sql, value)
    with closing(apsw.Connection(str(tmp_path / "forged.db"))) as connection:
        assert named in (find_bad_row(connection) or "")


@pytest.mark.parametrize("column", ["rev", "seq"])
async def test_undo_of_a_record_whose_number_is_none(tmp_path: Path, column: str) -> None:
    await store(tmp_path / "base.db")
    assert forge(
        tmp_path / "base.db", tmp_path / "forged.db", f"UPDATE datum SET {column} = ? WHERE id = 'r3'", "x"
    )
    async with dgent.open(f"sqlite:///{tmp_path}/forged.db") as u:
        u.register(NOTE)
        with pytest.raises(Corrupt, match="'r3'"):
            await u.undo(8)


async def test_a_mistake_of_the_caller_is_not_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await store(path)

    def wrong(_: Any) -> None:
        raise TypeError("of the caller")

    async with dgent.open(f"sqlite:///{path}") as u:
        with pytest.raises(TypeError, match="of the caller"):
            await u.backend._read(wrong)  # type: ignore[attr-defined]
    assert forge(path, tmp_path / "forged.db", "UPDATE datum SET seq = ? WHERE id = 'r0'", "x")
    async with dgent.open(f"sqlite:///{tmp_path / 'forged.db'}") as u:
        with pytest.raises(Corrupt, match="'r0' of datum"):
            await u.backend._read(wrong)  # type: ignore[attr-defined]
