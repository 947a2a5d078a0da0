"""Own tables in copies between stores of the same engine, in backups, and as the doctor sees them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.doors.cli.draw.store import draw_copy
from dgent.doors.cli.style import Paint
from dgent.errors import Conflict
from dgent.exchange import copy as copying
from dgent.exchange import tables
from dgent.exchange.backup import backup, restore
from dgent.exchange.tables import inspect_tables
from tests.storage.conftest import empty, url_of

TABLES = """
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, cents INTEGER DEFAULT 7);
CREATE TABLE prices (item INTEGER REFERENCES items (id), note TEXT, CHECK (note <> 'bad'));
CREATE INDEX prices_by_note ON prices (note);
CREATE VIEW dear AS SELECT name FROM items WHERE cents > 10;
INSERT INTO items (id, name) VALUES (1, 'it''s tea'), (9, 'milk');
INSERT INTO prices VALUES (9, 'x'), (1, NULL)
"""
SQLITE = """
CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, twice INTEGER AS (id * 2), raw BLOB);
CREATE TABLE "odd ""name" (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(text);
CREATE TRIGGER note_words AFTER INSERT ON prices BEGIN INSERT INTO words (text) VALUES (new.note); END;
INSERT INTO counted (id, raw) VALUES (5, x'00ff'), (70, NULL);
DELETE FROM counted WHERE id = 70;
INSERT INTO "odd ""name" VALUES (1.5, 'b');
INSERT INTO words (text) VALUES ('green tea'), ('black coffee')
"""
POSTGRES = """
CREATE TABLE serials (id SERIAL PRIMARY KEY, at TIMESTAMPTZ, twice INT GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE idents (id BIGINT GENERATED ALWAYS AS IDENTITY, size NUMERIC(9, 2));
CREATE TYPE mood AS ENUM ('calm', 'busy');
CREATE TABLE felt (m mood);
CREATE TABLE parts (n INT) PARTITION BY RANGE (n);
CREATE UNIQUE INDEX late_serials ON serials ((id + 1) DESC) WHERE id > 100;
INSERT INTO serials (at) VALUES (now());
INSERT INTO idents (size) VALUES (1.5)
"""
READ_ITEMS = "SELECT id, name, cents FROM items ORDER BY id"


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[dgent.Universe, dgent.Universe]]:
    """A store with own tables, and an empty one of the same engine."""
    async with AsyncExitStack() as stack:
        made = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            u = await stack.enter_async_context(dgent.open(url_of(request.param, tmp_path / name)))
            if request.param == "postgres":
                await empty(u.storage.relational)
            made.append(u)
        await made[0].remember({"text": "beside the tables"})
        await made[0].storage.relational.execute(TABLES)
        yield made[0], made[1]


async def test_a_copy_has_the_own_tables(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    done = await copying.copy(source, target)
    assert (done.tables, done.left_out) == (2, [])
    tables = target.storage.relational
    assert await tables.fetch_all(READ_ITEMS) == [
        {"id": 1, "name": "it's tea", "cents": 7},
        {"id": 9, "name": "milk", "cents": 7},
    ]
    assert len(await tables.fetch_all("SELECT item, note FROM prices")) == 2
    assert await tables.fetch_all("SELECT name FROM dear") == []
    for wrong in (
        "INSERT INTO items (id, name) VALUES (1, 'key')",
        "INSERT INTO items (id, name) VALUES (2, 'milk')",
        "INSERT INTO prices VALUES (3, 'no such item')",
        "INSERT INTO prices VALUES (1, 'bad')",
    ):
        with pytest.raises(Conflict):
            await tables.execute(wrong)
    with pytest.raises(dgent.DgentError, match="prices_by_note"):
        await tables.execute("CREATE INDEX prices_by_note ON prices (note)")


async def test_a_copy_is_brought_up_to_date(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    await copying.copy(source, target)
    await source.storage.relational.execute("UPDATE items SET cents = 20 WHERE id = 9; DROP TABLE prices")
    await source.storage.relational.execute("CREATE TABLE more (a INTEGER)")
    assert (await copying.copy(source, target)).tables == 2
    tables = target.storage.relational
    assert await tables.fetch_all("SELECT name FROM dear") == [{"name": "milk"}]
    assert await tables.fetch_all("SELECT a FROM more") == []
    with pytest.raises(dgent.DgentError, match="prices"):
        await tables.fetch_all("SELECT * FROM prices")
    await tables.execute("INSERT INTO more VALUES (1)")
    with pytest.raises(Conflict, match="'more'"):
        await copying.copy(source, target)
    assert await tables.fetch_all("SELECT a FROM more") == [{"a": 1}]
    await source.storage.relational.execute("INSERT INTO more VALUES (1)")
    assert (await copying.copy(source, target)).tables == 2  # as after an interruption


async def test_a_table_of_the_target_is_kept(pair: tuple[dgent.Universe, dgent.Universe]) -> None:
    source, target = pair
    tables = target.storage.relational
    await tables.execute("CREATE TABLE items (other TEXT); INSERT INTO items VALUES ('mine')")
    await tables.execute("CREATE TABLE aside (n INTEGER); INSERT INTO aside VALUES (3)")
    with pytest.raises(Conflict, match="'items'"):
        await copying.copy(source, target)
    assert await target.count() == 0
    assert await tables.fetch_all("SELECT other FROM items") == [{"other": "mine"}]
    await tables.execute("DELETE FROM items")
    assert (await copying.copy(source, target)).tables == 2
    assert await tables.fetch_one("SELECT name FROM items WHERE id = 9") == {"name": "milk"}
    assert await tables.fetch_all("SELECT n FROM aside") == [{"n": 3}]
    lines = draw_copy(await copying.copy(source, target), Paint(False))
    assert lines[1:] == ["2 own tables copied"]


async def test_a_mirror_follows_the_own_tables(
    pair: tuple[dgent.Universe, dgent.Universe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FOLLOW_S", 0.02)
    monkeypatch.setattr(tables, "SHARE", 0)
    source, target = pair
    ours, theirs = source.storage.relational, target.storage.relational

    async def wait_for(name: str, cents: int) -> None:
        async with asyncio.timeout(20):
            sql, values = "SELECT cents FROM items WHERE name = :name", {"name": name}
            while await theirs.fetch_one(sql, values) != {"cents": cents}:
                await asyncio.sleep(0.02)

    async with aclosing(copying.mirror(source, target)) as seqs:
        assert await anext(seqs) == 1
        await ours.execute("UPDATE items SET cents = 20 WHERE id = 9")
        following = asyncio.ensure_future(anext(seqs))
        await wait_for("milk", 20)
        await ours.execute("CREATE TABLE late (n INTEGER); UPDATE items SET cents = 21 WHERE id = 9")
        await source.remember({"text": "and a record"})
        assert await following == 2 and await target.count() == 3  # with the mark
        following = asyncio.ensure_future(anext(seqs))
        await wait_for("milk", 21)
        assert await theirs.fetch_all("SELECT n FROM late") == []
        await theirs.execute("UPDATE items SET cents = 5 WHERE id = 1")
        await ours.execute("UPDATE items SET cents = 22 WHERE id = 9")
        with pytest.raises(Conflict, match="'items'"):
            async with asyncio.timeout(20):
                await following
    await theirs.execute("UPDATE items SET cents = 7 WHERE id = 1")
    assert (await copying.copy(source, target)).tables == 3
    await wait_for("milk", 22)


async def test_an_interrupted_copy_of_tables_goes_on(
    pair: tuple[dgent.Universe, dgent.Universe], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    await copying.copy(source, target)
    await source.storage.relational.execute("UPDATE items SET cents = 20")
    async with tables.open_tables(target) as theirs:
        kind = type(theirs)
    whole = kind.copy_from

    async def fail(self: Any, other: Any, replaced: Any) -> None:
        await whole(self, other, replaced)
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(kind, "copy_from", fail)
        with pytest.raises(asyncio.CancelledError):
            await copying.copy(source, target)
    await source.storage.relational.execute("UPDATE items SET cents = 30")
    assert (await copying.copy(source, target)).tables == 2
    found = await target.storage.relational.fetch_one("SELECT min(cents) AS cents FROM items")
    assert found == {"cents": 30}


async def test_sqlite_copies_everything_that_is_not_its_own(tmp_path: Path) -> None:
    async with (
        dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as source,
        dgent.open(f"sqlite:///{tmp_path / 'b.db'}") as target,
    ):
        await source.storage.relational.execute(TABLES)
        await source.storage.relational.execute(SQLITE)
        assert (await copying.copy(source, target)).tables == 5
        assert (await copying.copy(source, target)).tables == 5
        tables = target.storage.relational
        assert await tables.fetch_all("SELECT * FROM counted") == [{"id": 5, "twice": 10, "raw": b"\0\xff"}]
        await tables.execute("INSERT INTO counted (raw) VALUES (NULL)")
        assert await tables.fetch_one("SELECT max(id) AS id FROM counted") == {"id": 71}
        assert await tables.fetch_all('SELECT * FROM "odd ""name"') == [{"a": 1.5, "b": "b"}]
        await tables.execute("INSERT INTO prices VALUES (1, 'more tea')")
        assert await tables.fetch_all("SELECT rowid, text FROM words WHERE words MATCH 'tea'") == [
            {"rowid": 1, "text": "green tea"},
            {"rowid": 3, "text": "more tea"},
        ]
        await tables.execute("INSERT INTO words (words) VALUES ('integrity-check')")


async def test_postgres_goes_on_counting_and_names_what_it_left_out(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(dgent.open(url_of("postgres", tmp_path / name))) for name in "ab"
        ]
        await empty(source.storage.relational)
        await empty(target.storage.relational)
        await source.storage.relational.execute(POSTGRES)
        for _again in range(2):
            done = await copying.copy(source, target)
            assert done.tables == 2
            assert done.left_out == [
                "felt (it has a column of a type of your own)",
                "parts (it is partitioned)",
                "type mood",
            ]
        tables = target.storage.relational
        await tables.execute(
            "INSERT INTO serials (at) VALUES (NULL); INSERT INTO idents (size) VALUES (NULL)"
        )
        assert await tables.fetch_all("SELECT id, twice FROM serials ORDER BY id") == [
            {"id": 1, "twice": 2},
            {"id": 2, "twice": 4},
        ]
        assert await tables.fetch_all("SELECT id, size FROM idents ORDER BY id") == [
            {"id": 1, "size": Decimal("1.50")},
            {"id": 2, "size": None},
        ]
        await source.storage.relational.execute("DROP TABLE felt; DROP TYPE mood")


async def test_another_engine_gets_the_records_alone(tmp_path: Path) -> None:
    async with (
        dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as source,
        dgent.open(f"jsonl:{tmp_path / 'b'}") as target,
    ):
        await source.remember({"n": 1})
        await source.storage.relational.execute("CREATE TABLE left_here (n)")
        done = await copying.copy(source, target)
        assert (done.records, done.tables, done.left_out) == (1, 0, ["left_here"])
        assert draw_copy(done, Paint(False))[1:] == ["own tables left out: left_here"]


async def test_the_doctor_counts_tables_and_finds_broken_references(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as u:
        assert await inspect_tables(u, True) == []
        await u.storage.relational.execute(TABLES)
        assert [each.message for each in await inspect_tables(u, False)] == ["2 tables"]
        assert (await inspect_tables(u, True))[0].level == "ok"
    with closing(sqlite3.connect(tmp_path / "a.db")) as other, other:  # where no references are enforced
        other.execute("INSERT INTO prices VALUES (77, NULL)")
    async with dgent.open(f"sqlite:///{tmp_path / 'a.db'}") as u:
        found = await inspect_tables(u, True)
        assert [(each.level, each.message) for each in found] == [
            ("problem", "1 row of prices refers to a row of items that is not there")
        ]


async def test_own_tables_survive_a_backup(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    async with dgent.open(f"sqlite:///{folder / 'membrane.db'}") as u:
        await u.remember({"n": 1})
        await u.storage.relational.execute(TABLES)
        await backup(u, folder, tmp_path / "kept")
        await u.storage.relational.execute("DELETE FROM prices; DROP VIEW dear")
    await restore(tmp_path / "kept", tmp_path / "back")
    async with dgent.open(f"sqlite:///{tmp_path / 'back' / 'membrane.db'}") as u:
        assert len(await u.storage.relational.fetch_all("SELECT * FROM prices")) == 2
        assert await u.storage.relational.fetch_all("SELECT name FROM dear") == []
        assert [each.message for each in await inspect_tables(u, False)] == ["2 tables"]
