"""A universe with blobs on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.store.registry import ENGINES
from dgent.universe import blob as module
from dgent.universe.blob import BlobStore, open_blobs
from tests.contract.columns import SETTINGS


@pytest.fixture(params=[*(engine.name for engine in ENGINES), "files"])
def url(request: pytest.FixtureRequest, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine; SQLite keeps small contents in records, and once more all of them in files."""
    if request.param == "files":
        monkeypatch.setattr(module, "MOST_BYTES", 0)
    return SETTINGS["sqlite" if request.param == "files" else request.param][0].url(store_path)


@pytest.fixture
async def u(url: str) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(url, author="scout") as universe:
        yield universe


@pytest.fixture
async def blobs(u: dgent.Universe) -> BlobStore:
    return open_blobs(u)


@pytest.fixture(params=["records", "files"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where an SQLite store keeps small contents."""
    if request.param == "files":
        monkeypatch.setattr(module, "MOST_BYTES", 0)
    return str(request.param)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[BlobStore]:
    """Blobs of an SQLite file."""
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}", durability="relaxed") as universe:
        yield open_blobs(universe)
