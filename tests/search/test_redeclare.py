"""Another declaration while programs write: a search goes by the new one, and says that it is building."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.errors import SchemaConflict
from dgent.search.wanted import Wanted
from dgent.search.words import TOKENIZER
from dgent.store.engine import catalog, prune
from dgent.store.engine.kernel import Reading
from dgent.store.search import SearchRequest
from dgent.store.upkeep import upkeep_of
from dgent.universe import contract
from tests.search.test_text_index import find_problems, shrink
from tests.universe.conftest import Another, another, engine, u, url

__all__ = ["another", "engine", "u", "url"]


@dataclass(frozen=True)
class Turn:
    text: str
    title: str = ""
    session: str = ""


OLD = Schema("turn", 1, Turn, text=("text",))
NEW = Schema("turn", 1, Turn, text={"title": 3, "text": 1}, thread="session")
WORDS = [f"word{n}" for n in range(12)]
START = datetime(2024, 5, 7, tzinfo=UTC)


def turn(id: str, choose: random.Random) -> Datum:
    text, title = (" ".join(choose.choices(WORDS, k=choose.randrange(6))) for _ in range(2))
    data = {"text": text, "title": title, "session": choose.choice(("a", "b"))}
    made = START + timedelta(hours=choose.randrange(50))
    return Datum(id, created_at=made, data=data, schema="turn", schema_version=1)


def has_one(datum: Datum, words: list[str], schema: Schema[Turn]) -> bool:
    return any(word in datum.data[path].split() for path in schema.text for word in words)


async def found(u: dgent.Universe, words: list[str]) -> tuple[list[tuple[str, float]], bool]:
    wanted = Wanted(tuple(words))
    page = await u.backend.search(SearchRequest(wanted, Query(schema="turn"), u.contracts, 1000))
    return [(each.datum.id, each.score) for each in page.items], page.building


@pytest.mark.parametrize("what", ["fields", "tokenizer"])
async def test_a_declaration_changes_while_an_old_program_writes(
    u: dgent.Universe, another: Another, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr(prune, "FILL_BATCH", 25)
    choose = random.Random(5)
    new = NEW if what == "fields" else OLD
    u.register(OLD)
    other = await another(OLD)
    await other.schemas()
    records = {datum.id: datum for datum in (turn(f"t{n}", choose) for n in range(60))}
    await u.put_many(records.values())
    while await u.backend.fill("turn", u.contracts):
        pass
    if what == "tokenizer":
        for module in (contract, catalog):
            monkeypatch.setattr(module, "TOKENIZER", "words-of-another-dgent")
    assert (await other.backend.declare(contract.declaration(new))).filling
    async with dgent.open("memory:") as model:
        model.register(new)
        await model.put_many(records.values())
        step = 0
        while step < 24 or await other.backend.fill("turn", other.contracts):
            expected, _ = await found(model, words := choose.sample(WORDS, 2))
            states = {state.name: state for state in await other.schemas()}
            building = "@text" in states["turn"].building
            for program in (u, other):
                hits, is_building = await found(program, words)
                assert is_building is building, step
                if building:  # what neighbours lend is not known before the thread is indexed
                    own = {id for id, datum in records.items() if has_one(datum, words, new)}
                    assert own <= dict(hits).keys() <= dict(expected).keys(), step
                else:
                    assert hits == expected, step
            step += 1
            if step % 2 and step < 24:
                datum = turn(f"t{choose.randrange(80)}", choose)
                records[datum.id] = datum
                await u.put(datum)
                await model.put(datum)
            else:
                await other.backend.fill("turn", other.contracts)
        assert (await found(u, words))[1] is False
    if u.backend.name == "sqlite":
        problems = await upkeep_of(u.backend).inspect(deep=True)
        assert not [each for each in problems if each.level == "problem"]


async def test_an_index_of_an_older_form_is_built_anew(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    choose = random.Random(6)
    records = {datum.id: datum for datum in (turn(f"t{n}", choose) for n in range(40))}

    def find_form(reading: Reading) -> str:
        reading.refresh()
        state = reading.state("turn")
        assert state is not None
        return state.tokenizer

    async def read_form() -> str:
        return await u.backend._read(find_form)  # type: ignore[attr-defined, no-any-return]

    async def check() -> None:
        for word in WORDS:
            hits, _ = await found(u, [word])
            own = {id for id, datum in records.items() if has_one(datum, [word], OLD)}
            assert dict(hits).keys() == own, word
        assert u.backend.name == "memory" or await find_problems(u) == []

    with monkeypatch.context() as before:
        for module in (contract, catalog):
            before.setattr(module, "TOKENIZER", "words-of-before")
        u.register(OLD)
        await u.put_many(records.values())
        while await u.backend.fill("turn", u.contracts):
            pass
        assert await read_form() == "words-of-before"
    await check()
    await u.forget("t7")
    del records["t7"]
    await check()
    while await u.backend.fill("turn", u.contracts):
        await check()
    assert await read_form() == TOKENIZER
    await check()


async def test_two_programs_with_other_texts_do_not_rebuild_in_turn(
    u: dgent.Universe, another: Another
) -> None:
    u.register(OLD)
    await u.put_many([turn(f"t{n}", random.Random(n)) for n in range(40)])
    await u.indexed()
    newer = await another(NEW)
    await newer.schemas()
    await newer.indexed()
    for _ in range(2):
        older = await another(OLD)
        with pytest.warns(SchemaConflict, match="has its texts from another program"):
            assert not (await older.search("word1")).building
        later = await another(NEW)
        await later.schemas()
        assert not (await later.search("word1")).building
    (stats,) = [each for each in await u.schemas() if each.name == "turn"]
    assert stats.text == ("title", "text")
    third = await another(Schema("turn", 1, Turn, text=("title",)))
    await third.schemas()
    await third.indexed()
    (stats,) = [each for each in await u.schemas() if each.name == "turn"]
    assert stats.text == ("title",), "what is new counts"
    back = await another(Schema("turn", 2, Turn, text=("text",), migrations={1: dict}))
    await back.schemas()
    (stats,) = [each for each in await u.schemas() if each.name == "turn"]
    assert stats.text == ("text",), "so does a newer version"
