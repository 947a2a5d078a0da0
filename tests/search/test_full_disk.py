"""A full disk while an index is made: searches stay right, and the rest is done when there is room."""

from __future__ import annotations

import asyncio
import random

import pytest

import dgent
from dgent import Datum, Schema
from dgent.errors import StorageFull
from dgent.store.engine import prune
from dgent.store.sqlite import writer
from tests.embedding.embedders import Watched
from tests.fault.test_full_disk import Disk, disk
from tests.search.test_text_index import VOCABULARY, expected, find_problems, fold_all, search, shrink
from tests.soak import first

__all__ = ["disk"]

NOTE = Schema("note", text={"title": 3, "body": 1})
EMBEDDED = Schema("note", text={"title": 3, "body": 1}, embed=("body",))


def long_note(n: int) -> Datum:
    """A record with words of its own, so that its index takes room."""
    choose = random.Random(n)
    own = " ".join(f"{choose.getrandbits(40):x}" for _ in range(30))
    body = " ".join(choose.choices(VOCABULARY, k=8)) + f" {own}"
    return Datum(f"n{n}", data={"title": f"word{n % 5}", "body": body}, schema="note", schema_version=1)


async def check(u: dgent.Universe, records: dict[str, Datum]) -> None:
    for words in (VOCABULARY[:1], VOCABULARY[2:5]):
        assert await search(u, words) == expected(records, words)


@pytest.mark.parametrize("disk", ["16m"], indirect=True)
@pytest.mark.parametrize("scheme", ["sqlite:///", "jsonl:"])
@pytest.mark.parametrize("work", ["fold", "rebuild"])
async def test_no_room_for_an_index(
    disk: Disk, scheme: str, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr(writer, "GROWN_PAGES", 100)  # the log may not take the whole disk
    monkeypatch.setattr(prune, "FILL_BATCH", 50)
    url = f"{scheme}{disk.folder}/store"
    records = {datum.id: datum for datum in map(long_note, range(250))}
    async with dgent.open(url) as u:
        u.register(NOTE if work == "fold" else Schema("note", text={"title": 3}))
        await u.put_many(records.values())
        if work == "rebuild":
            await fold_all(u)
    refused = 0
    async with dgent.open(url) as u:
        u.register(NOTE)
        await u.schemas()  # declaring it takes room, too
        for kilobytes in first((0, 60, 30, 120, 200), 3):
            disk.fill(leave=kilobytes << 10)
            try:
                await fold_all(u)
            except StorageFull:
                refused += 1
            await check(u, records)
            disk.free()
        assert refused > 1, "there was room for all of it"
        await u.put(datum := long_note(999))
        records[datum.id] = datum
        await fold_all(u)
        await check(u, records)
        assert await find_problems(u) == []
    async with dgent.open(url) as u:
        u.register(NOTE)
        await check(u, records)


@pytest.mark.parametrize("disk", ["16m"], indirect=True)
async def test_no_room_while_texts_are_indexed_in_the_background(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, so nobody hears of it until he asks; searches see all that was acknowledged."""
    monkeypatch.setattr(writer, "GROWN_PAGES", 100)
    records: dict[str, Datum] = {}
    async with dgent.open(f"sqlite:///{disk.folder}/store.db") as u:
        u.register(NOTE)
        await u.schemas()
        disk.fill(leave=3_400_000)  # enough for more than 256, also where no checkpoint comes in time
        with pytest.raises(StorageFull):
            for n in range(5_000):
                await u.put(datum := long_note(n))
                records[datum.id] = datum
        assert len(records) > 256
        while any(task.get_name().startswith("dgent-fill") for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
        await check(u, records)
        disk.free()
        await u.indexed()
        await fold_all(u)
        await check(u, records)
        assert await find_problems(u) == []


@pytest.mark.parametrize("disk", ["16m"], indirect=True)
async def test_no_room_for_vectors(disk: Disk) -> None:
    """A model goes on where it stopped; what is embedded already is not embedded again."""
    records = {datum.id: datum for datum in map(long_note, range(300))}
    embedder = Watched(512)
    url = f"sqlite:///{disk.folder}/store.db"
    async with dgent.open(url) as u:
        u.register(EMBEDDED)
        await u.put_many(records.values())
        await fold_all(u)
    async with dgent.open(url, embedder=embedder) as u:
        u.register(EMBEDDED)
        await u.schemas()
        disk.fill(leave=150_000)
        for _ in range(500):
            report = await u.embedding()
            if report.failing:
                break
            await asyncio.sleep(0.02)
        assert report.failing and not report.complete
        await check(u, records)
        disk.free()
        await asyncio.wait_for(u.embedded(), 60)
        report = await u.embedding()
        assert report.complete and report.schemas[0].vectors == len(records)
        hits = await u.search("word1", k=1000, mode="meaning")
        assert len(hits) == len({hit.id for hit in hits}) == len(records)
        assert len(embedder.texts) <= len(records) + 64, "only what found no room is embedded twice"
        assert await find_problems(u) == []
