"""`kill -9` at every step of writing while the store is away, and of replaying: nothing lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from tests.fault.nursery import Child, Nursery
from tests.offline.worker import CLASHING
from tests.offline.world import World
from tests.soak import some, times


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.offline.worker") as running:
        yield running


def run(nursery: Nursery, job: str, folder: Path, at: int = 0) -> tuple[int, list[str]]:
    """How the worker ended, and what it said."""
    (child,) = nursery.wait(nursery.start("run", job=job, folder=str(folder), at=at), timeout_s=180)
    assert child.code in (0, -9), child.said[-1:]
    return child.code, child.said


async def conflicting(world: World) -> None:
    """Somebody else makes the record that will conflict."""
    async with world.plain() as u:
        await u.put(dgent.Datum(id=CLASHING, data={"n": "theirs"}))


async def held(world: World) -> dict[str, list[object]]:
    """The versions of every record, oldest first; a deletion is None."""
    found: dict[str, list[object]] = {}
    async with world.plain() as u:
        for change in await u.changes(limit=None):
            for item in change.items:
                assert item.id is not None
                found.setdefault(item.id, []).append(item.datum.data["n"] if item.datum else None)
    return found


async def conflicts(world: World) -> list[object]:
    async with dgent.open(f"sqlite:///{world.outbox}") as outbox:
        assert await outbox.count(schema="dgent.outbox") == 0
        found = await outbox.query(schema="dgent.conflict", descending=False, order_by="made_at")
        return [datum.data["ours"][0]["data"]["n"] for datum in found]


EVERYTHING = {
    CLASHING: ["theirs"],
    "counter": [0, 1, 2],
    "m0": [0],
    "m1": [0, None],
    "m2": [0],
}


def steps_of(said: list[str]) -> int:
    return int(said[-1].removeprefix("steps "))


@pytest.mark.timeout(300)
async def test_killed_while_writing(tmp_path: Path, nursery: Nursery) -> None:
    first = World(tmp_path / "0") if (tmp_path / "0").mkdir() is None else None
    assert first is not None
    first.leave()
    code, said = run(nursery, "write", tmp_path / "0")
    steps = steps_of(said)
    assert (code, len(said)) == (0, 8) and steps >= 14
    for at in some(range(1, steps + 1), 8):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = World(folder)
        world.leave()
        code, said = run(nursery, "write", folder, at)
        assert code == -9
        world.come_back()
        async with world.open() as u:
            assert u.degraded is None
        found = await held(world)
        promised = [line.split() for line in said]
        counter = [int(n) for what, n in promised if what == "counter"]
        # Everything that was answered, in order; of what was under way, all or nothing.
        assert found.get("counter", [])[: len(counter)] == counter
        assert len(found.get("counter", [])) <= min(len(counter) + 1, 3)
        many = [len(found.get(f"m{k}", [])) > 0 for k in range(3)]
        assert many in ([True] * 3, [False] * 3)
        assert all(many) or "many 0" not in said
        if "deleted 0" in said:
            assert found["m1"] == [0, None]


@pytest.mark.timeout(300)
async def test_killed_while_replaying(tmp_path: Path, nursery: Nursery) -> None:
    steps = [0]  # none at first: that run says how many there are
    while steps:
        at = steps.pop(0)
        folder = tmp_path / str(at)
        folder.mkdir()
        world = World(folder)
        await conflicting(world)
        world.leave()
        assert run(nursery, "write", folder)[0] == 0
        world.come_back()
        code, said = run(nursery, "replay", folder, at)
        if at:
            assert code == -9
            # Once more, killed at the same step of what is left, and then left alone.
            run(nursery, "replay", folder, at)
            code, _ = run(nursery, "replay", folder)
        else:
            count = steps_of(said)
            assert count >= 14
            steps = some(range(1, count + 1), 5)
        assert code == 0
        assert await held(world) == EVERYTHING, f"killed at step {at}"
        assert await conflicts(world) == [0, 1], f"killed at step {at}"


KILLS = times(6)


@pytest.mark.timeout(120 + KILLS * 4)
async def test_a_storm_of_kills_on_one_outbox(tmp_path: Path, nursery: Nursery) -> None:
    """Three programs at a time share store and outbox; the store comes and goes, the programs are killed."""
    world, rng = World(tmp_path), random.Random(5)
    said: dict[str, list[str]] = {}
    alive: dict[str, Child] = {}
    here = True
    try:
        for number in range(KILLS):
            while len(alive) < 3:
                name = f"w{number}-{len(said)}"
                said[name] = []
                alive[name] = nursery.start("storm", folder=str(tmp_path), name=name)
            await asyncio.sleep(rng.uniform(0.2, 0.8))
            world.leave() if here else world.come_back()
            here = not here
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            name = rng.choice(list(alive))
            said[name] = _end(nursery, alive.pop(name))
    finally:
        for name, child in alive.items():
            said[name] = _end(nursery, child)
    if not here:
        world.come_back()
    async with world.open() as u:
        assert u.degraded is None and (await u.stats()).details["conflicts"] == 0
    found = await held(world)
    answered = 0
    for name, lines in said.items():
        own = [int(line.split()[1]) for line in lines if line.startswith("own ")]
        pairs = [int(line.split()[1]) for line in lines if line.startswith("pair ")]
        answered += len(own) + len(pairs)
        kept = found.get(f"own.{name}", [])
        assert kept == list(range(len(kept))), f"{name}: each once, in order"
        assert len(own) <= len(kept) <= len(own) + 1
        for n in pairs:
            assert found[f"a.{name}.{n}"] == found[f"b.{name}.{n}"] == [n]
    assert answered > KILLS
    print(f"\n{len(said)} programs killed, {answered} answered writes, 0 lost, 0 doubled")


def _end(nursery: Nursery, child: Child) -> list[str]:
    child.kill()
    nursery.wait(child)
    assert child.code == -9, child.said[-1:]
    return child.said
