"""A universe with blobs on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.store.registry import ENGINES
from dgent.universe.blob import BlobStore, open_blobs
from tests.contract.columns import SETTINGS


@pytest.fixture(params=[engine.name for engine in ENGINES])
def url(request: pytest.FixtureRequest, store_path: Path) -> str:
    return SETTINGS[request.param][0].url(store_path)


@pytest.fixture
async def u(url: str) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(url, author="scout") as universe:
        yield universe


@pytest.fixture
async def blobs(u: dgent.Universe) -> BlobStore:
    return open_blobs(u)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[BlobStore]:
    """Blobs in files, for tests of what only files can suffer."""
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}", durability="relaxed") as universe:
        yield open_blobs(universe)
