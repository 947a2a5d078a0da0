"""Statements in a transaction of the universe: done with its records, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, Denied, InputError, QueryError, Unsupported, VersionConflict
from dgent.store.backend import Put
from tests.storage.conftest import empty, url_of

PUT = "INSERT INTO orders (id, note) VALUES (:id, :note)"


@pytest.fixture(params=("sqlite", "postgres"))
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    """A universe with a table of orders."""
    async with dgent.open(url_of(request.param, tmp_path)) as u:
        if request.param == "postgres":
            await empty(u.storage.relational)
        await u.storage.relational.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, note TEXT)")
        yield u


async def orders(u: dgent.Universe) -> list[Any]:
    return [row["id"] for row in await u.storage.relational.fetch_all("SELECT id FROM orders ORDER BY id")]


async def test_both_are_done_together(shop: dgent.Universe) -> None:
    async with shop.transaction() as tx:
        await tx.put(dgent.Datum(id="a", data={"n": 1}))
        await tx.execute(PUT, {"id": 1, "note": "at 10:30"})
        await tx.execute("UPDATE orders SET note = :note", {"note": "x"})
        assert await orders(shop) == []
    assert await shop.exists("a")
    assert await shop.storage.relational.fetch_all("SELECT * FROM orders") == [{"id": 1, "note": "x"}]
    await shop.put(dgent.Datum(id="b", data={}))
    assert await shop.count() == 2


async def test_a_failing_statement_undoes_the_records(shop: dgent.Universe) -> None:
    await shop.storage.relational.execute(PUT, {"id": 1, "note": ""})
    before = await shop.seq()
    with pytest.raises(Conflict, match=r"(?i)unique"):
        async with shop.transaction() as tx:
            await tx.put(dgent.Datum(id="a", data={"n": 1}))
            await tx.execute(PUT, {"id": 2, "note": ""})
            await tx.execute(PUT, {"id": 1, "note": ""})
    assert (await shop.seq(), await shop.exists("a"), await orders(shop)) == (before, False, [1])


async def test_a_refused_commit_runs_no_statement(shop: dgent.Universe) -> None:
    await shop.put(dgent.Datum(id="a", data={"n": 1}))
    with pytest.raises(VersionConflict):
        async with shop.transaction() as tx:
            await tx.put(dgent.Datum(id="a", data={"n": 2}), expect=0)
            await tx.execute(PUT, {"id": 1, "note": ""})
    assert await orders(shop) == []


async def test_one_bad_statement_fails_no_neighbour(shop: dgent.Universe) -> None:
    async def commit(n: int, id: int) -> None:
        async with shop.transaction() as tx:
            await tx.put(dgent.Datum(id=f"r{n}", data={"n": n}))
            await tx.execute(PUT, {"id": id, "note": ""})

    done = await asyncio.gather(
        *(commit(n, 7 if n in (3, 4) else n) for n in range(8)),
        *(shop.put(dgent.Datum(id=f"p{n}", data={})) for n in range(8)),
        return_exceptions=True,
    )
    failed = [each for each in done if isinstance(each, BaseException)]
    assert len(failed) == 2 and all(isinstance(each, Conflict) for each in failed)
    assert await orders(shop) == [0, 1, 2, 5, 6, 7]
    assert await shop.count() == 14


async def test_a_repeated_commit_runs_its_statements_once(shop: dgent.Universe) -> None:
    bound = await shop.check_statement(PUT, {"id": 1, "note": ""})
    op = Put(dgent.Datum(id="a", data={"n": 1}))
    for repeated in (False, True):
        done = await shop.commit([op], key="k", statements=(bound,))
        assert done.repeated is repeated
    assert await orders(shop) == [1]


async def test_tables_of_dgent_stay_out_of_reach(shop: dgent.Universe) -> None:
    own = "relational.meta" if "sqlite" in repr(shop) else f"{shop.backend.address.universe}.meta"  # type: ignore[attr-defined]
    for sql in (f"DELETE FROM {own.removeprefix('relational.')}", "UPDATE meta SET name = 'x'"):
        with pytest.raises((Denied, QueryError)):
            async with shop.transaction() as tx:
                await tx.put(dgent.Datum(id="a", data={}))
                await tx.execute(sql)
    for sql in ("CREATE TABLE x (a TEXT)", "SELECT 1", "DROP TABLE orders", "COMMIT"):
        async with shop.transaction() as tx:
            with pytest.raises(QueryError):
                await tx.execute(sql)
    assert not await shop.exists("a")
    async with shop.transaction() as tx:
        await tx.put(dgent.Datum(id="a", data={}))
    assert await shop.exists("a")


async def test_statements_need_records_and_parameters(shop: dgent.Universe) -> None:
    with pytest.raises(InputError, match="no records"):
        async with shop.transaction() as tx:
            await tx.execute(PUT, {"id": 1, "note": ""})
    async with shop.transaction() as tx:
        with pytest.raises(InputError, match=":note"):
            await tx.execute(PUT, {"id": 1})
    assert await orders(shop) == []


async def test_foreign_keys_hold(shop: dgent.Universe) -> None:
    await shop.storage.relational.execute(
        "CREATE TABLE lines (id BIGINT, of_order BIGINT REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)"
    )
    with pytest.raises(Conflict):
        async with shop.transaction() as tx:
            await tx.put(dgent.Datum(id="a", data={}))
            await tx.execute("INSERT INTO lines VALUES (1, 99)")
    assert not await shop.exists("a")
    async with shop.transaction() as tx:
        await tx.put(dgent.Datum(id="a", data={}))
        await tx.execute("INSERT INTO lines VALUES (1, 99)")
        await tx.execute(PUT, {"id": 99, "note": ""})
    assert await orders(shop) == [99]


@pytest.mark.parametrize("engine", ["memory", "jsonl"])
async def test_other_engines_say_that_they_cannot(engine: str, tmp_path: Path) -> None:
    url = "memory:" if engine == "memory" else f"jsonl:{tmp_path / 'lines'}"
    async with dgent.open(url) as u, u.transaction() as tx:
        with pytest.raises(Unsupported):
            await tx.execute(PUT, {"id": 1, "note": ""})


async def test_it_is_for_partners_only(shop: dgent.Universe) -> None:
    from dgent.universe.gate import Principal

    friend = shop.acting(Principal("bob", "friend"))
    async with friend.transaction() as tx:
        with pytest.raises(Denied, match="may not run SQL"):
            await tx.execute(PUT, {"id": 1, "note": ""})


@pytest.mark.parametrize("way", ["clause", "trigger"])
async def test_a_statement_that_ends_the_transaction_harms_no_neighbour(tmp_path: Path, way: str) -> None:
    async def commit(n: int) -> None:
        async with u.transaction() as tx:
            await tx.put(dgent.Datum(id=f"a{n}", data={"n": n}), expect=0)
            await tx.put(dgent.Datum(id=f"b{n}", data={"n": n}))

    async def end() -> None:
        async with u.transaction() as tx:
            await tx.delete("nothing")  # so that the commit itself writes nothing
            await tx.execute(f"INSERT {'OR ROLLBACK ' if way == 'clause' else ''}INTO orders VALUES (1)")

    async with dgent.open(f"sqlite:///{tmp_path / 'x.db'}") as u:
        await u.storage.relational.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        if way == "trigger":
            await u.storage.relational.execute(
                "CREATE TRIGGER t BEFORE INSERT ON orders BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
            )
        else:
            await u.storage.relational.execute("INSERT INTO orders VALUES (1)")
        done = await asyncio.gather(
            *(commit(n) for n in range(10)),
            end(),
            *(commit(n) for n in range(10, 20)),
            return_exceptions=True,
        )
        assert [type(each) for each in done if each is not None] == [Conflict]
        assert await u.count() == 40
        assert [each.data["n"] for each in await u.get_many([f"a{n}" for n in range(20)])] == [*range(20)]


async def test_a_statement_without_end_is_stopped(
    shop: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.authorizer", "postgres.relational"):
        monkeypatch.setattr(f"dgent.store.{module}.ATTACHED_S", 0.2)
    endless = "WITH RECURSIVE c(a) AS (SELECT 1 UNION ALL SELECT a FROM c) SELECT a, '' FROM c WHERE a > 5"

    async def commit() -> None:
        async with shop.transaction() as tx:
            await tx.put(dgent.Datum(id="a", data={}))
            await tx.execute(f"INSERT INTO orders (id, note) {endless}")

    await shop.put(dgent.Datum(id="quick", data={}))
    running = asyncio.create_task(commit())
    await asyncio.sleep(0.02)
    assert not running.done()  # and the loop was not held up
    with pytest.raises(QueryError, match="took more than"):
        await running
    assert not await shop.exists("a")
    await shop.put(dgent.Datum(id="b", data={}))
    assert await orders(shop) == []
