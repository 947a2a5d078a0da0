"""The tail of the feed: what it knows is what the feed says, and what it cannot know it does not claim."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.store.backend import Change, Delete, Op, Put
from dgent.universe import tail as tails
from dgent.universe.gate import Principal
from dgent.universe.stamp import stamp_handle
from dgent.universe.tail import FeedTail, follow
from tests.offline.world import World, back
from tests.universe.conftest import Another

SCHEMAS = ("note", "task")
AGENTS = ("ann", "bob")
SECRET = "the safe opens with 4711"


def note(id: str, agent: str = "ann", schema: str = "note", **data: Any) -> dgent.Datum:
    return dgent.Datum(id, data={"agent": agent, **data}, schema=schema, schema_version=1)


async def follow_known(u: dgent.Universe) -> FeedTail:
    found = await follow(u)
    assert found is not None
    return found


def is_of(change: Change, schema: str | None = None, agent: str | None = None, root: str = "") -> bool:
    """Decide as the feed shows it: the plain way that the index has to agree with."""
    for item in change.items:
        assert item.id is not None
        datum = item.datum if item.op == "put" else item.last
        whose = None if datum is None else datum.data["agent"]
        if schema in (None, item.schema) and agent in (None, whose) and item.id.startswith(root):
            return True
    return False


@pytest.mark.parametrize("seed", range(3))
async def test_the_tail_finds_what_the_feed_shows(u: dgent.Universe, another: Another, seed: int) -> None:
    chance, other = random.Random(seed), await another()
    held: list[tails.TailPoint] = []
    for step in range(25):
        ops: dict[str, Op] = {}
        for _ in range(chance.randrange(1, 4)):
            schema = chance.choice(SCHEMAS)
            id = f"{schema}-{chance.randrange(4)}/{chance.randrange(3)}"
            whose = chance.choice(AGENTS)
            gone = chance.random() < 0.2
            ops[id] = Delete(id) if gone else Put(note(id, whose, schema, step=step))
        await chance.choice([u, other]).commit(list(ops.values()))
        if chance.random() < 0.4:
            continue
        found = await follow_known(u)
        held.append(found.point)
        since = chance.choice(held)
        log = await u.changes(since.seq)
        for schema in SCHEMAS:
            wanted = [each.seq for each in log if is_of(each, schema)]
            assert [each.seq for each in found.find_by_schema(since, [schema]) or []] == wanted
            assert found.is_untouched(since, [schema]) is not bool(wanted)
            for agent in AGENTS:
                shown = found.find_by_agent(since, [schema], agent)
                assert shown is not None
                assert {each.seq for each in shown} >= {
                    each.seq for each in log if is_of(each, schema, agent)
                }
        for root in ("note-1", "task-2"):
            wanted = [each.seq for each in log if is_of(each, root=root)]
            assert [each.seq for each in found.find_by_id(since, [root]) or []] == wanted
    assert (await follow_known(u)).point.seq == await u.seq()


async def test_records_without_a_schema_disturb_nobody(u: dgent.Universe) -> None:
    await u.put(note("a"))
    point = (await follow_known(u)).point
    plain = await u.remember({"n": 1})
    await u.delete(plain.id)
    found = await follow_known(u)
    assert found.is_untouched(point, SCHEMAS) and not found.is_id_untouched(point, plain.id)


async def test_commits_off_the_feed_move_the_point_on(u: dgent.Universe) -> None:
    u.register(dgent.Schema[dict[str, Any]]("beat", history="none", feed=False))
    await u.put(note("a"))
    point = (await follow_known(u)).point
    await u.put(dgent.Datum("b", data={}, schema="beat", schema_version=1))
    found = await follow_known(u)
    assert found.point.seq == await u.seq() > point.seq
    assert found.is_untouched(point, SCHEMAS)


async def test_a_deletion_that_does_not_say_whose_it_was_may_be_anybodys(u: dgent.Universe) -> None:
    u.register(dgent.Schema[dict[str, Any]]("task", history="none"))
    await u.put(note("a", "ann", "task"))
    point = (await follow_known(u)).point
    await u.delete("a")
    found = await follow_known(u)
    assert all(len(found.find_by_agent(point, ["task"], agent) or ()) == 1 for agent in AGENTS)


async def test_what_was_forgotten_is_not_kept_and_proves_nothing(u: dgent.Universe, another: Another) -> None:
    await u.put(note("a", text=SECRET))
    found = await follow_known(u)
    point = found.point
    assert SECRET in repr(vars(found))
    await (await another()).forget("a")
    found = await follow_known(u)
    assert not found.is_untouched(point, ["unrelated"]) and found.find_by_id(point, ["a"]) is None
    assert SECRET not in repr(vars(found))
    point = found.point
    await u.put(note("b"))
    assert (await follow_known(u)).find_by_id(point, ["a"]) == []


async def test_a_restored_store_proves_nothing_that_was_read_before(tmp_path: Path) -> None:
    """The lines of the files are the truth of this engine: an older copy of them may come at any time."""
    folder, older = tmp_path / "store", tmp_path / "older"
    async with dgent.open(f"jsonl:{folder}") as u:
        await u.put(note("a"))
    shutil.copytree(folder, older)
    async with dgent.open(f"jsonl:{folder}") as u:
        await u.put(note("b"))
        await u.put(note("c"))
        found = await follow_known(u)
        point = found.point
        for path in folder.glob("*.jsonl"):
            shutil.copyfile(older / path.name, path)
            later = path.stat().st_mtime_ns + 10**9
            os.utime(path, ns=(later, later))
        assert await u.get("b") is None
        for number in range(5):  # until the numbers are where they were
            await u.put(note(f"d{number}"))
        found = await follow_known(u)
        assert found.point.seq >= point.seq
        assert not found.is_untouched(point, ["unrelated"]) and not found.is_id_untouched(point, "b")


async def test_another_epoch_is_another_store() -> None:
    async with dgent.open("memory:") as u:
        await u.put(note("a"))
        point = (await follow_known(u)).point
        assert (await follow_known(u)).is_untouched(point, SCHEMAS)
        u.backend.epoch = b"restored"  # type: ignore[attr-defined]
        found = await follow_known(u)
        assert not found.is_untouched(point, SCHEMAS) and found.point.seq == point.seq


async def test_who_may_not_see_everything_has_no_tail(u: dgent.Universe) -> None:
    await u.put(note("a"))
    assert await follow(u) is await follow(u.acting(Principal("ann", "partner")))
    assert await follow(u.acting(Principal("ann", "friend"))) is None
    assert await follow(stamp_handle(u, None, "friend")) is None
    assert await follow(await u.at(1)) is None


@pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")
async def test_a_store_that_is_away_has_no_tail_until_it_is_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.plain() as u:
        await u.put(note("a"))
    world.leave()
    async with world.open() as u:
        assert u.degraded is not None and await follow(u) is None
        await u.put(note("b"))
        assert await follow(u) is None
        world.come_back()
        await back(u)
        found = await follow_known(u)
        assert found.point.seq == await u.seq()
        assert len(found.find_by_id(found.at(0), ["b"]) or ()) == 1


async def test_what_is_kept_has_bounds(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST", 20)
    monkeypatch.setattr(tails, "MOST_BYTES", 40_000)
    monkeypatch.setattr(tails, "LARGE_BYTES", 5_000)
    points = []
    for number in range(60):
        await u.put(note(f"a{number}", text="x" * (4_000 if number % 2 else 10)))
        found = await follow_known(u)
        points.append(found.point)
        assert len(found._changes) <= 20 and found._size <= 40_000
    known = [found.find_by_schema(each, ["note"]) for each in points]
    assert known[0] is None and known[-2] is not None and len(known[-2]) == 1
    for at, shown in enumerate(known):
        assert shown is None or len(shown) == len(points) - 1 - at
    assert len(found._index) <= 3 * 20
    await u.put(note("large", text="x" * 10_000))
    (change,) = (await follow_known(u)).find_by_id(points[-1], ["large"]) or ()
    assert change.more == 1 and change.items[0].datum is None


async def test_a_commit_that_is_not_read_whole_proves_nothing(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "WHOLE", 10)
    point = (await follow_known(u)).point
    await u.commit([Put(note(f"{n:05}", schema="task" if n == 2_999 else "note")) for n in range(3_000)])
    found = await follow_known(u)
    assert not found.is_untouched(point, ["task"])
    assert found.point.seq == await u.seq() and found.is_untouched(found.point, ["task"])


async def test_after_a_long_absence_it_begins_anew(
    u: dgent.Universe, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "MOST", 30)
    monkeypatch.setattr(tails, "FIRST", 5)
    point = (await follow_known(u)).point
    other = await another()
    for number in range(40):
        await other.put(note(f"a{number}"))
    found = await follow_known(u)
    assert found.find_by_schema(point, ["note"]) is None
    assert len(found.find_by_schema(found.at(found.point.seq - 5), ["note"]) or ()) == 5


async def test_many_ask_at_once_and_some_are_cancelled(u: dgent.Universe) -> None:
    await u.put(note("a"))
    chance, point = random.Random(1), (await follow_known(u)).point
    for number in range(10):
        asked = [asyncio.create_task(follow_known(u)) for _ in range(20)]
        put = asyncio.create_task(u.put(note(f"b{number}")))
        await asyncio.sleep(0)
        for each in chance.sample(asked, 10):
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await put
    shown = (await follow_known(u)).find_by_schema(point, ["note"])
    assert shown is not None and len(shown) == 10


async def test_commits_of_another_process_are_seen(shared_url: str) -> None:
    async with dgent.open(shared_url) as u:
        await u.put(note("a"))
        point = (await follow_known(u)).point
        program = (
            "import asyncio, sys, dgent\n"
            "async def main():\n"
            "    async with dgent.open(sys.argv[1]) as u:\n"
            "        await u.put(dgent.Datum('a/1', schema='task', schema_version=1))\n"
            "asyncio.run(main())"
        )
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, shared_url)
        assert await worker.wait() == 0
        found = await follow_known(u)
        assert found.is_untouched(point, ["note"]) and not found.is_untouched(point, ["task"])
        assert not found.is_id_untouched(point, "a")
