"""The store against the framework's own, and what it does beyond that."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import dgent
from dgent import clock
from dgent.bridges.langgraph import DgentStore, VersionedItem, find
from dgent.bridges.langgraph import item as items
from dgent.errors import InputError, VersionConflict
from dgent.universe import expiry


def embed(texts: list[str]) -> list[list[float]]:
    """Count letters: texts with the same letters are near."""
    return [[text.count(letter) + 0.01 * at for at, letter in enumerate("abcdefgh")] for text in texts]


INDEX: Any = {"dims": 8, "embed": embed, "fields": ["text", "parts[*]"]}


@pytest.fixture
async def store(url: str) -> AsyncIterator[DgentStore]:
    async with DgentStore(url, index=INDEX) as made:
        yield made


# -- differential -------------------------------------------------------------------------

SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from(["abc", "x\0y", ""]), st.none(), st.booleans(), st.floats(-9, 9)
)
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3)},
    optional={
        "text": st.text("abcdefgh", min_size=1, max_size=6),
        "k": SCALARS,
        "m": st.lists(SCALARS, max_size=2),
    },
)
NAMESPACES = st.lists(st.sampled_from(["a", "b", "a-", "é"]), min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k1", "k2", "a/b", ""])
FILTERS = st.one_of(
    st.none(),
    st.fixed_dictionaries({"n": st.integers(-3, 3)}),
    st.fixed_dictionaries({"k": SCALARS}),
    st.fixed_dictionaries({"n": st.dictionaries(st.sampled_from(items.OPERATORS), st.integers(-3, 3))}),
)
MATCHES = st.lists(
    st.builds(
        MatchCondition,
        st.sampled_from(["prefix", "suffix"]),
        st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
OPS = st.one_of(
    st.builds(
        PutOp,
        NAMESPACES,
        KEYS,
        st.one_of(VALUES, VALUES, st.none()),
        st.sampled_from([None, False, ["k"]]),
        st.none(),
    ),
    st.builds(GetOp, NAMESPACES, KEYS, st.booleans()),
    st.builds(
        SearchOp,
        st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
        FILTERS,
        st.just(1000),
        st.just(0),
        st.none(),
        st.booleans(),
    ),
    st.builds(ListNamespacesOp, MATCHES, st.none() | st.integers(1, 3), st.just(100), st.just(0)),
)
PROGRAMS = st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=8)


def plain(op: Any, answer: Any) -> Any:
    """Return an answer without what the contract leaves open: times, and the order of equal items."""
    if isinstance(op, GetOp):
        return None if answer is None else (answer.namespace, answer.key, answer.value)
    if isinstance(op, SearchOp):
        return sorted((each.namespace, each.key, repr(each.value)) for each in answer)
    return answer


async def run(store: Any, program: list[list[Any]]) -> list[Any]:
    answers = []
    for batch in program:
        lists = [op for op in batch if isinstance(op, ListNamespacesOp)]
        if isinstance(store, InMemoryStore):
            # It keeps namespaces whose items are deleted, or were only asked for, also in this batch.
            for name in [name for name, kept in store._data.items() if not kept]:
                del store._data[name]
        listed = iter(await store.abatch(lists))
        found = await store.abatch(batch)
        for op, answer in zip(batch, found, strict=True):
            answers.append(plain(op, next(listed) if isinstance(op, ListNamespacesOp) else answer))
    return answers


@given(PROGRAMS)
async def test_programs_answer_as_in_the_framework(program: list[list[Any]]) -> None:
    async with DgentStore("memory:", index=INDEX) as store:
        assert await run(store, program) == await run(InMemoryStore(index=INDEX), program)


@given(PROGRAMS)
@settings(max_examples=6)
async def test_engines_answer_the_same(program: list[list[Any]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        expected = await run(InMemoryStore(), program)
        for url in (f"sqlite:///{folder}/s.db", f"jsonl:{folder}/s"):
            async with DgentStore(url) as store:
                assert await run(store, program) == expected


@given(
    st.dictionaries(st.integers(0, 20), st.text("abcdefgh", min_size=1, max_size=8), max_size=12),
    st.text("abcdefgh", min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(0, 3),
)
@settings(max_examples=25)
async def test_the_nearest_are_those_of_the_framework(
    texts: dict[int, str], query: str, limit: int, offset: int
) -> None:
    ours, theirs = DgentStore("memory:", index=INDEX), InMemoryStore(index=INDEX)
    async with ours:
        for store in (ours, theirs):
            for key, text in texts.items():
                value = {"parts": [text, text[::-1] + "a"]} if key % 3 == 0 else {"text": text}
                await store.aput(("n", str(key % 2)), str(key), value)
        found = [
            [each.score for each in await store.asearch(("n",), query=query, limit=limit, offset=offset)]
            for store in (ours, theirs)
        ]
    assert found[0] == pytest.approx(found[1], abs=1e-5)


# -- on every engine ----------------------------------------------------------------------


async def test_items_are_found_by_all_ways(store: DgentStore) -> None:
    for at in range(30):
        await store.aput(("users", f"u{at % 3}"), f"k{at}", {"text": "abc" if at < 3 else "gh", "n": at})
    await store.aput(("other",), "k", {"text": "aaaa"})
    assert [each.key for each in await store.asearch(("users",), limit=2)] == ["k29", "k28"]
    near = await store.asearch(("users",), query="abc", limit=3)
    assert {each.key for each in near} == {"k0", "k1", "k2"}
    assert near[0].score == pytest.approx(1, abs=1e-3)
    far = await store.asearch(("users",), query="abc", filter={"n": {"$gte": 10}}, limit=40)
    assert {each.value["n"] for each in far} == set(range(10, 30))
    words = await store.asearch(("users",), query="abc", mode="text")
    assert {each.key for each in words} == {"k0", "k1", "k2"}
    both = await store.asearch(("users",), query="abc", mode="hybrid", limit=3)
    assert {each.key for each in both} == {"k0", "k1", "k2"}
    assert await store.asearch(("users",), limit=0) == []
    assert await store.alist_namespaces(prefix=("users",)) == [("users", f"u{at}") for at in range(3)]
    assert await store.alist_namespaces(max_depth=1) == [("other",), ("users",)]
    await store.adelete(("users", "u0"), "k0")
    assert {each.key for each in await store.asearch(("users",), query="abc", limit=2)} == {"k1", "k2"}


async def test_values_that_json_cannot_hold_come_back(store: DgentStore) -> None:
    value: dict[str, Any] = {"huge": 2**80, "infinite": -math.inf, "nul": "a\0b", "half": "\ud800"}
    value["deep"] = json.loads("[" * 60 + "]" * 60)
    other: dict[str, Any] = {"when": datetime(2026, 1, 31, tzinfo=UTC), "map": {1: "one"}}
    for key in ("x" * 5000, "a\0b", "\udfff", "é/~", "k"):
        for name in (("a",), ("\ud800",), ("y" * 2000, "z" * 2000, "w" * 700)):
            for stored in (other, value):
                if stored is other and ("\ud800" in name or key == "\udfff"):
                    continue
                await store.aput(name, key, stored)
                found = await store.aget(name, key)
                assert found is not None
                assert (found.namespace, found.key, found.value) == (name, key, stored)
    (one,) = await store.asearch(("a",), filter={"huge": {"$gt": 2**79}, "infinite": -math.inf}, limit=1)
    assert one.value["huge"] == 2**80
    assert await store.alist_namespaces(limit=1, offset=1) == [("y" * 2000, "z" * 2000, "w" * 700)]
    await store.aput(("nan",), "k", {"x": math.nan})
    found = await store.aget(("nan",), "k")
    assert found is not None and math.isnan(found.value["x"])


async def test_items_expire(store: DgentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.aput(("t",), "short", {"text": "abc"}, ttl=1)
    await store.aput(("t",), "read", {"text": "abc"}, ttl=1)
    await store.aput(("t",), "long", {"text": "abc"}, ttl=5)
    await store.aput(("t",), "ever", {"text": "gh"})
    await store.aput(("gone",), "k", {"text": "abc"}, ttl=1)
    monkeypatch.setattr(expiry, "GATHER_S", 0)  # a read is soon followed by the write that lets it live on
    start = clock.now_us()

    def later(seconds: float) -> None:
        monkeypatch.setattr(clock, "now_us", lambda: start + int(seconds * 1e6))

    async def expires(*name: Any) -> datetime:
        datum = await store.place.arun(dgent.Universe.get, items.item_id(*name), raw=True)
        return datum.expires_at  # type: ignore[no-any-return]

    later(50)
    assert await store.aget(("t",), "read") is not None
    assert await store.aget(("t",), "short", refresh_ttl=False) is not None
    while (await expires(("t",), "read")) < clock.from_us(start + 100_000_000):
        await asyncio.sleep(0.01)
    assert await expires(("t",), "short") < clock.from_us(start + 61_000_000)
    later(70)
    assert await store.aget(("t",), "short") is None
    keys = [each.key for each in await store.asearch(("t",), limit=3, refresh_ttl=False)]
    assert {*keys} == {"ever", "long", "read"} and keys.index("ever") < keys.index("long")
    near = [each.key for each in await store.asearch(("t",), query="abc", refresh_ttl=False)]
    assert set(near) == {"read", "long", "ever"}
    assert await store.alist_namespaces() == [("t",)]
    assert await store.asweep_ttl() == 2
    assert await store.asweep_ttl() == 0
    assert await store.place.arun(lambda u: u.count(schema="langgraph.item")) == 3
    await store.aput(("t",), "long", {"text": "abc"})
    later(10_000)
    assert await store.asweep_ttl() == 1
    assert await store.aget(("t",), "long") is not None


async def test_a_full_namespace_of_expired_items_is_stepped_over(
    store: DgentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [PutOp(("a",), str(at), {"n": at}, None, 1.0) for at in range(3 * find.PAGE)]
    await store.abatch([*ops, PutOp(("b",), "k", {"n": 0})])
    start = clock.now_us()
    monkeypatch.setattr(clock, "now_us", lambda: start + 100_000_000)
    assert await store.alist_namespaces() == [("b",)]
    await store.aput(("a",), "new", {"n": 1})
    assert await store.alist_namespaces() == [("a",), ("b",)]
    assert [each.key for each in await store.asearch(("a",), limit=5)] == ["new"]


async def test_versions_are_kept(store: DgentStore) -> None:
    name = ("users", "ann")
    await store.aput(name, "k", {"text": "abc"})
    first = await store.aget(name, "k")
    assert isinstance(first, VersionedItem)
    await store.aput(name, "k", {"text": "gh"}, expect=first.rev)
    with pytest.raises(VersionConflict):
        await store.aput(name, "k", {"text": "lost"}, expect=first.rev)
    with pytest.raises(VersionConflict):
        await store.aput(name, "k", {"text": "lost"}, expect=0)
    seen = await store.achanges()
    assert [each.item and each.item.value["text"] for each in seen] == ["abc", "gh"]
    then = await store.aget(name, "k", as_of=seen[0].seq)
    assert then is not None and then.value == {"text": "abc"}
    await store.aundo(name, "k")
    now = await store.aget(name, "k")
    assert now is not None and now.value == {"text": "abc"} and now.created_at == first.created_at
    (hit,) = await store.asearch(name, query="abc")
    assert hit.score == pytest.approx(1, abs=1e-3)
    await store.adelete(name, "k")
    await store.aundo(name, "k")
    texts = [each and each.value["text"] for each in await store.ahistory(name, "k")]
    assert texts == ["abc", None, "abc", "gh", "abc"]
    with pytest.raises(InputError, match="has no versions"):
        await store.aundo(name, "never")


async def test_puts_at_once_leave_the_vectors_of_the_last(store: DgentStore) -> None:
    values = [{"parts": ["abc" * at] * (at % 4 + 1)} for at in range(1, 13)]
    await asyncio.gather(*[store.aput(("n",), "k", value) for value in values])
    found = await store.aget(("n",), "k")
    assert found is not None
    vectors = await store.place.arun(lambda u: u.count(schema="langgraph.vector.8-cosine"))
    assert vectors == len(found.value["parts"])


def test_the_blocking_calls_answer_too(url: str) -> None:
    with DgentStore(url, index=INDEX, ttl={"default_ttl": 10}) as store:
        store.put(("a", "b"), "k", {"text": "abc"})
        found = store.get(("a", "b"), "k")
        assert found is not None and found.value == {"text": "abc"}
        (hit,) = store.search(("a",), query="abc")
        assert isinstance(hit, SearchItem) and hit.key == "k"
        assert store.list_namespaces(suffix=("b",)) == [("a", "b")]
        store.undo(("a", "b"), "k")
        assert store.get(("a", "b"), "k") is None
        assert [each is None for each in store.history(("a", "b"), "k")] == [True, False]
        assert len(store.changes()) == 2
        assert store.sweep_ttl() == 0


async def test_mistakes_are_named(store: DgentStore) -> None:
    for name in ((), ("a.b",), ("",), ("langgraph",)):
        with pytest.raises(InvalidNamespaceError):
            await store.aput(name, "k", {})
    for ttl in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="ttl is"):
            await store.aput(("a",), "k", {}, ttl=ttl)
    with pytest.raises(ValueError, match="'\\$near' is not a valid operator"):
        await store.asearch(("a",), filter={"n": {"$near": 1}})
    with pytest.raises(ValueError, match="is not an operation"):
        await store.abatch(["get"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="'far' is not a valid distance"):
        DgentStore("memory:", index={**INDEX, "distance_type": "far"})
    async with DgentStore("memory:") as bare:
        with pytest.raises(InputError, match="needs index="):
            await bare.asearch(("a",), query="x", mode="meaning")


async def test_one_place_holds_all_and_people_find_it() -> None:
    async with dgent.open("memory:") as u:
        store = DgentStore(u)
        await store.aput(("users", "ann"), "likes", {"text": "short answers"})
        (hit,) = await u.search("answers")
        assert hit.datum.data["namespace"] == ["users", "ann"]
        await u.forget(hit.datum.id)
        assert await store.aget(("users", "ann"), "likes") is None
