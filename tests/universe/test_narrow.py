"""A search with a filter that leaves few records: the same hits in the same order, and few records read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import dgent
from dgent import Query, Schema, Universe
from dgent.store.engine import backend as engine
from dgent.store.engine import search

WORDS = ("storm", "ship", "keeper", "letter", "coast")


@dataclass(frozen=True)
class Turn:
    """What somebody said."""

    session: str
    body: str


def schema_of(thread: bool) -> Schema[Turn]:
    return Schema(
        "turn", contract=Turn, indexes=("session",), text={"body": 1}, thread="session" if thread else None
    )


async def fill(u: Universe, count: int) -> None:
    choose = random.Random(3)
    for start in range(0, count, 100):
        async with u.transaction() as tx:
            for number in range(start, min(count, start + 100)):
                body = " ".join(choose.choices(WORDS, k=choose.randrange(1, 9)))
                await tx.remember(Turn(str(number // 12), body), tags={f"t{number % 40}"})


@pytest.mark.parametrize("thread", [False, True])
async def test_the_same_hits(shared_url: str, thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dgent.open(shared_url) as u:
        u.register(schema_of(thread))
        await fill(u, 600)
        middle = await u.seq()
        (first,) = await u.query(Query(schema="turn", where={"session": "7"}, limit=1))
        await u.store(first.replace(value=Turn("9", "storm storm storm")))
        await u.remember(Turn("7", "a ship in the storm"))
        filters = (
            {"where": {"session": "7"}},
            {"where": {"session": {"$in": ["7", "9", "31"]}}},
            {"where": {"session": "none"}},
            {"tags": {"t3"}},
            {"tags": {"t3"}, "where": {"session": {"$gt": "2"}}},
            {"since": datetime.now(UTC), "where": {"session": "7"}},
        )
        for words in ("storm", "storm ship", '"ship storm"', "sto* keeper"):
            for given in filters:
                for as_of in (None, middle):
                    narrowed = await u.search(words, k=20, as_of=as_of, schema="turn", **given)
                    with monkeypatch.context() as patch:
                        patch.setattr(engine, "narrow", lambda *_: None)
                        whole = await u.search(words, k=20, as_of=as_of, schema="turn", **given)
                    assert [(hit.id, hit.score) for hit in narrowed] == [(hit.id, hit.score) for hit in whole]


async def test_few_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    load = search.TextSearch.load

    def count(self: search.TextSearch, record_keys: list[int]) -> object:
        read.append(len(record_keys))
        return load(self, record_keys)

    monkeypatch.setattr(search.TextSearch, "load", count)
    async with dgent.open("memory:") as u:
        u.register(schema_of(thread=False))
        await fill(u, 3_000)
        hits = await u.search("storm ship", schema="turn", where={"session": "200"})
        assert {hit.value.session for hit in hits} == {"200"} and len(hits) == 9
    assert sum(read) < 400
