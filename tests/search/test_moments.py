"""A search of an earlier moment finds what a search of then has found, and with the same scores."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import dgent
from dgent import Datum, Query, Schema, clock
from dgent.errors import HistoryGone, InputError
from dgent.search.wanted import Wanted
from dgent.store.search import SearchRequest
from tests.search.test_text_index import (
    BRIEF,
    NOTE,
    VOCABULARY,
    Note,
    expected,
    in_order,
    note,
    shrink,
    titles,
)
from tests.soak import times
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]


async def search_at(u: dgent.Universe, words: list[str], seq: int) -> list[tuple[str, float]]:
    query = Query(schema="note")
    found = await u.backend.search(SearchRequest(Wanted(tuple(words)), query, u.contracts, 1000, seq))
    return in_order((each.datum.id, each.score) for each in found.items)


async def test_a_search_of_any_moment_is_right(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    u.register(NOTE)
    choose = random.Random(7)
    records: dict[str, Datum] = {}
    moments: dict[int, dict[str, Datum]] = {0: {}}
    for step in range(times(40)):
        id = f"n{choose.randrange(30)}"
        if id in records and choose.random() < 0.3:
            await u.delete(id)
            del records[id]
        else:
            await u.put(datum := note(id, "note", choose))
            records[id] = datum
        if choose.random() < 0.5:
            await u.backend.fill("note", u.contracts)
        moments[await u.seq()] = dict(records)
        if step % 8 == 7:
            for seq in choose.sample(sorted(moments), 4):
                words = choose.sample(VOCABULARY[:8], 2)
                assert await search_at(u, words, seq) == expected(moments[seq], words), seq


async def test_texts_values_and_filters_are_those_of_then(u: dgent.Universe) -> None:
    u.register(NOTE)
    await u.remember(Note("Lake", "swimming in the lake"), id="a", tags={"summer"})
    seq, moment = await u.seq(), clock.now()
    await u.remember(Note("Lake", "skating on the lake"), id="a", tags={"winter"})
    await u.remember(Note("Pond", "another lake"), id="b")
    assert await titles(u, "swimming") == []
    for then in (seq, moment):
        hit = (await u.search("swimming", as_of=then))[0]
        assert (hit.value.body, hit.snippet) == ("swimming in the lake", "swimming in the lake")
        assert await titles(u, "lake", as_of=then) == ["Lake"]
        assert await titles(u, "lake", as_of=then, tags={"summer"}) == ["Lake"]
        assert await titles(u, "lake", as_of=then, tags={"winter"}) == []
        assert await titles(u, '"in the lake"', as_of=then) == ["Lake"]
        assert await titles(u, "skat*", as_of=then) == []
    assert await titles(u, "lake", as_of=moment - timedelta(days=1)) == []
    await u.delete("a")
    assert await titles(u, "swimming", as_of=seq) == ["Lake"]
    await u.forget("a")
    assert await titles(u, "swimming", as_of=seq) == [], "forgotten is forgotten"
    for wrong in (-1, "yesterday", 1.5):
        with pytest.raises(InputError):
            await u.search("lake", as_of=wrong)  # type: ignore[arg-type]


async def test_history_that_is_gone_is_named(u: dgent.Universe) -> None:
    u.register(NOTE, BRIEF)
    await u.remember(Note("one"), id="a")
    seq = await u.seq()
    await u.remember(Note("two"), id="a")
    await u.put(Datum("b", data={"title": "one"}, schema="brief", schema_version=1))
    between = await u.seq()
    await u.put(Datum("b", data={"title": "two"}, schema="brief", schema_version=1))
    assert await titles(u, "one", as_of=between, schema="note") == []
    with pytest.raises(HistoryGone):
        await u.search("one", as_of=between, schema="brief")
    await u.compact(1)
    await u.remember(Note("three"), id="a")
    await u.compact(1)
    with pytest.raises(HistoryGone):
        await u.search("one", as_of=seq, schema="note")


async def test_what_has_no_texts_needs_no_history(u: dgent.Universe) -> None:
    u.register(NOTE, Schema("beat", history="none"))
    await u.remember(Note("a lake"), id="a")
    await u.remember({"n": 1}, schema="beat", id="b")
    seq = await u.seq()
    await u.remember({"n": 2}, schema="beat", id="b")
    await u.remember(Note("a sea"), id="a")
    assert await titles(u, "lake sea", as_of=seq) == ["a lake"]
    with pytest.raises(HistoryGone):
        await u.query(as_of=seq)
