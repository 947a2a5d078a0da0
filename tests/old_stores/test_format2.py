"""Stores of format 2, with a text index that has pages, runs and records that wait, are upgraded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Query, Schema
from dgent.store.upkeep import upkeep_of
from tests.old_stores.test_old_stores import HERE, load_dump, unpack
from tests.postgres.server import HASTY, Server, with_universe

ANSWERS: dict[str, Any] = json.loads((HERE / "format2.json").read_text())
PAGE = Schema[Any]("note.page", indexes=("weight",), text={"title": 3, "body": 1})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(HASTY).create().start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    engine: str = request.param
    folder = unpack("format2", tmp_path)
    if engine == "postgres":
        server: Server = request.getfixturevalue("server")
        load_dump(server, folder / "postgres" / "format2.sql", "format2")
        return with_universe(server.url, "format2")
    return f"sqlite:///{folder}/sqlite/membrane.db" if engine == "sqlite" else f"jsonl:{folder}/jsonl"


async def test_records_are_found_and_nothing_is_wrong(url: str) -> None:
    async with dgent.open(url, author="later") as u:
        u.register(PAGE)
        found = await u.query(Query(schema="note.page", where={"weight": 99}), raw=True)
        assert [each.id for each in found] == ANSWERS["heavy"]
        assert await u.count(Query(schema="note.page")) == ANSWERS["records"]
        assert len(await u.changes(0, limit=None)) == ANSWERS["commits"]
        for text, wanted in ANSWERS["hits"].items():
            assert [hit.id for hit in await u.search(text, k=20)] == wanted, text
        inspected = await upkeep_of(u.backend).inspect(deep=True)
        assert [each for each in inspected if each.level == "problem"] == []


async def test_vectors_can_be_added(url: str) -> None:
    async with dgent.open(url, author="later") as u:
        faces = u.vectors("faces", dim=3)
        await faces.add_many([[n, 1, 0] for n in range(100)], [f"face-{n}" for n in range(100)])
        await u.indexed()
    async with dgent.open(url) as u:
        assert [hit.id for hit in await u.vectors("faces", dim=3).search([0, 1, 0], 2)] == [
            "face-0",
            "face-1",
        ]
