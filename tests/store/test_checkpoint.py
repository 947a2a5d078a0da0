"""The log is checkpointed in passes beside its writers, and starts over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.store.sqlite import writer
from tests.fault.check import check_store


@pytest.mark.parametrize("few", [-1, 10**6], ids=["as many passes as may be", "one pass"])
async def test_the_log_starts_over_while_it_is_written(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROWN_PAGES", 50)
    monkeypatch.setattr(writer, "FEW_PAGES", few)
    log, longest = tmp_path / "s.db-wal", 0
    async with dgent.open(f"sqlite:///{tmp_path}/s.db", durability="relaxed") as u:
        for n in range(1_500):
            await u.put(dgent.Datum(data={"n": n, "text": "x" * 400}))
            if n % 50 == 0:
                await asyncio.sleep(0.002)
                longest = max(longest, log.stat().st_size)
    assert 0 < longest < 14_000_000, "it would be twice as long without"
    check_store(str(tmp_path / "s.db"))
