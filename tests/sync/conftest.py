"""A universe of each engine, for blocking code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dgent import sync
from dgent.sync import runner
from tests.cupboard.conftest import frozen
from tests.sync.marks import MARK

__all__ = ["frozen"]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a universe is kept."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/u.db"


@pytest.fixture
def u(place: str) -> Iterator[sync.Universe]:
    """An open universe that knows marks."""
    with sync.open(place, author="scout") as universe:
        universe.register(MARK)
        yield universe


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not been warned yet."""
    monkeypatch.setattr(runner, "_warned", False)
