"""Search: records by their words, now, at an earlier moment, and with versions that only the caller has."""

from __future__ import annotations

from typing import Any

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.search.record import CREATED
from dgent.search.wanted import parse_search
from dgent.search.words import TOKENIZER
from dgent.store.backend import Backend, Declaration, Keep
from dgent.store.search import SearchPage, SearchRequest
from dgent.testing.contract import (
    Contract,
    Factory,
    Steps,
    delete,
    expect_error,
    open_handle,
    put,
    typed_record,
)

VIEW = Steps(1)
NOTE = Declaration("note", 1, text=(("title", 3), ("body", 1)), tokenizer=TOKENIZER)
TURN = Declaration("turn", 1, ("session",), text=(("body", 1),), tokenizer=TOKENIZER, thread="session")


def note(id: str, body: str, title: str = "", **fields: Any) -> Datum:
    """Return a record with texts."""
    return typed_record(id, data={"title": title, "body": body}, **fields)


def turn(id: str, body: str, session: str, day: int, speaker: str = "") -> Datum:
    """Return a record of a conversation."""
    data = {"body": body, "session": session, "speaker": speaker}
    return typed_record(id, schema="turn", data=data, day=day)


async def search(store: Backend, words: str, limit: int = 100, **fields: Any) -> SearchPage:
    """Return what a search finds."""
    options = {name: fields.pop(name) for name in ("as_of", "own") if name in fields}
    return await store.search(SearchRequest(parse_search(words), Query(**fields), VIEW, limit, **options))


async def found(store: Backend, words: str, limit: int = 100, **fields: Any) -> list[str]:
    """Return the ids that a search finds, best first."""
    return [each.datum.id for each in (await search(store, words, limit, **fields)).items]


async def fold(store: Backend, schema: str = "note") -> None:
    """Index all that is worth it."""
    while await store.fill(schema, VIEW):
        pass


class SearchContract(Contract):
    """Records by their words; the same hits in the same order, however far they are indexed."""

    async def test_words_phrases_and_beginnings(self, store: Backend) -> None:
        await store.declare(NOTE)
        assert await found(store, "lake") == []
        await put(
            store, note("a", "running by the lake"), note("b", "a lake of tea", "Lake"), note("c", "snow")
        )
        assert await found(store, "the LAKES") == ["b", "a"]
        assert await found(store, "runs") == ["a"]
        assert await found(store, '"by the lake"') == ["a"]
        assert await found(store, "sn*") == ["c"]
        assert await found(store, "lake snow", 1) == ["c"]
        assert await found(store, "lake", prefix="a") == ["a"]
        assert await found(store, "lake", schema="other") == []
        for nothing in ("", "?!", '""', "*", "rain"):
            assert await found(store, nothing) == []
        page = await search(store, "lake tea")
        assert [each.texts for each in page.items] == [["Lake", "a lake of tea"], ["", "running by the lake"]]
        assert all(abs(sum(each.parts.values()) - each.score) < 1e-9 for each in page.items)
        assert not page.building

    async def test_only_what_may_be_seen_is_found(self, store: Backend) -> None:
        await store.declare(NOTE)
        await put(store, note("mine", "a lake"), note("theirs", "a lake"))
        for _ in range(2):  # the second time, what the first one read may be at hand
            for words in ("lake", '"a lake"', "la*"):
                assert await found(store, words, allow=lambda datum: datum.id == "mine") == ["mine"]
                assert await found(store, words, allow=lambda _: False) == []
            await fold(store)

    async def test_changes_are_found_at_once(self, store: Backend) -> None:
        await store.declare(NOTE)
        await put(store, note("a", "lake"), note("b", "lake"))
        await put(store, note("a", "sea"))
        assert (await found(store, "lake"), await found(store, "sea")) == (["b"], ["a"])
        await delete(store, "b")
        assert await found(store, "lake") == []
        await put(store, note("b", "pond"))
        assert await found(store, "pond") == ["b"]
        await store.forget(["b"], "tester", None)
        assert await found(store, "pond") == []

    async def test_indexing_changes_no_hit_and_no_score(self, store: Backend) -> None:
        await store.declare(NOTE)
        await put(
            store, *(note(f"n{n:03}", f"lake w{n % 7} w{n % 11} " + "tea " * (n % 5)) for n in range(150))
        )
        before = await search(store, "lake w3 tea")
        await fold(store)
        after = await search(store, "lake w3 tea")
        assert before.items == after.items
        assert len(after.items) == 100
        await put(store, note("n000", "w3 w3 w3"))
        await delete(store, "n149")
        assert (await found(store, "w3"))[0] == "n000"
        assert "n149" not in await found(store, "lake", 1000)
        assert len(await found(store, "lake", 1000)) == 148

    async def test_earlier_moments(self, store: Backend) -> None:
        await store.declare(NOTE)
        first = await put(store, note("a", "lake"), note("b", "lake and tea"))
        second = await put(store, note("a", "sea"), note("c", "lake"))
        await delete(store, "b")
        assert await found(store, "lake") == ["c"]
        assert await found(store, "lake", as_of=second.seq) == ["c", "b"]
        assert await found(store, "lake", as_of=first.seq) == ["a", "b"]
        assert await found(store, "sea lake", as_of=0) == []
        await store.compact(Keep(versions=0))
        await expect_error("history_gone", search(store, "lake", as_of=first.seq))

    async def test_versions_of_the_caller(self, store: Backend) -> None:
        await store.declare(NOTE)
        own = {"x": note("x", "my lake"), "a": note("a", "my sea"), "b": None}
        assert await found(store, "lake sea", own=own) == ["a", "x"]
        await put(store, note("a", "lake"), note("b", "lake"), note("c", "lake"))
        assert sorted(await found(store, "lake", own=own)) == ["c", "x"]
        assert await found(store, "sea", own=own) == ["a"]
        assert await found(store, "sea") == []

    async def test_neighbours_in_a_thread_lend_their_words(self, store: Backend) -> None:
        await store.declare(TURN)
        said = ["Where were you in summer?", "At the lake.", "Did it rain?", "Every day.", "A pity."]
        turns = [turn(f"t{n}", text, "one", n, ("ann", "joe")[n % 2]) for n, text in enumerate(said)]
        await put(store, *turns, turn("u0", "At the lake.", "two", 1, "joe"))
        assert await found(store, "summer") == ["t0", "t2", "t1"]
        assert await found(store, "summer lake", 2) == ["t0", "t1"]
        assert await found(store, "summer", schema="turn", where={"speaker": "joe"}) == ["t1"]
        assert await found(store, "summer", allow=lambda datum: datum.data["speaker"] == "joe") == []
        own = {"t0": None, "new": turn("new", "Summer again", "one", 5)}
        assert await found(store, "summer", own=own) == ["new", "t4", "t3"]

    async def test_dates_are_words(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, text=(("body", 1),), tokenizer=TOKENIZER, dates=CREATED))
        await put(store, note("a", "lake"), note("b", "lake", day=40))
        assert await found(store, "january") == ["a"]
        assert await found(store, "2026-02-10 lake") == ["b", "a"]
        await store.declare(Declaration("note", 1, text=(("body", 1),), tokenizer=TOKENIZER, dates=".title"))
        await fold(store)
        await put(store, note("c", "lake", "1999-12-31"))
        assert await found(store, "january") == []
        assert await found(store, "1999") == ["c"]

    async def test_texts_may_be_declared_later(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1))
        await put(store, note("a", "lake"), note("b", "snow"))
        assert await found(store, "lake") == []
        assert (await store.declare(NOTE)).filling
        assert await found(store, "lake") == ["a"]
        assert (await search(store, "lake")).building
        await fold(store)
        page = await search(store, "lake")
        assert ([each.datum.id for each in page.items], page.building) == (["a"], False)

    async def test_another_handle_finds_the_same(self, backend: Factory) -> None:
        if not self.persistent:
            return
        async with open_handle(backend) as one, open_handle(backend) as other:
            await one.declare(NOTE)
            await put(one, note("a", "lake"))
            assert await found(other, "lake") == ["a"]
            await put(other, note("b", "lake"))
            assert sorted(await found(one, "lake")) == ["a", "b"]
