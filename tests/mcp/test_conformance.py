"""The public conformance suite, where `make conformance` has brought it."""

from __future__ import annotations

from pathlib import Path

from tests.mcp import conformance
from tests.mcp.known_gaps import skip


def test_every_scenario_that_applies_passes(tmp_path: Path) -> None:
    suite = conformance.find_suite()
    if suite is None:
        skip("conformance")
    found = list(conformance.outcomes(suite, tmp_path))
    assert [each for each in found if not each[2]] == []
    assert len(found) >= 39
