"""What these tests cannot check on some machines, and why. A skip that is not listed here is a bug."""

from __future__ import annotations

import os

import pytest

GAPS = {
    "pgbouncer": "PgBouncer is not installed; it is in every distribution (apt-get install pgbouncer)",
}


def skip(gap: str) -> None:
    """Skip for a listed reason; in CI everything must run."""
    if os.environ.get("CI"):
        pytest.fail(f"this must run in CI: {GAPS[gap]}")
    pytest.skip(GAPS[gap])
