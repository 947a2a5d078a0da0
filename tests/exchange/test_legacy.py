"""The ancestor's folder: every row is read, written, verified and renamed, once, whatever interrupts it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import dgent
from dgent.errors import InputError, NotFound
from dgent.exchange.foreign.legacy import LegacyResult, import_legacy, legacy_path, run
from dgent.exchange.foreign.legacy.yaml import read_yaml
from dgent.membrane import AgentState, Catalog, CLISessionService, Membrane, PromptCheckpoint, Shape
from dgent.universe.blob import open_blobs


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as universe:
        yield universe


def make_database(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


SESSIONS = (
    "CREATE TABLE cli_sessions (id TEXT PRIMARY KEY, name TEXT, session_type TEXT, state TEXT,"
    " started_at TEXT, project_hash TEXT, tokens_used INTEGER, metadata TEXT)",
    "CREATE TABLE cli_session_events (id TEXT, session_id TEXT, timestamp TEXT, event_type TEXT,"
    " source TEXT, message TEXT, data TEXT)",
    "INSERT INTO cli_sessions VALUES ('cli_1', 'old', 'repl', 'completed', '2025-11-01T10:00:00', 'ab12',"
    " 7, '{\"a\": 1}')",
    "INSERT INTO cli_session_events VALUES ('evt_1', 'cli_1', '2025-11-01T10:00:01', 'command', 'repl',"
    " 'ran check', NULL), ('evt_2', 'gone', '2025-11-01T10:00:02', 'command', 'repl', 'orphan', NULL)",
)


def make_home(home: Path) -> Path:
    folder = home / ".kgents"
    for name in ("ghost/deep", "prompt-history", "hypnagogia", "soul", "atelier"):
        (folder / name).mkdir(parents=True)
    make_database(folder / "history.db", *SESSIONS)
    lines = ['{"_schema": "witness.mark", "_version": 1, "action": "looked"}', "not json", '{"n": 1}']
    (folder / "witness.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "witness.json").write_text('{"trust": 0.5}')
    (folder / "ghost" / "deep" / "a.bin").write_bytes(b"\0\1")
    (folder / "prompt-history" / "system.md").write_text("Be kind.")
    (folder / "prompt-history" / "log.json").write_text('[{"name": "core", "content": "Be brief.", "n": 2}]')
    (folder / "hypnagogia" / "patterns.json").write_text("[1, 2]")
    (folder / "soul" / "state.json").write_text('{"mood": "calm"}')
    (folder / "atelier" / "x.json").write_text("{}")
    return folder


async def read_all(u: dgent.Universe) -> list[Any]:
    """Return all records but contents of blobs, which only some engines keep in records."""
    found = [each async for each in u.iterate(raw=True) if each.schema != "blob.content"]
    return [(each.id, each.data, each.content) for each in found]


def states(result: LegacyResult) -> dict[str, str]:
    return {each.name: each.state for each in result.entries}


async def test_the_seven_rows(u: dgent.Universe, tmp_path: Path) -> None:
    folder = make_home(tmp_path)
    dry = await import_legacy(u, folder, dry_run=True)
    assert set(states(dry).values()) == {"found"} and await read_all(u) == []
    result = await import_legacy(u, folder)
    assert set(states(result).values()) == {"migrated"}, result
    assert all(name.endswith(".migrated") for name in os.listdir(folder))

    service = CLISessionService(u)
    session = await service.get_session("cli_1")
    assert (session.name, session.tokens_used, session.metadata) == ("old", 7, {"a": 1})
    assert [each.id for each in await service.get_session_events("cli_1")] == ["evt_1"]
    (orphan,) = await u.query(schema="legacy.history", raw=True)
    assert orphan.data["row"]["id"] == "evt_2"
    membrane = Membrane(u)
    soul = await membrane.get(AgentState, "soul")
    pattern = await membrane.get(AgentState, "hypnagogia/patterns")
    assert soul is not None and soul.state == {"mood": "calm"} and soul.genus == "k-gent"
    assert pattern is not None and pattern.state == [1, 2]
    prompts = {each.name: each for each in await membrane.list(PromptCheckpoint)}
    assert prompts["system"].content == "Be kind." and prompts["core"].content == "Be brief."
    assert prompts["core"].metadata["n"] == 2
    (mark,) = await u.query(schema="witness.mark", raw=True)
    assert mark.schema_version == 1 and mark.data == {"action": "looked"}
    rest = [each.data for each in await u.query(schema="legacy.witness", raw=True)]
    assert {"trust": 0.5} in rest and {"line": "not json"} in rest and {"n": 1} in rest
    blobs = open_blobs(u)
    assert await blobs.get("ghost/deep/a.bin") == b"\0\1" and await blobs.get("atelier/x.json") == b"{}"
    about = {each.data["path"]: each for each in await u.query(schema="legacy.file", raw=True)}
    assert len(about) == 9
    soul_file = about[str(folder / "soul" / "state.json")].data
    content = (folder / "soul.migrated" / "state.json").read_bytes()
    assert soul_file["sha256"] == hashlib.sha256(content).hexdigest() and soul_file["kind"] == "json"

    # Twice is once, and a later access warns.
    seq = await u.seq()
    again = await import_legacy(u, folder)
    assert set(states(again).values()) == {"migrated before"} and await u.seq() == seq
    with pytest.warns(DeprecationWarning, match="was migrated into dgent"):
        legacy_path(folder, "soul")
    assert legacy_path(folder, "other") == folder / "other"


async def test_what_comes_back_is_imported_beside_what_was(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / ".kgents"
    (folder / "soul").mkdir(parents=True)
    (folder / "soul" / "state.json").write_text('{"n": 1}')
    await import_legacy(u, folder)
    (folder / "soul").mkdir()
    (folder / "soul" / "state.json").write_text('{"n": 2}')
    result = await import_legacy(u, folder)
    assert sorted(os.listdir(folder)) == ["soul.migrated", "soul.migrated-2"]
    state = await Membrane(u).get(AgentState, "soul")
    assert state is not None and state.state == {"n": 1}  # what is here stays
    assert [each.data for each in await u.query(schema="legacy.soul", raw=True)] == [{"n": 2}]
    assert "stays" in result.problems[0].message


@pytest.mark.parametrize("step", range(1, 12, 3))
async def test_a_crash_in_the_middle_repeats_safely(
    u: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    async with dgent.open("memory:") as calm:
        await import_legacy(calm, make_home(tmp_path / "calm"))
        expected = {(id.partition("/")[0], str(data.get("name"))) for id, data, _ in await read_all(calm)}
        count = len(await read_all(calm))
    folder, calls = make_home(tmp_path), 0

    class Crash(BaseException):
        pass

    def crash(original: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                raise Crash
            return original(*args, **named)

        return call

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(run, "_rename", crash(run._rename))
        patch.setattr(run._Run, "_put_batch", crash(run._Run._put_batch))
        patch.setattr(run._Run, "_take_blob", crash(run._Run._take_blob))
        await import_legacy(u, folder)
    result = await import_legacy(u, folder)
    assert set(states(result).values()) <= {"migrated", "migrated before"}
    found = await read_all(u)
    assert len(found) == count
    assert {(id.partition("/")[0], str(data.get("name"))) for id, data, _ in found} == expected


async def test_two_imports_at_once_import_once(u: dgent.Universe, tmp_path: Path) -> None:
    async with dgent.open("memory:") as calm:
        await import_legacy(calm, make_home(tmp_path / "calm"))
        count = len(await read_all(calm))
    folder = make_home(tmp_path)
    await asyncio.gather(*(import_legacy(u, folder) for _ in range(2)))
    result = await import_legacy(u, folder)
    assert set(states(result).values()) <= {"migrated", "migrated before"}
    assert len(await read_all(u)) == count


async def test_nothing_outside_the_folder_is_read(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / ".kgents"
    (folder / "ghost").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "ghost" / "link").symlink_to(tmp_path / "secret")
    (folder / "soul").symlink_to(tmp_path)
    os.mkfifo(folder / "witness.sock")
    (folder / "ghost" / "fine").write_text("fine")
    result = await import_legacy(u, folder)
    assert states(result) == {"ghost": "left", "soul": "left", "witness.sock": "left"}
    assert [each.message.partition(";")[0] for each in result.problems] == [
        "it is a link, which is not followed",
        "it is a link, which is not followed",
        "it is not a plain file",
    ]
    assert await open_blobs(u).get("ghost/fine") == b"fine"
    assert not [each for each in await read_all(u) if "secret" in str(each)]
    with pytest.raises(NotFound):
        await import_legacy(u, tmp_path / "nowhere")


async def test_odd_names_and_places_that_cannot_be_read(
    u: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".kgents"
    (folder / "ghost").mkdir(parents=True)
    (folder / "atelier").mkdir()
    os.close(os.open(os.fsencode(folder / "ghost") + b"/\xff", os.O_CREAT))
    os.close(os.open(os.fsencode(folder) + b"/odd\xff", os.O_CREAT))
    listdir = os.listdir

    def refuse(path: Any) -> list[str]:
        if str(path).endswith("atelier"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    def stuck(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        patch.setattr(os, "rename", stuck)
        result = await import_legacy(u, folder)
    assert set(states(result).values()) == {"left"}
    messages = " ".join(each.message for each in result.problems)
    assert "Permission denied" in messages and "Read-only file system" in messages
    again = await import_legacy(u, folder)
    assert set(states(again).values()) == {"migrated"} and msgspec.json.encode(again)
    assert await open_blobs(u).exists("ghost/\\xff") and await open_blobs(u).exists("legacy/odd\\xff")


async def test_unknown_formats(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / ".kgents"
    folder.mkdir()
    make_database(
        folder / "other.db",
        'CREATE TABLE "odd ""name" (a, b)',
        "INSERT INTO \"odd \"\"name\" VALUES (1, x'00ff'), (9e999, 'x')",
        "CREATE VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE words USING fts5(text)",
    )
    (folder / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    (folder / "broken.json").write_text("{")
    (folder / "deep.json").write_text("[" * 5000 + "]" * 5000)
    (folder / "x.bin").write_bytes(b"x")
    result = await import_legacy(u, folder)
    assert set(states(result).values()) == {"migrated"}
    rows = [each.data for each in await u.query(schema="legacy.other", raw=True) if "table" in each.data]
    odd = [each["row"] for each in rows if each["table"] == 'odd "name']
    assert {"a": 1, "b": {"base64": "AP8="}} in odd and {"a": "inf", "b": "x"} in odd
    assert not [each for each in rows if each["table"] == "v"]
    blobs = open_blobs(u)
    assert await blobs.get("legacy/broken.json") == b"{" and await blobs.get("legacy/x.bin") == b"x"
    assert await blobs.exists("legacy/broken.db") and await blobs.exists("legacy/deep.json")
    assert {each.file for each in result.problems} == {"broken.db", "broken.json", "deep.json"}


async def test_datums_of_the_ancestor(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / "kgents"
    (folder / "data").mkdir(parents=True)
    await u.put(dgent.Datum("taken", data={"mine": True}))

    def line(id: str, content: bytes, **more: Any) -> str:
        text = base64.b64encode(content).decode()
        fields = {
            "id": id,
            "content": text,
            "created_at": 1.5e9,
            "causal_parent": None,
            "metadata": {"m": "1"},
        }
        return json.dumps(fields | more)

    typed = b'{"_schema": "brain.crystal", "_version": 2, "text": "hi"}'
    lines = [
        *(line("a", b"raw"), line("gone", b"x"), '{"id": "gone", "_deleted": true}', line("a", b"new")),
        *(line("b", typed, causal_parent="a"), line("taken", b"theirs"), line("block.x/1", b"no")),
    ]
    (folder / "data" / "default.jsonl").write_text("\n".join(lines))
    make_database(
        folder / "membrane.db",
        "CREATE TABLE shapes (id TEXT, shape_type TEXT, intensity REAL, observed_at TEXT, color TEXT)",
        "INSERT INTO shapes VALUES ('s', 'loop', 0.5, '2025-01-01T00:00:00', 'red')",
        "CREATE TABLE data (id TEXT, content BLOB, created_at REAL, causal_parent TEXT, metadata TEXT)",
        "INSERT INTO data VALUES ('row', x'6869', 1.5e9, NULL, '{\"k\": \"v\"}')",
    )
    result = await import_legacy(u, folder)
    assert set(states(result).values()) == {"migrated"}, result
    a, b, gone, row = await u.get_many(["a", "b", "gone", "row"], raw=True)
    assert a.content == b"new" and a.data == {"m": "1"} and a.created_at.year == 2017 and gone is None
    assert (b.schema, b.schema_version, b.data, b.parent_id) == ("brain.crystal", 2, {"text": "hi"}, "a")
    assert row.content == b"hi" and row.data == {"k": "v"}
    assert (await u.get("taken", raw=True)).data == {"mine": True}
    contents = [content for _, _, content in await read_all(u)]
    assert b"theirs" in contents and b"no" in contents
    shape = await Membrane(u).get(Shape, "s")
    assert shape is not None and shape.intensity == 0.5
    (beside,) = await u.query(schema="legacy.membrane", raw=True)
    assert beside.data["row"]["color"] == "red"  # the column that shapes have not


async def test_a_store_of_dgent_is_left_alone(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / "kgents"
    folder.mkdir()
    async with dgent.open(f"sqlite:///{folder}/membrane.db") as other:
        await other.put(dgent.Datum("x", data={}))
    result = await import_legacy(u, folder)
    assert states(result) == {"membrane.db": "left"} and "store of dgent" in result.problems[0].message
    assert (folder / "membrane.db").exists() and await read_all(u) == []


async def test_settings_and_catalog_of_a_project(u: dgent.Universe, tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".kgents"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "# ours\nauthor: ann  # who\nprofile:\n  name: 'x: y'\n  tags: [a, b]\n"
    )
    agents = {"scout": {"genus": "k-gent", "capabilities": ["read"]}, "odd": 1}
    (folder / "catalog.json").write_text(json.dumps({"agents": agents}))
    result = await import_legacy(u, folder)
    assert set(states(result).values()) == {"migrated"}
    assert 'author = "ann"' in (tmp_path / "project" / ".dgent" / "config.toml").read_text()
    assert [each.name for each in Catalog(tmp_path / "project").list()] == ["scout"]
    (kept,) = await u.query(schema="legacy.config", raw=True)
    assert kept.data["profile"] == {"name": "x: y", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (
            "a: 1\nb: -2.5\nc: true\nd:\ne: ~\nf: 'it # is'",
            {"a": 1, "b": -2.5, "c": True, "d": None, "e": None, "f": "it # is"},
        ),
        ("a:\n  b:\n    - x\n    - 2\n  c: []", {"a": {"b": ["x", 2], "c": []}}),
        ("a:\n- x\nb: y", {"a": ["x"], "b": "y"}),
    ],
)
def test_the_part_of_yaml_that_is_read(text: str, value: Any) -> None:
    assert read_yaml(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1",
        "a: *x",
        "a: |\n  b",
        "a: {b: 1}",
        "a: !!python/x y",
        "\ta: 1",
        "a",
        "a: 1\n   b: 2",
        "a: 1\na: 2",
        "- a: 1",
    ],
)
def test_other_yaml_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(InputError, match=r"line \d+ of the YAML"):
        read_yaml(text)


@pytest.mark.parametrize("row", ["soul", "hypnagogia"])
async def test_no_line_of_states_is_lost(u: dgent.Universe, tmp_path: Path, row: str) -> None:
    folder = tmp_path / ".kgents"
    (folder / row).mkdir(parents=True)
    (folder / row / "moods.jsonl").write_text("".join(f'{{"mood": {n}}}\n' for n in range(5)))
    await import_legacy(u, folder)
    states = [each.state for each in await Membrane(u).list(AgentState)]
    rest = [each.data for each in await u.query(dgent.Query(limit=None), raw=True) if "mood" in each.data]
    assert sorted(each["mood"] for each in [*states, *rest]) == [*range(5)]
