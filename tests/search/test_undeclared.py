"""Records of schemas that nobody declared, and records without one, are found by all their texts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import dgent
from dgent import Datum, Query, Schema
from dgent.exchange.copy import copy
from dgent.store.engine import search as engine_search
from dgent.store.engine import text as engine_text
from dgent.store.registry import Engine
from dgent.store.upkeep import upkeep_of
from dgent.universe.gate import Principal
from dgent.verbs.data.search import search_words
from tests.search.test_text_index import shrink
from tests.universe.conftest import Another, another, engine, u, url

__all__ = ["another", "engine", "u", "url"]


async def found(u: dgent.Universe, words: str, **filters: object) -> list[str]:
    return [hit.id for hit in await u.search(words, **filters)]


async def fold(u: dgent.Universe, schema: str = "") -> None:
    while await u.backend.fill(schema, u.contracts):
        pass


async def problems(u: dgent.Universe) -> list[str]:
    if u.backend.name == "memory":
        return []  # nothing inspects it
    found = await upkeep_of(u.backend).inspect(deep=True)
    return [each.message for each in found if each.level == "problem"]


def plain(n: int, text: str = "") -> Datum:
    return Datum(f"n{n:04}", data={"text": f"lake w{n % 7} {text}", "deep": [{"more": f"m{n % 5}"}]})


async def test_they_are_found_at_once_and_the_store_is_not_changed(u: dgent.Universe) -> None:
    assert await found(u, "ship") == []
    mine = await u.remember({"action": "ship it", "why": [{"reason": "onions"}], "n": 3})
    named = Datum("named", data={"action": "ship two"}, schema="deed", schema_version=2)
    await u.put(named)
    before = await u.seq()
    assert sorted(await found(u, "ships")) == sorted([mine.id, "named"])
    assert await found(u, "onion") == [mine.id]
    assert await found(u, '"ship it"') == [mine.id]
    assert await found(u, "tw*") == ["named"]
    assert await found(u, "ship", schema="deed") == ["named"]
    assert await found(u, "ship", where={"n": 3}) == [mine.id]
    (hit,) = await u.search("reasons onions")
    assert (hit.snippet, hit.value["n"]) == ("onions", 3)
    assert await u.seq() == before
    await u.delete("named")
    assert await found(u, "ship") == [mine.id]
    assert await found(u, "ship", as_of=before) == ["named", mine.id]


async def test_nothing_of_rooms_and_of_dgent_itself_is_found_so(u: dgent.Universe) -> None:
    a, b = await u.remember({"text": "one"}), await u.remember({"text": "two"})
    await u.associate(a.id, b.id, "peculiar")
    assert await found(u, "peculiar related") == []


async def test_an_index_changes_no_hit(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    await u.put_many([plain(n) for n in range(60)])
    query = Query()
    before = await u.search("lake w3 m2", query, k=100)
    await fold(u)
    (stats,) = [each for each in await u.schemas() if each.name == ""]
    assert stats.text == ("*",)
    after = await u.search("lake w3 m2", query, k=100)
    assert [(hit.id, hit.score) for hit in before] == [(hit.id, hit.score) for hit in after]
    assert len(after) == 60
    assert not after.building
    await u.put_many([plain(n, "sea") for n in range(55, 65)])
    await u.delete("n0000")
    assert len(await found(u, "sea", k=100)) == 10
    await fold(u)
    assert len(await found(u, "sea", k=100)) == 10
    assert "n0000" not in await found(u, "lake", k=100)


async def test_many_are_indexed_when_a_search_sees_them(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_search, "MANY_WAITING", 100)
    await u.put_many([plain(n) for n in range(300)])
    hits = await u.search("w3", k=100)
    assert hits.building
    await u.indexed()
    hits = await u.search("w3", k=100)
    assert (len(hits), hits.building) == (43, False)
    # From now on this process keeps up with its own writes.
    await u.put_many([plain(n) for n in range(300, 700)])
    await u.indexed()
    assert (len(await found(u, "w3", k=1000)), (await u.search("w3")).building) == (100, False)


async def test_few_long_ones_are_indexed_too(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engine_search, engine_text):
        monkeypatch.setattr(module, "UNFILLED_BYTES", 500)
    await u.put_many([plain(n, "tea " * 20) for n in range(20)])
    hits = await u.search("tea", k=100)
    assert (0 < len(hits) < 20, hits.building) == (True, True)
    await u.indexed()
    hits = await u.search("tea", k=100)
    assert (len(hits), hits.building) == (20, False)


async def test_the_verb_waits_for_an_index(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_search, "MANY_WAITING", 100)
    await u.put_many([plain(n) for n in range(300)])
    answer = await search_words(u, "w3", Query(), 100, False)
    assert (len(answer.items), answer.building) == (43, False)


async def test_a_later_declaration_says_what_is_searched(
    u: dgent.Universe, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    data = {"title": "lake", "body": "tea"}
    await u.put_many([Datum(f"d{n}", data=data, schema="deed", schema_version=1) for n in range(30)])
    assert len(await found(u, "tea", k=50)) == 30
    await fold(u, "deed")
    other = await another(Schema("deed", text=("title",)))
    assert await found(other, "tea") == []
    assert len(await found(other, "lake", k=50)) == 30
    await other.indexed()
    assert len(await found(other, "lake", k=50)) == 30
    assert await found(u, "tea") == []
    none = await another(Schema("deed", 2, migrations={1: dict}))
    assert await found(none, "lake") == []
    await none.indexed()
    assert await problems(u) == []


async def test_forgotten_words_are_in_no_file(
    u: dgent.Universe, engine: Engine, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    await u.put_many([plain(n, "xyzzysecret" if n == 7 else "") for n in range(30)])
    await u.put(Datum("waits", data={"text": "plughsecret"}))
    await fold(u)
    await u.put(Datum("waits", data={"text": "plughsecret again"}))
    assert await found(u, "xyzzysecret plughsecret*", k=5) != []
    await u.forget("n0007", "waits")
    assert await found(u, "xyzzysecret plughsecret*", k=5) == []
    if engine.name in ("sqlite", "jsonl"):
        files = [path for path in store_path.rglob("*") if path.is_file()]
        held = b"".join(path.read_bytes() for path in files)
        assert files
        assert b"n0008" in held
        for secret in (b"xyzzysecret", b"plughsecret"):
            assert secret not in held


async def test_a_damaged_index_is_named_and_mended(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    url = f"sqlite:///{store_path}/store.db"
    async with dgent.open(url) as u:
        await u.put_many([plain(n) for n in range(30)])
        await fold(u)
        assert await problems(u) == []
        before = await found(u, "w3", k=50)
    with closing(apsw.Connection(str(store_path / "store.db"))) as connection:
        connection.execute("DELETE FROM page WHERE word = CAST('w3' AS BLOB)")
    async with dgent.open(url) as u:
        assert "texts of" in " ".join(await problems(u))
        await upkeep_of(u.backend).inspect(deep=True, fix=True)
        await fold(u)
        assert (await problems(u), await found(u, "w3", k=50)) == ([], before)


async def test_a_reader_finds_what_it_may_see(u: dgent.Universe) -> None:
    mine = await u.remember({"action": "ship it"})
    reader = u.acting(Principal("ann", "conversant"))
    assert await found(reader, "ship") == [mine.id]


async def test_a_transaction_finds_its_own(u: dgent.Universe) -> None:
    async with u.transaction() as tx:
        await tx.put(Datum("first", data={"text": "ship"}))
        assert [hit.id for hit in await tx.search("ship")] == ["first"]
    async with u.transaction() as tx:
        assert [hit.id for hit in await tx.search("ship")] == ["first"]
        await u.put(Datum("other", data={"text": "unrelated"}))
        await tx.put(Datum("second", data={"text": "ship"}))
    with pytest.raises(dgent.errors.TransactionConflict):
        async with u.transaction() as tx:
            await tx.search("ship")
            await u.put(Datum("third", data={"text": "ship"}))
            await tx.put(Datum("fourth", data={"text": "tea"}))


async def test_what_is_exported_is_found_where_it_is_imported(u: dgent.Universe) -> None:
    mine = await u.remember({"action": "ship it"})
    await found(u, "ship")
    async with dgent.open("memory:") as other:
        await copy(u, other)
        assert await found(other, "ship") == [mine.id]
