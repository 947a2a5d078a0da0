"""Several processes at one cupboard: the rules hold between them, whoever is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.cupboard import Crumb, Cupboard, Property
from tests.contract.columns import SETTINGS
from tests.cupboard.jobs import opened
from tests.fault.nursery import Nursery
from tests.soak import times

PROCESSES = 8
CRUMBS = times(200)
SIZE = 150  # crumbs of the trail whose end is killed
ROUNDS = times(1)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.cupboard.jobs") as made:
        yield made


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return SETTINGS[request.param][0].url(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return SETTINGS["sqlite"][0].url(tmp_path)


def soon() -> float:
    """When all workers begin: they are open by then."""
    return time.time() + 0.3


async def check(cupboard: Cupboard) -> None:
    """Nothing is against the rules."""
    assert [f for f in (await cupboard.audit()).findings if f.rule != "orphan"] == []


@pytest.mark.timeout(600)
async def test_each_crumb_is_taken_once(nursery: Nursery, file: str) -> None:
    async with opened(file) as cupboard:
        await cupboard.add_many([Crumb(str(n), "ready") for n in range(CRUMBS)])
    started = time.monotonic()
    at = soon()
    workers = [nursery.start("take_all", url=file, at=at, agent=f"a{n}") for n in range(PROCESSES)]
    nursery.finish(*workers, timeout_s=500)
    took = time.monotonic() - started
    taken = [name for worker in workers for some in worker.said for name in some]
    assert sorted(taken, key=int) == [str(n) for n in range(CRUMBS)]
    print(f"\n{PROCESSES} processes took {CRUMBS} crumbs in {took:.1f} s, each once")
    async with opened(file) as cupboard:
        found = await cupboard.crumbs.fetch()
        assert {(c.state, c.token) for c in found} == {("taken", 1)}
        assert {c.holder for c in found} <= {f"a{n}" for n in range(PROCESSES)}
        await check(cupboard)


async def test_a_counter_is_exact(nursery: Nursery, place: str) -> None:
    async with opened(place) as cupboard:
        counter = await cupboard.stashes.create("n", "counter")
    at, times = soon(), 12
    nursery.finish(
        *[nursery.start("count_up", url=place, at=at, stash=counter.id, times=times) for _ in range(8)]
    )
    async with opened(place) as cupboard:
        found = await cupboard.stashes.get(counter.id)
        assert (found.value, found.version) == ({"value": 8 * times}, 8 * times + 1)
        values = [entry.value["value"] for entry in await cupboard.stashes.history(counter.id)]
        assert values == list(range(8 * times + 1))


async def test_a_lock_lets_one_in_and_its_tokens_grow(nursery: Nursery, file: str, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    async with opened(file) as cupboard:
        lock = await cupboard.stashes.create("l", "lock")
    at = soon()
    args = {"url": file, "at": at, "stash": lock.id, "times": 8, "file": str(number)}
    workers = [nursery.start("use_lock", agent=f"a{n}", **args) for n in range(4)]
    nursery.finish(*workers)
    said = sorted(pair for worker in workers for pair in worker.said)
    assert [n for n, _ in said] == list(range(32)) and number.read_text() == "32"
    tokens = [token for _, token in said]
    assert tokens == sorted(set(tokens))


async def test_what_the_dead_held_is_free_when_the_lease_ends(nursery: Nursery, file: str) -> None:
    async with opened(file) as cupboard:
        lock = await cupboard.stashes.create("l", "lock")
        crumb = await cupboard.add("c", state="ready")
        worker = nursery.start("hold", url=file, at=0, stash=lock.id, lease_s=1.5)
        tokens = nursery.hear(worker)
        worker.kill()
        nursery.wait(worker)
        with pytest.raises(dgent.cupboard.errors.LockHeld):
            await cupboard.stashes.acquire(lock.id, "me")
        assert await cupboard.take("me") is None
        await asyncio.sleep(1.6)
        taken = await cupboard.take("me")
        assert taken is not None and taken.id == crumb.id
        assert [await cupboard.stashes.acquire(lock.id, "me"), taken.token] == [tokens[0] + 1, tokens[1] + 1]


@pytest.mark.parametrize("state", ["draft", "pebble"])
async def test_a_ring_is_not_closed_by_several_at_once(nursery: Nursery, place: str, state: str) -> None:
    """Each link alone is fine, all together are a ring; with pebbles no crumb is touched by its links."""
    async with opened(place) as cupboard:
        for size in (2, 3) * ROUNDS:
            crumbs = await cupboard.add_many([Crumb(f"c{n}", state) for n in range(size)])
            at = soon()
            workers = [
                nursery.start(
                    "try_link",
                    url=place,
                    at=at,
                    link_type="child_of",
                    start=crumbs[n].id,
                    end=crumbs[n - 1].id,
                )
                for n in range(size)
            ]
            assert sorted(nursery.finish(*workers)) == ["Cycle"] + ["made"] * (size - 1)
        await check(cupboard)


async def test_one_trail_for_a_crumb_and_one_link_of_a_kind(nursery: Nursery, place: str) -> None:
    async with opened(place) as cupboard:
        for _ in range(ROUNDS):
            crumb = await cupboard.add("c", state="pebble")
            trails = [await cupboard.start(f"t{n}") for n in range(3)]
            at = soon()
            links = [("belongs_to", crumb.id, trail.id) for trail in (*trails, trails[0])]
            told = nursery.finish(
                *[
                    nursery.start("try_link", url=place, at=at, link_type=kind, start=start, end=end)
                    for kind, start, end in links
                ]
            )
            assert told.count("made") == 1
            assert set(told) <= {"made", "AlreadyInTrail", "DuplicateLink"}
        await check(cupboard)


async def test_one_stash_of_a_name(nursery: Nursery, place: str) -> None:
    at = soon()
    told = nursery.finish(*[nursery.start("try_stash", url=place, at=at, name="config") for _ in range(4)])
    assert sorted(told) == ["DuplicateName"] * 3 + ["made"]


@pytest.mark.parametrize("how", ["complete", "abandon"])
async def test_adding_to_a_trail_that_ends_is_before_or_after(nursery: Nursery, place: str, how: str) -> None:
    async with opened(place) as cupboard:
        trail = await cupboard.start("t")
        at = soon()
        adding = [
            nursery.start("add_until_ended", url=place, at=at, trail=trail.id, name=f"w{n}") for n in range(3)
        ]
        for worker in adding:
            nursery.hear(worker, 2)  # all are at it, at full pace
        [count] = nursery.finish(
            nursery.start("end_trail", url=place, at=0, trail=trail.id, how=how), timeout_s=100
        )
        nursery.wait(*adding, timeout_s=100)
        assert {worker.code for worker in adding} == {0}
        told = {name for worker in adding for name in worker.said}
        found = {c.name for c in await cupboard.crumbs.fetch()}
        made = sum(2 if int(name.split(".")[1]) % 3 == 0 else 1 for name in told)
        assert count == made > 0
        assert found >= told if how == "complete" else found == set()
        assert len(found) == (made if how == "complete" else 0)
        assert [link for link in await cupboard.links.fetch() if link.link_type == "belongs_to"] == []
        await check(cupboard)


async def test_killed_while_abandoning(nursery: Nursery, file: str) -> None:
    """A large trail is whole or gone, whenever the one who abandons it is killed."""
    outcomes = []
    async with opened(file) as cupboard:
        for wait_s in (0.03, 0.1, 0.2) * ROUNDS + (5.0,):
            trail = await cupboard.start("t")
            crumbs = [Crumb(f"c{n}", "ready") for n in range(SIZE)]
            await cupboard.add_many(crumbs, [("child_of", n, n - 1) for n in range(1, SIZE)], trail=trail)
            outside = await cupboard.add("outside", state="ready", parents=[crumbs[-1]])
            worker = nursery.start("end_trail", url=file, at=0, trail=trail.id, how="abandon")
            if wait_s < 1:
                await asyncio.sleep(wait_s)
            else:
                nursery.hear(worker)
            worker.kill()
            nursery.wait(worker)
            left = len(await cupboard.crumbs.fetch(id=[c.id for c in crumbs]))
            links = len(await cupboard.links.fetch())
            state = (await cupboard.trails.get(trail.id)).state
            ready = outside.id in [c.id for c in await cupboard.ready()]
            outcomes.append((state, left, links, ready))
            if state == "active":
                await cupboard.abandon(trail)
            await cupboard.crumbs.delete(outside.id)
        await check(cupboard)
    assert set(outcomes) <= {("active", SIZE, 2 * SIZE, False), ("abandoned", 0, 0, True)}, outcomes
    assert outcomes[-1][0] == "abandoned"


async def test_a_property_defined_while_others_make_crumbs(nursery: Nursery, place: str) -> None:
    async with opened(place) as cupboard:
        await cupboard.add("first")
        at = soon()
        workers = [nursery.start("make_crumbs", url=place, at=at, count=15) for _ in range(3)]
        await asyncio.sleep(0.35)
        for n in range(4):
            await cupboard.properties.set(None, Property(f"p{n}", ("integer", "text")[n % 2]))
        nursery.finish(*workers)
        ids = {p.id for p in await cupboard.properties.fetch()}
        assert len(ids) == 9
        found = await cupboard.crumbs.fetch()
        assert len(found) == 46 and all(set(c.get_properties()) == ids for c in found)
        assert len(await cupboard.crumbs.fetch(properties={"p0": 0, "p1": ""})) == 46
