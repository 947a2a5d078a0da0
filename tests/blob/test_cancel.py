"""Cancelled calls leave no file open: a lock on one would keep its content from being stored or removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256

import pytest

from dgent.universe.blob import BlobStore

NOW = timedelta(0)
CONTENT = sha256(b"data").hexdigest()
TURNS = 60  # of the loop after which a call is cancelled


def list_open_contents() -> list[str]:
    """Return the paths of the contents that this process has open."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one of this listing
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in paths if CONTENT in path]


async def cancel_at_each_turn(
    call: Callable[[], Awaitable[object]], prepare: Callable[[], Awaitable[object]]
) -> list[str]:
    """Cancel a call after each number of turns; returns the contents that are open at the end."""
    await prepare()
    await call()  # the first one may take other ways
    for turns in range(TURNS):
        await prepare()
        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    return list_open_contents()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kept", ["files"], indirect=True)
async def test_a_cancelled_collection_locks_nothing(local: BlobStore) -> None:
    async def leave_orphan() -> None:
        await local.put("key", b"data")
        await local.delete("key")

    assert await cancel_at_each_turn(lambda: local.collect(grace=NOW), leave_orphan) == []
    await leave_orphan()
    assert (await local.collect(grace=NOW)).kept == 0 and await local.contents.list() == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kept", ["files"], indirect=True)
async def test_a_cancelled_read_closes_its_file(local: BlobStore) -> None:
    assert await cancel_at_each_turn(lambda: local.get("key"), lambda: local.put("key", b"data")) == []
