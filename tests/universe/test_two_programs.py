"""One store, two programs that know different versions of a schema, both at work."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.errors import HistoryGone, NewerRecord, NotFound, QueryError, UndoConflict, UnreadableRecord
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, MarkV1, mark


@dataclass(frozen=True)
class SumV1:
    a: int


@dataclass(frozen=True)
class SumV2:
    a: int
    b: int = 0


@dataclass(frozen=True)
class Sum:
    a: int
    b: int = 0
    c: int = 0


def add_b(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "b": data["a"] + 1}


def add_c(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "c": data["a"] * 100}


SUM_V1 = dgent.Schema("sum", version=1, contract=SumV1)
SUM_V2 = dgent.Schema("sum", version=2, contract=SumV2, migrations={1: add_b}, indexes=("b",))
SUM = dgent.Schema("sum", version=3, contract=Sum, migrations={1: add_b, 2: add_c}, indexes=("a", "b", "c"))

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
    with pytest.raises(QueryError, match="principles"):
        await old.count(NEW_FIELD)
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
    with pytest.warns(UnreadableRecord, match="version 3"):
        assert len(await old.recall(both)) == 40


async def test_an_index_given_up_and_made_again(u: dgent.Universe) -> None:
    for n in range(5):
        await u.remember(mark(principles=(f"p{n}",)))
    query = dgent.Query(schema="witness.mark", where={"principles.0": "p3"})
    await u.drop_index("witness.mark", "principles.0")
    (stats,) = [s for s in await u.schemas() if s.name == "witness.mark"]
    assert stats.indexes == ("author",)
    assert len(await u.query(query)) == 1


def old_sum(id: str, a: int) -> dgent.Datum:
    return dgent.Datum.create({"a": a}, id=id, schema="sum", schema_version=1)


async def ids_with(u: dgent.Universe, **where: int) -> list[str]:
    return sorted(found.id for found in await u.query(schema="sum", where=where, limit=None))


async def test_what_an_older_program_writes_is_found_by_the_newest_fields(
    another: Another, u: dgent.Universe
) -> None:
    """Its records are older still: it can bring them to its own version, which is not that of the index."""
    u.register(SUM)
    await u.remember(Sum(1, 2, 100), id="new")
    middle = await another(SUM_V2)
    await middle.put(old_sum("put", 7))
    await middle.put_many([old_sum("many", 7)])
    async with middle.transaction() as tx:
        await tx.put(old_sum("tx", 7))
    assert await ids_with(u, c=700) == ["many", "put", "tx"]
    assert await ids_with(middle, b=8) == ["many", "put", "tx"]
    await u.indexed()
    assert await ids_with(u, c=700) == ["many", "put", "tx"]


async def test_what_an_older_program_undoes_is_found_by_the_newest_fields(
    another: Another, u: dgent.Universe
) -> None:
    middle = await another(SUM_V2)
    await middle.put(old_sum("r", 7))
    u.register(SUM)
    await u.upgrade_all("sum")
    assert await ids_with(u, c=700) == ["r"]
    await u.store((await u.get("r")).replace(value=Sum(8, 9, 5)))
    await middle.undo(await u.seq())
    await middle.undo(await u.seq() - 2, force=True)  # the upgrade
    assert (await u.get("r", raw=True)).schema_version == 1
    assert await ids_with(u, c=700) == ["r"]
    assert await ids_with(u, c=5) == []


@pytest.mark.parametrize("seed", range(3))
async def test_programs_of_three_versions_write_and_undo_and_all_is_found(
    another: Another, u: dgent.Universe, seed: int
) -> None:
    chance = random.Random(seed)
    programs = [await another(SUM_V1), await another(SUM_V2)]
    ids = [f"r{n}" for n in range(6)]
    for step in range(40):
        if step == 12:
            u.register(SUM)
            programs.append(u)
        program, id = chance.choice(programs), chance.choice(ids)
        try:
            match chance.choice(["put", "put", "typed", "delete", "undo"]):
                case "put":
                    await program.put(old_sum(id, chance.randrange(4)))
                case "typed":
                    a = chance.randrange(4)
                    value = (SumV1(a), SumV2(a, 3), Sum(a, 3, a * 100))[programs.index(program)]
                    await program.remember(value, id=id)
                case "delete":
                    await program.delete(id)
                case "undo":
                    await program.undo(max(1, await program.seq() - chance.randrange(2)))
        except (NewerRecord, UndoConflict, NotFound, HistoryGone):
            continue
        if program is u and chance.random() < 0.2:
            await u.indexed()
        for name in ("a", "b", "c") if u in programs else ():
            everything = await u.query(schema="sum", limit=None)
            values = {found.id: getattr(found.value, name) for found in everything}
            for wanted in {*values.values(), 1}:
                assert await ids_with(u, **{name: wanted}) == sorted(
                    id for id, value in values.items() if value == wanted
                )
