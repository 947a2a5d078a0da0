"""A typed handle on the records of one contract."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import dgent
from dgent.errors import NotFound, UnreadableRecord
from tests.universe.marks import Mark, MarkV1, mark, old_mark


@pytest.fixture
def marks(u: dgent.Universe) -> dgent.Collection[Mark]:
    return u.collection(Mark)


async def test_remember_and_get(u: dgent.Universe, marks: dgent.Collection[Mark]) -> None:
    kept = await marks.remember(mark(), tags={"t"}, source="s")
    assert await marks.get(kept.id) == kept
    assert (kept.tags, kept.source) == ({"t"}, "s")
    other = await u.put(dgent.Datum())
    assert await marks.get(other.id) is None
    assert await marks.get("nothing") is None
    changed = await u.store(kept.replace(value=mark("later")))
    assert (await marks.get(kept.id, as_of=kept.seq)) == kept
    assert await marks.get(kept.id) == changed
    with pytest.raises(dgent.InputError, match="MarkV1"):
        await marks.remember(MarkV1("a", "b", "c"))  # type: ignore[arg-type]


async def test_query_and_count(u: dgent.Universe, marks: dgent.Collection[Mark]) -> None:
    await u.put(dgent.Datum())
    kept = [await marks.remember(mark(f"a{n}", author=f"x{n % 2}"), tags={f"t{n % 3}"}) for n in range(6)]
    await u.put(old_mark(1, "unlucky"))
    with pytest.warns(UnreadableRecord):
        assert await marks.query() == kept[::-1]
    assert await marks.count() == 7
    assert await marks.query(where={"author": "x1"}, limit=2) == [kept[5], kept[3]]
    assert await marks.query(dgent.Query(tags={"t0"}), descending=False) == [kept[0], kept[3]]
    assert await marks.count(tags={"t1"}) == 2
    assert [c async for c in marks.iterate(tags={"t1"})] == [kept[4], kept[1]]
    with pytest.raises(dgent.InputError, match=r"else\.where"):
        await marks.query(dgent.Query(schema="else.where"))


NOT_OF_ONE_SCHEMA = {
    *("open", "close", "acting", "for_room", "register", "schema_for", "schemas", "collection", "degraded"),
    *("commit", "outcome", "transact", "transaction", "undo", "changes", "seq", "stats", "compact", "forget"),
    *("indexed", "start_indexing", "drop_index", "embedded", "embedding", "refresh_texts", "declare_vectors"),
    *("sweep", "is_read_only"),
    *("values", "tags"),  # which take the name of a schema, or none
    *("put", "put_many"),  # of any datum; a collection remembers values
    *("search_among", "search_vectors", "vectors"),
    *("at", "past", "present"),  # another moment of the whole store
    *("storage", "adapters", "check_statement", "blob_folder"),  # what is beside the records
}
"""The calls of a universe that are about the store, or about records whatever their schema."""


def test_a_collection_has_the_calls_of_a_universe() -> None:
    def calls(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert calls(dgent.Universe) - calls(dgent.Collection) == NOT_OF_ONE_SCHEMA
    for name in sorted(calls(dgent.Universe) & calls(dgent.Collection) - {"get", "remember"}):
        whole, part = (
            set(inspect.signature(getattr(of, name)).parameters) for of in (dgent.Universe, dgent.Collection)
        )
        assert whole - part <= {"raw", "schema", "partial", "key", "note", "expect", "ids_", "thing"}, name


async def test_a_collection_iterates_over_all_and_explains(
    u: dgent.Universe, marks: dgent.Collection[Mark]
) -> None:
    first = await marks.remember(mark("first"))
    for n in range(130):
        await marks.remember(mark(str(n)), parent_id=first.id)
    await u.put(dgent.Datum(data={}))
    assert len([each async for each in marks.iterate()]) == 131
    assert len([each async for each in marks.iterate(limit=7)]) == 7
    assert len([each async for each in u.iterate(schema=marks.schema.name, parent_id=first.id)]) == 130
    assert await marks.count(parent_id=first.id) == await marks.count(parent=first.id) == 130
    assert await marks.count(as_of=1) == 1 and len(await marks.query(as_of=1)) == 1
    assert [each.id for each in await marks.list(first.id)] == [first.id]
    assert len(await marks.list(limit=None)) == 131 and await marks.versions() == {3: 131}
    newest = (await marks.recall(limit=1))[0]
    assert [each.id for each in await marks.causal_chain(newest.id)] == [first.id, newest.id]
    with pytest.raises(dgent.InputError, match=r"no 'tag'.*did you mean tags"):
        await marks.recall(tag={"x"})
    with pytest.raises(dgent.InputError, match=r"u.collection\(Mark\)"):
        await u.recall(Mark)  # type: ignore[call-overload]


async def test_watch(u: dgent.Universe, marks: dgent.Collection[Mark]) -> None:
    await u.put(dgent.Datum())
    first = await marks.remember(mark())
    await u.put(dgent.Datum())
    second = await marks.remember(mark(author="ann"))
    async with asyncio.timeout(10):
        feed = marks.watch(since=0)
        assert [(await anext(feed)).items[0].datum for _ in range(2)] == [first, second]
        assert (await anext(marks.watch(0, where={"author": "ann"}))).items[0].datum == second


async def test_a_contract_that_is_not_registered(u: dgent.Universe) -> None:
    with pytest.raises(NotFound, match="MarkV1"):
        u.collection(MarkV1)


async def test_the_calls_of_a_universe_for_one_schema(
    u: dgent.Universe, marks: dgent.Collection[Mark]
) -> None:
    kept = await marks.remember(mark("one"))
    other = await u.put(dgent.Datum("other"))
    assert await marks.exists(kept.id) and not await marks.exists(other.id) and not await marks.exists("no")
    assert await marks.get_many([kept.id, other.id, "no"]) == [kept, None, None]
    changed = await marks.store(kept.replace(value=mark("two")), expect=kept.rev)
    assert [each.rev for each in await marks.history(kept.id)] == [2, 1]
    assert await marks.recall(as_of=kept.seq) == [kept] and await marks.recall() == [changed]
    page = await marks.page(limit=1)
    assert page.items == [changed] and page.cursor is None
    assert not await marks.delete(other.id) and await u.exists(other.id)
    assert await marks.delete(kept.id) and not await marks.exists(kept.id)
    with pytest.raises(dgent.InputError, match="this collection holds"):
        u.register(dgent.Schema("other.mark", contract=MarkV1))
        await marks.store(await u.remember(MarkV1("a", "b", "c"), schema="other.mark"))  # type: ignore[arg-type]
