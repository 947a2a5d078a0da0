"""Damaged records: each is reported by its id, and everything else stays readable.

The damage is done by raw SQL while no one has the store open. A query gives a damaged record raw,
with the reason in `problem`; `get` raises Corrupt; writing over it, deleting and forgetting it work.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Corrupt, DgentError
from tests.fault.check import check_store
from tests.fault.jobs import NOTE, Note

RECORDS = 30
pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.UnreadableRecord")  # that is what is read here
DAMAGE = {
    "random bytes": ("data", bytes(random.Random(1).randrange(256) for _ in range(200))),
    "half of it": ("data", b'{"n": 3, "own'),
    "another kind": ("data", b"[1, 2, 3]"),
    "a number": ("data", b"5"),
    "text": ("data", "not JSON at all"),
    "long text": ("data", "not JSON at all" * 100),
    "an integer": ("data", 7),
    "deep": ("data", b"[" * 100_000),
    "a lone surrogate": ("data", b'{"n": "\xed\xa0\x80"}'),
    "tags": ("tags", "not a list"),
    "tags of numbers": ("tags", "[1, 2]"),
    "a time far away": ("t", 2**62),
    "an unknown author": ("author", 999_999),
    "envelope fields": ("x", b"\xff\xff"),
    "an unknown encoding": ("enc", 9),
    "index keys": ("fk", b"\xc1garbage"),
}


async def store(path: Path) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        for i in range(RECORDS):
            await u.remember(Note(i, f"o{i % 3}", "x" * (i * 40)), id=f"r{i}", tags={"t", f"t{i % 5}"})


def damage(path: Path, sql: str, *values: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


@pytest.mark.parametrize("kind", DAMAGE)
async def test_one_damaged_record(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "damaged.db"
    await store(path)
    column, value = DAMAGE[kind]
    damage(path, f"UPDATE datum SET {column} = ? WHERE id = 'r7'", value)
    silent = kind in ("an unknown encoding", "index keys")  # nothing that a read looks at
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        if not silent:
            with pytest.raises(Corrupt, match="r7"):
                await u.get("r7")
        assert (await u.get("r8")).value.n == 8
        await _check_reads(u, silent)
        # The feed and the history go past it.
        changes = await u.changes(0)
        assert [item.id for change in changes for item in change.items if item.op == "put"] == [
            f"r{i}" for i in range(RECORDS)
        ]
        (version,) = await u.history("r7")
        assert silent or version.datum.problem
        if kind in ("a time far away", "an unknown author"):
            return  # reported; but where it stands in the index cannot be worked out
        # It can be replaced, and what it was stays in the history.
        await u.remember(Note(700, "new"), id="r7")
        assert (await u.get("r7")).value.n == 700 and len(await u.history("r7")) == 2
        assert len(await u.recall(dgent.Query(schema=NOTE.name, where={"owner": "new"}))) == 1
    check_store(str(path))


async def _check_reads(u: Any, silent: bool) -> None:
    queries = [
        dgent.Query(limit=None),
        dgent.Query(schema=NOTE.name, limit=50),
        dgent.Query(schema=NOTE.name, limit=None, order_by="n", descending=False),
        dgent.Query(schema=NOTE.name, limit=None, order_by="text"),
        dgent.Query(prefix="r", limit=None),
        dgent.Query(schema=NOTE.name, limit=None, where={"text": {"$ne": "?"}}),
    ]
    for query in queries:
        found = {each.id: each for each in await u.query(query)}
        assert found.keys() | {"r7"} == {f"r{i}" for i in range(RECORDS)}
        assert all(isinstance(each, dgent.Crystal) for id, each in found.items() if id != "r7")
        if "r7" in found and not silent:
            assert "r7" in found["r7"].problem
        recalled = await u.recall(query)
        assert len(recalled) >= RECORDS - 1
        assert {each.id for each in recalled.problems} <= {"r7"}
        assert len([each async for each in u.iterate(query)]) == len(found)
        assert await u.count(query) == len(found)
    many = await u.get_many(["r6", "r7", "r8"])
    assert (many[0].value.n, many[2].value.n) == (6, 8) and (silent or many[1].problem)
    async with u.transaction() as tx:
        assert len(await tx.query(dgent.Query(schema=NOTE.name, limit=None))) == RECORDS
        await tx.put(dgent.Datum(id="other"))
    await u.forget("other")


@pytest.mark.parametrize("way", ["delete", "forget", "put", "commit"])
@pytest.mark.parametrize("kind", ["random bytes", "long text", "tags", "index keys"])
async def test_a_damaged_record_can_go(tmp_path: Path, kind: str, way: str) -> None:
    path = tmp_path / "damaged.db"
    await store(path)
    column, value = DAMAGE[kind]
    damage(path, f"UPDATE datum SET {column} = ? WHERE id = 'r7'", value)
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        if way == "delete":
            assert await u.delete("r7")
        elif way == "forget":
            assert (await u.forget("r7")).records == 1
        elif way == "put":
            await u.put(dgent.Datum(id="r7", data={"n": 1, "owner": "x"}))
        else:
            async with u.transaction() as tx:
                await tx.put(dgent.Datum(id="r6"))
                await tx.delete("r7")
        assert await u.exists("r7") is (way == "put")
        assert all(isinstance(each, dgent.Crystal) for each in await u.query(dgent.Query(schema=NOTE.name)))
    check_store(str(path))


async def test_damage_in_a_commit_of_many_undoes_all_of_it(tmp_path: Path) -> None:
    """What cannot be written over, here a row of an unknown schema, must not leave half a commit."""
    path = tmp_path / "damaged.db"
    await store(path)
    damage(path, "UPDATE datum SET schema = 77777 WHERE id = 'r7'")
    async with dgent.open(f"sqlite:///{path}") as u:
        neighbour = asyncio.ensure_future(u.put(dgent.Datum(id="neighbour")))
        with pytest.raises(Corrupt):
            await u.put_many([dgent.Datum(id=id, data={"half": True}) for id in ("r5", "new", "r7", "r9")])
        assert (await neighbour).rev == 1
        assert not await u.exists("new") and (await u.get("r5", raw=True)).rev == 1
        assert await u.seq() == RECORDS + 1
        await u.put(dgent.Datum(id="later"))


async def test_old_versions_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        for i in range(20):
            await u.remember(Note(i, "o", f"{i}" * 2000), id="r")
        await u.put(dgent.Datum(id="other"))
    damage(path, "UPDATE past SET data = ? WHERE rev = 12", b"\x28\xb5\x2f\xfdgarbage")
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(NOTE)
        versions = {version.rev: version for version in await u.history("r")}
        assert len(versions) == 20 and versions[12].datum.problem
        assert all(versions[rev].datum.data["n"] == rev - 1 for rev in range(13, 21))
        assert len(await u.changes(0)) == 21
        with pytest.raises(Corrupt, match="'r'"):
            await u.get("r", as_of=12)
        with pytest.raises(DgentError):
            await u.undo(13)
        assert len(await u.query(dgent.Query(), as_of=12)) == 1
        assert (await u.get("r")).value.n == 19


class Stop(BaseException):
    """What not even a careful reader catches, like a KeyboardInterrupt."""


async def test_an_error_that_is_kept_keeps_nothing_open(tmp_path: Path) -> None:
    """A traceback that is held must not hold a read open: later reads would not see later commits."""
    path = tmp_path / "store.db"
    await store(path)

    def stop(data: dict[str, Any]) -> dict[str, Any]:
        if data["n"] == 7:
            raise Stop
        return data

    second = dgent.Schema(NOTE.name, version=2, contract=Note, migrations={1: stop})
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.query(dgent.Query(limit=1))
        u.contracts.add(second)  # not `register`: filling its indexes would meet the error first
        kept: list[BaseException] = []
        for _ in range(4):
            try:
                await u.count(dgent.Query(schema=NOTE.name, where={"text": {"$ne": "?"}}))
            except Stop as error:
                kept.append(error)
        assert len(kept) == 4
        await u.put(dgent.Datum(id="new", data={"text": "new"}))
        assert await u.count(dgent.Query(prefix="new", where={"text": "new"})) == 1


async def test_an_upgrade_leaves_damage_alone(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    await store(path)
    damage(path, "UPDATE datum SET data = x'00' WHERE id = 'r7'")
    second = dgent.Schema(
        NOTE.name,
        version=2,
        contract=Note,
        migrations={1: lambda data: {**data, "n": 2}},
        indexes=("n", "text"),
    )
    async with dgent.open(f"sqlite:///{path}") as u:
        u.register(second)
        await u.indexed()
        assert len(await u.recall(dgent.Query(schema=NOTE.name, where={"n": 2}, limit=None))) == RECORDS - 1
        report = await u.upgrade_all(NOTE.name)
        assert report.upgraded == RECORDS - 1 and list(report.failed) == ["r7"]
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT data FROM datum WHERE id = 'r7'").fetchall() == [(b"\x00",)]
    connection.close()
    check_store(str(path))
