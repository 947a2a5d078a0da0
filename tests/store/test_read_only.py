"""Stores that are opened for reading: every write is refused, and nothing is touched."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Datum, Denied, InputError, Query, Schema, Universe, Unsupported, sync
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.errors import Closed, FormatTooOld, NoBackendAvailable, StorageError
from dgent.store.backend import Keep
from dgent.store.memory.backend import MemoryBackend
from tests.old_stores.test_old_stores import unpack
from tests.sync.program import run


@dataclass(frozen=True)
class Cup:
    size: int


CUP = Schema("cup", contract=Cup, indexes=("size",))
NEWER = Schema[Any]("tea", indexes=("leaf",))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:cups"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/u.db"
    from tests.postgres.lease import url_for

    return url_for(tmp_path)


async def fill(u: Universe) -> None:
    u.register(CUP)
    for size in range(5):
        await u.remember(Cup(size), id=f"cup{size}", tags={"t"})
    await u.put(Datum(id="text", data={"text": "green tea"}))
    await u.storage.blob.put("key", b"bytes")
    await (await Library(u, "scout").create("notes", text="a kettle")).append(" boils")
    await Cupboard(u).add("wash up")


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def _update(u: Universe) -> None:
    await u.update(await u.get("cup1"), size=9)


WRITES: dict[str, Callable[[Universe], Any]] = {
    "put": lambda u: u.put(Datum(id="new", data={})),
    "remember": lambda u: u.remember(Cup(9)),
    "remember many": lambda u: asyncio.gather(*(u.remember(Cup(n)) for n in range(9))),
    "update": _update,
    "delete": lambda u: u.delete("cup1"),
    "forget": lambda u: u.forget("cup1"),
    "undo": lambda u: u.undo(1),
    "compact": lambda u: u.compact(Keep(versions=1)),
    "transact": lambda u: u.transact(lambda tx: tx.put(Datum(id="new", data={}))),
    "drop index": lambda u: u.drop_index("cup", "size"),
    "blob": lambda u: u.storage.blob.put("other", b"more"),
    "blob delete": lambda u: u.storage.blob.delete("key"),
    "table": lambda u: u.storage.relational.execute("CREATE TABLE t (n INTEGER)"),
    "block": lambda u: Library(u, "scout").create("other"),
    "crumb": lambda u: Cupboard(u).add("other"),
}


async def test_every_write_is_refused_and_nothing_is_touched(url: str, tmp_path: Path) -> None:
    async with dgent.open(url) as writer:
        await fill(writer)
        if not url.startswith("memory"):
            await writer.close()
        before, seq = files_in(tmp_path), await writer.seq() if url.startswith("memory") else None
        async with dgent.open(url, read_only=True, author="reader") as u:
            u.register(CUP)
            for name, write in WRITES.items():
                with pytest.raises(Denied, match="read-only"):
                    await write(u)
                assert u.is_read_only, name
            with pytest.raises(Denied):
                _ = await u.storage.telemetry.query()  # type: ignore[call-arg]
            assert files_in(tmp_path) == before
            assert seq is None or await u.seq() == seq
        assert files_in(tmp_path) == before


async def test_reads_answer_as_ever(url: str) -> None:
    async with dgent.open(url) as writer:
        await fill(writer)
        async with dgent.open(url, read_only=True) as u:
            u.register(CUP, NEWER)
            assert (await u.get("cup1")).value == Cup(1)  # type: ignore[union-attr]
            found = await u.recall(Query(schema="cup", where={"size": {"$gte": 3}}))
            assert sorted(each.value.size for each in found) == [3, 4]
            assert await u.recall(Query(schema="tea", where={"leaf": "green"})) == []
            assert await u.count(Query(tags={"t"})) == 5
            assert [each.id for each in await u.search("tea")][:1] == ["text"]
            assert await u.storage.blob.get("key") == b"bytes"
            library = Library(u, "scout")
            assert await (await library.get("notes")).text() == "a kettle boils"
            assert len(await u.search("kettle")) == 1, "texts of blocks are found though none is stored"
            assert [each.name for each in await Cupboard(u).ready()] in ([], ["wash up"])
            assert len(await u.history("cup1")) == 1
            assert await (await u.at(1)).count() == 1
            await u.indexed()
            await writer.remember(Cup(7), id="cup7")
            assert await u.exists("cup7"), "others write on"
            assert await u.count(Query(schema="cup")) == 6


async def test_a_place_without_a_store(tmp_path: Path) -> None:
    for place in (f"{tmp_path}/u.db", f"{tmp_path}/no/u.db"):
        with pytest.raises(NoBackendAvailable, match="no store at"):
            await dgent.open(f"sqlite:///{place}", read_only=True)
    (tmp_path / "empty.db").touch()
    (tmp_path / "foreign.db").write_bytes(b"not a database, but long enough to look at" * 100)
    for name in ("empty", "foreign"):
        with pytest.raises(StorageError):
            await dgent.open(f"sqlite:///{tmp_path}/{name}.db", read_only=True)
    assert sorted(os.listdir(tmp_path)) == ["empty.db", "foreign.db"]


async def test_a_postgres_without_the_universe(tmp_path: Path) -> None:
    from tests.postgres.lease import url_for

    url = url_for(tmp_path).partition("universe=")[0] + "universe=nobody_made_this"
    with pytest.raises(NoBackendAvailable, match="no store at"):
        await dgent.open(url, read_only=True)


async def test_a_role_that_may_only_select(tmp_path: Path) -> None:
    import asyncpg

    from tests.postgres.lease import url_for

    url = url_for(tmp_path)
    async with dgent.open(url) as writer:
        await fill(writer)
        address = writer.backend.address  # type: ignore[attr-defined]
    connection = await asyncpg.connect(address.dsn)
    role = f"reader_{os.getpid()}"
    try:
        await connection.execute(
            f'CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA "{address.universe}" TO {role};'
            f' GRANT SELECT ON ALL TABLES IN SCHEMA "{address.universe}" TO {role}'
        )
        theirs = url.replace("postgres@", f"{role}@", 1)
        assert theirs != url
        async with dgent.open(theirs, read_only=True) as u:
            u.register(CUP)
            assert (await u.get("cup1")).value == Cup(1)  # type: ignore[union-attr]
            assert len(await u.search("kettle")) == 1
            async for change in u.watch(since=0):
                assert change.seq == 1
                break
            with pytest.raises(Denied):
                await u.remember(Cup(9))
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()


def test_what_cannot_be_combined(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="folder of lines"):
        dgent.open(f"jsonl:{tmp_path}/lines", read_only=True)
    with pytest.raises(InputError, match="degrade"):
        dgent.open(f"sqlite:///{tmp_path}/u.db", read_only=True, degrade=True, outbox=f"{tmp_path}/o.db")
    assert os.listdir(tmp_path) == []


async def test_a_backend_that_was_handed_in() -> None:
    async with dgent.open(backend=MemoryBackend(), read_only=True) as u:
        with pytest.raises(Denied):
            await u.put(Datum(data={}))


async def test_an_older_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = unpack("format3", tmp_path)
    path = folder / "sqlite" / "membrane.db"
    before = files_in(tmp_path)
    with pytest.raises(FormatTooOld):
        await dgent.open(f"sqlite:///{path}", read_only=True)
    assert files_in(tmp_path) == before


async def test_a_file_that_others_begin_to_write(tmp_path: Path) -> None:
    """Reads of a file without a log take no locks, so a writer must be noticed by what it leaves."""
    url = f"sqlite:///{tmp_path}/u.db"
    async with dgent.open(url) as writer:
        await writer.put(Datum(id="count", data={"n": 0}))
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            with sync.open(url, durability="relaxed") as writer:  # each time with a new log
                n += 1
                writer.put_many(
                    [Datum(id="count", data={"n": n}), *(Datum(data={"n": n}) for _ in range(20))]
                )

    thread = threading.Thread(target=write)
    async with dgent.open(url, read_only=True) as u:
        assert os.listdir(tmp_path) == ["u.db"]
        thread.start()
        last = 0
        try:
            for _ in range(150):
                found = await u.get("count", raw=True)
                assert found is not None
                assert found.data["n"] >= last, "it never goes back"
                last = found.data["n"]
                total = await u.count()
                assert (total - 1) % 20 == 0, "a commit is seen as a whole"
                await asyncio.sleep(0.001)
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)
        assert last > 0
    async with dgent.open(url) as u:
        assert (await u.stats()).records == 1 + 20 * (await u.get("count", raw=True)).data["n"]  # type: ignore[union-attr]


def test_a_fork_and_a_handle_anywhere(tmp_path: Path) -> None:
    program = """
        import os, sys
        from dgent import Datum, Universe, sync
        from dgent.errors import Closed, Denied

        with sync.open(sys.argv[1]) as u:
            u.put(Datum(id="a", data={}))
        u, place = sync.open(sys.argv[1], read_only=True), sync.anywhere(sys.argv[1], read_only=True)
        assert u.exists("a") and place.run(Universe.exists, "a")
        child = os.fork()
        if child == 0:
            assert place.run(Universe.exists, "a")
            try:
                u.exists("a")
            except Closed:
                sys.exit(0)
            sys.exit(1)
        assert os.waitpid(child, 0)[1] == 0
        try:
            place.run(Universe.put, Datum(data={}))
        except Denied:
            print(os.listdir(os.path.dirname(sys.argv[1].removeprefix("sqlite:///"))))
    """
    assert run(program, f"sqlite:///{tmp_path}/u.db") == ["['u.db']"]
    with sync.open(f"sqlite:///{tmp_path}/u.db", read_only=True) as u:
        u.close()
        with pytest.raises(Closed):
            u.exists("a")
