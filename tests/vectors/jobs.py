"""What the workers of the tests of vectors do, each in a process of its own."""

from __future__ import annotations

import asyncio
from typing import Any
from zlib import crc32

import numpy as np

import dgent
from dgent.store.engine import vector_fold
from tests.fault.nursery import say

DIM = 8


def vector_of(id: str) -> list[float]:
    """The numbers that stand for an id."""
    return [float(n) for n in np.random.RandomState(abs(hash_of(id))).standard_normal(DIM)]


def hash_of(id: str) -> int:
    return crc32(id.encode()) % 2**31


def small_folds() -> None:
    """Fold few at a time, so that a kill meets every step."""
    for name, value in {"FOLD_LEAST": 1, "FOLD_RECORDS": 3, "RECODE_PAGES": 1, "CENTRE_AT": (10, 40)}.items():
        setattr(vector_fold, name, value)


def add_for_ever(path: str, name: str) -> None:
    small_folds()
    asyncio.run(_add(path, name, None))


def add_some(path: str, name: str, count: int) -> None:
    small_folds()
    asyncio.run(_add(path, name, count))


async def _add(path: str, name: str, count: int | None) -> None:
    async with dgent.open(f"sqlite:///{path}") as u:
        faces = u.vectors("faces", dim=DIM)
        n = 0
        while count is None or n < count:
            id = f"{name}-{n:04}"
            await faces.add(vector_of(id), id)
            say(id)
            if n % 3 == 0:
                await u.backend.fill("vector.faces", u.contracts)
            if n % 5 == 0:
                found: Any = await faces.search(vector_of(id), 1)
                assert found[0].id == id, found
            n += 1
