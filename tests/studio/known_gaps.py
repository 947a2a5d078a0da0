"""What these tests cannot check on some machines, and why. A skip that is not listed here is a bug."""

from __future__ import annotations

import pytest

GAPS = {
    "chromium": "Chromium is not installed; Debian and Ubuntu have it (apt-get install chromium)",
}


def skip(gap: str) -> None:
    """Skip for a listed reason."""
    pytest.skip(GAPS[gap])
