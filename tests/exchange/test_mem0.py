"""The history.db of mem0, and memories that were exported as JSON."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import InputError, NotFound
from dgent.exchange.foreign.mem0 import import_mem0

TABLES = """
CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,
    created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT);
CREATE TABLE messages (id TEXT PRIMARY KEY, session_scope TEXT, role TEXT, content TEXT, name TEXT,
    created_at DATETIME);
"""
MADE = "2026-01-31T12:00:00+00:00"
ROWS: list[tuple[Any, ...]] = [
    ("h1", "m1", None, "Likes tea", "ADD", MADE, None, 0, "ann", "user"),
    ("h2", "m1", "Likes tea", "Likes green tea", "UPDATE", MADE, "2026-02-01T00:00:00+00:00", 0, None, None),
    ("h3", "m2", None, "Has a dog", "ADD", MADE, None, 0, None, None),
    ("h4", "m2", "Has a dog", None, "DELETE", MADE, "2026-02-02T00:00:00+00:00", 1, None, None),
    ("h5", "m3", None, b"\x80\x04N.", "ADD", MADE, None, 0, None, None),
    ("h6", None, None, "lost", "ADD", MADE, None, 0, None, None),
    ("h7", "m4", None, None, "DELETE", MADE, None, 1, None, None),
]
EXPORT = {
    "results": [
        {"id": "m1", "memory": "Likes green tea", "user_id": "ann", "metadata": {"k": 1}, "created_at": MADE},
        {
            "id": "m9",
            "memory": "Lives in Rome",
            "user_id": "ann",
            "agent_id": "a",
            "created_at": MADE,
            "score": 1,
        },
        {"id": "m10"},
        5,
    ]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "mem0"
    place.mkdir()
    with sqlite3.connect(place / "history.db") as connection:
        connection.executescript(TABLES)
        connection.executemany(f"INSERT INTO history VALUES ({', '.join('?' * 10)})", ROWS)
        connection.execute(
            "INSERT INTO messages VALUES ('x', 'user_id=ann', 'user', 'hello', NULL, ?)", (MADE,)
        )
    connection.close()
    (place / "memories.json").write_text(json.dumps(EXPORT))
    return place


def digest(folder: Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(folder.iterdir())}


def counts(found: Any) -> dict[str, tuple[int, int, int, int]]:
    return {each.kind: (each.read, each.written, each.already_there, each.left_out) for each in found.kinds}


@pytest.mark.parametrize("engine", ("memory", "sqlite"))
async def test_folder_with_history_and_export(engine: str, folder: Path, tmp_path: Path) -> None:
    before = digest(folder)
    async with dgent.open("memory:" if engine == "memory" else f"sqlite:///{tmp_path}/d.db") as u:
        dry = await import_mem0(u, folder, dry_run=True)
        assert await u.count(dgent.Query()) == 0
        found = await import_mem0(u, folder)
        assert counts(found) == counts(dry) == {"memories": (11, 6, 0, 5), "messages": (1, 1, 0, 0)}
        again = await import_mem0(u, folder)
        assert counts(again) == {"memories": (11, 0, 6, 5), "messages": (1, 0, 1, 0)}
        assert digest(folder) == before
        texts = [each.datum and each.datum.data["text"] for each in await u.history("mem0/m1")]
        assert texts == ["Likes green tea", "Likes tea"]
        newest = await u.get("mem0/m1", raw=True)
        assert newest is not None and newest.data["metadata"] == {"k": 1} and newest.tags == {"ann"}
        assert str(newest.created_at) == "2026-01-31 12:00:00+00:00"
        assert [each.datum is None for each in await u.history("mem0/m2")] == [True, False]
        hits = await u.search("Rome", tags={"ann"})
        assert [hit.datum.id for hit in hits] == ["mem0/m9"]


async def test_interrupted_import_continues(folder: Path) -> None:
    async with dgent.open("memory:") as u:
        commit, left = u.commit, [1]

        async def stop(*args: Any, **options: Any) -> Any:
            if not left[0]:
                raise InterruptedError
            left[0] -= 1
            return await commit(*args, **options)

        u.commit = stop  # type: ignore[method-assign]
        with pytest.raises(InterruptedError):
            await import_mem0(u, folder)
        u.commit = commit  # type: ignore[method-assign]
        found = await import_mem0(u, folder)
        assert counts(found)["memories"] == (11, 3, 3, 5)
        assert [len(await u.history(f"mem0/{id}")) for id in ("m1", "m2", "m9")] == [2, 2, 1]


async def test_changed_memories_stay(folder: Path) -> None:
    async with dgent.open("memory:") as u:
        await u.put(dgent.Datum("mem0/m9", data={"text": "mine"}))
        found = await import_mem0(u, folder)
        assert any("another version of it is here" in each.message for each in found.problems)
        assert (await u.get("mem0/m9", raw=True)).data == {"text": "mine"}  # type: ignore[union-attr]


async def test_local_qdrant_is_reported(folder: Path) -> None:
    place = folder / "qdrant" / "collection" / "mem0"
    place.mkdir(parents=True)
    (place / "storage.sqlite").write_bytes(b"SQLite format 3\0")
    async with dgent.open("memory:") as u:
        found = await import_mem0(u, folder)
        assert "pickled points" in found.problems[0].message


async def test_other_files_are_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE other (a)").connection.close()
    (tmp_path / "bad.json").write_text("{")
    async with dgent.open("memory:") as u:
        for name, error in (("other.db", InputError), ("bad.json", InputError), ("missing", NotFound)):
            with pytest.raises(error):
                await import_mem0(u, tmp_path / name)
