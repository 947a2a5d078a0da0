"""What these tests cannot check on some machines, and why. A skip that is not listed here is a bug."""

from __future__ import annotations

import os

import pytest

GAPS = {
    "mount": "a full disk is made by mounting a small tmpfs, which needs root and the right to mount",
    "setuid": "a file one may not write is looked at as another user, which only root can become",
}


def skip(gap: str) -> None:
    """Skip for a listed reason; as root in CI everything must run."""
    if os.environ.get("CI") and os.getuid() == 0:
        pytest.fail(f"this must run in CI: {GAPS[gap]}")
    pytest.skip(GAPS[gap])
