"""Making and migrating a store: by many processes at once, killed in the middle, and by a step that fails."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import StorageError
from dgent.store.sqlite import format as storage
from dgent.store.upgrade import Step
from tests.fault.check import check_store
from tests.fault.nursery import Nursery
from tests.soak import times

PROCESSES = 8
ROUNDS = times(4)
KILLED = times(20)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


def ask(path: Path, sql: str, *values: Any) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


async def test_created_once(tmp_path: Path, nursery: Nursery) -> None:
    """Eight processes open the same empty path at the same moment."""
    for turn in range(ROUNDS):
        path = tmp_path / f"new{turn}.db"
        if turn % 2:
            path.touch()
        workers = [nursery.start("create", path=str(path), name=f"w{i}") for i in range(PROCESSES)]
        universes = nursery.finish(*workers)
        assert len(set(universes)) == 1, "two of them made a store each"
        assert check_store(str(path))["rows"] == PROCESSES


async def test_created_at_the_same_instant(tmp_path: Path, nursery: Nursery) -> None:
    """The steps from an empty file to a store interleave in every way; no one may take it for foreign."""
    (wrong,) = nursery.finish(nursery.start("stampede", folder=str(tmp_path), rounds=ROUNDS * 6))
    assert wrong == []


async def test_killed_while_creating(tmp_path: Path, nursery: Nursery) -> None:
    """Whoever comes next finds a store, or nothing; never half of one."""
    for turn in range(KILLED):
        path = tmp_path / f"half{turn}.db"
        workers = [nursery.start("create", path=str(path), name=f"w{i}") for i in range(2)]
        await asyncio.sleep(random.uniform(0, 0.03))
        for worker in workers:
            if worker.code is None:
                worker.kill()
        nursery.wait(*workers)
        async with dgent.open(f"sqlite:///{path}") as u:
            await u.put(dgent.Datum(id="after"))
            found = {datum.id for datum in await u.list()}
        told = {f"w{i}" for i, worker in enumerate(workers) if worker.said}
        assert told | {"after"} <= found
        check_store(str(path))


OLD, STEPS = storage.FORMAT, storage.STEPS
# A table that was renamed has its name in quotes afterwards; and to make the other one twice would fail.
STEP = (
    "ALTER TABLE forgotten RENAME TO gone; ALTER TABLE gone RENAME TO forgotten; "
    "CREATE TABLE migrated (by TEXT); INSERT INTO migrated VALUES ('me')"
)


async def old_store(path: Path) -> None:
    """A store of today's format, which is old as soon as there is a `next_format`."""
    async with dgent.open(f"sqlite:///{path}") as u:
        for i in range(20):
            await u.put(dgent.Datum(id=f"{i}", data={"n": i}))


def next_format(monkeypatch: pytest.MonkeyPatch, *runs: str | Callable[..., None]) -> None:
    """Have formats after today's, with these steps to them."""
    steps = [Step(OLD + 1 + n, "mark it", run) for n, run in enumerate(runs)]
    monkeypatch.setattr(storage, "STEPS", (*STEPS, *steps))
    monkeypatch.setattr(storage, "FORMAT", OLD + len(runs))


async def test_an_old_format_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    await old_store(path)
    next_format(monkeypatch, STEP)
    async with dgent.open(f"sqlite:///{path}") as u:
        assert (await u.get("7", raw=True)).data == {"n": 7}
        await u.put(dgent.Datum(id="new"))
    assert ask(path, "SELECT value FROM meta WHERE name = 'format'") == [(storage.FORMAT,)]
    assert ask(path, "SELECT count(*) FROM migrated") == [(1,)]
    check_store(str(path))


@pytest.mark.parametrize(
    "step", [STEP + "; SELECT * FROM no_such_table", STEP + "; INSERT INTO meta VALUES ('format', 1)"]
)
async def test_a_step_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "old.db"
    await old_store(path)
    next_format(monkeypatch, step)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=rf"step {OLD + 1} \(mark it\)") as failed:
        await dgent.open(f"sqlite:///{path}").open()
    backup = f"old.db.format-{OLD}.bak"
    assert f"still has storage format {OLD}" in failed.value.hint and backup in failed.value.hint
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["old.db", backup]
    next_format(monkeypatch, STEP)
    async with dgent.open(f"sqlite:///{path}") as u:
        assert await u.count() == 20


async def test_migrated_by_many_at_once(tmp_path: Path, nursery: Nursery) -> None:
    """Eight processes find an old format: one migrates, the others wait and find it done."""
    for turn in range(ROUNDS):
        path = tmp_path / f"old{turn}.db"
        await old_store(path)
        workers = [nursery.start("create", path=str(path), name=f"w{i}", step=STEP) for i in range(PROCESSES)]
        nursery.finish(*workers)
        assert ask(path, "SELECT count(*) FROM migrated") == [(1,)]
        assert check_store(str(path))["rows"] == 20 + PROCESSES
        assert ask(Path(f"{path}.format-{OLD}.bak"), "SELECT count(*) FROM datum") == [(20,)]
    assert not [name for name in os.listdir(tmp_path) if name.endswith((".partial", ".2.bak"))]


async def test_killed_while_migrating(tmp_path: Path, nursery: Nursery) -> None:
    """A migration that takes its time is killed in the middle: the file is as old as before."""
    path = tmp_path / "old.db"
    await old_store(path)
    slow = STEP + "; WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
    for _ in range(3):
        worker = nursery.start("create", path=str(path), name="slow", step=slow)
        await asyncio.sleep(random.uniform(0.05, 0.2))
        worker.kill()
        nursery.wait(worker)
        assert ask(path, "SELECT value FROM meta WHERE name = 'format'") == [(OLD,)]
        assert ask(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'migrated'") == [(0,)]
    nursery.finish(nursery.start("create", path=str(path), name="quick", step=STEP))
    check_store(str(path))
