"""Typed links: `Ref[T]` in a contract, loaded in one batch, found from the other end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import dgent
from dgent import Ref
from tests.universe.conftest import Another
from tests.universe.marks import Mark, mark


@dataclass(frozen=True)
class Step:
    text: str
    target: Ref[Mark] | None = None


@dataclass(frozen=True)
class Plan:
    title: str
    main: Ref[Mark]
    others: tuple[Ref[Mark], ...] = ()
    steps: tuple[Step, ...] = ()
    spare: Ref[Mark] | None = None


PLAN = dgent.Schema("test.plan", contract=Plan)


@dataclass(frozen=True)
class Log:
    about: Ref[Mark]
    more: tuple[Ref[Mark], ...] = ()


@pytest.fixture(autouse=True)
def _registered(u: dgent.Universe) -> None:
    u.register(PLAN)


async def marks(u: dgent.Universe, count: int) -> list[Any]:
    return [await u.remember(mark(f"m{n}"), id=f"m{n}") for n in range(count)]


async def test_a_ref_is_stored_as_the_id(u: dgent.Universe) -> None:
    (target,) = await marks(u, 1)
    plan = await u.remember(Plan("p", Ref(target), others=(Ref("m0"),)))
    read = await u.get(plan.id)
    assert read.value.main == Ref("m0") == Ref(target)
    assert read.datum.data["main"] == "m0"
    assert read.datum.data["others"] == ["m0"]


async def test_resolve_loads_everything_in_one_batch(u: dgent.Universe) -> None:
    m0, m1, m2, _ = await marks(u, 4)
    value = Plan("p", Ref(m0), (Ref(m1), Ref("lost"), Ref(m0)), (Step("a"), Step("b", Ref(m2))))
    plan = await u.remember(value)
    batches = []
    plain = u.backend.get_many

    async def counted(ids: Any, as_of: Any = None) -> Any:
        batches.append(list(ids))
        return await plain(ids, as_of)

    u.backend.get_many = counted
    resolved = await u.resolve(plan)
    assert batches == [["m0", "m1", "lost", "m2"]]
    assert resolved.found == {"main": m0, "others.0": m1, "others.2": m0, "steps.1.target": m2}
    assert resolved.dangling == {"others.1": "lost"}


async def test_a_dangling_ref_is_reported_never_fatal(u: dgent.Universe) -> None:
    (target,) = await marks(u, 1)
    plan = await u.remember(Plan("p", Ref(target)))
    await u.delete("m0")
    resolved = await u.resolve(await u.get(plan.id))
    assert (resolved.found, resolved.dangling) == ({}, {"main": "m0"})
    assert [c.id for c in await u.referrers("m0")] == [plan.id]
    await u.put(dgent.Datum.create({"action": 1}, id="m0", schema="witness.mark", schema_version=3))
    (found,) = (await u.resolve(plan)).found.values()
    assert found.problem, "an unreadable target is given raw"


async def test_referrers(u: dgent.Universe) -> None:
    m0, m1, m2 = await marks(u, 3)
    first = await u.remember(Plan("first", Ref(m0), (Ref(m1), Ref(m1))))
    second = await u.remember(Plan("second", Ref(m1), spare=Ref(m0)))
    assert await u.referrers("m0") == [second, first]
    assert await u.referrers("m1") == [second, first]
    assert await u.referrers("m1", limit=1) == [second]
    assert await u.referrers("m2") == await u.referrers("nothing") == []
    await u.store(first.replace(value=Plan("first", Ref(m2))))
    assert await u.referrers("m0") == [second]
    assert [c.id for c in await u.referrers("m2")] == [first.id]
    await u.delete(second.id)
    assert await u.referrers("m0") == []


async def test_referrers_inside_lists_of_parts(u: dgent.Universe) -> None:
    (m0,) = await marks(u, 1)
    plan = await u.remember(Plan("p", Ref("else"), steps=(Step("a"), Step("b", Ref(m0)))))
    assert await u.referrers("m0") == [plan]


async def test_many_referrers(u: dgent.Universe) -> None:
    await u.put_many(
        dgent.Datum(
            id=f"p{n}", data={"title": "t", "main": f"m{n % 3}"}, schema="test.plan", schema_version=1
        )
        for n in range(450)
    )
    assert len(await u.referrers("m1")) == 100
    assert len(await u.referrers("m1", limit=None)) == 150


async def logs(u: dgent.Universe, *numbers: int) -> None:
    """Records of a version 1 that had the id under another name; the ref came with version 2."""
    for n in numbers:
        data = {"old_name": f"m{n}", "listed": ["m0"]}
        await u.put(dgent.Datum(id=f"log{n}", data=data, schema="test.log", schema_version=1))


LOG = dgent.Schema(
    "test.log",
    version=2,
    contract=Log,
    migrations={1: lambda d: {"about": d["old_name"], "more": d["listed"]}},
)


async def test_refs_of_a_new_version_are_found_in_old_records(u: dgent.Universe) -> None:
    await logs(u, 0, 1, 2)
    u.register(LOG)
    await u.indexed()
    assert {c.id for c in await u.referrers("m0")} == {"log0", "log1", "log2"}
    assert [c.id for c in await u.referrers("m2")] == ["log2"]
    resolved = await u.resolve(await u.get("log1"))
    assert resolved.dangling == {"about": "m1", "more.0": "m0"}


async def test_refs_in_records_that_an_old_program_writes_meanwhile(
    u: dgent.Universe, another: Another
) -> None:
    u.register(LOG)
    assert await u.referrers("m0") == []
    old_program = await another()
    await logs(old_program, 0, 1)
    assert {c.id for c in await u.referrers("m0")} == {"log0", "log1"}
