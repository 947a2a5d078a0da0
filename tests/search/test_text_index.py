"""The text index: the same hits in the same order on every engine, whatever waits to be indexed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.search.score import encode_length, idf, norms, saturate
from dgent.search.wanted import Wanted
from dgent.search.words import count_words
from dgent.store.engine import fold, prune
from dgent.store.engine import search as engine_search
from dgent.store.engine.text import TextIndex
from dgent.store.search import SearchRequest
from dgent.store.upkeep import upkeep_of
from tests.search.jobs import SMALL_FOLDS
from tests.soak import times
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]


@dataclass(frozen=True)
class Note:
    title: str = ""
    body: str = ""


@dataclass(frozen=True)
class Brief(Note):
    pass


NOTE = Schema("note", 1, Note, text={"title": 3, "body": 1})
BRIEF = Schema("brief", 1, Brief, text={"title": 3, "body": 1}, history="none")
VOCABULARY = [f"word{n}" for n in range(40)]


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and merges of few records, so that all of it happens often."""
    for name, value in SMALL_FOLDS.items():
        monkeypatch.setattr(fold, name, value)


def note(id: str, schema: str, choose: random.Random) -> Datum:
    words = [VOCABULARY[min(int(choose.paretovariate(0.7)) - 1, 39)] for _ in range(choose.randrange(12))]
    data = {"title": " ".join(words[:3]), "body": " ".join(words[3:])}
    return Datum(id, data=data, schema=schema, schema_version=1)


def expected(records: dict[str, Datum], words: list[str]) -> list[tuple[str, float]]:
    """BM25 by the book, over all records."""
    counts = {}
    for id, datum in records.items():
        found: dict[str, int] = {}
        for path, weight in NOTE.text.items():
            for word, count in count_words(datum.data[path]).items():
                found[word] = found.get(word, 0) + weight * count
        counts[id] = found
    sizes = {id: sum(found.values()) for id, found in counts.items()}
    norm = norms(sum(sizes.values()) / len(sizes) if sizes else 1)
    scores: dict[str, float] = {}
    for word in dict.fromkeys(words):
        having = [id for id, found in counts.items() if word in found]
        for id in having:
            part = saturate(min(counts[id][word], 255), norm[encode_length(sizes[id])])
            scores[id] = scores.get(id, 0.0) + idf(len(records), len(having)) * part
    return in_order(scores.items())


def in_order(found: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(((id, round(score, 9)) for id, score in found), key=lambda each: (-each[1], each[0]))


async def search(u: dgent.Universe, words: list[str]) -> list[tuple[str, float]]:
    found = await u.backend.search(SearchRequest(Wanted(tuple(words)), Query(), u.contracts, 10_000))
    # Few are found in another way, and on the caller's thread.
    first = await u.backend.search(SearchRequest(Wanted(tuple(words)), Query(), u.contracts, 5))
    assert [(each.datum.id, each.score) for each in first.items] == [
        (each.datum.id, each.score) for each in found.items[:5]
    ]
    return in_order((each.datum.id, each.score) for each in found.items)


async def test_every_search_is_right_whatever_waits(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    u.register(NOTE, BRIEF)
    await u.schemas()
    choose = random.Random(4)
    records: dict[str, Datum] = {}
    for step in range(times(60)):
        what, schema = choose.random(), choose.choice(("note", "brief"))
        known = [id for id, datum in records.items() if datum.schema == schema]
        if what < 0.55 or not known:
            id = f"{schema}-{step}" if what < 0.4 or not known else choose.choice(known)
            datum = note(id, schema, choose)
            await u.put(datum)
            records[id] = datum
        elif what < 0.65:
            await u.delete(id := choose.choice(known))
            del records[id]
            if choose.random() < 0.5:  # made anew, it has another time
                await u.put(datum := note(id, schema, choose))
                records[id] = datum
        elif what < 0.7:
            await u.forget(id := choose.choice(known))
            del records[id]
        elif what < 0.85:
            await u.backend.fill(schema, u.contracts)
        else:
            await u.put_many(some := [note(f"{schema}-{step}-{n}", schema, choose) for n in range(8)])
            records |= {datum.id: datum for datum in some}
        if step % 4 == 0:
            words = choose.sample(VOCABULARY[:12], choose.randrange(1, 4))
            assert await search(u, words) == expected(records, words)
    for schema in ("note", "brief"):
        await fold_all(u, schema)
    assert await search(u, VOCABULARY[:3]) == expected(records, VOCABULARY[:3])
    found = await u.backend.search(SearchRequest(Wanted(("word0",)), Query(), u.contracts, 1))
    assert not found.behind, "nothing waits for ever"


async def fold_all(u: dgent.Universe, schema: str = "note") -> None:
    for _ in range(10_000):
        if not await u.backend.fill(schema, u.contracts):
            return
    raise AssertionError("there is no end to it")


async def find_problems(u: dgent.Universe) -> list[str]:
    """Return what a deep inspection finds wrong; that a test's disk is small is not."""
    found = await upkeep_of(u.backend).inspect(deep=True)
    return [each.message for each in found if each.level not in ("ok", "note") and each.subject != "disk"]


async def titles(u: dgent.Universe, words: str, **filters: object) -> list[str]:
    return [hit.value.title for hit in await u.search(words, **filters)]


async def test_texts_are_indexed_in_the_background(u: dgent.Universe) -> None:
    u.register(NOTE)
    for n in range(270):
        await u.remember(Note(f"title {n}", "the same words in every one of these"))
    await u.indexed()
    found = await u.backend.search(SearchRequest(Wanted(("same",)), Query(), u.contracts, 1000))
    assert len(found.items) == 270
    assert not found.behind, "256 were written, so they were indexed"


async def test_a_schema_may_be_declared_with_texts_later(url: str, u: dgent.Universe) -> None:
    u.register(Schema("note", 1, Note))
    await u.put_many([note(f"n{n}", "note", random.Random(n)) for n in range(200)])
    before = {datum.id: datum for datum in await u.query(schema="note", limit=None, raw=True)}
    async with dgent.open(url) as other:
        if url == "memory:":
            return
        other.register(NOTE)
        await other.indexed()
        assert await search(other, ["word1", "word2"]) == expected(before, ["word1", "word2"])
    async with dgent.open(url) as third:
        third.register(Schema("note", 1, Note, text={"title": 1}))
        await third.indexed()
        found = await third.search("word1 word2", k=1000)
        assert found
        assert all("word" in hit.value.title for hit in found)


async def test_filters_phrases_and_beginnings(u: dgent.Universe) -> None:
    u.register(NOTE)
    await u.remember(Note("Running shoes", "I ran ten miles in them"), tags={"sport"})
    await u.remember(Note("Soup", "Ten onions, and miles of patience"), tags={"food"})
    assert sorted(await titles(u, "ten")) == ["Running shoes", "Soup"]
    assert await titles(u, "ten", tags={"food"}) == ["Soup"]
    assert await titles(u, '"ten miles"') == ["Running shoes"]
    assert await titles(u, "oni*") == ["Soup"]
    assert await titles(u, "runs") == ["Running shoes"], "stems meet"
    assert await titles(u, "nothing like this") == []
    assert await titles(u, "") == []
    hit = (await u.search("onions"))[0]
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["onions"]
    assert hit.score == 1
    assert hit.parts == {"onion": 1}
    for wrong in (0, -1, 1001, True, "3"):
        with pytest.raises(dgent.InputError):
            await u.search("ten", k=wrong)
    with pytest.raises(dgent.InputError):
        await u.search(7)  # type: ignore[arg-type]


async def test_forgotten_words_are_in_no_file(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    async with dgent.open(f"sqlite:///{store_path}/store.db") as u:
        u.register(NOTE)
        await u.put_many([note(f"n{n}", "note", random.Random(n)) for n in range(50)])
        await u.remember(Note("a secretword"), id="secret")
        await fold_all(u)
        await u.remember(Note("another hiddenword"), id="waiting")
        await u.remember(Note("now without it"), id="secret")
        assert await titles(u, "secretword") == []
        await u.forget("secret", "waiting")
        assert await titles(u, "hiddenword") == []
    left = b"".join(each.read_bytes() for each in store_path.iterdir() if each.is_file())
    assert b"secretword" not in left
    assert b"hiddenword" not in left


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE page SET body = x'00' WHERE word = CAST('word0' AS BLOB)",
        "DELETE FROM page WHERE word = CAST('word0' AS BLOB)",
        "DELETE FROM doc WHERE dk % 2 = 0",
        "UPDATE page SET body = x'80c0' WHERE word = x'ff'",
        "UPDATE doc SET size = size + 1 WHERE dk = 3",
    ],
)
async def test_damage_is_named_and_mended(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    shrink(monkeypatch)
    records = {datum.id: datum for datum in (note(f"n{n}", "note", random.Random(n)) for n in range(60))}
    async with dgent.open(f"sqlite:///{store_path}/store.db") as u:
        u.register(NOTE)
        await u.put_many(records.values())
        await fold_all(u)
        assert await search(u, ["word0"]) == expected(records, ["word0"])
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in found if each.level == "problem"]
    with closing(apsw.Connection(str(store_path / "store.db"))) as connection:
        connection.execute(damage)
    async with dgent.open(f"sqlite:///{store_path}/store.db") as u:
        u.register(NOTE)
        found = await upkeep_of(u.backend).inspect(deep=True, fix=True)
        assert "texts of note" in next(each.message for each in found if each.subject == "entries")
        await fold_all(u)
        assert await search(u, ["word0"]) == expected(records, ["word0"])
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in found if each.level == "problem"]


async def test_what_takes_long_is_done_before_a_write(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can write meanwhile, so texts are split and runs are read before."""
    shrink(monkeypatch)
    writing: list[bool] = []
    work: list[str] = []
    step = prune.fill_step

    def fill_step(*args: Any) -> bool:
        writing.append(True)
        try:
            return step(*args)
        finally:
            writing.pop()

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any) -> Any:
            work.append(f"{name} in a write" if writing else name)
            return real(*args)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(prune, "fill_step", fill_step)
    watch(TextIndex, "words")
    watch(TextIndex, "runs")
    u.register(NOTE)
    await u.schemas()
    for turn in range(2):
        await u.put_many([note(f"n{n}", "note", random.Random(n + turn)) for n in range(60)])
        await fold_all(u)
    assert set(work) == {"words", "runs"}


async def test_records_older_than_the_declaration_are_found_at_once(u: dgent.Universe) -> None:
    u.register(Schema("plain"))
    await u.put_many(
        [Datum(f"p{n}", data={"t": f"onion {n}"}, schema="plain", schema_version=1) for n in range(9)]
    )
    u.register(Schema("plain", text={"t": 1}))
    for wait in (False, True):
        if wait:
            await u.indexed()
        found = await u.search("onion 4", k=20)
        assert (found[0].id, len(found)) == ("p4", 9)
        assert not (wait and found.building)


async def test_too_many_old_records_are_reported(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_search, "MANY_WAITING", 5)
    u.register(Schema("plain"))
    await u.put_many(
        [Datum(f"p{n}", data={"t": "onion"}, schema="plain", schema_version=1) for n in range(9)]
    )
    u.register(Schema("plain", text={"t": 1}))
    found = await u.search("onion", k=20)
    assert found.building
    assert [hit.id for hit in found] == ["p8", "p7", "p6", "p5", "p4"]


async def test_each_step_may_be_that_of_another_process(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    url, choose = f"sqlite:///{store_path}/store.db", random.Random(8)
    records: dict[str, Datum] = {}
    for turn in range(3):
        async with dgent.open(url) as u:
            u.register(NOTE, BRIEF)
            for n in range(0, 40, turn + 1):
                datum = note(f"n{n}", choose.choice(("note", "brief")) if turn == 0 else "brief", choose)
                records[datum.id] = datum
                await u.put(datum)
            await u.delete("n7")
            await u.delete("n12")
            await u.forget(gone := f"n{20 + turn}")
            for id in ("n7", "n12", gone):
                records.pop(id, None)
        more = True
        while more:
            async with dgent.open(url) as u:
                u.register(NOTE, BRIEF)
                more = any([await u.backend.fill(schema, u.contracts) for schema in ("note", "brief")])
                words = choose.sample(VOCABULARY[:12], 2)
                assert await search(u, words) == expected(records, words)
    async with dgent.open(url) as u:
        u.register(NOTE, BRIEF)
        found = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in found if each.level == "problem"]


@pytest.mark.parametrize("meanwhile", ["forget", "delete", "replace", "index", "add"])
async def test_runs_made_ahead_are_written_only_if_their_records_still_wait(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr(fold, "RUN_CHARACTERS", 100_000)
    monkeypatch.setattr(fold, "MERGE_LATER", 100)
    url, choose = f"sqlite:///{store_path}/store.db", random.Random(2)
    records = {f"n{n}": note(f"n{n}", "note", choose) for n in range(40)}
    async with dgent.open(url) as one, dgent.open(url) as other:
        for u in (one, other):
            u.register(NOTE)
            await u.schemas()
            u._texts.clear()  # only this test indexes
        await one.put_many([*records.values()])
        assert await one.backend.fill("note", one.contracts)  # five more are made
        if meanwhile in ("forget", "delete"):
            await getattr(other, meanwhile)("n9")
            del records["n9"]
        elif meanwhile == "index":
            assert await other.backend.fill("note", other.contracts)
        else:
            datum = note("n9" if meanwhile == "replace" else "n40", "note", choose)
            await other.put(datum)
            records[datum.id] = datum
        while await one.backend.fill("note", one.contracts):
            for word in VOCABULARY[:5]:
                assert await search(other, [word]) == expected(records, [word])
        found = await upkeep_of(other.backend).inspect(deep=True)
        assert not [each for each in found if each.level == "problem"]
