"""Folders on the disk: what it does, and when it is waited for, is the matter of these tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def memory() -> None:
    """Nowhere in memory."""
