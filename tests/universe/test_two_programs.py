"""One store, two programs that know different versions of a schema, both at work."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import dgent
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, MarkV1, mark

NEW_FIELD = dgent.Query(schema="witness.mark", where={"principles.0": {"$prefix": "act"}}, limit=None)


async def test_new_queries_find_old_records_before_during_and_after_the_fill(
    url: str, another: Another, u: dgent.Universe
) -> None:
    """2,500 records: more than one batch of the background fill, with an old writer all the while."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    old = await another(MARK_V1)
    await old.put_many(
        dgent.Datum(
            id=f"r{n:05}",
            data={"action": f"act{n % 10}", "reasoning": "r", "author": f"agent{n % 7}"},
            schema="witness.mark",
            schema_version=1,
            created_at=start + timedelta(seconds=n),
        )
        for n in range(2_500)
    )
    written = 2_500
    expected = {f"r{n:05}": f"act{n % 10}" for n in range(2_500)}

    async def write_one() -> None:
        nonlocal written
        at = start + timedelta(seconds=written)
        value = MarkV1(f"act{written % 10}", "r", "old")
        await old.remember(value, id=f"r{written:05}", created_at=at)
        expected[f"r{written:05}"] = value.action
        written += 1

    async def check() -> None:
        wanted = f"act{random.randrange(10)}"
        where = {"principles.0": wanted}
        ids = sorted((id for id, action in expected.items() if action == wanted), reverse=True)
        query = NEW_FIELD.replace(where=where)
        assert await u.count(query) == len(ids)
        assert [c.id for c in await u.query(query.replace(limit=20))] == ids[:20]
        by_field = NEW_FIELD.replace(order_by="principles.0", limit=30, offset=5)
        in_order = sorted(expected, key=lambda id: (expected[id], id), reverse=True)
        assert [c.id for c in await u.query(by_field)] == in_order[5:35]

    await check()  # the first query declares version 3 and starts the fill
    for _ in range(4):
        await write_one()
        await check()
    await u.indexed()
    for _ in range(3):
        await write_one()
        await check()
    assert await u.count(NEW_FIELD) == written
    await u.store((await u.get("r00007")).replace(value=mark("act99")))
    left = sum(action == "act7" for action in expected.values()) - 1
    assert await u.count(NEW_FIELD.replace(where={"principles.0": "act7"})) == left


async def test_each_program_sees_the_fields_of_its_own_version(another: Another, u: dgent.Universe) -> None:
    old = await another(MARK_V1)
    theirs = await old.remember(MarkV1("ship", "r", "ann"))
    assert (await u.get(theirs.id)).value.principles == ("ship",)
    assert await old.count(NEW_FIELD) == 0
    assert await u.count(NEW_FIELD.replace(where={"principles.0": "ship"})) == 1
    ours = await u.remember(mark("plan", author="ann"))
    found = await old.query(dgent.Query(schema="witness.mark", where={"author": "ann"}))
    assert [type(f).__name__ for f in found] == ["Datum", "Crystal"]
    assert found[0].id == ours.id


async def test_both_write_at_once_and_nothing_is_lost(another: Another, u: dgent.Universe) -> None:
    old = await another(MARK_V1)

    async def old_program() -> None:
        for n in range(40):
            await old.remember(MarkV1(f"act{n}", "r", "old"), tags={"both"})

    async def new_program() -> None:
        for n in range(40):
            await u.remember(mark(f"act{n}", principles=(f"act{n}",)), tags={"both"})

    await asyncio.gather(old_program(), new_program())
    both = dgent.Query(schema="witness.mark", tags={"both"}, limit=None)
    for n in (0, 17, 39):
        assert len(await u.recall(both.replace(where={"principles.0": f"act{n}"}))) == 2
    assert await u.count(both) == await old.count(both) == 80
    assert len(await u.recall(both)) == 80
    assert len(await old.recall(both)) == 40


async def test_an_index_given_up_and_made_again(u: dgent.Universe) -> None:
    for n in range(5):
        await u.remember(mark(principles=(f"p{n}",)))
    query = dgent.Query(schema="witness.mark", where={"principles.0": "p3"})
    await u.drop_index("witness.mark", "principles.0")
    (stats,) = [s for s in await u.schemas() if s.name == "witness.mark"]
    assert stats.indexes == ("author",)
    assert len(await u.query(query)) == 1
