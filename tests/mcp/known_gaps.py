"""What is not tested on every machine, and why. A skip that is not listed here is a bug."""

from __future__ import annotations

from typing import NoReturn

import pytest

GAPS = {
    "conformance": "the conformance suite is not here; `make conformance` brings it with npm",
}
"""A name -> why."""


def skip(gap: str) -> NoReturn:
    """Skip the test for the reason in the table."""
    pytest.skip(GAPS[gap])
