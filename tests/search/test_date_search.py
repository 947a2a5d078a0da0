"""The time of a record is searched by its words, where its schema says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest

import dgent
from dgent import Schema
from dgent.errors import SchemaConflict, SchemaError
from tests.search.test_text_index import fold_all, shrink
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]
MAY = datetime(2024, 5, 7, 23, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Turn:
    text: str
    said_at: datetime | None = None
    day: date | None = None


PLAIN = Schema("turn", 1, Turn, text={"text": 2})
CREATED = Schema("turn", 1, Turn, text={"text": 2}, dates=True)
SAID = Schema("turn", 1, Turn, text={"text": 2}, dates="said_at")


async def texts(u: dgent.Universe, words: str) -> list[str]:
    return [hit.value.text for hit in await u.search(words)]


@pytest.mark.parametrize("folded", [False, True])
async def test_records_are_found_by_the_day_they_were_made(
    u: dgent.Universe, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    u.register(CREATED)
    await u.remember(Turn("We met at the lake."), created_at=MAY, id="a")
    await u.remember(Turn("It rained."), created_at=MAY + timedelta(days=30))
    if folded:
        await fold_all(u, "turn")
    for asked in ("7 May 2024", "what happened in may?", "on a Tuesday", "2024-05-07", "2024-05"):
        assert (await texts(u, asked))[0] == "We met at the lake.", asked
    assert await texts(u, "june") == ["It rained."]
    assert await texts(u, '"may 7"') == [], "a phrase stands in a text"
    await u.delete("a")
    await u.remember(Turn("We met at the lake."), created_at=MAY + timedelta(days=60), id="a")
    if folded:
        await fold_all(u, "turn")
    assert await texts(u, "may") == []
    assert await texts(u, "july") == ["We met at the lake."]


async def test_the_time_may_be_that_of_a_field_as_it_is_written(u: dgent.Universe) -> None:
    u.register(SAID, Schema("letter", text=("text",), dates="when"))
    tokyo = "2024-05-08T08:30:00+09:00"
    await u.remember(Turn("Good morning", said_at=datetime.fromisoformat(tokyo)))
    await u.remember(Turn("Nobody knows when"))
    await u.remember({"text": "Dear all", "when": tokyo}, schema="letter")
    assert await texts(u, "tuesday") == ["Good morning"], "a datetime is stored in UTC"
    assert [hit.datum.data["text"] for hit in await u.search("wednesday")] == ["Dear all"]
    today = (await u.query(schema="turn"))[0].created_at.strftime("%Y-%m-%d")
    assert await texts(u, today) == []


@pytest.mark.parametrize(
    "day", ["", "soon", "2024-02-30", "2024-5-7", "20240507", "2024-05-071", "0000-01-01"]
)
async def test_what_is_not_a_date_has_no_words(day: str) -> None:
    async with dgent.open("memory:") as u:
        u.register(Schema("turn", text=("text",), dates="when"))
        await u.remember({"text": "hello", "when": day}, schema="turn")
        await u.remember({"text": "hello", "when": ["2023-01-02", 7, None]}, schema="turn")
        assert len(await u.search("hello")) == 2
        assert len(await u.search("may february 2024 2023")) == 1


async def test_a_search_for_other_words_does_not_change(u: dgent.Universe) -> None:
    turns = [Turn("a long walk by the lake " * n + "and tea") for n in range(1, 9)]
    scores = []
    for schema in (PLAIN, CREATED):
        async with dgent.open("memory:") as other:
            other.register(schema)
            for n, turn in enumerate(turns):
                await other.remember(turn, created_at=MAY + timedelta(days=n))
            scores.append([(hit.value.text, hit.score, hit.parts) for hit in await other.search("lake tea")])
    assert scores[0] == scores[1] != []


async def test_another_declaration_is_another_index(url: str, u: dgent.Universe) -> None:
    if url == "memory:":
        return
    u.register(PLAIN)
    for n in range(5):
        await u.remember(Turn(f"turn {n}"), created_at=MAY)
    assert await u.search("may") == []
    async with dgent.open(url) as other:
        other.register(CREATED)
        await other.indexed()
        assert len(await other.search("may")) == 5
    async with dgent.open(url) as third:
        third.register(Schema("turn", 1, Turn))  # says nothing of texts, so these stay as they are
        assert len(await third.search("may")) == 5
        assert not (await third.schemas())[0].building
    async with dgent.open(url) as fourth:
        fourth.register(PLAIN)  # replaced within this version, so it does not count again
        with pytest.warns(SchemaConflict):
            await fourth.indexed()
        assert len(await fourth.search("may")) == 5
    async with dgent.open(url) as fifth:
        fifth.register(Schema("turn", 2, Turn, text=PLAIN.text, migrations={1: dict}))
        await fifth.indexed()
        assert await fifth.search("may") == []
        assert len(await fifth.search("turn")) == 5


def test_wrong_declarations_are_refused() -> None:
    for wrong in ("no_field", "", "said_at..x", 7, ("said_at",)):
        with pytest.raises(SchemaError) as error:
            Schema("turn", 1, Turn, text=("text",), dates=wrong)  # type: ignore[arg-type]
        assert error.value.details["field"] == "dates"
    with pytest.raises(SchemaError):
        Schema("turn", 1, Turn, dates=True)
