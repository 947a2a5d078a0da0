"""The command line with a cupboard that is still empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.cupboard.cli.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A cupboard in an empty home."""
    made = Shelf(Terminal(tmp_path / "home", monkeypatch))
    assert made("cupboard", "init").code == 0
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], Shelf]]:
    """A cupboard in a folder of text files, and how to come to it anew."""
    path = tmp_path / "data"
    terminal = Terminal(tmp_path / "home", monkeypatch)
    return path, lambda: Shelf(terminal, f"jsonl:{path}")
