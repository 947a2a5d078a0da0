"""A URL on each engine, and a saver there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dgent.bridges.langgraph import DgentSaver
from tests.contract.columns import READING


@pytest.fixture(params=READING, ids=lambda column: column.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.setting.url(tmp_path))


@pytest.fixture
def saver(url: str) -> Iterator[DgentSaver]:
    with DgentSaver(url) as made:
        yield made
