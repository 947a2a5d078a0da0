"""Files that LangGraph's own saver and store wrote, imported and read by ours."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.base import VECTOR_MIGRATIONS
from langgraph.types import Command, interrupt

import dgent
from dgent.bridges.langgraph import DgentSaver, DgentStore
from dgent.bridges.langgraph.item import item_id
from dgent.bridges.langgraph.migrate import import_langgraph
from dgent.errors import InputError, NotFound
from dgent.exchange.foreign.database import parse_moment

THREADS = ("one", "two/é", "")
LONG = "6" * 2000


class State(TypedDict):
    """A state with values of several kinds."""

    count: int
    raw: bytes
    pair: tuple[int, ...]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file in WAL mode, still open, as a program that runs has it."""
    connection = sqlite3.connect(tmp_path / "source.sqlite", check_same_thread=False)
    yield connection
    connection.close()


def fill(connection: sqlite3.Connection, turns: int = 6) -> SqliteSaver:
    """Run graphs with messages, other values, a subgraph, an interrupt and a fork of a thread."""
    saver = SqliteSaver(connection)
    chat = StateGraph(MessagesState)
    chat.add_node(
        "say", lambda state: {"messages": [AIMessage("long " * 40, id=f"m{len(state['messages'])}")]}
    )
    chat.add_node("ask", lambda state: {"messages": [HumanMessage(interrupt("which?"))]})
    chat.add_edge(START, "say")
    chat.add_conditional_edges("say", lambda state: "ask" if len(state["messages"]) == 8 else "__end__")
    values = StateGraph(State)
    values.add_node("add", lambda state: {"count": state["count"] + 1, "raw": b"\0\xff", "pair": (1, 2)})
    values.add_edge(START, "add")
    for thread in THREADS[:2]:
        config: Any = {"configurable": {"thread_id": thread}, "metadata": {"who": "ann"}}
        app = chat.compile(checkpointer=saver)
        for turn in range(turns):
            app.invoke({"messages": [HumanMessage(f"hi {turn}")]}, config)
        past = list(saver.list(config))[3].config
        app.invoke(Command(resume="this"), past)
    config = {"configurable": {"thread_id": THREADS[2]}}
    outer = StateGraph(State)
    outer.add_node("inner", values.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    outer.compile(checkpointer=saver).invoke({"count": 1, "raw": b"", "pair": ()}, config)
    return saver


def path_of(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def digest(path: str) -> dict[str, str]:
    files = [f"{path}{end}" for end in ("", "-wal", "-journal") if os.path.exists(f"{path}{end}")]
    return {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files}


def counts(found: Any) -> dict[str, tuple[int, int, int, int]]:
    return {each.kind: (each.read, each.written, each.already_there, each.left_out) for each in found.kinds}


async def test_saver_gives_the_same_tuples(source: sqlite3.Connection, url: str) -> None:
    theirs = fill(source)
    path = path_of(source)
    rows = source.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    writes = source.execute("SELECT count(*) FROM writes").fetchone()[0]
    assert Path(f"{path}-wal").stat().st_size, "the file has a log"
    before = digest(path)
    async with dgent.open(url) as u:
        dry = await import_langgraph(u, path, dry_run=True)
        assert await u.count(dgent.Query()) == 0
        assert counts(dry) == {"writes": (writes, writes, 0, 0), "checkpoints": (rows, rows, 0, 0)}
        seen: list[tuple[int, int | None]] = []
        done = await import_langgraph(u, path, progress=lambda now, of: seen.append((now, of)))
        assert counts(done) == counts(dry)
        assert seen[-1] == (rows + writes, rows + writes)
        again = await import_langgraph(u, path)
        assert counts(again) == {"writes": (writes, 0, writes, 0), "checkpoints": (rows, 0, rows, 0)}
        assert digest(path) == before
        ours = DgentSaver(u)
        assert [each async for each in ours.alist(None)] == list(theirs.list(None))
        for thread in THREADS:
            config: Any = {"configurable": {"thread_id": thread}}
            mine = await ours.aget_tuple(config)
            assert mine == theirs.get_tuple(config) and mine is not None and mine.checkpoint["channel_values"]
        previews = [
            each.data.get("preview") for each in await u.query(schema="langgraph.checkpoint", raw=True)
        ]
        assert any(text and text.startswith("long long") for text in previews)


async def test_graph_goes_on_after_the_import(source: sqlite3.Connection) -> None:
    fill(source, turns=3)
    chat = StateGraph(MessagesState)
    chat.add_node("say", lambda state: {"messages": [AIMessage("again")]})
    chat.add_edge(START, "say")
    async with dgent.open("memory:") as u:
        await import_langgraph(u, path_of(source))
        app = chat.compile(checkpointer=DgentSaver(u))
        config: Any = {"configurable": {"thread_id": "one"}}
        before = (await app.aget_state(config)).values["messages"]
        after = await app.ainvoke({"messages": [HumanMessage("more")]}, config)
        assert [each.content for each in after["messages"]] == [
            *(each.content for each in before),
            "more",
            "again",
        ]
        # The import knows its own checkpoints, and leaves the new ones alone.
        again = await import_langgraph(u, path_of(source))
        assert (again.written, again.left_out) == (0, 0)


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0, 0.5] for text in texts]


def value_of(at: int) -> dict[str, Any]:
    return {"n": at, "text": "x" * (at % 7 + 1)}


async def test_store_gives_the_same_items(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    index: Any = {"dims": 3, "embed": embed, "fields": ["text"]}
    with SqliteStore.from_conn_string(path) as theirs:
        theirs.setup()
        for at in range(40):
            ttl = 5.0 if at % 4 == 0 else None
            theirs.put(("users", f"u{at % 3}"), f"k {at}", value_of(at), ttl=ttl)
        theirs.put(("odd",), "big", {"huge": 1.5e300, "nested": {"é": [None, True]}}, index=False)
        # The index needs an extension that not every Python can load: its table is made by hand.
        theirs.conn.executescript(VECTOR_MIGRATIONS[0])
        for at in range(40):
            vector = struct.pack("<3f", *embed([value_of(at)["text"]])[0])
            row = (f"users.u{at % 3}", f"k {at}", "text", vector)
            theirs.conn.execute(
                "INSERT INTO store_vectors (prefix, key, field_name, embedding) VALUES (?, ?, ?, ?)", row
            )
        theirs.conn.execute("UPDATE store SET updated_at = datetime(updated_at, '-' || rowid || ' hours')")
        theirs.conn.execute("UPDATE store SET expires_at = '2020-01-01 00:00:00' WHERE key = 'k 0'")
        theirs.conn.commit()
        before = digest(path)
        async with dgent.open(f"sqlite:///{tmp_path}/d.db") as u, dgent.open("memory:") as other:
            found = await import_langgraph(u, path)
            assert counts(found) == {"items": (41, 40, 0, 1), "vectors": (39, 39, 0, 0)}
            assert "it expired at 2020-01-01" in found.problems[0].message
            again = await import_langgraph(u, path)
            assert (again.written, again.already_there, again.left_out) == (0, 79, 1)
            assert digest(path) == before
            ours, made = DgentStore(u, index=index), DgentStore(other, index=index)
            theirs.delete(("users", "u0"), "k 0")
            same = theirs.search((), limit=100), await ours.asearch((), limit=100)
            for mine, yours in zip(same[1], same[0], strict=True):
                # Theirs has no zone, and means UTC.
                shown = {key: str(value).removesuffix("+00:00") for key, value in mine.dict().items()}
                assert shown == {key: str(value) for key, value in yours.dict().items()}
            assert await ours.alist_namespaces() == theirs.list_namespaces()
            for at in range(1, 40):
                await made.aput(("users", f"u{at % 3}"), f"k {at}", value_of(at))
            near = [await each.asearch(("users",), query="xxx", limit=6) for each in (ours, made)]
            assert near[0][0].score is not None
            assert [each.score for each in near[0]] == [each.score for each in near[1]]
            end = await u.get(item_id(("users", "u1"), "k 4"), raw=True)
            stored = theirs.conn.execute("SELECT expires_at FROM store WHERE key = 'k 4'").fetchone()[0]
            moment = parse_moment(stored)
            assert moment is not None and end is not None and end.expires_at == moment
            await ours.aput(("odd",), "big", {"changed": True})
            last = await import_langgraph(u, path)
            assert "another version of it is here" in last.problems[-1].message
            assert (await ours.aget(("odd",), "big")).value == {"changed": True}  # type: ignore[union-attr]


async def test_pickles_and_damage_are_left_out(source: sqlite3.Connection, tmp_path: Path) -> None:
    theirs = fill(source, turns=2)
    mark = tmp_path / "unpickled"

    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return Path.touch, (mark,)

    bomb = pickle.dumps(Bomb())
    rows = source.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    add = "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)"
    good = source.execute("SELECT type, checkpoint, metadata FROM checkpoints LIMIT 1").fetchone()
    wrong: list[tuple[Any, ...]] = [
        ("bad", "", "1", None, "pickle", bomb, b"{}"),
        ("bad", "", "2", None, "msgpack", b"\xc1\xff", b"{}"),
        ("bad", "", "3", None, "msgpack+aes", b"secret", b"{}"),
        ("bad", "", "4", None, "msgpack", good[1], good[2]),
        ("bad", "", "5", None, "json", b'{"id": "5", "channel_versions": [], "channel_values": {}}', b"{}"),
        (
            "bad",
            "",
            LONG,
            None,
            "json",
            json.dumps({"id": LONG, "channel_versions": {}, "channel_values": {}}).encode(),
            b"{}",
        ),
        (b"\xff\xfe", "", "7", None, *good),
        ("bad", "", "8", None, "json", b"[1, 2", b"{}"),
        (
            "bad",
            "",
            "9",
            None,
            "json",
            b'{"id": "9", "channel_versions": {}, "channel_values": {}}',
            b"[not json",
        ),
        ("bad", "", "10", None, None, None, None),
    ]
    source.executemany(add, wrong)
    source.execute(
        "INSERT INTO checkpoints SELECT CAST(x'fffe' AS TEXT), '', '11', NULL, type, checkpoint, metadata"
        " FROM checkpoints LIMIT 1"
    )
    source.execute("INSERT INTO writes VALUES ('bad', '', '1', 't', '', 0, 'c', 'pickle', ?)", (bomb,))
    source.execute("INSERT INTO writes VALUES ('bad', '', '1', 't', '', 'x', 'c', 'null', NULL)")
    source.commit()
    async with dgent.open("memory:") as u:
        found = await import_langgraph(u, path_of(source))
        assert counts(found)["checkpoints"] == (rows + 11, rows, 0, 11)
        assert counts(found)["writes"][3] == 2
        messages = [each.message for each in found.problems]
        assert sum("nothing is unpickled" in each for each in messages) == 2
        assert any("encrypted (msgpack+aes) (bad, 3)" in each for each in messages)
        assert all(each.line for each in found.problems)
        assert not mark.exists()
        ours = [each async for each in DgentSaver(u).alist(None)]
        source.execute(
            "DELETE FROM checkpoints WHERE thread_id = 'bad' OR typeof(thread_id) = 'blob'"
            " OR checkpoint_id = '11'"
        )
        assert ours == list(theirs.list(None))


async def test_damaged_pages_do_not_hide_other_tables(source: sqlite3.Connection, tmp_path: Path) -> None:
    fill(source, turns=4)
    source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    root = source.execute("SELECT rootpage FROM sqlite_master WHERE name = 'writes'").fetchone()[0]
    raw = bytearray(Path(path_of(source)).read_bytes())
    raw[(root - 1) * 4096 : root * 4096] = b"\x55" * 4096
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(raw)
    async with dgent.open("memory:") as u:
        found = await import_langgraph(u, str(path))
        assert counts(found)["checkpoints"][1] > 10
        assert found.problems[0].file == "writes" and "cannot be read" in found.problems[0].message


async def test_killed_import_continues(source: sqlite3.Connection, tmp_path: Path) -> None:
    theirs = fill(source, turns=20)
    path, url = path_of(source), f"sqlite:///{tmp_path}/d.db"
    script = (
        "import asyncio, os, sys, dgent\n"
        "from dgent.bridges.langgraph import migrate\n"
        "put, left = migrate.commit_checked, [3]\n"
        "async def commit(*args):\n"
        "    await put(*args)\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), 9)\n"
        "migrate.commit_checked = commit\n"
        "async def main():\n"
        "    async with dgent.open(sys.argv[1]) as u: await migrate.import_langgraph(u, sys.argv[2])\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", script, url, path]).returncode == -9
    async with dgent.open(url) as u:
        found = await import_langgraph(u, path)
        assert found.written and found.already_there and not found.left_out
        assert [each async for each in DgentSaver(u).alist(None)] == list(theirs.list(None))
        records = await u.count(dgent.Query())
    async with dgent.open("memory:") as u:
        await import_langgraph(u, path)
        assert await u.count(dgent.Query()) == records


async def test_files_that_are_not_of_langgraph(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    sqlite3.connect(tmp_path / "empty.db").execute("CREATE TABLE other (a)").connection.close()
    async with dgent.open("memory:") as u:
        with pytest.raises(InputError, match="is not a SQLite file"):
            await import_langgraph(u, str(tmp_path / "text"))
        with pytest.raises(InputError, match="no tables of LangGraph"):
            await import_langgraph(u, str(tmp_path / "empty.db"))
        with pytest.raises(NotFound):
            await import_langgraph(u, str(tmp_path / "missing"))
        with pytest.raises(InputError, match="not a valid distance"):
            await import_langgraph(u, str(tmp_path / "text"), distance="far")
