"""`kill -9` at any moment loses nothing that was acknowledged and leaves nothing half-done.

Four processes write as fast as they can; one after the other is killed and replaced. A worker tells
of a write only after its call returned, through a pipe that survives it. Then the file is looked
at: everything told is there, every commit is whole, log and indexes fit the rows, and the feed has
it all. `DGENT_KILLS=5000` runs longer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dgent
from tests.fault.check import check_store
from tests.fault.jobs import ACCOUNTS, NOTE, Note, indexed_note
from tests.fault.nursery import Child, Nursery
from tests.soak import times

KILLS = times(75)
ROUND = 25  # kills between two looks at the file
AT_ONCE = 4


@pytest.mark.timeout(120 + KILLS)
@pytest.mark.parametrize("durabilities", [("full",), ("relaxed",), ("full", "relaxed")], ids="-".join)
async def test_killed_writers(tmp_path: Path, durabilities: tuple[str, ...]) -> None:
    path = str(tmp_path / "killed.db")
    await _open_accounts(path)
    kills = acks = 0
    started = 0
    with Nursery() as nursery:
        while kills < KILLS / 3:
            alive: list[Child] = []
            everyone: list[Child] = []
            for _ in range(ROUND):
                while len(alive) < AT_ONCE:
                    started += 1
                    args = {"name": f"w{started}", "durability": random.choice(durabilities)}
                    alive.append(nursery.start("scribble", path=path, **args))
                await asyncio.sleep(random.choice((0, 0.005, 0.02, 0.05, 0.1)))
                everyone.append(alive.pop(random.randrange(len(alive))))
                everyone[-1].kill()
            for child in alive:
                child.kill()
            everyone += alive
            nursery.wait(*everyone)
            kills += len(everyone)
            assert {child.code for child in everyone} == {-9}, [c.said[-1:] for c in everyone if c.code != -9]
            said = [what for child in everyone for what in child.said]
            acks += len(said)
            await _check_round(path, said)
    print(f"\nkill -9, {'+'.join(durabilities)}: {kills} kills, {acks} acknowledged writes, 0 lost")
    assert acks > kills, "the workers hardly wrote anything"


async def _open_accounts(path: str) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        for account in range(ACCOUNTS):
            await u.remember(Note(100, "bank"), id=f"account.{account}")


async def _check_round(path: str, said: list[Any]) -> None:
    check_store(path)
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        found = {c.id: c async for c in u.iterate(dgent.Query(limit=None))}
        for kind, *told in said:
            if kind == "one":
                id, rev, n = told
                assert found[id].rev == rev and found[id].value.n == n
            elif kind == "own":
                id, rev = told
                assert found[id].rev >= rev
            elif kind == "many":
                prefix, size = told
                assert all(prefix + str(i) in found for i in range(size))
            elif kind == "gone":
                assert not found.keys() & set(told[0])
            elif kind == "lost":
                assert told[0] not in found and told[0].replace("lost", "kept") in found
        _check_whole(found)
        await _check_feed(u)
    content = Path(path).read_bytes()
    for kind, *told in said:
        assert kind != "lost" or f"secret.{told[0]}.".encode() not in content, f"{told} is not forgotten"


def _check_whole(found: dict[str, Any]) -> None:
    """Acknowledged or not, a commit of many records is there with all of them or with none."""
    sizes = Counter(id.rsplit(".", 1)[0] for id in found if id.startswith(("many.", "gone.")))
    for group, count in sizes.items():
        expected = 2 if group.startswith("gone.") else found[group + ".0"].datum.data["size"]
        assert count == expected, f"{group} has {count} of {expected} records"
    accounts = [c.value.n for id, c in found.items() if id.startswith("account.")]
    assert len(accounts) == ACCOUNTS and sum(accounts) == 100 * ACCOUNTS
    for id, crystal in found.items():
        if id.startswith("own."):
            assert crystal.value.n == crystal.rev, f"{id} lost an update"


async def _check_feed(u: Any) -> None:
    seq, live = 0, {}
    while changes := await u.changes(seq):
        for change in changes:
            assert change.seq == seq + 1, f"the feed skips from {seq} to {change.seq}"
            seq = change.seq
            for item in change.items:
                assert item.op != "put" or item.datum is not None
                if item.op != "forget":
                    live[item.id] = item.rev if item.op == "put" else None
    assert seq == await u.seq()
    stored = {d.id: d.rev async for d in u.iterate(dgent.Query(limit=None), raw=True)}
    assert {id: rev for id, rev in live.items() if rev is not None} == stored


async def test_killed_while_indexing(tmp_path: Path) -> None:
    """Old records are indexed in steps; whoever comes next goes on where the last one was killed."""
    path = str(tmp_path / "index.db")
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(indexed_note(1))
        await u.put_many(
            [
                dgent.Datum(
                    id=f"{i}",
                    data={"n": i, "owner": f"o{i % 5}", "text": f"{i % 7}"},
                    schema=NOTE.name,
                    schema_version=1,
                    tags=frozenset({f"t{i % 3}"}),
                )
                for i in range(400)
            ]
        )
    with Nursery() as nursery:
        for turn in range(KILLS // 10):
            worker = nursery.start("index", path=path, version=2 + turn // 10)
            await asyncio.sleep(random.uniform(0, 0.06))
            if worker.code is None:
                worker.kill()
            nursery.wait(worker)
    version = 2 + KILLS // 100
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(indexed_note(version))
        where = {"owner": "o3", "text": "2", "n": {"$gte": 100}}
        query = dgent.Query(schema=NOTE.name, where=where, limit=None, order_by="n")
        expected = [i for i in range(399, -1, -1) if i % 5 == 3 and i % 7 == 2 and i + version - 1 >= 100]
        assert [int(c.id) for c in await u.recall(query)] == expected, "wrong before the indexes are filled"
        await u.indexed()
        assert [int(c.id) for c in await u.recall(query)] == expected
    check_store(path)
