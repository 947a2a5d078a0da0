"""What only a file can get wrong: other trails' rows, open statements, bytes that stay behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dgent.errors import Corrupt
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Delete, Guard, Keep, Put
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import DAY, STORED, commit, delete, found, put, record, typed
from dgent.testing.schema import Steps
from tests.contract.model import exact


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteBackend]:
    """A store in a file."""
    backend = SQLiteBackend(str(tmp_path / "store.db"))
    await backend.open()
    yield backend
    await backend.close()


QUERIES = [
    Query(),
    Query(limit=1),
    Query(schema="note"),
    Query(schema="note", limit=1),
    Query(tags=frozenset({"t"})),
    Query(any_tags=frozenset({"t", "u"}), limit=1),
    Query(author="ann"),
    Query(source="web"),
    Query(parent="p"),
    Query(prefix="r", limit=1),
    Query(schema="note", where={"n": 1}),
    Query(schema="note", where={"n": {"$gte": 0}}, order_by="n", limit=1),
    Query(where={"n": {"$gte": 0}}, limit=2),
]

READS: dict[str, Callable[[Backend], Awaitable[Any]]] = {
    **{f"query {n}": lambda s, q=q: s.query(q, Steps(2)) for n, q in enumerate(QUERIES)},  # type: ignore[misc]
    **{f"past query {n}": lambda s, q=q: s.query(q, STORED, 2) for n, q in enumerate(QUERIES)},  # type: ignore[misc]
    "counts": lambda s: asyncio.gather(*(s.count(query, STORED) for query in QUERIES)),
    "get": lambda s: s.get("r1"),
    "get as of": lambda s: s.get("r1", 2),
    "get only there": lambda s: s.get("elsewhere"),
    "get_many": lambda s: s.get_many(["r1", "r2", "elsewhere"]),
    "history": lambda s: s.history("r1", None),
    "history only there": lambda s: s.history("elsewhere", None),
    "referrers": lambda s: s.referrers("x", None),
    "changes": lambda s: s.changes(0, 100),
    "reverted": lambda s: s.reverted(2),
    "validate": lambda s: s.validate(Guard(3, frozenset({"r9"})), STORED),
    "versions": lambda s: s.versions("note"),
    "stats": lambda s: s.stats(),
}


async def _fill_up(store: Backend) -> None:
    await store.declare(Declaration("note", 2, indexes=("n",), refs=("to",)))
    fields: dict[str, Any] = {"tags": frozenset({"t"}), "author": "ann", "source": "web", "parent_id": "p"}
    await put(store, *(typed(f"r{n}", data={"n": n, "to": "x"}, version=2, **fields) for n in range(4)))
    await put(store, *(typed(f"r{n}", data={"n": n + 1, "to": "x"}, version=2, **fields) for n in range(2)))
    await put(store, typed("lags", 1), record("plain", 1))
    await delete(store, "r3")


def _comparable(answer: Any) -> Any:
    if hasattr(answer, "items") and hasattr(answer, "cursor"):
        return exact(answer.items), answer.cursor
    if hasattr(answer, "schemas"):
        return answer.records, answer.schemas
    # A bare number is the newest seq, which all trails share.
    return None if isinstance(answer, int) else exact(answer)


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
INSERT INTO entry SELECT ix + 1000, key, t, dk + 1000 FROM entry;
INSERT INTO entry SELECT ix, key, t, 2000 FROM entry WHERE ix > 1000 GROUP BY ix;
INSERT INTO lag SELECT schema, dk + 1000 FROM lag;
INSERT INTO commits (seq, at, author, kind, ops, trail)
    SELECT seq + 100, at, author, kind, ops, 1 FROM commits;
"""


async def test_rows_of_another_trail_are_invisible_to_every_read(store: SQLiteBackend) -> None:
    await _fill_up(store)
    before = {name: _comparable(await read(store)) for name, read in READS.items()}
    connection = apsw.Connection(store.path)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TRAIL)
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")
    connection.execute("COMMIT")
    connection.close()
    for name, read in READS.items():
        assert _comparable(await read(store)) == before[name], name


async def test_a_trails_row_stays_when_main_changes_its_own(store: SQLiteBackend) -> None:
    await _fill_up(store)
    connection = apsw.Connection(store.path)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TRAIL)
    connection.execute("COMMIT")
    answer = await commit(store, Put(typed("r1", 9, version=2)), Delete("r2"), Put(record("elsewhere", 1)))
    assert [written.rev for written in answer.written] == [3, 2, 1]
    await store.forget(["r0"], "tester", None)
    left = connection.execute("SELECT count(*) FROM datum WHERE trail = 1").fetchall()
    connection.close()
    assert left == [(7,)]
    assert set(await found(store)) == {"r1", "lags", "plain", "elsewhere"}


# -- statements ---------------------------------------------------------------------------


class Broken:
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
    await _fill_up(store)
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
    assert "theirs" in await found(store)


# -- forgotten bytes ----------------------------------------------------------------------

SECRET = "sEcReT-"


def _secret(n: int, version: int, size: int) -> Datum:
    """A record with a mark in everything that can hold text."""
    mark = f"{SECRET}{n}.{version}"
    return Datum(
        id=f"{SECRET}id{n}",
        created_at=DAY,
        data={"n": mark, "body": mark + "x" * size, "to": mark},
        content=(mark + "y" * size).encode(),
        tags=frozenset({mark, "public"}),
        author=f"{SECRET}author{version}",
        source=f"{SECRET}source{version}",
        parent_id=f"{SECRET}parent{n}",
        schema="note",
        schema_version=1,
        extra={"x": mark},
    )


def _files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).parent.iterdir()}


async def _write_secrets(store: Backend) -> list[str]:
    """Records that grow, shrink and move through pages and history, between others that stay."""
    await store.declare(Declaration("note", 1, indexes=("n", "body"), refs=("to",)))
    sizes = (10, 300, 3000, 9000, 50)
    for version in range(5):
        secrets = [_secret(n, version, sizes[(n + version) % 5]) for n in range(12)]
        others = [typed(f"public{n}", data={"n": f"{n}.{version}", "body": "p" * 700}) for n in range(40)]
        for n in range(12):
            fields = {"note": f"{SECRET}note", "key": f"{version}{n}"}
            await put(store, secrets[n], *others[n * 3 : n * 3 + 3], **fields)
    await delete(store, f"{SECRET}id3")
    return [f"{SECRET}id{n}" for n in range(12)]


async def test_forgotten_bytes_are_in_no_file(store: SQLiteBackend) -> None:
    ids = await _write_secrets(store)
    await store.declare(Declaration("note", 2, indexes=("n",)))
    assert any(SECRET.encode() in raw for raw in _files(store.path).values())
    done = await store.forget(ids, "tester", None)
    assert done.erased
    for name, raw in _files(store.path).items():
        assert SECRET.encode() not in raw, (name, raw[raw.index(SECRET.encode()) :][:40])
    assert len(await found(store, limit=None)) == 36
    await store.close()
    for name, raw in _files(store.path).items():
        assert SECRET.encode() not in raw, name


async def test_forgetting_one_of_many_leaves_the_others_whole(store: SQLiteBackend) -> None:
    ids = await _write_secrets(store)
    await store.forget(ids[:1], "tester", None)
    marks = [f"{SECRET}0.{version}".encode() for version in range(5)] + [f"{SECRET}id0".encode()]
    for raw in _files(store.path).values():
        assert not any(mark in raw for mark in marks)
    assert len(await store.history(ids[1], None)) == 5
    stored = await store.get(ids[1])
    assert stored is not None
    assert stored.author == f"{SECRET}author4"
    # Names are kept while another record has them.
    assert set(await found(store, author=f"{SECRET}author4")) == set(ids[1:]) - {ids[3]}


async def test_while_a_reader_pins_old_pages_erasing_is_not_claimed(
    store: SQLiteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgent.store.sqlite.shared.SCRUB_S", 0.2)
    await put(store, _secret(1, 1, 50))
    reader = apsw.Connection(store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM datum").fetchall()
    started = time.monotonic()
    forgetting = asyncio.create_task(store.forget([f"{SECRET}id1"], "tester", None))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(put(store, record("meanwhile")), 5)
    done = await forgetting
    assert (done.records, done.erased) == (1, False)
    assert time.monotonic() - started < 10
    assert await store.get(f"{SECRET}id1") is None
    reader.execute("COMMIT")
    reader.close()
    again = await store.forget([f"{SECRET}id1"], "tester", None)
    assert (again.records, again.erased) == (0, True)
    assert all(SECRET.encode() not in raw for raw in _files(store.path).values())


# -- failures in the middle ----------------------------------------------------------------

WRITES = ("insert", "replace", "bury", "add_entries", "remove_entries", "append", "set_lag", "set_state")
WRITES += ("make_number", "make_stream", "set_keys", "drop_past", "erase", "drop_streams", "raise_floor")


class Failing:
    """A kernel that fails at the n-th write; it stands in for a full disk or a damaged page."""

    left: int | None = None
    error: type[Exception] = RuntimeError

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        if name in WRITES and Failing.left is not None:
            Failing.left -= 1
            if Failing.left < 0:
                raise Failing.error("on purpose")
        return getattr(self._kernel, name)


CHANGES: dict[str, Callable[[Backend], Awaitable[Any]]] = {
    "commit": lambda s: commit(
        s,
        Put(typed("r1", 7, version=2, tags=frozenset({"new"}))),
        Delete("r2"),
        Put(typed("new", 1, version=1, source="new")),
        Put(typed("lags", version=2, data={"n": 5})),
        key="k",
    ),
    "forget": lambda s: s.forget(["r1", "lags"], "tester", None),
    "declare": lambda s: s.declare(Declaration("note", 3, indexes=("double",))),
    "drop_index": lambda s: s.drop_index("note", "n"),
    "compact": lambda s: s.compact(Keep(versions=0)),
}


@pytest.mark.parametrize("error", [RuntimeError, Corrupt], ids=["foreign", "ours"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_failure_at_any_write_undoes_the_whole_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, error: type[Exception]
) -> None:
    store = SQLiteBackend(str(tmp_path / "store.db"), wrap=Failing)
    await store.open()
    await _fill_up(store)
    before = {name: _comparable(await read(store)) for name, read in READS.items()}
    monkeypatch.setattr(Failing, "error", error)
    for failing in range(200):
        monkeypatch.setattr(Failing, "left", failing)
        try:
            await CHANGES[change](store)
            break
        except error:
            Failing.left = None
            after = {name: _comparable(await read(store)) for name, read in READS.items()}
            assert after == before, failing
            assert await store.outcome("k") is None
    monkeypatch.setattr(Failing, "left", None)
    assert 0 < failing < 199
    await put(store, record("afterwards"))
    assert "afterwards" in await found(store)
    await store.close()


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
    assert await found(store, tags=tags) == ["b"]
    assert await found(store, source="rare source") == ["b"]
    await store.close()
    await store.open()
    assert await found(store, tags=tags) == ["b"]
    assert await found(store, source="rare source") == ["b"]
