"""The guide and the example, which run where ADK is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.test_examples import test_example_runs as run_example


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(pages.DOCS / "guides/google-adk.md")


def test_the_example_runs(tmp_path: Path) -> None:
    run_example(pages.ROOT / "examples/google_adk.py", tmp_path)
