"""A search on Postgres takes two round trips, finds what a transaction finds, and notices changes between.

It takes one if its words were searched before and nothing was committed since.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.search.wanted import parse_search
from dgent.store.postgres import search as quick
from dgent.store.search import SearchRequest
from tests.search.test_text_index import shrink

NOTE = Schema("note", text={"title": 3, "body": 1})
WORDS = [f"word{n}" for n in range(30)]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that were sent, each a round trip."""
    sent: list[str] = []
    for name in ("fetch", "execute", "fetchrow", "fetchval"):
        real = getattr(asyncpg.Connection, name)

        async def send(self: Any, sql: str, *values: Any, real: Any = real, **options: Any) -> Any:
            sent.append(sql)
            return await real(self, sql, *values, **options)

        monkeypatch.setattr(asyncpg.Connection, name, send)
    yield sent


def note(id: str, choose: random.Random) -> Datum:
    title, body = (" ".join(choose.choices(WORDS, k=choose.randrange(1, 8))) for _ in range(2))
    return Datum(id, data={"title": title, "body": body}, schema="note", schema_version=1)


async def found(u: dgent.Universe, words: str, **filters: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in await u.search(words, schema="note", **filters)]


async def fold(u: dgent.Universe) -> None:
    while await u.backend.fill("note", u.contracts):
        pass


async def test_two_round_trips_however_many_words(url: str, trips: list[str]) -> None:
    choose = random.Random(1)
    async with dgent.open(url) as u:
        u.register(NOTE)
        await u.put_many([note(f"n{n}", choose) for n in range(60)])
        await fold(u)
        await u.put_many([note(f"w{n}", choose) for n in range(3)])
        for words in ("word1", "word1 word2 word3 word4 word5", "word1*", "nowhere"):
            for _ in range(3):  # the first ones read the runs, and the rows that wait
                trips.clear()
                await found(u, words)
            assert len(trips) == (2 if "*" in words else 1), (words, trips)
        await u.put(note("w9", choose))
        trips.clear()
        assert ("w9" in [id for id, _ in await found(u, "word*", k=100)], len(trips)) == (True, 3)


async def test_rooms_take_no_round_trip_of_their_own(url: str, trips: list[str]) -> None:
    async with dgent.open(url) as u:
        u.register(NOTE)
        await Library(u, agent="scout").create("taste", text="soup by the lake")
        await Cupboard(u).add("Swim in the lake")
        await u.put(Datum("x", data={"title": "lake"}, schema="note", schema_version=1))
        for _ in range(4):
            trips.clear()
            assert len(await u.search("lake")) == 3
        assert len(trips) == 3, trips  # the third has the marks of where the block came from
        block = await Library(u, agent="scout").get("taste")
        await block.append(" and the sea")
        assert len(await u.search("sea")) == 1, "its text is brought up to date first"


async def test_a_query_of_a_schema_that_nobody_used_takes_one_round_trip(url: str, trips: list[str]) -> None:
    async with dgent.open(url) as u, dgent.open(url) as other:
        await u.put(Datum("x", data={}))
        await u.search("lake")
        trips.clear()
        assert await u.query(schema="note", raw=True) == []
        assert len(trips) == 1
        other.register(NOTE)
        await other.put(note("n", random.Random(1)))
        assert [each.id for each in await u.query(schema="note", raw=True)] == ["n"]


async def test_it_finds_what_a_transaction_finds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    choose = random.Random(2)
    used: list[bool] = []
    real = quick.search_quickly

    async def note_use(*values: Any) -> Any:
        page = await real(*values)
        used.append(page is not None)
        return page

    monkeypatch.setattr("dgent.store.postgres.backend.search_quickly", note_use)
    async with dgent.open(url) as u:
        u.register(NOTE)
        for step in range(60):
            if choose.random() < 0.2:
                await u.delete(f"n{choose.randrange(40)}")
            elif choose.random() < 0.1:
                await u.put(Datum(f"n{choose.randrange(40)}", data={"body": "word1"}))
            else:
                await u.put(note(f"n{choose.randrange(40)}", choose))
            if choose.random() < 0.4:
                await u.backend.fill("note", u.contracts)
            if step % 20 == 19:
                await u.forget(f"n{choose.randrange(40)}")
            wanted = parse_search(" ".join(choose.choices(WORDS, k=3)) + choose.choice(("", " word1*")))
            page = await u.backend.search(SearchRequest(wanted, Query(), u.contracts, 100))
            with monkeypatch.context() as patch:
                patch.setattr(u.backend, "_plain", False)
                slow = await u.backend.search(SearchRequest(wanted, Query(), u.contracts, 100))
            assert [(each.datum, each.score) for each in page.items] == [
                (each.datum, each.score) for each in slow.items
            ]
    assert sum(used) > 30, "mostly it is quick"


@pytest.mark.parametrize("change", ["put", "delete", "forget", "fold"])
async def test_a_change_between_the_two_is_noticed(
    url: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    shrink(monkeypatch)
    choose = random.Random(3)
    async with dgent.open(url) as u, dgent.open(url) as other:
        u.register(NOTE)
        other.register(NOTE)
        await u.put_many([note(f"n{n}", choose) for n in range(20)])
        await u.put(Datum("x", data={"title": "lake", "body": ""}, schema="note", schema_version=1))
        await fold(u)
        assert [id for id, _ in await found(u, "lake")] == ["x"]
        real, done = quick.SearchReading._fetch_rows, []

        def change_first(self: Any, *values: Any) -> Any:
            if not done:
                done.append(change)
                quick.wait(make_change())
            return real(self, *values)

        async def make_change() -> None:
            if change == "put":
                await other.put(note("x", choose))
            elif change == "delete":
                await other.delete("x")
            elif change == "forget":
                await other.forget("x")
            else:
                await other.put_many([note(f"m{n}", choose) for n in range(20)])
                await fold(other)

        monkeypatch.setattr(quick.SearchReading, "_fetch_rows", change_first)
        hits = [id for id, _ in await found(u, "lake")]
        assert (done, hits) == ([change], ["x"] if change == "fold" else [])


@pytest.mark.parametrize("change", ["put", "delete", "forget", "fold", "declare"])
async def test_a_change_after_the_last_search_is_noticed(url: str, trips: list[str], change: str) -> None:
    choose = random.Random(4)
    async with dgent.open(url) as u, dgent.open(url) as other:
        u.register(NOTE)
        other.register(NOTE)
        await u.put_many([note(f"n{n}", choose) for n in range(20)])
        await u.put(Datum("x", data={"title": "lake", "body": ""}, schema="note", schema_version=1))
        await fold(u)
        for _ in range(4):
            trips.clear()
            assert [id for id, _ in await found(u, "lake")] == ["x"]
        assert len(trips) == 1, "the words and the moment are known"
        if change == "put":
            await other.put(Datum("y", data={"title": "lake lake"}, schema="note", schema_version=1))
        elif change == "delete":
            await other.delete("x")
        elif change == "forget":
            await other.forget("x")
        elif change == "fold":
            await other.put_many([note(f"m{n}", choose) for n in range(20)])
            await fold(other)
        else:
            async with dgent.open(url) as third:
                third.register(Schema("note", text={"body": 1}))
                await third.schemas()
                await fold(third)
        hits = await found(u, "lake")
        assert {id for id, _ in hits} == {"put": {"x", "y"}, "fold": {"x"}}.get(change, set())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(u.backend, "_plain", False)
            assert await found(u, "lake") == hits


TURN = Schema("turn", text={"body": 1}, thread="session")


def turn(number: int, choose: random.Random) -> Datum:
    data = {"body": " ".join(choose.choices(WORDS, k=4)), "session": f"s{number % 5}"}
    return Datum(f"t{number:03}", data=data, schema="turn", schema_version=1)


async def test_threads_take_three_round_trips_more(url: str, trips: list[str]) -> None:
    choose = random.Random(5)
    async with dgent.open(url) as u:
        u.register(TURN)
        await u.put_many([turn(n, choose) for n in range(300)])
        while await u.backend.fill("turn", u.contracts):
            pass
        await u.put(turn(400, choose))
        for step in range(30):
            words = " ".join(choose.choices(WORDS, k=2))
            trips.clear()
            hits = [(hit.id, hit.score) for hit in await u.search(words, schema="turn")]
            assert len(trips) <= 5 or step < 2, trips
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(u.backend, "_plain", False)
                assert hits == [(hit.id, hit.score) for hit in await u.search(words, schema="turn")]


async def test_a_change_of_a_thread_during_a_search_is_noticed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dgent.open(url) as u, dgent.open(url) as other:
        for each in (u, other):
            each.register(TURN)
        bodies = ["lake", "sea", "hill", "lake lake sea", "sea"]
        for number, body in enumerate(bodies):
            data = {"body": body, "session": "s"}
            await u.put(Datum(f"t{number}", data=data, schema="turn", schema_version=1))
        for _ in range(2):
            before = await u.search("lake sea", schema="turn")
        real, done = quick.SearchReading._find_neighbours, []

        def change_first(self: Any, *values: Any) -> Any:
            if not done:
                done.append(True)
                quick.wait(
                    other.put(
                        Datum(
                            "t9", data={"body": "lake sea", "session": "s"}, schema="turn", schema_version=1
                        )
                    )
                )
            return real(self, *values)

        monkeypatch.setattr(quick.SearchReading, "_find_neighbours", change_first)
        hits = await u.search("lake sea", schema="turn")
        assert (done, len(before), len(hits)) == ([True], 5, 6)
        monkeypatch.setattr(u.backend, "_plain", False)
        slow = await u.search("lake sea", schema="turn")
        assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in slow]


async def test_rows_are_read_by_their_keys_before_the_server_has_counted_them(url: str) -> None:
    async with dgent.open(url) as u:
        u.register(NOTE)
        body = " ".join(WORDS * 2)
        data = {"title": "", "body": body}
        await u.put_many([Datum(f"n{n}", data=data, schema="note", schema_version=1) for n in range(12_000)])
        backend: Any = u.backend
        pool = backend._require_open()
        connection = await pool.take()
        for sql in (*backend._texts.rows_now.values(), backend._texts.rows):
            prepared = await connection.prepare(sql)
            plan = await connection.fetch(f"EXPLAIN EXECUTE {prepared.get_name()} ('{{1,2,3}}')")
            lines = "\n".join(line for (line,) in plan)
            assert "datum_dk" in lines and "datum_pkey" not in lines, lines
        pool.give(connection)
