"""A full disk: a clear error, nothing half-done, and the same handle works again."""

from __future__ import annotations

import asyncio
import random

import pytest

from dgent.errors import StorageFull
from dgent.model.datum import Datum
from dgent.testing.contract import find_ids, put, record
from tests.fault.test_full_disk import Disk, disk  # noqa: F401 - a fixture
from tests.jsonl.stores import odd, opened, without_cache


def big(id: str, size: int = 3000) -> Datum:
    return record(id, data={"text": "x" * size})


@pytest.mark.parametrize("sync", ["immediate", "on_close"])
async def test_full_and_free_again(disk: Disk, sync: str) -> None:  # noqa: F811
    folder = disk.folder / "store"
    async with opened(folder, sync=sync) as store:
        await put(store, *(big(f"old.{n}") for n in range(30)))
        disk.fill()
        for wanted in ([big("new")], [big(f"many.{n}") for n in range(20)], [big("large", 400_000)]):
            with pytest.raises(StorageFull) as caught:
                await put(store, *wanted)
            assert str(folder) in str(caught.value)
        assert len(await find_ids(store, limit=None)) == 30
        disk.free()
        await put(store, big("new"))
        assert len(await find_ids(store, limit=None)) == 31
        assert await odd(store) == []
    without_cache(folder)
    async with opened(folder) as store:
        assert len(await find_ids(store, limit=None)) == 31


async def test_groups_that_run_out_of_room(disk: Disk) -> None:  # noqa: F811
    """Many commits at once with room for some of them: each happens whole, or says StorageFull."""
    folder = disk.folder / "store"
    done: set[str] = set()
    refused = 0
    async with opened(folder) as store:
        for turn in range(8):
            disk.fill(leave=random.randrange(0, 200_000))
            wanted = [[big(f"{turn}.{n}.{part}", 1500) for part in range(n % 4 + 1)] for n in range(32)]
            work = [put(store, *each) for each in wanted]
            for each, answer in zip(wanted, await asyncio.gather(*work, return_exceptions=True), strict=True):
                if isinstance(answer, BaseException):
                    assert isinstance(answer, StorageFull), answer
                    refused += 1
                else:
                    done.update(datum.id for datum in each)
            assert set(await find_ids(store, limit=None)) == done
            disk.free()
            await put(store, record(f"after {turn}"))
            done.add(f"after {turn}")
    assert refused
    without_cache(folder)
    async with opened(folder) as store:
        assert set(await find_ids(store, limit=None)) == done
