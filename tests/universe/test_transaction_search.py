"""A search in a transaction sees the transaction's own writes, and is one of its reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.errors import Closed, InputError, TransactionConflict
from tests.search.test_text_index import fold_all, shrink
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]


@dataclass(frozen=True)
class Note:
    text: str
    topic: str = ""


NOTE = Schema("note", 1, Note, indexes=("topic",), text=("text",))
TEXTS = {"a": "the lake in summer", "b": "tea by the lake", "c": "snow on the hills"}


@pytest.fixture
async def notes(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> dgent.Universe:
    shrink(monkeypatch)
    u.register(NOTE)
    for id, text in TEXTS.items():
        await u.remember(Note(text, "water" if "lake" in text else "land"), id=id)
    await fold_all(u)
    return u


async def found(tx: dgent.Universe | dgent.Transaction, words: str, **filters: object) -> list[str]:
    return sorted(hit.id for hit in await tx.search(words, **filters))


async def test_own_writes_are_found(notes: dgent.Universe) -> None:
    async with notes.transaction() as tx:
        assert await found(tx, "lake") == ["a", "b"]
        await tx.update(await tx.get("a"), text="the sea")
        await tx.remember(Note("a lake of mine", "water"), id="mine")
        await tx.put(Datum("other", data={"text": "a lake"}))
        await tx.delete("b")
        await tx.check("c")
        assert await found(tx, "lake") == ["mine", "other"]
        assert await found(tx, "lake sea snow") == ["a", "c", "mine", "other"]
        assert await found(tx, "lake sea snow", where={"topic": "water"}) == ["a", "mine"]
        assert await found(tx, '"of mine"') == ["mine"]
        assert await found(tx, "min*", query=Query(schema="note")) == ["mine"]
        hit = (await tx.search("sea"))[0]
        assert (hit.value, hit.score, hit.snippet) == (Note("the sea", "water"), 1, "the sea")
        assert await found(notes, "lake") == ["a", "b"], "nobody else sees them yet"
    assert await found(notes, "lake") == ["mine", "other"]
    with pytest.raises(Closed):
        await tx.search("lake")


async def test_own_writes_have_the_scores_that_they_will_have(notes: dgent.Universe) -> None:
    async with notes.transaction() as tx:
        await tx.remember(Note("lake lake and tea"), id="d")
        await tx.remember(Note("hills of tea"), id="e")
        await tx.delete("b")
        inside = [(hit.id, hit.score, hit.parts) for hit in await tx.search("tea lake hills")]
    assert [(hit.id, hit.score, hit.parts) for hit in await notes.search("tea lake hills")] == inside


async def test_the_first_records_of_a_schema_are_found(u: dgent.Universe) -> None:
    u.register(NOTE)
    async with u.transaction() as tx:
        assert await found(tx, "lake") == []
        await tx.remember(Note("a lake"), id="a")
        assert await found(tx, "lake") == ["a"]
    assert await found(u, "lake") == ["a"]


async def change(u: dgent.Universe, what: str) -> None:
    if what == "delete":
        await u.delete("a")
    elif what == "forget":
        await u.forget("a")
    else:
        await u.remember(Note(what, "water"), id="a" if what == "changed" else "new")


@pytest.mark.parametrize("what", ["changed", "delete", "forget", "another lake"])
async def test_what_changes_the_answer_is_a_conflict(notes: dgent.Universe, what: str) -> None:
    with pytest.raises(TransactionConflict):
        async with notes.transaction() as tx:
            await found(tx, "lak* tea")
            await change(notes, what)
            await tx.remember(Note("done"))
    with pytest.raises(TransactionConflict):
        async with notes.transaction() as tx:
            await found(tx, "lake")
            await change(notes, "one more lake, and changed")
            await tx.get("c")


async def test_what_leaves_the_answer_alone_is_none(notes: dgent.Universe) -> None:
    async with notes.transaction() as tx:
        assert await found(tx, "lake", where={"topic": "water"}) == ["a", "b"]
        await notes.remember(Note("mountains", "water"), id="d")
        await notes.remember(Note("a lake on a map", "maps"), id="e")
        await notes.remember(Note("more snow", "land"), id="c")
        await tx.remember(Note("done"), id="done")
    assert await notes.exists("done")


async def test_transact_tries_again(notes: dgent.Universe) -> None:
    seen: list[list[str]] = []

    async def work(tx: dgent.Transaction) -> None:
        seen.append(await found(tx, "lake"))
        if len(seen) == 1:
            await notes.remember(Note("a third lake"), id="d")
        await tx.remember(Note(f"{len(seen[-1])} lakes"), id="count")

    await notes.transact(work)
    assert seen == [["a", "b"], ["a", "b", "d"]]
    assert (await notes.get("count")).value.text == "3 lakes"


async def test_a_collection_is_searched(notes: dgent.Universe) -> None:
    notes.register(Schema("other", text=("text",)))
    await notes.remember({"text": "a lake"}, schema="other", id="x")
    some = notes.collection(Note)
    assert sorted(hit.id for hit in await some.search("lake")) == ["a", "b"]
    assert [hit.id for hit in await some.search("snow lake", where={"topic": "land"}, k=1)] == ["c"]
    assert await some.search("lake", as_of=0) == []
    with pytest.raises(InputError):
        await some.search("lake", Query(schema="other"))
