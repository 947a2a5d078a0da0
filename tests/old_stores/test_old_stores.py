"""Stores that earlier versions wrote still open, give the same answers, and pass the deep check."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.exchange.backup import restore
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.store.upgrade import upgrade_store
from dgent.universe.room import find_titles
from dgent.verbs.context import Context
from dgent.verbs.store.store import Doctor, doctor
from tests.postgres.server import HASTY, Server, with_universe

HERE = Path(__file__).parent
ANSWERS: dict[str, Any] = json.loads((HERE / "answers.json").read_text())
NOTES = ("note.mark", "note.price", "note.tick", "")


def unpack(name: str, to: Path) -> Path:
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    return to / name


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(HASTY).create().start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "backup", "jsonl", "jsonl_without_cache", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where one of the old stores is, ready to be opened."""
    engine: str = request.param
    if engine == "postgres":
        server: Server = request.getfixturevalue("server")
        load_dump(server, unpack(engine, tmp_path) / "old.sql")
        return with_universe(server.url, "old")
    if engine == "backup":
        await restore(unpack(engine, tmp_path), tmp_path / "home")
        return f"sqlite:///{tmp_path}/home/membrane.db"
    if engine == "sqlite":
        return f"sqlite:///{unpack(engine, tmp_path)}/membrane.db"
    folder = unpack("jsonl", tmp_path)
    if engine == "jsonl_without_cache":
        for cached in (folder / ".cache").iterdir():
            cached.unlink()
    return f"jsonl:{folder}"


def load_dump(server: Server, dump: Path, universe: str = "old") -> None:
    psql = [server.bin / "psql", "-q", "-v", "ON_ERROR_STOP=1", server.url]
    script = f'DROP SCHEMA IF EXISTS "{universe}" CASCADE;\n'.encode() + dump.read_bytes()
    subprocess.run(psql, input=script, check=True, capture_output=True, cwd=server.folder)


async def test_records_and_their_history(url: str) -> None:
    async with dgent.open(url) as u:
        found = {}
        async for each in u.iterate(dgent.Query(limit=None), raw=True):
            if (each.schema or "") in NOTES:
                found[each.id] = record_answer(each)
        assert found == ANSWERS["records"]
        past = {
            id: [None if v.datum is None else [v.datum.rev, v.datum.data] for v in await u.history(id)]
            for id in ANSWERS["history"]
        }
        assert past == ANSWERS["history"]
        assert len(await u.changes(0, limit=None)) == ANSWERS["commits"]
        assert not await u.exists("mark-gone")


def record_answer(datum: dgent.Datum) -> dict[str, Any]:
    content = datum.content or b""
    return {
        "schema": datum.schema,
        "version": datum.schema_version,
        "rev": datum.rev,
        "author": datum.author,
        "tags": sorted(datum.tags),
        "data": datum.data,
        "content": content.hex() if len(content) < 64 else hashlib.sha256(content).hexdigest(),
    }


async def test_queries_use_the_stored_indexes(url: str) -> None:
    async with dgent.open(url) as u:
        query = dgent.Query(schema="note.mark", where={"weight": {"$gte": 7}})
        assert [each.id for each in await u.query(query, raw=True)] == ANSWERS["weights"]


async def test_queries_by_author_and_tag(url: str) -> None:
    """Also those whose entries the format of today no longer has."""
    records = ANSWERS["records"].items()
    async with dgent.open(url) as u:
        for schema, author in {(each["schema"], each["author"]) for _, each in records if each["schema"]}:
            mine = {id: each for id, each in records if (each["schema"], each["author"]) == (schema, author)}
            query = dgent.Query(schema=schema, author=author, limit=None)
            assert {each.id for each in await u.query(query, raw=True)} == set(mine)
            for tag in {tag for each in mine.values() for tag in each["tags"]}:
                found = {each.id for each in await u.query(query.replace(tags={tag}), raw=True)}
                assert found == {id for id, each in mine.items() if tag in each["tags"]}


async def test_blocks(url: str) -> None:
    async with dgent.open(url) as u:
        scout = Library(u, agent="scout")
        blocks = {block.label: block for block in await scout.list()}
        assert set(blocks) == set(ANSWERS["blocks"])
        for label, wanted in ANSWERS["blocks"].items():
            block = blocks[label]
            assert await block.text() == wanted["text"], label
            assert len(await block.history()) == wanted["versions"], label
            assert await block.checkpoints() == wanted["checkpoints"], label
            for number, text in wanted["views"].items():
                assert await text_at(block.at, int(number)) == text, (label, number)
        found = await scout.search("river")
        assert sorted(hit.snippet for hit in found) == ANSWERS["archive"]
        assert "hunter2" not in str([await block.text() for block in blocks.values()])


async def text_at(at: Callable[[int], Any], number: int) -> str:
    """A version's text, or the name of the error that says why it cannot be had."""
    try:
        text: str = (await at(number)).text
        return text
    except dgent.DgentError as error:
        return type(error).__name__


async def test_cupboard(url: str) -> None:
    async with dgent.open(url) as u:
        cupboard = Cupboard(u)
        assert sorted(crumb.name for crumb in await cupboard.ready()) == ANSWERS["ready"]
        assert {crumb.name: crumb.state for crumb in await cupboard.crumbs.fetch()} == ANSWERS["crumbs"]
        assert [[trail.name, trail.lesson] for trail in await cupboard.lessons()] == ANSWERS["lessons"]
        assert [str(finding) for finding in (await cupboard.audit()).findings] == ANSWERS["audit"]


async def test_texts_are_found_at_once_and_when_they_are_indexed(url: str) -> None:
    wanted = {"mill": "crumb", "flooded pit": "lesson", "clay": "lesson"}
    async with dgent.open(url) as u:
        for wait in (False, True):
            if wait:
                await u.indexed()
            for words, kind in wanted.items():
                found = await u.search(words)
                assert not (wait and found.building)
                assert kind in [each.kind for each in await find_titles(u, [hit.datum for hit in found])]
        await test_the_deep_check_finds_nothing(url)


async def test_records_without_a_schema_are_found(url: str) -> None:
    async with dgent.open(url) as u:
        old = [each.id async for each in u.iterate(dgent.Query(limit=None), raw=True) if each.schema is None]
        await u.put((await u.get(old[0])).replace(data={"text": "an unheard word"}))
        await u.put_many([dgent.Datum(data={"text": f"plain{n}"}) for n in range(50)])
        for wait in (False, True):
            if wait:
                await u.indexed()
            assert [hit.id for hit in await u.search("unheard")] == old[:1]
            assert len(await u.search("plain*", k=100)) == 50
        await test_the_deep_check_finds_nothing(url)


async def test_the_deep_check_finds_nothing(url: str) -> None:
    async with dgent.open(url) as u:

        async def universe() -> dgent.Universe:
            return u

        examined = await doctor(Context(universe), Doctor(deep=True))
        assert examined.healthy, [each for each in examined.findings if each.level == "problem"]


async def test_writing_goes_on(url: str) -> None:
    async with dgent.open(url, author="later") as u:
        cupboard, scout = Cupboard(u), Library(u, agent="scout")
        log = await scout.get("log")
        await log.append("written later\n")
        await cupboard.add("found later")
        await u.put(dgent.Datum(id="mark-3", schema="note.mark", schema_version=2, data={"action": "later"}))
    async with dgent.open(url) as u:
        text = await (await Library(u, agent="scout").get("log")).text()
        assert text == ANSWERS["blocks"]["log"]["text"] + "written later\n"
        stored = await u.get("mark-3", raw=True)
        assert stored.rev == 3 and stored.author == "later"
        assert (await u.history("mark-3"))[-1].datum.data == {"action": "step 3", "weight": 3}


async def test_many_records_come_and_go(url: str) -> None:
    async with dgent.open(url) as u:
        made = {"schema": "note.mark", "schema_version": 1, "tags": frozenset({"many"})}
        put = await u.put_many([dgent.Datum(data={"text": "x", "weight": n}, **made) for n in range(1100)])
        query = dgent.Query(schema="note.mark", tags={"many"}, limit=None)
        assert await u.count(query) == 1100
        await u.forget(*[each.id for each in put[:600]])
        assert [each.id for each in await u.query(query, raw=True)] == [each.id for each in put[:599:-1]]


async def test_an_old_file_is_upgraded_after_a_backup(tmp_path: Path) -> None:
    path = unpack("sqlite", tmp_path) / "membrane.db"
    planned = await upgrade_store(SQLiteBackend(str(path)), dry_run=True)
    assert (planned.from_format, planned.to_format) == (1, storage.FORMAT)
    assert await upgrade_store(SQLiteBackend(str(path))) == msgspec.structs.replace(planned, dry_run=False)
    with pytest.raises(dgent.errors.FormatTooOld):
        await dgent.open(f"sqlite:///{planned.backup}", upgrade="never").open()
    # What the backup holds is what the store held.
    shutil.copy(str(planned.backup), path)
    async with dgent.open(f"sqlite:///{path}") as u:
        assert len(await u.changes(0, limit=None)) == ANSWERS["commits"]


async def test_a_restored_backup_leaves_no_second_one(tmp_path: Path) -> None:
    await restore(unpack("backup", tmp_path), tmp_path / "home")
    assert not list((tmp_path / "home").glob("*.bak"))
