"""Records of a thread lend each other their words: on every engine, and to nobody who may not see them."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.errors import SchemaError, TransactionConflict
from dgent.search.score import encode_length, idf, norms, saturate
from dgent.search.thread import CANDIDATES
from dgent.search.wanted import Wanted
from dgent.search.words import count_words
from dgent.store.search import SearchRequest
from dgent.store.upkeep import upkeep_of
from tests.search.test_text_index import fold_all, shrink
from tests.soak import times
from tests.universe.conftest import Another, another, engine, u, url

__all__ = ["another", "engine", "u", "url"]
START = datetime(2024, 5, 7, tzinfo=UTC)


@dataclass(frozen=True)
class Turn:
    text: str
    session: str | None = None
    speaker: str = ""


@dataclass(frozen=True)
class Said:
    text: str
    session: str | None = None
    who: str = ""


TURN = Schema("turn", 1, Turn, text=("text",), thread="session", dates=False)
WORDS = [f"word{n}" for n in range(9)]
Parts = dict[str, dict[str, float]]


def turn(id: str, choose: random.Random) -> Datum:
    words = [choose.choice(WORDS) for _ in range(choose.randrange(5))]
    data = {"text": " ".join(words), "session": choose.choice(["a", "b", "c", "", None])}
    made = START + timedelta(seconds=choose.randrange(20))
    return Datum(id, created_at=made, data=data, schema="turn", schema_version=1)


def own_parts(records: dict[str, Datum], words: list[str]) -> Parts:
    """BM25 by the book."""
    counts = {id: count_words(datum.data["text"]) for id, datum in records.items()}
    sizes = {id: sum(found.values()) for id, found in counts.items()}
    norm = norms(sum(sizes.values()) / len(sizes) if sizes else 1)
    parts: Parts = {id: {} for id in records}
    for word in words:
        having = [id for id, found in counts.items() if word in found]
        for id in having:
            part = saturate(counts[id][word], norm[encode_length(sizes[id])])
            parts[id][word] = idf(len(records), len(having)) * part
    return parts


def expected(records: dict[str, Datum], first: list[str], words: list[str]) -> list[tuple[str, float]]:
    """Each record's own parts, and the best of each word within two records of its thread."""
    parts = own_parts(records, words)
    threads: dict[str, list[str]] = {}
    for id in sorted(records, key=lambda id: (records[id].created_at, first.index(id))):
        threads.setdefault(records[id].data["session"] or id, []).append(id)
    own = sorted(
        (id for id in records if parts[id]), key=lambda id: (-sum(parts[id].values()), -first.index(id))
    )
    scores: dict[str, float] = {}
    for seed in own[:CANDIDATES]:
        thread = threads[records[seed].data["session"] or seed]
        at = thread.index(seed)
        for near in range(max(0, at - 2), min(len(thread), at + 3)):
            window = thread[max(0, near - 2) : near + 3]
            lent = [max(parts[id].get(word, 0.0) for id in window) for word in words]
            scores[thread[near]] = sum(parts[thread[near]].values()) + sum(lent)
    return in_order(scores.items())


def in_order(found: object) -> list[tuple[str, float]]:
    return sorted(((id, round(score, 9)) for id, score in found), key=lambda each: (-each[1], each[0]))  # type: ignore[attr-defined]


async def search(u: dgent.Universe, words: list[str], **options: object) -> list[tuple[str, float]]:
    query = Query(schema="turn")
    found = await u.backend.search(SearchRequest(Wanted(tuple(words)), query, u.contracts, 1000, **options))  # type: ignore[arg-type]
    return in_order([(each.datum.id, each.score) for each in found.items])


async def test_every_search_is_right_whatever_waits(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    u.register(TURN)
    choose = random.Random(11)
    records: dict[str, Datum] = {}
    first: list[str] = []
    moments: dict[int, dict[str, Datum]] = {}
    for step in range(times(40)):
        id, what = f"t{choose.randrange(70)}", choose.random()
        if id in records and what < 0.2:
            await u.delete(id)
            del records[id]
        elif id in records and what < 0.25:
            await u.forget(id)
            del records[id]
            first.remove(id)
            moments.clear()
        elif what < 0.4:
            await u.backend.fill("turn", u.contracts)
        else:
            datum = turn(id, choose)
            await u.put(datum)
            first += [] if id in first else [id]
            kept = records[id].created_at if id in records else datum.created_at
            records[id] = datum.replace(created_at=kept)
        moments[await u.seq()] = dict(records)
        if step % 4 == 0:
            words = choose.sample(WORDS, choose.randrange(1, 4))
            assert await search(u, words) == expected(records, first, words)
            seq = choose.choice(list(moments))
            assert await search(u, words, as_of=seq) == expected(moments[seq], first, words), seq
            own = {each.id: each for each in (turn(f"t{choose.randrange(90)}", choose) for _ in range(4))}
            gone = dict.fromkeys(choose.sample(sorted(records), min(2, len(records))))
            mine = {id: each for id, each in {**records, **own, **gone}.items() if each is not None}
            order = first + [id for id in own if id not in first]
            assert await search(u, words, own={**own, **gone}) == expected(mine, order, words)


async def fill(u: dgent.Universe, turns: list[Turn], name: str = "t") -> None:
    await u.put_many(
        Datum(
            f"{name}{n}",
            created_at=START + timedelta(minutes=n),
            data={"text": each.text, "session": each.session, "speaker": each.speaker},
            schema="turn",
            schema_version=1,
        )
        for n, each in enumerate(turns)
    )


TALK = [
    Turn("Where did you go last summer?", "a", "ann"),
    Turn("To Norway, for three weeks.", "a", "joe"),
    Turn("Did it rain?", "a", "ann"),
    Turn("Every single day.", "a", "joe"),
    Turn("What a pity.", "a", "ann"),
    Turn("To Norway, for three weeks.", "b", "joe"),
    Turn("Nice weather today.", "b", "ann"),
]


@pytest.mark.parametrize("folded", [False, True])
async def test_an_answer_is_found_by_its_question(
    u: dgent.Universe, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    u.register(TURN)
    await fill(u, TALK)
    if folded:
        await fold_all(u, "turn")
    hits = await u.search("which summer in Norway")
    assert [hit.id for hit in hits][:2] == ["t0", "t1"], "with both words within reach"
    assert {hit.id for hit in hits} == {"t0", "t1", "t2", "t3", "t5", "t6"}, "t4 is too far from either"
    assert hits[0].score == 1
    assert sum(hits[0].parts.values()) == pytest.approx(1)
    assert set(hits[0].parts) == {"summer", "norway"}
    assert hits[1].snippet == "To Norway, for three weeks."
    rain = {hit.id: hit.snippet for hit in await u.search("rain", k=2)}
    assert rain == {"t2": "Did it rain?", "t4": "What a pity."}, "of the same score the newest first"


async def test_filters_apply_before_the_cut_and_others_lend(u: dgent.Universe) -> None:
    u.register(TURN)
    await fill(u, TALK)
    found = await u.search("summer", where={"speaker": "joe"})
    assert [hit.id for hit in found] == ["t1"], "its question is by somebody else"
    assert [hit.id for hit in await u.search("summer rain", where={"session": "b"})] == []
    assert [hit.id for hit in await u.search("norway", where={"session": "b"}, k=1)] == ["t5"]
    assert [hit.id for hit in await u.search('"three weeks"')] == ["t5", "t1"]
    await fill(u, [Turn("summer summer summer", f"s{n}", "ann") for n in range(2 * CANDIDATES)], "many")
    found = await u.search("summer norway", where={"speaker": "joe"})
    assert {hit.id for hit in found} == {"t1", "t3", "t5"}
    assert len(await u.search("summer", k=1000)) == 2 * CANDIDATES + 3


async def test_what_may_not_be_seen_lends_nothing(u: dgent.Universe) -> None:
    u.register(TURN)
    await fill(u, TALK)
    seen = Query(schema="turn", allow=lambda datum: datum.data["speaker"] == "joe")
    page = await u.backend.search(SearchRequest(Wanted(("summer", "rain")), seen, u.contracts, 10))
    assert page.items == []
    page = await u.backend.search(SearchRequest(Wanted(("norway",)), seen, u.contracts, 10))
    # Without ann's turns those of joe are next to each other.
    assert sorted(each.datum.id for each in page.items) == ["t1", "t3", "t5"]
    await fill(u, [Turn("secret", "c", "ann")] * 100, "x")
    await fill(u, [Turn("near the secret", "c", "joe")], "y")
    page = await u.backend.search(SearchRequest(Wanted(("near",)), seen, u.contracts, 10))
    assert [each.datum.id for each in page.items] == ["y0"]
    assert set(page.items[0].parts) == {"near"}


async def test_no_thread_and_names_that_are_too_long(u: dgent.Universe) -> None:
    u.register(TURN)
    long = "x" * 200
    for session in (None, "", long):
        await fill(u, [Turn("question", session), Turn("answer", session)], f"{session}"[:4])
        hits = await u.search("question")
        assert all(hit.value.text == "question" for hit in hits), session
    assert len(hits) == 3


async def test_schemas_with_and_without_threads_are_searched_together(u: dgent.Universe) -> None:
    u.register(TURN, Schema("note", text=("text",)))
    await fill(u, TALK[:3])
    await u.remember({"text": "norway norway norway"}, schema="note", id="n")
    hits = await u.search("norway summer")
    assert [hit.id for hit in hits] == ["t0", "t1", "n", "t2"]


async def test_transactions_see_the_thread_they_write(u: dgent.Universe) -> None:
    u.register(TURN)
    await fill(u, TALK[:1])
    async with u.transaction() as tx:
        await tx.remember(Turn("To Norway.", "a"), id="mine")
        assert [hit.id for hit in await tx.search("summer")] == ["t0", "mine"]
        assert [hit.id for hit in await u.search("summer")] == ["t0"]
    assert [hit.id for hit in await u.search("summer")] == ["t0", "mine"]
    with pytest.raises(TransactionConflict):
        async with u.transaction() as tx:
            await tx.search("summer")
            await u.remember(Turn("not a word of it", "a"), id="next")
            await tx.remember(Turn("done"))


async def test_a_thread_may_be_declared_later(u: dgent.Universe, another: Another) -> None:
    u.register(Schema("turn", 1, Turn, text=("text",)))
    await fill(u, TALK)
    assert [hit.id for hit in await u.search("summer")] == ["t0"]
    other = await another(TURN)
    await other.indexed()
    hits = await other.search("summer")
    assert [hit.id for hit in hits] == ["t0", "t2", "t1"]
    assert not hits.building
    await u.remember(Turn("and I to Spain", "a"), created_at=START, id="old program")
    assert {hit.id for hit in await other.search("summer")} == {"t0", "t1", "old program"}
    assert {each.name: each.indexes for each in await other.schemas()}["turn"] == ("session",)


def test_wrong_declarations_are_refused() -> None:
    assert TURN.indexes == ("session",)
    assert Schema("turn", 1, Turn, text=("text",), thread="session").dates is True
    assert Schema("turn", 1, Turn, text=("text",), thread="session", indexes=("session",)).indexes == (
        "session",
    )
    for wrong in ("nothing", "", 7, ("session",), "session.*"):
        with pytest.raises(SchemaError) as error:
            Schema("turn", 1, Turn, text=("text",), thread=wrong)  # type: ignore[arg-type]
        assert error.value.details["field"] == "thread"
    with pytest.raises(SchemaError):
        Schema("turn", 1, Turn, thread="session")


async def test_a_folder_of_lines_keeps_the_declaration(tmp_path: Path) -> None:
    place = f"jsonl:{tmp_path}/store"
    async with dgent.open(place) as u:
        u.register(Schema("turn", 1, Turn, text=("text",), thread="session", dates="speaker"))
        await fill(u, [Turn(each.text, each.session, "2024-05-07") for each in TALK])
        before = [(hit.id, hit.score) for hit in await u.search("summer in may")]
    shutil.rmtree(tmp_path / "store" / ".cache")
    async with dgent.open(place) as u:  # knows nothing of the schema
        assert [(hit.id, hit.score) for hit in await u.search("summer in may")] == before
    async with dgent.open(place) as u:
        u.register(Schema("turn", 1, Turn, text=("text",), thread="session", dates="speaker"))
        await u.indexed()
        assert [(hit.id, hit.score) for hit in await u.search("summer in may")] == before
        problems = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in problems if each.level == "problem"]


async def test_undo_and_older_versions_keep_their_place(u: dgent.Universe, another: Another) -> None:
    u.register(TURN)
    await fill(u, TALK)
    await u.remember(Turn("nothing", "b"), id="t0")
    assert await u.search("summer") == []
    await u.undo(await u.seq())
    assert [hit.id for hit in await u.search("summer")] == ["t0", "t2", "t1"]
    await u.delete("t1")
    assert [hit.id for hit in await u.search("summer")] == ["t0", "t3", "t2"]

    def rename(data: dict[str, Any]) -> dict[str, Any]:
        return {"text": data["text"], "session": data["session"], "who": data["speaker"]}

    newer = Schema("turn", 2, Said, {1: rename}, text=("text",), thread="session", dates=False)
    other = await another(newer)
    await other.indexed()
    hits = await other.search("summer")
    assert ([hit.id for hit in hits], hits[0].value.who) == (["t0", "t3", "t2"], "ann")
    await u.remember(Turn("I was at home.", "a"), id="old", created_at=START + timedelta(seconds=5))
    assert {hit.id for hit in await other.search("summer")} >= {"t0", "t2"}
