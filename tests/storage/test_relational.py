"""The contract of the relational port, the same on every engine."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Closed, Conflict, Denied, DgentError, InputError, QueryError
from dgent.storage import IRelationalStore
from dgent.store.sqlite import relational as module
from dgent.universe.relational import RelationalStore
from tests.postgres.lease import ask_server, url_for

CREATE = "CREATE TABLE notes (id BIGINT PRIMARY KEY, text TEXT, size DOUBLE PRECISION)"
PUT = "INSERT INTO notes (id, text) VALUES (:id, :text)"


def elsewhere(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run work as a task that knows nothing of a transaction here."""
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())


async def test_rows_go_in_and_come_out_as_dicts(store: RelationalStore) -> None:
    assert isinstance(store, IRelationalStore)
    assert await store.execute(CREATE) == 0
    assert await store.execute(PUT, {"id": 1, "text": "at 10:30, it's ?"}) == 1
    assert await store.execute(PUT, {"id": 2, "text": None, "more": 1}) == 1
    assert await store.fetch_all("SELECT id, text FROM notes ORDER BY id") == [
        {"id": 1, "text": "at 10:30, it's ?"},
        {"id": 2, "text": None},
    ]
    assert await store.fetch_one("SELECT text FROM notes WHERE id = :id", {"id": 1}) == {
        "text": "at 10:30, it's ?"
    }
    assert await store.fetch_one("SELECT text FROM notes WHERE id = 3") is None
    assert await store.fetch_all("SELECT text FROM notes WHERE id = 3") == []
    assert await store.execute("UPDATE notes SET text = :text", {"text": "x"}) == 2
    assert await store.execute("DELETE FROM notes WHERE id = :id", {"id": 9}) == 0
    assert await store.fetch_all("DELETE FROM notes WHERE id = 2 RETURNING id") == [{"id": 2}]
    assert await store.execute("DROP TABLE notes") == 0


async def test_several_statements_are_one_transaction(store: RelationalStore) -> None:
    assert await store.execute(f"{CREATE}; {PUT}; UPDATE notes SET text = 'b'", {"id": 1, "text": "a"}) == 1
    with pytest.raises(Conflict):
        await store.execute(
            "DELETE FROM notes; INSERT INTO notes (id) VALUES (5); INSERT INTO notes (id) VALUES (5)"
        )
    assert await store.fetch_all("SELECT id, text FROM notes") == [{"id": 1, "text": "b"}]


async def test_many_rows_go_in_all_or_none(store: RelationalStore) -> None:
    await store.execute(CREATE)
    assert await store.execute_many(PUT, [{"id": n, "text": str(n)} for n in range(300)]) == 300
    assert await store.execute_many(PUT, []) == 0
    with pytest.raises(Conflict):
        await store.execute_many(PUT, [{"id": n, "text": ""} for n in (1000, 1001, 7)])
    with pytest.raises(InputError, match=":text"):
        await store.execute_many(PUT, [{"id": 2000, "text": ""}, {"id": 2001}])
    assert await store.fetch_one("SELECT count(*) AS n, max(id) AS last FROM notes") == {
        "n": 300,
        "last": 299,
    }


async def test_values_keep_their_types(store: RelationalStore) -> None:
    # SQLite takes any name of a type, this one as a number: numbers, texts and bytes keep what they are.
    await store.execute("CREATE TABLE kinds (i BIGINT, f DOUBLE PRECISION, t TEXT, b BYTEA)")
    row = {"i": -(2**63), "f": 0.1, "t": "ä☃\U0001f600", "b": b"\0\xff"}
    await store.execute("INSERT INTO kinds VALUES (:i, :f, :t, :b)", row)
    assert await store.fetch_one("SELECT * FROM kinds") == row
    for wrong in ({"i": 2**63}, {"i": object()}, {"f": float("nan")}, {"t": ["a"]}):
        with pytest.raises(InputError):
            await store.execute("INSERT INTO kinds VALUES (:i, :f, :t, :b)", {**row, **wrong})
    assert await store.fetch_one("SELECT count(*) AS n FROM kinds") == {"n": 1}


async def test_errors_say_whose_they_are(store: RelationalStore) -> None:
    await store.execute(CREATE)
    await store.execute(PUT, {"id": 1, "text": "a"})
    with pytest.raises(QueryError, match="nowhere"):
        await store.fetch_all("SELECT * FROM nowhere")
    with pytest.raises(QueryError, match="syntax"):
        await store.execute("INSRT INTO notes VALUES (1)")
    with pytest.raises(QueryError, match="one statement, and got 2"):
        await store.fetch_all("SELECT 1; SELECT 2")
    with pytest.raises(Conflict, match=r"(?i)unique"):
        await store.execute(PUT, {"id": 1, "text": "b"})
    with pytest.raises(InputError, match="two columns of the answer are called 'id'"):
        await store.fetch_all("SELECT a.id, b.id FROM notes a JOIN notes b ON true")
    assert await store.fetch_one("SELECT text FROM notes") == {"text": "a"}


async def test_a_transaction_is_done_whole_or_not_at_all(store: RelationalStore) -> None:
    await store.execute(CREATE)
    async with store.transaction() as tx:
        await tx.execute(PUT, {"id": 1, "text": "a"})
        assert await tx.execute_many(PUT, [{"id": n, "text": "b"} for n in (2, 3)]) == 2
        assert await tx.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 3}
        # In the same task the store itself is part of it, and so is a second transaction.
        assert await store.execute("DELETE FROM notes WHERE id = 3") == 1
        async with store.transaction() as inner:
            assert await inner.fetch_all("SELECT id FROM notes ORDER BY id") == [{"id": 1}, {"id": 2}]
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.execute("DELETE FROM notes")
            _ = 1 / 0
    assert await store.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 2}
    with pytest.raises(Closed, match="is over"):
        await tx.execute("DELETE FROM notes")


async def test_an_open_transaction_is_seen_by_nobody_else(store: RelationalStore) -> None:
    await store.execute(CREATE)
    async with store.transaction() as tx:
        await tx.execute(PUT, {"id": 1, "text": "a"})
        reader = elsewhere(store.fetch_one("SELECT count(*) AS n FROM notes"))
        await asyncio.wait([reader], timeout=0.2)  # in memory it waits for the end
        assert not reader.done() or reader.result() == {"n": 0}
        writer = elsewhere(store.execute(PUT, {"id": 2, "text": "b"}))
        await asyncio.sleep(0)
    await asyncio.gather(reader, writer)
    assert await store.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 2}


async def test_a_cancelled_transaction_leaves_nothing(store: RelationalStore) -> None:
    await store.execute(CREATE)

    async def work() -> None:
        async with store.transaction() as tx:
            await tx.execute(PUT, {"id": 1, "text": "a"})
            await asyncio.sleep(60)

    task = elsewhere(work())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.execute(PUT, {"id": 2, "text": "b"}) == 1
    assert await store.fetch_all("SELECT id FROM notes") == [{"id": 2}]


async def test_many_tasks_lose_no_update(store: RelationalStore) -> None:
    await store.execute("CREATE TABLE counter (n BIGINT)")
    await store.execute("INSERT INTO counter VALUES (0)")

    async def add(times: int) -> None:
        for _ in range(times):
            await store.execute("UPDATE counter SET n = n + 1")

    await asyncio.gather(*(elsewhere(add(5)) for _ in range(8)))
    assert await store.fetch_one("SELECT n FROM counter") == {"n": 40}


async def test_a_long_statement_leaves_the_loop_free_and_can_be_cancelled(store: RelationalStore) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n"
    task = elsewhere(store.fetch_all(endless))
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.fetch_one("SELECT 1 AS one") == {"one": 1}
    if store.dialect == "postgres":
        running = "SELECT count(*) FROM pg_stat_activity WHERE query = $1 AND state = 'active'"
        for _ in range(400):
            if (left := ask_server(running, endless)) == 0:
                break
            await asyncio.sleep(0.05)
        assert left == 0, "the server does not go on with it"


async def test_a_handle_that_only_reads(store: RelationalStore) -> None:
    await store.execute(CREATE)
    await store.execute(PUT, {"id": 1, "text": "a"})
    reads = store.limit_to_reads()
    assert await reads.fetch_all("SELECT text FROM notes") == [{"text": "a"}]
    for refused in (
        reads.execute("DELETE FROM notes"),
        reads.execute_many(PUT, [{"id": 2, "text": ""}]),
        reads.fetch_all("DELETE FROM notes RETURNING id"),
        reads.fetch_one("WITH a AS (SELECT 1) DELETE FROM notes RETURNING id"),
        reads.fetch_all("DROP TABLE notes"),
    ):
        with pytest.raises(Denied, match="only reads"):
            await refused
    assert await store.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 1}
    await reads.close()
    assert await store.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 1}


async def test_tables_and_records_live_side_by_side(universe: dgent.Universe) -> None:
    store = universe.storage.relational
    await store.execute(CREATE)
    for n in range(10):
        await asyncio.gather(
            universe.put(dgent.Datum(id=f"r{n}", data={"n": n})), store.execute(PUT, {"id": n, "text": "x"})
        )
    assert await universe.count() == 10
    assert await store.fetch_one("SELECT count(*) AS n FROM notes") == {"n": 10}
    await store.execute("DROP TABLE notes")


async def test_it_is_closed_with_the_universe(universe: dgent.Universe) -> None:
    store = universe.storage.relational
    assert await store.fetch_one("SELECT 1 AS one") == {"one": 1}
    await universe.close()
    with pytest.raises(Closed):
        await store.fetch_one("SELECT 1 AS one")


@pytest.mark.parametrize("trust", ["friend", "conversant", "untrusted"])
async def test_it_is_for_partners_only(universe: dgent.Universe, trust: Any) -> None:
    from dgent.universe.gate import Principal

    with pytest.raises(Denied, match="may not run SQL"):
        _ = universe.acting(Principal("bob", trust)).storage.relational
    partner = universe.acting(Principal("ann", "partner"))
    assert await partner.storage.relational.fetch_one("SELECT 1 AS one") == {"one": 1}


@pytest.mark.parametrize(
    "before",
    ["1 --\r,", "$€$ ' $€$,", "1 AS €$$,", "E'a'\n'\\' || ' ,", "1, pg_catalog .", '1, "pg_catalog".'],
    ids=ascii,
)
async def test_no_spelling_changes_the_role(before: str, tmp_path: Path) -> None:
    async with dgent.open(url_for(tmp_path)) as u:
        store = u.storage.relational
        for change in ("set_config('role', 'none', false)", "query_to_xml('SELECT 1', true, true, '')"):
            with pytest.raises(DgentError):
                await store.fetch_all(f"SELECT {before} {change} AS x --'")
        who = await store.fetch_one(
            "SELECT current_user AS now, session_user AS login, current_schema AS here"
        )
        assert who is not None and who["now"] == who["here"] != who["login"]


@pytest.mark.parametrize("name", ["pg_advisory_lock(1)", "crosstab('SELECT 1')", "dblink_connect('x')"])
async def test_functions_that_outlast_a_statement_or_run_texts_are_refused(name: str, tmp_path: Path) -> None:
    async with dgent.open(url_for(tmp_path)) as u:
        with pytest.raises(Denied, match="is not allowed in a statement"):
            await u.storage.relational.fetch_all(f"SELECT {name}")
        assert await u.storage.relational.fetch_one("SELECT pg_advisory_xact_lock(1) IS NULL AS x")


async def test_a_pragma_sees_a_table_that_was_made_anew(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u:
        tables = u.storage.relational
        for columns in ("a", "a, b", "a, b, c"):
            await tables.execute(f"CREATE TABLE notes ({columns})")
            found = await tables.fetch_all("PRAGMA table_info(notes)")
            assert ", ".join(row["name"] for row in found) == columns
            await tables.execute("DROP TABLE notes")
            assert await tables.fetch_all("PRAGMA table_info(notes)") == []


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_the_log_starts_over_while_only_own_tables_are_written(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that grows on and on makes each durable commit slower, and fills the disk."""
    monkeypatch.setattr(module, "QUICK_COMMIT_S", 1.0 if where == "loop" else 0.0)
    monkeypatch.setattr(module, "GROWN_COMMITS", 32)
    log = tmp_path / "store.db-wal"
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}", durability="relaxed") as u:
        tables = u.storage.relational
        await tables.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
        await tables.execute("INSERT INTO t VALUES (1, 0)")
        for n in range(1500):
            await tables.execute("UPDATE t SET n = :n", {"n": n})
            if n % 32 == 0:
                await asyncio.sleep(0.001)  # for the thread that checkpoints
        assert log.stat().st_size < 1200 * 4120
