"""Stores of format 3, which has ids and tags as texts, are upgraded."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.store.upkeep import upkeep_of
from tests.old_stores.test_old_stores import HERE, unpack

ANSWERS: dict[str, Any] = json.loads((HERE / "format3.json").read_text())
PAGE = Schema[Any]("note.page", indexes=("weight",), text={"title": 3, "body": 1})


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = unpack("format3", tmp_path)
    return f"sqlite:///{folder}/sqlite/membrane.db" if request.param == "sqlite" else f"jsonl:{folder}/jsonl"


async def test_records_are_found_and_nothing_is_wrong(url: str) -> None:
    async with dgent.open(url, author="later") as u:
        u.register(PAGE)

        async def find(**wanted: Any) -> list[str]:
            return [each.id for each in await u.query(Query(schema="note.page", **wanted), raw=True)]

        counts = {tag: await u.count(Query(schema="note.page", tags=[tag])) for tag in ANSWERS["counts"]}
        assert counts == ANSWERS["counts"]
        assert await u.count(Query(schema="note.page")) == ANSWERS["records"]
        assert await u.count(Query(tags=["odd"])) == ANSWERS["plain"]
        assert {tag: await find(tags=[tag], limit=25) for tag in ANSWERS["newest"]} == ANSWERS["newest"]
        assert await find(tags=["odd", "topic-3"], limit=40) == ANSWERS["both"]
        assert await find(tags=["topic-1"], where={"weight": 7}) == ANSWERS["narrow"]
        assert await find(where={"weight": 39}) == ANSWERS["heavy"]
        assert len(await u.changes(0, limit=None)) == ANSWERS["commits"]
        for text, wanted in ANSWERS["hits"].items():
            assert [hit.id for hit in await u.search(text, k=5)] == wanted, text
        inspected = await upkeep_of(u.backend).inspect(deep=True)
        assert [each for each in inspected if each.level == "problem"] == []


async def test_records_are_added_changed_and_forgotten(url: str) -> None:
    async with dgent.open(url, author="later") as u:
        u.register(PAGE)
        before = ANSWERS["counts"]["topic-1"]
        data = {"title": "late", "body": "words", "weight": 1}
        late = [
            Datum(id=f"late-{n}", schema="note.page", schema_version=1, tags=["topic-1"], data=data)
            for n in range(300)
        ]
        await u.put_many(late)
        await u.forget("late-7")
        await u.delete(ANSWERS["newest"]["topic-1"][0])
        assert await u.count(Query(schema="note.page", tags=["topic-1"])) == before + 298
        inspected = await upkeep_of(u.backend).inspect(deep=True)
        assert [each for each in inspected if each.level == "problem"] == []


async def test_ids_and_tags_get_shorter_and_other_tables_stay(tmp_path: Path) -> None:
    path = unpack("format3", tmp_path) / "sqlite" / "membrane.db"
    given, packed = ANSWERS["newest"]["topic-1"][:2], "0190d000-0000-7000-8000-00000000000d"
    with closing(apsw.Connection(str(path))) as connection:
        for table in ("datum", "past"):
            connection.execute(f"UPDATE {table} SET id = ? WHERE id = ?", (packed, given[0]))
            connection.execute(f"UPDATE {table} SET id = ? WHERE id = ?", (packed.upper(), given[1]))
        connection.execute("CREATE TABLE own (a); CREATE VIEW lost AS SELECT * FROM dropped")
    async with dgent.open(f"sqlite:///{path}", author="later") as u:
        u.register(PAGE)
        found = await u.query(Query(schema="note.page", tags=["topic-1"], limit=25), raw=True)
        assert [each.id for each in found] == [packed, packed.upper(), *ANSWERS["newest"]["topic-1"][2:]]
        assert (await u.get(packed, raw=True)).tags >= {"topic-1"}
        assert [each.id for each in await u.list(packed[:8])] == [packed]
        inspected = await upkeep_of(u.backend).inspect(deep=True)
        assert [each for each in inspected if each.level == "problem"] == []
    with closing(apsw.Connection(str(path))) as connection:
        kinds: Any = connection.execute("SELECT typeof(id), count(*) FROM datum GROUP BY 1").fetchall()
        assert dict(kinds)["blob"] == 1
        numbered: Any = connection.execute(
            "SELECT count(*) FROM datum WHERE typeof(tags) = 'integer'"
        ).fetchall()
        assert numbered[0][0] > 1_000
        names: Any = connection.execute("SELECT name FROM sqlite_schema").fetchall()
        assert {("own",), ("lost",)} <= {*names}
