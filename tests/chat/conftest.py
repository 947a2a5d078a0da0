from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat.talk import Talk, Talker


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talker]:
    """Begins chats in a home of their own, and ends those that a test leaves behind."""
    talker = Talker(tmp_path, monkeypatch)
    yield talker
    talker.close()


__all__ = ["Talk", "talk"]
