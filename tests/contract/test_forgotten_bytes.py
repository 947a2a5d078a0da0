"""After `forget`, no file of a SQLite store holds a byte of what was forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from dgent.model.datum import Datum
from dgent.store.backend import Backend, Declaration, Keep
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import DAY, delete, find_ids, put, record, typed_record


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteBackend]:
    """A store in a file."""
    backend = SQLiteBackend(str(tmp_path / "store.db"))
    await backend.open()
    yield backend
    await backend.close()


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
        others = [
            typed_record(f"public{n}", data={"n": f"{n}.{version}", "body": "p" * 700}) for n in range(40)
        ]
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
    assert len(await find_ids(store, limit=None)) == 36
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
    assert set(await find_ids(store, author=f"{SECRET}author4")) == set(ids[1:]) - {ids[3]}


async def test_names_of_versions_that_were_compacted_away_go_too(store: SQLiteBackend) -> None:
    ids = await _write_secrets(store)
    await store.compact(Keep(versions=0))
    done = await store.forget(ids, "tester", None)
    assert done.erased
    assert all(SECRET.encode() not in raw for raw in _files(store.path).values())
    assert len(await find_ids(store, limit=None)) == 36


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
