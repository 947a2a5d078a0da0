"""Cancelled calls leave no file open: a lock on one would keep its content from being stored or removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from dgent.universe.blob import BlobStore

NOW = timedelta(0)
TURNS = 60  # of the loop after which a call is cancelled


async def cancel_at_each_turn(
    call: Callable[[], Awaitable[object]], prepare: Callable[[], Awaitable[object]]
) -> int:
    """Cancel a call after each number of turns; returns how many more files are open at the end."""
    await prepare()
    await call()  # which opens what stays open
    before = len(os.listdir("/proc/self/fd"))
    for turns in range(TURNS):
        await prepare()
        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    return len(os.listdir("/proc/self/fd")) - before


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kept", ["files"], indirect=True)
async def test_a_cancelled_collection_locks_nothing(local: BlobStore) -> None:
    async def leave_orphan() -> None:
        await local.put("key", b"data")
        await local.delete("key")

    assert await cancel_at_each_turn(lambda: local.collect(grace=NOW), leave_orphan) == 0
    await leave_orphan()
    assert (await local.collect(grace=NOW)).kept == 0 and await local.contents.list() == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kept", ["files"], indirect=True)
async def test_a_cancelled_read_closes_its_file(local: BlobStore) -> None:
    assert await cancel_at_each_turn(lambda: local.get("key"), lambda: local.put("key", b"data")) == 0
