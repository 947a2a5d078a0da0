"""Results larger than one page: exactly the records of the moment it began, or pages without repeats."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent.errors import CursorInvalid
from tests.universe.marks import mark

START = datetime(2024, 1, 1, tzinfo=UTC)
ALL = dgent.Query(limit=None)


def numbered(n: int, prefix: str = "r") -> dgent.Datum:
    return dgent.Datum(
        id=f"{prefix}{n:05}", data={"n": n, "m": n % 50}, created_at=START + timedelta(seconds=n)
    )


async def test_iterate_gives_what_was_there_when_it_began(u: dgent.Universe) -> None:
    """3,000 records, read slowly while two writers change, delete, add and bring back."""
    await u.put_many(numbered(n) for n in range(3_000))
    expected = [(d.id, d.data, d.rev) for d in await u.query(ALL)]
    running, begun = True, await u.seq()

    async def disturb(name: str) -> None:
        n = 0
        while running:
            n += 1
            id = f"r{random.randrange(3_000):05}"
            await u.put(dgent.Datum(id=id, data={"n": -1}))
            await u.delete(f"r{random.randrange(3_000):05}")
            await u.put_many([numbered(n, name), numbered(-n, name)])
            await asyncio.sleep(0)

    writers = [asyncio.create_task(disturb(name)) for name in ("a", "b")]
    found = []
    async for datum in u.iterate(ALL):
        found.append((datum.id, datum.data, datum.rev))
        if len(found) % 50 == 0:
            await asyncio.sleep(0.001)
        while len(found) == 1_000 and await u.seq() < begun + 8:  # they do disturb
            await asyncio.sleep(0.001)
    running = False
    await asyncio.gather(*writers)
    assert found == expected


async def test_iterate_in_another_order(u: dgent.Universe) -> None:
    await u.put_many(numbered(n) for n in range(1_200))
    query = dgent.Query(where={"m": {"$gte": 25}}, order_by="m", descending=False, limit=None)
    found = []
    async for datum in u.iterate(query):
        found.append(datum)
        if len(found) % 200 == 0:
            await u.put(dgent.Datum(id=datum.id, data={"n": 0, "m": 0}))
            await u.put(numbered(5_000 + len(found)))
    keys = [(d.data["m"], d.data["n"]) for d in found]
    assert keys == sorted((n % 50, n) for n in range(1_200) if n % 50 >= 25)


@pytest.mark.parametrize(
    ("limit", "offset", "count"), [(7, 0, 7), (500, 0, 500), (700, 3, 700), (None, 990, 10)]
)
async def test_iterate_with_a_limit(u: dgent.Universe, limit: int | None, offset: int, count: int) -> None:
    await u.put_many(numbered(n) for n in range(1_000))
    query = dgent.Query(limit=limit, offset=offset)
    found = [d.data["n"] async for d in u.iterate(query)]
    assert found == list(range(999 - offset, 999 - offset - count, -1))


async def test_iterate_gives_typed_values(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    assert [c async for c in u.iterate(dgent.Query(schema="witness.mark"))] == [kept]
    assert [d async for d in u.iterate(ALL, raw=True)] == [kept.datum]
    assert [d async for d in u.iterate(dgent.Query(schema="no.such"))] == []


async def test_limit_none_gives_all(u: dgent.Universe) -> None:
    await u.put_many(numbered(n) for n in range(1_500))
    assert len(await u.query(dgent.Query())) == 100
    assert len(await u.query(ALL)) == 1_500
    assert (await u.page(ALL)).cursor is None


@pytest.mark.parametrize("order_by", ["created_at", "m"])
@pytest.mark.parametrize("descending", [True, False])
async def test_pages_have_no_gaps_and_no_repeats(u: dgent.Universe, order_by: str, descending: bool) -> None:
    """Rows that stay and keep their place come once, whatever happens around them."""
    await u.put_many(numbered(n) for n in range(200))
    query = dgent.Query(order_by=order_by, descending=descending, limit=17)
    expected = [d.id for d in await u.query(query.replace(limit=None))]
    gone: set[str] = set()
    found: list[str] = []
    while True:
        page = await u.page(query)
        found += [d.id for d in page.items]
        if page.cursor is None:
            break
        victim = random.choice(expected)
        if victim not in found:
            gone.add(victim)
        await u.delete(victim)
        survivor = random.choice(found)
        if await u.exists(survivor):
            await u.put((await u.get(survivor)).with_tags("seen"))
        query = query.replace(cursor=page.cursor)
    assert found == [id for id in expected if id not in gone]


async def test_a_cursor_belongs_to_its_query(u: dgent.Universe) -> None:
    await u.put_many(numbered(n) for n in range(10))
    cursor = (await u.page(dgent.Query(limit=3))).cursor
    for other in (
        dgent.Query(limit=3, cursor=cursor, order_by="n"),
        dgent.Query(limit=3, cursor=cursor, where={"n": 1}),
        dgent.Query(limit=3, cursor="nonsense"),
        dgent.Query(limit=3, cursor=(cursor or "")[:-2] + "xx"),
    ):
        with pytest.raises(CursorInvalid):
            await u.page(other)
    assert len((await u.page(dgent.Query(limit=4, cursor=cursor))).items) == 4


async def test_a_page_of_its_own_size_has_no_cursor_left(u: dgent.Universe) -> None:
    await u.put_many(numbered(n) for n in range(6))
    first = await u.page(dgent.Query(limit=3))
    assert first.cursor is not None
    second = await u.page(dgent.Query(limit=3, cursor=first.cursor))
    assert (len(second.items), second.cursor) == (3, None)


async def test_filters_as_keywords(u: dgent.Universe) -> None:
    for number in range(5):
        await u.remember({"n": number}, tags={"even" if number % 2 == 0 else "odd"})
    found = [each.data["n"] async for each in u.iterate(tags={"even"}, descending=False)]
    assert found == [0, 2, 4]
    assert [each.data["n"] async for each in u.iterate(limit=2)] == [4, 3]
    assert len([each async for each in u.iterate()]) == 5
