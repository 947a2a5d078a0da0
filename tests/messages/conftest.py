"""Messages of an agent, on every engine or on the quickest one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.messages import Messages
from dgent.store.registry import Engine
from tests.contract.columns import SETTINGS
from tests.universe.conftest import engine

__all__ = ["engine"]


@pytest.fixture
async def everywhere(engine: Engine, tmp_path: Path) -> AsyncIterator[Messages]:
    """Messages on each engine in turn."""
    async with dgent.open(SETTINGS[engine.name][0].url(tmp_path), author="scout") as u:
        yield Messages(u, "scout")


@pytest.fixture
async def messages() -> AsyncIterator[Messages]:
    """Messages in memory, for rules that are the same on all engines."""
    async with dgent.open("memory:", author="scout") as u:
        yield Messages(u, "scout")
