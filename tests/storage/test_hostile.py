"""SQL that tries to reach what dgent keeps: refused, whatever way it takes."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, Denied, DgentError, InputError, QueryError
from dgent.universe.relational import RelationalStore
from tests.postgres.lease import url_for
from tests.storage.conftest import empty

SQLITE = [
    "SELECT * FROM datum",
    "SELECT count(*) FROM Datum",
    'SELECT 1 FROM "DATUM"',
    "SELECT * FROM main.[datum]",
    "WITH x AS (SELECT * FROM meta) SELECT * FROM x",
    "SELECT (SELECT value FROM meta LIMIT 1)",
    "INSERT INTO meta VALUES ('a', 1)",
    "UPDATE commits SET note = 'x'",
    "DELETE FROM past",
    "REPLACE INTO name (n, text) VALUES (1, 'x')",
    "INSERT INTO mine SELECT id FROM datum",
    "CREATE TABLE copy AS SELECT * FROM datum",
    "DROP TABLE datum",
    "DROP INDEX datum_id",
    "ALTER TABLE datum RENAME TO other",
    "ALTER TABLE mine RENAME TO datum",
    "CREATE INDEX more ON datum (author)",
    "CREATE TRIGGER t AFTER INSERT ON datum BEGIN DELETE FROM mine; END",
    "CREATE TRIGGER commits AFTER INSERT ON mine BEGIN SELECT 1; END",
    "CREATE TEMP TRIGGER t AFTER INSERT ON datum BEGIN SELECT 1; END",
    "CREATE TEMP TABLE datum (id)",
    "CREATE TABLE doc (x)",
    "CREATE VIEW page AS SELECT 1",
    "CREATE TABLE dgent_later (x)",
    "ALTER TABLE mine RENAME TO dgent_later",
    "PRAGMA page_size = 512",
    "CREATE TABLE bad (x INTEGER REFERENCES datum (dk))",
    "ALTER TABLE mine ADD COLUMN d INTEGER REFERENCES datum (dk)",
    "CREATE VIRTUAL TABLE f USING dbstat",
    "SELECT * FROM dbstat",
    "UPDATE sqlite_sequence SET seq = 0",
    "DELETE FROM sqlite_sequence",
    "UPDATE sqlite_master SET sql = ''",
    "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 2, '')",
    "PRAGMA writable_schema = ON",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA application_id = 0",
    "PRAGMA user_version = 7",
    "SELECT * FROM pragma_wal_checkpoint",
    "ATTACH ':memory:' AS other",
    "VACUUM",
    "VACUUM INTO '/tmp/out.db'",
    "ANALYZE",
    "REINDEX",
    "REINDEX datum",
    "SELECT load_extension('x')",
    "SELECT fts3_tokenizer('simple')",
    "EXPLAIN SELECT * FROM datum",
]


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
async def lite(module_folder: Path) -> Any:
    """A store with a record and a table, the same for all tests here."""
    async with dgent.open(f"sqlite:///{module_folder / 'store.db'}") as u:
        await u.put(dgent.Datum(id="a", data={"secret": 1}))
        await u.storage.relational.execute("CREATE TABLE IF NOT EXISTS mine (id TEXT)")
        yield u


@pytest.mark.parametrize("sql", SQLITE)
async def test_no_statement_reaches_the_tables_of_a_store(lite: dgent.Universe, sql: str) -> None:
    store: RelationalStore = lite.storage.relational
    for run in (store.execute, store.fetch_all, store.limit_to_reads().fetch_all):
        with pytest.raises((Denied, QueryError)):
            await run(sql)
    async with store.transaction() as tx:
        for run in (tx.execute, tx.fetch_all):
            with pytest.raises((Denied, QueryError)):
                await run(sql)
    assert await lite.exists("a")


async def test_what_a_view_a_trigger_or_an_index_of_words_hides(lite: dgent.Universe) -> None:
    store = lite.storage.relational
    await store.execute("CREATE VIEW peek AS SELECT * FROM datum")
    await store.execute("CREATE TABLE bait (x)")
    await store.execute("CREATE TRIGGER spring AFTER INSERT ON bait BEGIN DELETE FROM past; END")
    await store.execute("CREATE VIRTUAL TABLE words USING fts5(id, content='datum', content_rowid='dk')")
    for sql in (
        "SELECT * FROM peek",
        "INSERT INTO bait VALUES (1)",
        "INSERT INTO words(words) VALUES ('rebuild')",
        "SELECT * FROM words",
    ):
        with pytest.raises(DgentError):
            await store.execute(sql)
    assert await store.fetch_all("SELECT x FROM bait") == []
    for sql in ("DROP VIEW peek", "DROP TABLE words", "DROP TABLE bait"):
        await store.execute(sql)
    assert await lite.exists("a")


async def test_a_store_with_tables_views_and_triggers_opens_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with dgent.open(url) as u:
        store = u.storage.relational
        await store.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, page TEXT)")
        await store.execute("CREATE TABLE log (what TEXT)")
        await store.execute("CREATE INDEX by_page ON notes (page) WHERE page <> 'based on page 3'")
        await store.execute("CREATE VIEW names AS SELECT page AS name FROM notes")
        await store.execute(
            "CREATE TRIGGER noted AFTER INSERT ON notes BEGIN INSERT INTO log VALUES (new.page); END"
        )
        await store.execute("INSERT INTO notes (page) VALUES (:page)", {"page": "one"})
    async with dgent.open(url) as u:
        assert await u.storage.relational.fetch_all("SELECT name FROM names") == [{"name": "one"}]
        assert await u.storage.relational.fetch_all("SELECT what FROM log") == [{"what": "one"}]
        assert (await u.put(dgent.Datum(id="a", data={}))).rev == 1


async def test_tables_survive_a_forget_that_rewrites_the_file(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u:
        await u.storage.relational.execute("CREATE TABLE mine (t TEXT)")
        await u.storage.relational.execute("INSERT INTO mine VALUES ('kept')")
        await u.put(dgent.Datum(id="a", data={"secret": "gone"}))
        await u.forget("a")
        assert await u.storage.relational.fetch_all("SELECT t FROM mine") == [{"t": "kept"}]


@dataclass(frozen=True)
class Mark:
    """A value that many tasks remember."""

    text: str


async def test_a_commit_that_would_wait_for_itself_is_refused_at_once(lite: dgent.Universe) -> None:
    lite.register(dgent.Schema("mark", contract=Mark))
    await lite.remember(Mark("before"))
    async with lite.storage.relational.transaction() as tx:
        await tx.execute("INSERT INTO mine VALUES ('x')")
        with pytest.raises(Conflict, match="wait for itself"):
            await lite.put(dgent.Datum(id="b", data={}))
        with pytest.raises(Conflict, match="wait for itself"):
            await lite.remember({"n": 1})
        many = await asyncio.gather(*(lite.remember(Mark("x")) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(each, Conflict) for each in many), "those that would be written together, too"
        assert await lite.exists("a")
    await lite.put(dgent.Datum(id="b", data={}))
    assert await lite.exists("b")


POSTGRES = [
    "CREATE TEMP TABLE mine (x int)",
    "CREATE LOCAL TEMPORARY TABLE mine (x int)",
    "CREATE OR REPLACE TEMP VIEW mine AS SELECT 1",
    "CREATE TEMP SEQUENCE mine_n",
    "SELECT 1 AS x INTO TEMP mine",
    "SELECT 1 AS x INTO LOCAL TEMPORARY TABLE mine",
    "CREATE TABLE pg_temp.mine (x int)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_creat(-1)",
    "SELECT loread(0, 1)",
    "SELECT * FROM {u}.datum",
    'SELECT * FROM "{u}".datum',
    "DELETE FROM {u}.commits",
    "DROP SCHEMA {u} CASCADE",
    "SET ROLE NONE",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION DEFAULT",
    "SELECT set_config('role', 'none', false)",
    "SELECT \"set_config\"('role', 'none', false)",
    "SELECT pg_catalog.set_config('role', 'none', false)",
    "UPDATE pg_settings SET setting = 'none' WHERE name = 'role'",
    "DO $$ BEGIN RESET ROLE; END $$",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE PROCEDURE f() LANGUAGE sql AS 'SELECT 1'",
    "SELECT query_to_xml('SELECT 1', true, true, '')",
    "SELECT * FROM ts_stat('SELECT 1')",
    "PREPARE p AS SELECT 1",
    "COPY mine TO STDOUT",
    "COPY mine FROM PROGRAM 'id'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT table_to_xml('{u}.datum', true, true, '')",
    "CREATE ROLE other",
    "ALTER ROLE postgres SUPERUSER",
    "SELECT pg_notify('x', 'y')",
    "CREATE EXTENSION dblink",
]


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    """A universe on Postgres with a record and a table."""
    async with dgent.open(url_for(tmp_path)) as u:
        await empty(u.storage.relational)
        await u.put(dgent.Datum(id="a", data={"secret": 1}))
        await u.storage.relational.execute("CREATE TABLE mine (id TEXT)")
        yield u


async def test_no_statement_reaches_the_tables_of_a_universe(server: dgent.Universe) -> None:
    store, universe = server.storage.relational, server.backend.address.universe  # type: ignore[attr-defined]
    for sql in POSTGRES:
        for run in (store.execute, store.fetch_all):
            with pytest.raises((Denied, QueryError)):
                await run(sql.format(u=universe))
    who = await store.fetch_one("SELECT current_user AS who")
    assert who == {"who": f"{universe}_sql"}
    assert await server.exists("a")


async def test_a_role_that_may_use_the_universe_is_refused(tmp_path: Path) -> None:
    import asyncpg

    url = url_for(tmp_path)
    async with dgent.open(url) as u:
        universe = u.backend.address.universe  # type: ignore[attr-defined]
        await u.storage.relational.fetch_one("SELECT 1 AS one")
        admin = await asyncpg.connect(u.backend.address.dsn)  # type: ignore[attr-defined]
        await admin.execute(f'GRANT USAGE ON SCHEMA "{universe}" TO "{universe}_sql"')
    try:
        async with dgent.open(url) as u:
            with pytest.raises(Denied, match="may use the tables"):
                await u.storage.relational.fetch_one("SELECT 1 AS one")
    finally:
        await admin.execute(f'REVOKE USAGE ON SCHEMA "{universe}" FROM "{universe}_sql"')
        await admin.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_child_refuses_the_tables_of_its_parent(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u:
        store = u.storage.relational
        await store.execute("CREATE TABLE mine (n BIGINT)")
        await store.execute("INSERT INTO mine VALUES (1)")
        engine = store._tables.store
        child = os.fork()
        if not child:
            os._exit(0 if getattr(engine, "inherited", False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert await store.execute("UPDATE mine SET n = 2") == 1
        assert await store.fetch_all("SELECT n FROM mine") == [{"n": 2}]


async def test_a_long_call_of_a_function_leaves_the_loop_alone(lite: dgent.Universe) -> None:
    """SQLite can be stopped between the steps of its machine, and a function is one of them."""
    tables, longest = lite.storage.relational, 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()  # of the loop's thread, however busy the machine is
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    watching = asyncio.create_task(watch())
    for sql in ("SELECT length(hex(zeroblob(30000000))) AS n", "SELECT :n + length(hex(zeroblob(:n))) AS n"):
        for _again in range(2):
            assert (await tables.fetch_one(sql, {"n": 30_000_000}))["n"] >= 60_000_000  # type: ignore[index]
    watching.cancel()
    assert longest < 0.02
    await tables.execute("CREATE TABLE large (x)")
    for sql in ["INSERT INTO large VALUES (:x)"] * 3:
        await tables.execute(sql, {"x": "x" * 200_000})
    async with tables.transaction() as tx:
        await tx.execute("INSERT INTO large VALUES (:x)", {"x": "x" * 200_000})
    assert await tables.fetch_all("SELECT sum(length(x)) AS n FROM large") == [{"n": 800_000}]
    assert {len(row["x"]) for row in await tables.fetch_all("SELECT x FROM large")} == {200_000}


async def test_an_index_of_boxes_can_be_made(lite: dgent.Universe) -> None:
    tables = lite.storage.relational
    await tables.execute("CREATE VIRTUAL TABLE boxes USING rtree(id, low, high)")
    await tables.execute("INSERT INTO boxes VALUES (1, 2, 3), (2, 8, 9)")
    assert await tables.fetch_all("SELECT id FROM boxes WHERE low < 5") == [{"id": 1}]


async def test_values_are_never_read_as_sql(lite: dgent.Universe) -> None:
    store = lite.storage.relational
    text = "'); DROP TABLE mine; --"
    await store.execute("INSERT INTO mine VALUES (:id)", {"id": text})
    assert await store.fetch_all("SELECT id FROM mine WHERE id = :id", {"id": text}) == [{"id": text}]
    with pytest.raises((InputError, Conflict)):
        await store.execute("INSERT INTO mine VALUES (:id)", {"id": "\ud800"})
    await store.execute("DELETE FROM mine")
