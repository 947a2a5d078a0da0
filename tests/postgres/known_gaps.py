"""What these tests cannot check on some machines, and why. A skip that is not listed here is a bug."""

from __future__ import annotations

import pytest

GAPS = {
    "pgbouncer": "PgBouncer is not installed; it is in every distribution (apt-get install pgbouncer)",
    "root": "only root starts the server as another user, who may not enter every folder",
}


def skip(gap: str) -> None:
    """Skip for a listed reason. A missing Postgres is none: the server comes with the test extra."""
    pytest.skip(GAPS[gap])
