from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def dgent_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The command line with an empty home."""
    return Terminal(tmp_path / "home", monkeypatch)
