"""A cupboard in two clones, changed apart and brought together by real git."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.cupboard import Cupboard, Link
from dgent.errors import Ambiguous
from dgent.store.jsonl.backend import JSONLBackend
from tests.jsonl.repositories import Clone, two_clones
from tests.jsonl.stores import opened, without_cache
from tests.soak import first

ROUTES = pytest.mark.parametrize("driver", [True, False], ids=["driver", "markers"])
LATER = pytest.mark.parametrize(
    ("driver", "later"), first([(True, "one"), (False, "two"), (True, "two"), (False, "one")], 2)
)
Work = Callable[[Cupboard], Awaitable[Any]]


@pytest.fixture
async def clones(tmp_path: Path, driver: bool) -> tuple[Clone, Clone]:
    (tmp_path / "one").mkdir()
    await _change(Clone(tmp_path / "one", driver=driver), _begin)
    return two_clones(tmp_path, driver=driver)


async def _begin(cupboard: Cupboard) -> None:
    for name in ("parent", "other", "child", "task"):
        await cupboard.add(name, state="ready")
    await _link(cupboard, "child", "parent")
    await cupboard.stashes.create("count", "counter")
    await cupboard.stashes.create("notes", "context", {"a": 1, "b": 1})


async def _link(cupboard: Cupboard, child: str, parent: str) -> None:
    ids = await _ids(cupboard)
    await cupboard.links.set(None, Link("child_of", ids[child], ids[parent]))


async def _ids(cupboard: Cupboard) -> dict[str, str]:
    crumbs, stashes = await cupboard.crumbs.fetch(), await cupboard.stashes.fetch()
    return {each.name: each.id for each in [*crumbs, *stashes]}


async def _change(clone: Clone, work: Work) -> Any:
    async with dgent.open(f"jsonl:{clone.store}") as u:
        return await work(Cupboard(u))


async def _both(clones: tuple[Clone, Clone], one: Work, two: Work, later: str = "two") -> None:
    """Change both clones, one later than the other, and merge each with the other."""
    order = list(zip(clones, (one, two), strict=True))
    for clone, work in order if later == "two" else order[::-1]:
        await _change(clone, work)
        await asyncio.sleep(0.002)
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1], conflict=not clones[0].driver)
    found = await _state(clones[0])
    clones[0].save()
    clones[1].pull(clones[0])
    assert found == await _state(clones[0]) == await _state(clones[1])


async def _state(clone: Clone) -> Any:
    """What a clone says, with its cache and without; opening it again writes nothing."""
    found = []
    for _ in range(2):
        async with opened(clone.store) as store:
            conflicts = [(each.id, each.fields) for each in (await store.check_lines())[1]]
        sizes = {path.name: path.stat().st_size for path in clone.store.glob("*.jsonl")}
        async with dgent.open(f"jsonl:{clone.store}") as u:
            cupboard = Cupboard(u)
            crumbs = {c.name: (c.state, c.holder, c.properties) for c in await cupboard.crumbs.fetch()}
            ready = [crumb.name for crumb in await cupboard.ready(None)]
            stashes = {stash.name: stash.value for stash in await cupboard.stashes.fetch()}
            defined = sorted(each.name for each in await cupboard.properties.fetch())
            findings = [each.text for each in (await cupboard.audit()).findings]
            assert findings == []
        found.append((conflicts, crumbs, ready, stashes, defined))
        assert {path.name: path.stat().st_size for path in clone.store.glob("*.jsonl")} == sizes
        without_cache(clone.store)
    assert found[0] == found[1]
    return found[0]


async def _done(cupboard: Cupboard, name: str) -> None:
    crumb = await cupboard.crumbs.get((await _ids(cupboard))[name])
    crumb.set_state("pebble")
    await cupboard.crumbs.set(crumb.id, crumb)


async def _label(cupboard: Cupboard, name: str, *labels: str) -> None:
    crumb = await cupboard.crumbs.get((await _ids(cupboard))[name])
    crumb.properties["labels"] = [*crumb.properties["labels"], *labels]
    await cupboard.crumbs.set(crumb.id, crumb)


@LATER
async def test_a_finished_crumb_stays_so_whatever_else_is_changed(clones: Any, later: str) -> None:
    await _both(clones, lambda c: _done(c, "task"), lambda c: _label(c, "task", "new"), later)
    conflicts, crumbs, ready, _, _ = await _state(clones[0])
    assert crumbs["task"][0] == "pebble" and "new" in str(crumbs["task"][2])
    assert conflicts == [] and "task" not in ready


@ROUTES
async def test_labels_and_other_fields_of_both_sides_stay(clones: Any) -> None:
    async def rename(cupboard: Cupboard) -> None:
        await _label(cupboard, "task", "two")
        crumb = await cupboard.crumbs.get((await _ids(cupboard))["task"])
        crumb.name = "renamed"
        await cupboard.crumbs.set(crumb.id, crumb)

    await _both(clones, lambda c: _label(c, "task", "one"), rename)
    conflicts, crumbs, _, _, _ = await _state(clones[0])
    assert conflicts == []
    assert all(label in str(crumbs["renamed"][2]) for label in ("one", "two"))


@LATER
async def test_readiness_follows_from_what_both_sides_did(clones: Any, later: str) -> None:
    """One side finishes what the other begins to wait for: no record has two versions, yet one is stale."""

    async def wait(cupboard: Cupboard) -> None:
        await _link(cupboard, "task", "other")

    async def finish(cupboard: Cupboard) -> None:
        await _done(cupboard, "other")
        await _done(cupboard, "parent")

    await _both(clones, wait, finish, later)
    conflicts, _, ready, _, _ = await _state(clones[0])
    assert (conflicts, sorted(ready)) == ([], ["child", "task"])


@LATER
async def test_a_link_that_both_made_is_one_and_an_ended_trail_takes_no_crumb(
    clones: Any, later: str
) -> None:
    trail = await _change(clones[0], lambda c: c.start("trail"))
    clones[0].save()
    clones[1].pull(clones[0])

    async def complete(cupboard: Cupboard) -> None:
        await _link(cupboard, "task", "other")
        await cupboard.complete(trail.id)

    async def join(cupboard: Cupboard) -> None:
        await _link(cupboard, "task", "other")
        await cupboard.links.set(None, Link("belongs_to", (await _ids(cupboard))["parent"], trail.id))

    await _both(clones, complete, join, later)
    assert (await _state(clones[0]))[0] == []
    async with dgent.open(f"jsonl:{clones[0].store}") as u:
        assert (await Cupboard(u).trails.get(trail.id)).state == "completed"
        assert sorted(link.link_type for link in await Cupboard(u).links.fetch()) == ["child_of"] * 2
        await _done(Cupboard(u), "other")
        assert "task" in [crumb.name for crumb in await Cupboard(u).ready()]


@ROUTES
async def test_counters_have_the_increments_of_both_sides(clones: Any) -> None:
    async def add(cupboard: Cupboard, *deltas: int) -> None:
        ids = await _ids(cupboard)
        for delta in deltas:
            await cupboard.stashes.increment(ids["count"], delta)
        notes = await cupboard.stashes.get(ids["notes"])
        await cupboard.stashes.set_value(notes.id, {**notes.value, "a" if 5 in deltas else "b": 2})

    await _both(clones, lambda c: add(c, 5, 7), lambda c: add(c, 100))
    conflicts, _, _, stashes, _ = await _state(clones[0])
    assert stashes == {"count": {"value": 112}, "notes": {"a": 2, "b": 2}}
    assert conflicts == []
    await _both(clones, lambda c: add(c, 5, 1), lambda c: add(c, 1))
    assert (await _state(clones[1]))[3]["count"] == {"value": 119}


@ROUTES
async def test_a_property_defined_on_both_sides_is_one(clones: Any) -> None:
    async def define(cupboard: Cupboard, value: str) -> None:
        made = await cupboard.properties.define("size", "categorical", categories=["s", value])
        crumb = await cupboard.crumbs.get((await _ids(cupboard))["task" if value == "m" else "other"])
        crumb.properties[made.id] = "s"
        await cupboard.crumbs.set(crumb.id, crumb)

    await _both(clones, lambda c: define(c, "m"), lambda c: define(c, "l"))
    conflicts, _, _, _, defined = await _state(clones[0])
    assert conflicts == [] and defined.count("size") == 1
    async with dgent.open(f"jsonl:{clones[0].store}") as u:
        names = [each.name for each in await Cupboard(u).properties.get_categories("size")]
    assert sorted(names) == ["l", "m", "s"]


@ROUTES
async def test_what_both_sides_decided_differently_is_reported_until_it_is_settled(clones: Any) -> None:
    async def rename(cupboard: Cupboard, name: str) -> None:
        crumb = await cupboard.crumbs.get((await _ids(cupboard))["task"])
        crumb.name = name
        await cupboard.crumbs.set(crumb.id, crumb)

    await _both(clones, lambda c: rename(c, "left"), lambda c: rename(c, "right"))
    conflicts, crumbs, _, _, _ = await _state(clones[0])
    assert "right" in crumbs and "left" not in crumbs
    ((id, fields),) = conflicts
    assert fields == ("name",)
    async with opened(clones[0].store) as store:
        findings = [each for each in await store.upkeep().inspect() if each.level == "problem"]
        assert [each.subject for each in findings] == ["conflict"] and "settle" in findings[0].hint
        await _settle(store, id)
    assert (await _state(clones[0]))[0] == []
    clones[0].save()
    clones[1].pull(clones[0])
    assert (await _state(clones[1]))[0] == []


async def _settle(store: JSONLBackend, id: str) -> None:
    rev = await store.settle(id, "ann")
    assert (await store.history(id, 1))[0].rev == rev


@LATER
async def test_parts_that_both_sides_add_have_short_ids_of_their_own(clones: Any, later: str) -> None:
    """Both number theirs 1: the later one gets the next number, and the old one names both."""

    def add(name: str) -> Work:
        async def work(cupboard: Cupboard) -> None:
            await cupboard.add(name, part_of=(await _ids(cupboard))["other"])

        return work

    await _both(clones, add("of one"), add("of two"), later)
    for clone in clones:
        async with dgent.open(f"jsonl:{clone.store}") as u:
            cupboard = Cupboard(u)
            crumbs = {each.name: each for each in await cupboard.crumbs.fetch()}
            epic, (first, second) = crumbs["other"].short_id, ("of one", "of two")
            if later == "one":
                first, second = second, first
            assert crumbs[first].short_id == f"{epic}.1" and crumbs[second].short_id == f"{epic}.2"
            with pytest.raises(Ambiguous, match="is the id of more than one crumb"):
                await cupboard.crumbs.get(f"{epic}.1")
            assert (await cupboard.crumbs.get(f"{epic}.2")).name == second
    await _change(clones[0], add("third"))
    async with dgent.open(f"jsonl:{clones[0].store}") as u:
        (third,) = await Cupboard(u).crumbs.fetch(name="third")
        assert third.short_id == f"{epic}.3"


@LATER
async def test_parts_wait_for_what_the_other_side_made_their_epic_wait_for(clones: Any, later: str) -> None:
    async def part(cupboard: Cupboard) -> None:
        found = await _ids(cupboard)
        await cupboard.links.set(None, Link("part_of", found["task"], found["other"]))

    async def block(cupboard: Cupboard) -> None:
        await _link(cupboard, "other", "parent")

    await _both(clones, part, block, later)
    conflicts, _, ready, _, _ = await _state(clones[0])
    assert (conflicts, sorted(ready)) == ([], ["parent"])
