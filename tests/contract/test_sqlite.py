"""What only a file can get wrong: other trails' rows, open statements, bytes that stay behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Declaration, Delete, Put, StoredView
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import Steps, commit, find_ids, put, record, typed_record
from tests.contract.reads import READS, comparable, fill_up
from tests.fault.check import move_entries


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteBackend]:
    """A store in a file."""
    backend = SQLiteBackend(str(tmp_path / "store.db"))
    await backend.open()
    yield backend
    await backend.close()


# -- trails -------------------------------------------------------------------------------

_TRAIL = """
INSERT INTO trail (trail, id, parent, base_seq, state) VALUES (1, 'other', 0, 0, 0);
INSERT INTO datum (dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x,
                   data, content, trail, base_rev)
    SELECT dk + 1000, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x,
           data, content, 1, rev FROM datum WHERE trail = 0;
INSERT INTO datum (dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc, fk, x,
                   data, content, trail, base_rev)
    SELECT 2000, 'elsewhere', 1, seq, 1, t, at, schema, sv, author, source, parent, tags, enc, fk, x,
           data, content, 1, 0 FROM datum WHERE id = 'r1' AND trail = 0;
INSERT INTO past SELECT dk + 1000, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags, enc,
                        fk, x, data, content FROM past;
INSERT INTO ix (ix, schema, iv, tag, path, trail) SELECT ix + 1000, schema, iv, tag, path, 1 FROM ix;
INSERT INTO entry (ix, key, t, dk) SELECT ix + 1000, key, t, dk + 1000 FROM entry;
INSERT INTO entry (ix, key, t, dk) SELECT ix, key, t, 2000 FROM entry WHERE ix > 1000 GROUP BY ix;
INSERT INTO ix (ix, schema, iv, tag, path, trail)
    SELECT 3000, schema, 0, 'on the trail', '', 1 FROM datum WHERE dk = 2000;
INSERT INTO entry (ix, key, t, dk) SELECT 3000, x'', t, 2000 FROM datum WHERE dk = 2000;
INSERT INTO lag SELECT schema, dk + 1000 FROM lag;
INSERT INTO commits (seq, at, author, kind, ops, trail)
    SELECT seq + 100, at, author, kind, ops, 1 FROM commits;
"""


async def test_rows_of_another_trail_are_invisible_to_every_read(store: SQLiteBackend) -> None:
    await fill_up(store)
    await move_entries(store)
    before = {name: comparable(await read(store)) for name, read in READS.items()}
    connection = apsw.Connection(store.path)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TRAIL)
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
    connection.execute("COMMIT")
    connection.close()
    for name, read in READS.items():
        assert comparable(await read(store)) == before[name], name


async def test_a_trails_row_stays_when_main_changes_its_own(store: SQLiteBackend) -> None:
    await fill_up(store)
    connection = apsw.Connection(store.path)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TRAIL)
    connection.execute("COMMIT")
    answer = await commit(
        store, Put(typed_record("r1", 9, version=2)), Delete("r2"), Put(record("elsewhere", 1))
    )
    assert [written.rev for written in answer.written] == [3, 2, 1]
    await store.forget(["r0"], "tester", None)
    left = connection.execute("SELECT count(*) FROM datum WHERE trail = 1").fetchall()
    connection.close()
    assert left == [(7,)]
    assert set(await find_ids(store)) == {"r1", "lags", "plain", "elsewhere"}


# -- statements ---------------------------------------------------------------------------


class Broken(StoredView):
    """A view that fails at the second record it sees."""

    def __init__(self) -> None:
        self.seen = 0

    lazy = False

    def version(self, schema: str) -> int | None:
        return 2

    def shape(self, datum: Datum) -> dict[str, Any]:
        self.seen += 1
        if self.seen > 1:
            raise RuntimeError("a bug in a migration step")
        return datum.data


@pytest.mark.parametrize("name", [*READS, "failing query", "failing order"])
async def test_no_read_leaves_a_statement_open(store: SQLiteBackend, name: str) -> None:
    """One that stayed open would hide later commits of others from its connection."""
    await fill_up(store)
    kept: list[object] = []
    reads = {
        **READS,
        "failing query": lambda s: s.query(Query(where={"n": {"$gte": 0}}), Broken()),
        "failing order": lambda s: s.query(Query(schema="note", order_by="n", limit=1), Broken()),
    }
    for _ in range(8):
        try:
            kept.append(await reads[name](store))
        except RuntimeError as error:
            kept.append(error)  # with its traceback, and so with every frame of the read
    assert store._shared is not None
    for reader in store._shared._readers:
        connection = reader.own.connection
        assert connection.txn_state("main") == apsw.SQLITE_TXN_NONE
    other = SQLiteBackend(store.path, "relaxed")
    await other.open()
    await put(other, record("theirs", 1))
    await other.close()
    assert await store.get("theirs") is not None
    assert "theirs" in await find_ids(store)


# -- indexes ------------------------------------------------------------------------------


async def test_a_replaced_index_leaves_nothing_behind(store: SQLiteBackend) -> None:
    await fill_up(store)
    await store.declare(Declaration("note", 3, indexes=("number",)))
    while await store.fill("note", Steps(3)):
        pass
    await store.drop_index("note", "number")
    await move_entries(store)
    connection = apsw.Connection(store.path)
    versions = connection.execute("SELECT DISTINCT iv FROM ix").fetchall()
    strays = connection.execute("SELECT count(*) FROM entry WHERE ix NOT IN (SELECT ix FROM ix)").fetchall()
    connection.close()
    assert (versions, strays) == ([(0,)], [(0,)])


# -- two writers --------------------------------------------------------------------------


async def test_two_writers_on_one_file_know_what_the_other_did(store: SQLiteBackend) -> None:
    """Handles of different durability share no writer, so they are to each other as two processes."""
    other = SQLiteBackend(store.path, "relaxed")
    await other.open()
    tags = frozenset({"t"})
    for n in range(1, 9):
        here, there = (store, other) if n % 2 else (other, store)
        answer = await put(
            here, typed_record("a", n, tags=tags), typed_record(f"r{n}", n, tags=tags, source=f"s{n}")
        )
        assert (answer.seq, answer.written[0].rev) == (n, n)
        assert (await put(there, typed_record("a", n, tags=tags))).seq == n
        assert len(await find_ids(there, tags=tags)) == n + 1
    await other.declare(Declaration("note", 1, indexes=("n",)))
    await put(store, typed_record("a", 5, tags=tags))
    while await other.fill("note", Steps(1)):
        pass
    for handle in (store, other):
        assert set(await find_ids(handle, schema="note", where={"n": 5})) == {"a", "r5"}
    await store.forget(["a", *(f"r{n}" for n in range(1, 9))], "tester", None)
    await put(other, typed_record("a", 5, tags=tags, source="s5"))
    for handle in (store, other):
        assert await find_ids(handle, tags=tags) == ["a"]
        assert await find_ids(handle, source="s5") == ["a"]
        assert await find_ids(handle, schema="note", where={"n": 5}) == ["a"]
        assert [version.rev for version in await handle.history("a", None)] == [10]
    await other.close()


# -- groups -------------------------------------------------------------------------------


async def test_a_stream_dropped_in_the_group_that_made_it_is_made_again(store: SQLiteBackend) -> None:
    """Put and forget in one transaction: the tag's stream goes, and must not be written to later."""
    tags = frozenset({"rare"})
    blocker = apsw.Connection(store.path)
    blocker.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(put(store, record("first")))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(put(store, record("a", 1, tags=tags, source="rare source")))
    await asyncio.sleep(0.05)
    third = asyncio.create_task(store.forget(["a"], "tester", None))
    await asyncio.sleep(0.05)
    blocker.execute("ROLLBACK")
    blocker.close()
    await asyncio.gather(first, second, third)
    assert await store.get("a") is None
    await put(store, record("b", 1, tags=tags, source="rare source"))
    assert await find_ids(store, tags=tags) == ["b"]
    assert await find_ids(store, source="rare source") == ["b"]
    await store.close()
    await store.open()
    assert await find_ids(store, tags=tags) == ["b"]
    assert await find_ids(store, source="rare source") == ["b"]


# -- room ---------------------------------------------------------------------------------


async def test_many_records_deleted_together_give_their_pages_back(store: SQLiteBackend) -> None:
    await store.declare(Declaration("small", 1, history="none"))
    many = [typed_record(f"r{n}", 1, schema="small").replace(content=bytes(400)) for n in range(1200)]
    await commit(store, *(Put(each, 0) for each in many))
    whole = _pages(store.path)
    for start in range(0, 1200, 120):
        await commit(store, *(Delete(each.id) for each in many[start : start + 120]))
    assert _pages(store.path) < whole / 4
    assert await store.get("r7") is None
    assert [change.items[0].id for change in await store.changes(1, 100)][-1] == "r1080"


async def test_a_record_deleted_among_many_is_made_again_in_the_same_group(store: SQLiteBackend) -> None:
    await commit(store, *(Put(record(f"r{n}", n), 0) for n in range(40)))
    blocker = apsw.Connection(store.path)
    blocker.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(commit(store, *(Delete(f"r{n}") for n in range(40))))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(commit(store, Put(record("r3", 33), 0)))
    await asyncio.sleep(0.05)
    blocker.execute("ROLLBACK")
    blocker.close()
    await asyncio.gather(first, second)
    made = await store.get("r3")
    assert made is not None and (made.rev, made.data["n"]) == (3, 33)
    assert await store.get("r4") is None
    assert [version.rev for version in await store.history("r3", None)] == [3, 2, 1]
    await put(store, record("r4", 44))
    again = await store.get("r4")
    assert again is not None and again.rev == 3


def _pages(path: str) -> int:
    connection = apsw.Connection(path)
    try:
        sql = "SELECT count(*) FROM dbstat WHERE name = 'datum' AND pagetype = 'leaf'"
        return int(connection.execute(sql).fetchall()[0][0])
    finally:
        connection.close()


async def test_closing_does_not_wait_for_a_lock_on_behalf_of_who_gave_up(store: SQLiteBackend) -> None:
    await put(store, record("a"))
    blocker = apsw.Connection(store.path)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(put(store, record("b")), 0.2)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 10  # of the 30 s that a commit waits
    assert blocker.execute("SELECT count(*) FROM datum").get == 1
    blocker.close()
