"""The same records on every engine, indexed to different degrees: each search finds the same in each."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Datum, Schema
from dgent.store.registry import ENGINES
from tests.contract.columns import SETTINGS
from tests.search.test_text_index import fold_all, shrink
from tests.soak import times

START = datetime(2024, 1, 1, tzinfo=UTC)
STEMS = [
    "run",
    "walk",
    "light",
    "garden",
    "tea",
    "lake",
    "snow",
    "winter",
    "café",
    "Straße",
    "東京都",
    "ภาษา",
    "نص",
    "🎉",
    "user_id",
    "2024-05-07",
]
WORDS = [*STEMS, *(f"{stem}s" for stem in STEMS[:7]), "running", "the", "may", "7", "is"]


@dataclass(frozen=True)
class Turn:
    text: str
    title: str = ""
    session: str = ""


@dataclass(frozen=True)
class Note(Turn):
    pass


TURN = Schema("turn", 1, Turn, text={"title": 3, "text": 1}, thread="session")
NOTE = Schema("note", 1, Note, text={"text": 2}, indexes=("session",), history=2)


def text(choose: random.Random, most: int) -> str:
    return " ".join(choose.choice(WORDS) for _ in range(choose.randrange(most)))


def record(id: str, choose: random.Random) -> Datum:
    data = {"text": text(choose, 14), "title": text(choose, 3), "session": choose.choice(("a", "b", "c", ""))}
    made = START + timedelta(days=choose.randrange(200), seconds=choose.randrange(3))
    schema = "turn" if id < "r5" else "note"
    tags = frozenset(choose.sample(("x", "y", "z"), choose.randrange(3)))
    return Datum(id, created_at=made, data=data, schema=schema, schema_version=1, tags=tags)


def question(choose: random.Random, seqs: int) -> tuple[str, dict[str, Any]]:
    asked = text(choose, 6)
    if choose.random() < 0.2:
        asked += f' "{text(choose, 3)}"'
    if choose.random() < 0.2:
        asked += f" {choose.choice(WORDS)[:2]}*"
    options: dict[str, Any] = {"k": choose.choice((1, 3, 10, 100))}
    if choose.random() < 0.3:
        options["schema"] = choose.choice(("turn", "note"))
        if choose.random() < 0.5:
            options["where"] = {"session": choose.choice(("a", "b"))}
    if choose.random() < 0.2:
        options["tags"] = {choose.choice("xyz")}
    if choose.random() < 0.1:
        options["since"] = START + timedelta(days=choose.randrange(200))
    if choose.random() < 0.15:
        options |= {"as_of": seqs - choose.randrange(5), "schema": "turn"}
    return asked, options


async def change(universes: list[dgent.Universe], choose: random.Random) -> None:
    """Do one thing on every engine, and index on some."""
    what, id = choose.random(), f"r{choose.randrange(10)}{choose.randrange(15)}"
    datum = record(id, choose)
    for u in universes:
        if what < 0.75:
            await u.put(datum)
        elif what < 0.9:
            await u.delete(id)
        else:
            await u.forget(id)
    for u in choose.sample(universes, 2):
        for _ in range(choose.randrange(3)):
            await u.backend.fill(choose.choice(("turn", "note")), u.contracts)


async def ask(u: dgent.Universe, asked: str, options: dict[str, Any]) -> list[tuple[Any, ...]]:
    try:
        hits = await u.search(asked, **options)
    except dgent.DgentError as error:
        return [(error.code,)]
    return [(hit.id, hit.score, hit.parts, hit.snippet, hit.marks) for hit in hits]


async def test_every_engine_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    choose = random.Random(15)
    async with AsyncExitStack() as stack:
        universes = []
        for engine in ENGINES:
            (folder := tmp_path / engine.name).mkdir()
            u = await stack.enter_async_context(dgent.open(SETTINGS[engine.name][0].url(folder), author="me"))
            u.register(TURN, NOTE)
            universes.append(u)
        found = 0
        for number in range(times(120)):
            if number % 3 == 0:
                await change(universes, choose)
            asked, options = question(choose, await universes[0].seq())
            answers = [await ask(u, asked, options) for u in universes]
            assert all(answer == answers[0] for answer in answers), (asked, options)
            found += bool(answers[0])
        assert found > number / 2
        await fold_all(universes[0], "turn")
        assert await ask(universes[0], "lake tea", {"k": 100}) == await ask(
            universes[1], "lake tea", {"k": 100}
        )
