"""Postings that searches keep: bounded, and never of pages that have changed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

import dgent
from dgent import Datum, Schema
from dgent.search.postings import Postings
from dgent.store.engine.catalog import text_index
from dgent.store.engine.text import TextIndex
from dgent.store.engine.text_cache import PageCache
from tests.search.test_text_index import shrink

VERSION = (1, 0, "", 7)


def postings(count: int) -> Postings:
    return Postings(range(count), b"\1" * count, b"\2" * count, bytes(count))


def test_what_was_asked_for_last_stays() -> None:
    cache = PageCache(most=1_000)
    cache.add((1, b"often"), VERSION, postings(50))
    for n in range(100):
        cache.add((1, b"%d" % n), VERSION, postings(50))
        assert cache.get((1, b"often"), VERSION) == postings(50)
        kept = sum(50 for m in range(n + 1) if cache.has((1, b"%d" % m), VERSION))
        assert kept <= 1_000
    assert not cache.has((1, b"0"), VERSION)
    cache.add((1, b"long"), VERSION, postings(501))
    assert cache.get((1, b"long"), VERSION) is None, "one word does not drive out all others"


def test_postings_of_changed_pages_are_not_found() -> None:
    cache = PageCache()
    cache.add((1, b"lake"), VERSION, postings(5))
    assert cache.get((1, b"lake"), (2, 0, "", 7)) is None
    assert not cache.has((1, b"lake"), (1, 0, "", 8))
    assert cache.get((2, b"lake"), VERSION) is None
    cache.add((1, b"lake"), (2, 0, "", 7), postings(6))
    assert cache.get((1, b"lake"), (2, 0, "", 7)) == postings(6)


async def test_an_index_that_is_built_again_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one may get the number of the old one, and as many runs as that had."""
    shrink(monkeypatch)
    choose = random.Random(1)
    url = f"sqlite:///{tmp_path / 'a.db'}"

    async def fold(u: dgent.Universe) -> None:
        while await u.backend.fill("note", u.contracts):
            pass

    async with dgent.open(url) as u:
        u.register(Schema("note", text={"title": 1}))
        for n in range(60):
            title, body = (" ".join(choose.choices(("lake", "sea", "hill"), k=4)) for _ in range(2))
            data = {"title": title, "body": body}
            await u.put(Datum(f"n{n}", data=data, schema="note", schema_version=1))
        await fold(u)
        assert await u.search("lake", k=100)
        for field, weight in (("body", 1), ("title", 2), ("body", 2)):
            async with dgent.open(url) as other:
                other.register(Schema("note", text={field: weight}))
                await other.schemas()
                await fold(other)
            expected = [d.id for d in await u.query(schema="note", raw=True) if "lake" in d.data[field]]
            assert sorted(hit.id for hit in await u.search("lake", k=100)) == sorted(expected)


async def test_the_counts_of_an_index_are_those_of_the_moment_that_is_read(tmp_path: Path) -> None:
    url, note = f"sqlite:///{tmp_path}/u.db", Schema("note", text=("body",))
    async with dgent.open(url) as u, dgent.open(url) as other:
        for each in (u, other):
            each.register(note)
        await u.put_many([record(n) for n in range(40)])
        while await u.backend.fill("note", u.contracts):
            pass

        def count(reading: Any) -> int:
            state = reading.state("note")
            if state is None:  # a thread that has read nothing yet
                reading.refresh()
                state = reading.state("note")
            return TextIndex(reading, state, reading.index_number(text_index(state))).stats().records

        def count_twice(reading: Any) -> tuple[int, int]:
            reading.refresh()
            before = count(reading)
            asyncio.run_coroutine_threadsafe(add_more(), loop).result(30)
            return before, count(reading)

        async def add_more() -> None:
            await other.put_many([record(n) for n in range(40, 80)])
            while await other.backend.fill("note", other.contracts):
                pass

        loop, backend = asyncio.get_running_loop(), cast(Any, u.backend)
        assert await backend._read(count_twice) == (40, 40), "within one moment"

        def count_now(reading: Any) -> int:
            reading.refresh()
            return count(reading)

        assert {await backend._read(count_now) for _ in range(8)} == {80}
        assert {await backend._read(count) for _ in range(8)} == {80}, "by a reader that has not refreshed"


def record(number: int) -> Datum:
    return Datum(f"n{number}", data={"body": f"lake {number}"}, schema="note", schema_version=1)
