"""Commits that share a transaction: what goes wrong in one of them is no one else's business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Corrupt, InputError, VersionConflict
from dgent.store.engine.commit import Ledger
from tests.fault.check import check_store
from tests.fault.nursery import Nursery


def late(error: BaseException) -> Callable[[Ledger], None]:
    """Work that fails when it has written already, which no check of ours does on purpose."""

    def work(ledger: Ledger) -> None:
        ledger.kernel.make_number("half-done")
        ledger.kernel.tip.seq += 1
        raise error

    return work


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("error", [InputError("late"), RuntimeError("late")], ids=["ours", "other"])
async def test_a_failure_after_the_first_write(tmp_path: Path, durability: str, error: BaseException) -> None:
    path = str(tmp_path / "group.db")
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        calls: list[Any] = [u.put(dgent.Datum(id=f"{i}")) for i in range(64)]
        calls.insert(30, u.backend._write(late(error)))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert ended.pop(30) is error
        assert sorted(datum.seq for datum in ended) == list(range(1, 65))
        assert await u.count() == 64
        stored = u.backend._read_now(lambda reading: reading.number("half-done"))
        assert stored is None, "part of what failed was kept"
    check_store(path)


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_one_refused_in_sixty_four(tmp_path: Path, durability: str) -> None:
    path = str(tmp_path / "group.db")
    async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
        await u.put(dgent.Datum(id="13"))
        puts = [u.put(dgent.Datum(id=f"{i}", data={"n": i}), expect=0) for i in range(64)]
        ended = await asyncio.gather(*puts, return_exceptions=True)
        assert [i for i, end in enumerate(ended) if isinstance(end, VersionConflict)] == [13]
        assert await u.count() == 64 and (await u.get("13", raw=True)).rev == 1
    check_store(path)


async def test_what_another_process_broke_does_not_hold_the_lock(tmp_path: Path) -> None:
    """The write transaction has begun when the damage is found; it must end, or no one could mend it."""
    path = str(tmp_path / "group.db")
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put(dgent.Datum(id="a", schema="s", schema_version=1))
        with Nursery() as nursery:
            bump = "UPDATE meta SET value = value + 1 WHERE name = 'catalog'"
            damage = "UPDATE schema SET decl = CAST('?' || CAST(decl AS TEXT) AS BLOB)"
            nursery.finish(nursery.start("execute", path=path, sql=[damage, bump]))
            for _ in range(3):
                with pytest.raises(Corrupt):
                    await u.put(dgent.Datum(id="b"))
            assert await u.exists("a")
            repair = "UPDATE schema SET decl = substr(decl, 2)"
            nursery.finish(nursery.start("execute", path=path, sql=[repair, bump]))
        assert (await u.put(dgent.Datum(id="b"))).seq == 2
    check_store(path)
