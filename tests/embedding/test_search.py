"""Search by words and meaning: one ranking, the same on every engine, of what the caller may see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dgent
from dgent import Datum, Schema
from dgent.embedder import HashedEmbedder
from dgent.errors import Denied, InputError, Unsupported
from dgent.universe.gate import Principal
from dgent.universe.meaning import MEANING
from tests.embedding.embedders import Watched
from tests.universe.conftest import engine, url

__all__ = ["engine", "url"]

NOTE = Schema("note", indexes=("topic",), text=("body",), embed=("body",))
BARE = Schema("bare", embed=("body",))
WORDS = ["run", "runner", "running", "shoe", "shoes", "onion", "onions", "soup", "mile", "lake", "bird"]


def texts(count: int) -> dict[str, str]:
    """Texts of a few words each, in an order that repeats itself only late."""
    return {
        f"n{n:03}": " ".join(WORDS[(n * step + step * step) % len(WORDS)] for step in range(1, 3 + n % 5))
        for n in range(count)
    }


async def fill(u: dgent.Universe, count: int = 120) -> None:
    u.register(NOTE, BARE)
    await u.put_many(
        Datum(
            id,
            data={"body": text, "topic": f"t{number % 6}"},
            schema="note" if number % 4 else "bare",
            schema_version=1,
            tags=frozenset({"odd"} if number % 2 else ()),
        )
        for number, (id, text) in enumerate(texts(count).items())
    )
    await u.embedded()


QUERIES = ("running shoes", "onion soup in winter", "bicycl", "runner's mile", "zebra", "the lake", "onions*")


async def answers(u: dgent.Universe) -> list[Any]:
    found: list[Any] = []
    for query in QUERIES:
        for rest in ({}, {"mode": "meaning"}, {"schema": "note"}, {"where": {"topic": "t1"}}, {"k": 70}):
            hits = await u.search(query, **{"k": 10, **rest})  # type: ignore[arg-type]
            assert not hits.building and hits.note == ""
            assert all(0 <= one.score <= 1 for one in hits) and (not hits or hits[0].score == 1)
            assert len({hit.id for hit in hits}) == len(hits)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            found.append([(hit.id, round(hit.score, 6)) for hit in hits])
    return found


_expected: list[Any] = []


async def test_every_engine_gives_the_same_order(url: str) -> None:
    if not _expected:
        async with dgent.open("memory:", embedder=HashedEmbedder(96)) as u:
            await fill(u)
            _expected.extend(await answers(u))
    async with dgent.open(url, embedder=HashedEmbedder(96)) as u:
        await fill(u)
        assert await answers(u) == _expected


async def test_filters_come_before_the_cut(url: str) -> None:
    async with dgent.open(url, embedder=HashedEmbedder(96)) as u:
        await fill(u)
        for mode in ("auto", "meaning"):
            for rest in ({"where": {"topic": "t5"}}, {"tags": {"odd"}}, {"schema": "bare"}):
                hits = await u.search("onion soup", k=15, mode=mode, **rest)  # type: ignore[arg-type]
                assert len(hits) == 15
                assert all(
                    hit.datum.data["topic"] == "t5" or "odd" in hit.datum.tags or hit.datum.schema == "bare"
                    for hit in hits
                )


async def test_records_are_found_whose_words_are_others() -> None:
    class Meaning:
        """Knows that a few words mean the same."""

        name, dim = "meaning", 4
        topics = ("soup broth onions", "shoes sneakers running", "lake water swim")

        def embed(self, texts: list[str]) -> list[list[float]]:
            return [
                [0.1, *(float(sum(word in text for word in topic.split())) for topic in self.topics)]
                for text in texts
            ]

    async with dgent.open("memory:", embedder=Meaning()) as u:
        u.register(NOTE)
        for id, body in (("a", "broth for two"), ("b", "sneakers, worn out"), ("c", "swim in june")):
            await u.remember({"body": body}, schema="note", id=id)
        await u.embedded()
        assert await u.search("soup", mode="text") == []
        hits = await u.search("soup")
        assert hits[0].id == "a" and hits.legs == ("text", "meaning")
        assert hits[0].parts == {MEANING: 1.0} and hits[0].snippet == "broth for two"
        hits = await u.search("running in june")
        assert [hit.id for hit in hits[:2]] == ["c", "b"] and "june" in hits[0].parts


async def test_which_legs_answer() -> None:
    async with dgent.open("memory:", embedder=Watched()) as u:
        u.register(NOTE)
        await u.remember({"body": "ten miles"}, schema="note", id="a")
        await u.embedded()
        assert (await u.search("miles")).legs == ("text", "meaning")
        assert (await u.search("miles", mode="text")).legs == ("text",)
        assert (await u.search("miles", mode="meaning")).legs == ("meaning",)
        hits = await u.search('"ten miles" walked')
        assert hits.legs == ("text",) and hits[0].id == "a"
        assert [hit.id for hit in await u.collection("note").search("miles")] == ["a"]
        assert [hit.value for hit in await u.recall("miles walked")] == [{"body": "ten miles"}]
        with pytest.raises(InputError, match="auto, text, meaning"):
            await u.search("miles", mode="vector")  # type: ignore[arg-type]
        async with u.transaction() as tx:
            assert [hit.id for hit in await tx.search("miles")] == ["a"]
    async with dgent.open("memory:") as u:
        u.register(NOTE)
        await u.remember({"body": "ten miles"}, schema="note", id="a")
        assert (await u.search("miles")).legs == ("text",)
        with pytest.raises(Unsupported, match="no embedder"):
            await u.search("miles", mode="meaning")


async def test_a_store_without_embedded_texts() -> None:
    embedder = Watched()
    async with dgent.open("memory:", embedder=embedder) as u:
        u.register(Schema("plain", text=("body",)))
        await u.remember({"body": "ten miles"}, schema="plain", id="a")
        hits = await u.search("miles")
        assert (hits.legs, hits.note, hits[0].id) == (("text",), "", "a")
        assert embedder.calls == 0
        with pytest.raises(Unsupported, match="no schema here has embedded texts"):
            await u.search("miles", mode="meaning")


async def test_building_while_texts_wait() -> None:
    embedder = Watched()
    async with dgent.open("memory:", embedder=embedder) as u:
        u.register(NOTE)
        await u.remember({"body": "ten miles"}, schema="note", id="a")
        await u.embedded()
        embedder.error = RuntimeError("down")
        await u.remember({"body": "a mile"}, schema="note", id="b")
        embedder.error = None
        hits = await u.search("a mile")
        assert hits.legs == ("text", "meaning") and {hit.id for hit in hits} == {"a", "b"}
        await u.embedded()
        assert not (await u.search("a mile")).building


async def test_the_gate_holds_for_both_legs() -> None:
    async with dgent.open("memory:", embedder=HashedEmbedder(96)) as u:
        await fill(u, 40)
        for trust in ("friend", "conversant"):
            hits = await u.acting(Principal("eve", trust)).search("onion soup", mode="meaning")  # type: ignore[arg-type]
            assert hits
        nobody = u.acting(Principal("eve", "untrusted"))
        for mode in ("auto", "meaning", "text"):
            with pytest.raises(Denied):
                await nobody.search("onion soup", mode=mode)  # type: ignore[arg-type]


async def test_any_text_is_a_search() -> None:
    async with dgent.open("memory:", embedder=HashedEmbedder(96)) as u:
        await fill(u, 20)
        for text in ("", " ", "\x00", "ü" * 10_000, "a b " * 5_000, '"', "*", "🦀", "\ud800", "…", "- - -"):
            hits = await u.search(text)
            assert hits.legs[0] == "text", text


async def test_a_hundred_searches_at_once() -> None:
    async with dgent.open("memory:", embedder=HashedEmbedder(96)) as u:
        await fill(u, 40)
        found = await asyncio.gather(*(u.search(QUERIES[n % 7]) for n in range(100)))
        for n, hits in enumerate(found):
            if hits.legs == ("text", "meaning"):
                again = await u.search(QUERIES[n % 7])
                assert [hit.id for hit in hits] == [hit.id for hit in again]
            else:
                assert "have not returned yet" in hits.note


async def test_an_embedder_that_answers_again_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgent.universe.embedding.QUERY_S", 1.2)
    embedder = Watched()
    async with dgent.open("memory:", embedder=embedder) as u:
        u.register(Schema("note", text=("body",), embed=("body",)))
        await u.remember({"body": "a red barn"}, schema="note", id="barn")
        await u.embedded()
        embedder.go.clear()  # it hangs
        assert (await u.search("barn")).legs == ("text",)
        embedder.go.set()
        assert "a moment ago" in (await u.search("barn")).note
        await u.remember({"body": "a blue barn"}, schema="note", id="other")
        await u.embedded()
        assert (await u.embedding()).failing == ""
        assert (await u.search("barn")).legs == ("text", "meaning")
