"""Short ids: given once, understood everywhere, and never another record's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import ids
from dgent.cupboard import Crumb, Cupboard, Link, errors, short_id
from dgent.cupboard.record import CATALOG, CRUMB, ROOM, TRAIL
from dgent.errors import Ambiguous
from dgent.universe.room import Describers
from tests.cupboard.conftest import Rival


async def test_a_crumb_and_a_trail_get_a_short_id_with_their_commit(cupboard: Cupboard) -> None:
    crumb, trail = await cupboard.add("x"), await cupboard.start("try")
    for made in (crumb, trail):
        assert made.short_id == f"dg-{short_id.digest(made.id)[:4]}" == made.handle
    assert len(await cupboard.crumbs.versions(crumb.id)) == 1
    chosen = Crumb("y")
    await cupboard.crumbs.set("bd-7", chosen)
    assert (chosen.short_id, chosen.handle) == ("", "bd-7")


async def test_it_is_understood_wherever_an_id_is(cupboard: Cupboard) -> None:
    one, two, trail = (
        await cupboard.add("one", state="ready"),
        Crumb("two", "ready"),
        await cupboard.start("t"),
    )
    await cupboard.add(two, parents=one.short_id, trail=trail.short_id)
    assert (await cupboard.crumbs.get(one.short_id)).id == one.id
    assert (await cupboard.explain(two.short_id)).waits_for == (one.id,)
    assert [each.id for each in await cupboard.crumbs.fetch(trail_id=trail.short_id)] == [two.id]
    assert [each.id for each in await cupboard.crumbs.fetch(parent_id=one.short_id)] == [two.id]
    assert (await cupboard.comment(one.short_id, "hm")).crumb_id == one.id
    await cupboard.links.set(None, Link("related_to", one.short_id, two.short_id))
    assert [each.from_id for each in await cupboard.links.fetch(link_type="related_to")] == [one.id]
    await cupboard.done(one.short_id)
    await cupboard.drop(two.short_id)
    await cupboard.complete(trail.short_id)
    assert len(await cupboard.crumbs.versions(one.short_id)) == 2
    found = await cupboard.crumbs.get(one.short_id)
    found.name = "other"
    await cupboard.crumbs.set(one.short_id, found)
    await cupboard.crumbs.delete(one.short_id)
    with pytest.raises(errors.EntityNotFound):
        await cupboard.crumbs.get(one.short_id)
    assert (await cupboard.audit()).ok


async def test_a_longer_beginning_of_the_hash_is_the_same(cupboard: Cupboard) -> None:
    made = await cupboard.add("x")
    longer = f"dg-{short_id.digest(made.id)[:9]}"
    assert (await cupboard.crumbs.get(longer)).id == made.id
    with pytest.raises(errors.EntityNotFound):
        await cupboard.crumbs.get(f"{made.short_id}{'0' if longer[-1] != '0' else '1'}zzzz")


async def test_parts_are_numbered(cupboard: Cupboard) -> None:
    epic = await cupboard.add("epic")
    parts = [await cupboard.add(f"part {n}", part_of=epic) for n in range(2)]
    assert [each.short_id for each in parts] == [f"{epic.short_id}.1", f"{epic.short_id}.2"]
    deep = await cupboard.add("deep", part_of=parts[1].short_id)
    assert deep.short_id == f"{epic.short_id}.2.1"
    assert (await cupboard.crumbs.get(deep.short_id)).name == "deep"
    late = await cupboard.add("late")
    await cupboard.links.set(None, Link("part_of", late.id, epic.id))
    assert (await cupboard.crumbs.get(late.id)).short_id == late.short_id  # given once
    together = await cupboard.add_many(["piece", "epic 2"], [("part_of", 0, 1)])
    assert together[0].short_id == f"{together[1].short_id}.1"


async def test_the_number_of_a_deleted_part_stays_its_own(cupboard: Cupboard) -> None:
    epic = await cupboard.add("epic")
    first = await cupboard.add("first", part_of=epic)
    await cupboard.crumbs.delete(first.id)
    seq = await cupboard.universe.seq()
    second = await cupboard.add("second", part_of=epic)
    assert second.short_id == f"{epic.short_id}.2"
    await cupboard.universe.undo(seq)
    assert (await cupboard.crumbs.get(first.short_id)).name == "first"
    await cupboard.universe.undo(second.seq or 0)
    third = await cupboard.add("third", part_of=epic)
    assert third.short_id == f"{epic.short_id}.3"


async def test_parts_of_an_imported_issue_count_on(cupboard: Cupboard) -> None:
    for id in ("bd-a1", "bd-a1.2"):
        await cupboard.crumbs.set(id, Crumb(id))
    assert (await cupboard.add("new", part_of="bd-a1")).short_id == "bd-a1.3"
    assert (await cupboard.add("newer", part_of="bd-a1")).short_id == "bd-a1.4"


async def test_the_next_one_is_longer_where_the_short_one_is_taken(
    cupboard: Cupboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = short_id.digest
    monkeypatch.setattr(short_id, "digest", lambda id: "aaaa" + real(id))
    made = [await cupboard.add(f"{n}") for n in range(3)]
    more = await cupboard.add_many([f"m{n}" for n in range(30)])
    every = [*made, *more]
    assert made[0].short_id == "dg-aaaa" and len({each.short_id for each in every}) == len(every)
    for each in every:
        assert (await cupboard.crumbs.get(each.short_id)).id == each.id


def test_it_grows_with_the_store() -> None:
    assert [short_id._length(size) for size in (0, 1000, 1001, 36_000, 40_000, 2_000_000)] == [
        4,
        4,
        5,
        5,
        6,
        7,
    ]


async def test_two_who_make_parts_at_once_get_two_numbers(cupboard: Cupboard, rival: Rival) -> None:
    epic = await cupboard.add("epic")
    other = await rival()
    made = await asyncio.gather(
        *(each.add(f"{n}", part_of=epic.id) for n in range(4) for each in (cupboard, other))
    )
    assert {each.short_id for each in made} == {f"{epic.short_id}.{n}" for n in range(1, 9)}


async def test_a_store_may_have_another_prefix(cupboard: Cupboard, rival: Rival) -> None:
    before = await cupboard.add("before")
    await cupboard.set_prefix("web")
    assert (await cupboard.add("x")).short_id.startswith("web-")
    assert (await (await rival()).add("y")).short_id.startswith("web-")
    assert (await cupboard.crumbs.get(before.short_id)).id == before.id
    for wrong in ("", "a-b", "Web", "1", "x" * 17, None):
        with pytest.raises(errors.InvalidData):
            await cupboard.set_prefix(wrong)  # type: ignore[arg-type]


async def test_all_records_of_an_older_store_get_one_with_the_first_change(
    cupboard: Cupboard, tmp_path: Path
) -> None:
    made = [await cupboard.add(f"crumb {n}") for n in range(3)]
    trail = await cupboard.start("a try")
    versions = {CRUMB.name: CRUMB, TRAIL.name: TRAIL, CATALOG.name: CATALOG}
    old = []
    async for each in cupboard._universe.iterate(raw=True):
        schema = versions.get(each.schema)
        plain = each.replace(rev=None, seq=None, updated_at=None)
        older = schema and plain.replace(data=schema.downgrades[2](plain.data), schema_version=1)
        old.append(older or plain)
    async with dgent.open(f"sqlite:///{tmp_path}/old.db") as u:
        await u.for_room(ROOM).put_many(old)
        fresh = Cupboard(u)
        handles = sorted(each.handle for each in await fresh.crumbs.fetch())
        assert handles == sorted(each.id for each in made), "reading writes nothing"
        last = await fresh.add("new")
        found = {each.id: each.short_id for each in await fresh.crumbs.fetch()}
        assert found == {each.id: each.short_id for each in (*made, last)} and last.short_id
        assert (await fresh.trails.get(trail.short_id)).id == trail.id
        assert (await fresh.crumbs.get(made[0].short_id)).name == "crumb 0"
        seq = await u.seq()
        await Cupboard(u).add("one more")
        assert await u.seq() == seq + 1, "once is enough"
        upkeep = [each for each in await u.changes() if each.note == "cupboard"]
        assert any(item.schema == CRUMB.name for each in upkeep for item in each.items)
        told = [await Describers(u, None).is_of_user(each) for each in upkeep]
        assert not any(told), "no undo takes it back"


async def test_a_crumb_of_an_older_store_gets_one_when_it_is_changed(cupboard: Cupboard) -> None:
    u: Any = cupboard._universe
    old, whole = await cupboard.add("x"), await cupboard.add("epic")
    for each in (old, whole):
        stored = await u.get(each.id, raw=True)
        await u.put(stored.replace(data={k: v for k, v in stored.data.items() if k != "short_id"}))
    assert (await cupboard.crumbs.get(old.id)).handle == old.id
    crumb = await cupboard.crumbs.get(old.id)
    crumb.set_state("ready")
    await cupboard.crumbs.set(crumb.id, crumb)
    assert crumb.short_id == old.short_id
    part = await cupboard.add("part", part_of=whole.id)
    assert part.short_id == f"{whole.short_id}.1"


async def test_of_two_with_the_same_one_the_later_gets_another(cupboard: Cupboard) -> None:
    u: Any = cupboard._universe
    first, second = await cupboard.add("first"), await cupboard.add("second")
    stored = await u.get(second.id, raw=True)
    await u.put(stored.replace(data={**stored.data, "short_id": first.short_id}))
    found = await cupboard.audit()
    assert [(each.rule, each.ids) for each in found.findings] == [("short ids", (second.id,))]
    await cupboard.repair(found.findings)
    assert (await cupboard.audit()).ok
    kept, moved = [await cupboard.crumbs.get(each.id) for each in (first, second)]
    assert kept.short_id == first.short_id != moved.short_id
    assert (await cupboard.crumbs.get(moved.short_id)).name == "second"
    with pytest.raises(Ambiguous) as caught:
        await cupboard.crumbs.get(first.short_id)
    assert sorted(caught.value.details["candidates"]) == sorted([first.id, second.id])
    told = f"{first.short_id}-{short_id.digest(first.id)[:4]}"
    assert told in caught.value.message and moved.short_id in caught.value.message
    assert (await cupboard.crumbs.get(told)).id == first.id


def test_many_in_one_copy_of_a_store_are_told_apart() -> None:
    made = [(ids.new_id(), "dg-abcd") for _ in range(3)] + [("a", "dg-x.1"), ("b", "dg-x.1"), ("c", "dg-x.2")]
    given = short_id.separate(made)
    assert set(given) == {made[1][0], made[2][0], "b"} and given["b"] == "dg-x.3"
    assert given[made[1][0]] == f"dg-{short_id.digest(made[1][0])[:5]}"
    assert short_id.separate([]) == {}
