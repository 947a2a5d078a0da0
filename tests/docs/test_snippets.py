"""Every Python block in the README and the docs runs, and prints what the page says it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages
from tests.postgres.lease import url_for

WITH_CODE = [page for page in pages.PAGES if any(b.info == "python" for b in pages.blocks(page))]
KNOWN_FENCES = {"python", "python fragment", "text", "sh", "sql"}
FRAGMENTS = 4  # how many blocks of all pages together may be there without being run


@pytest.mark.parametrize("page", WITH_CODE, ids=pages.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "DATABASE_URL" in page.read_text(encoding="utf-8"):
        monkeypatch.setenv("DATABASE_URL", url_for(tmp_path))
    pages.run(page)


def test_fences_are_known_and_fragments_are_rare() -> None:
    found = [(page, block) for page in pages.PAGES for block in pages.blocks(page)]
    unknown = [f"{pages.name(page)}:{b.line} {b.info!r}" for page, b in found if b.info not in KNOWN_FENCES]
    assert not unknown
    fragments = [(page, block) for page, block in found if block.info == "python fragment"]
    assert len(fragments) <= FRAGMENTS
    for page, block in fragments:
        pages.compiled(page, block)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="that prompt takes blocks only from a terminal")
@pytest.mark.parametrize("page", [pages.README, pages.DOCS / "start.md"], ids=pages.name)
def test_page_can_be_pasted_into_the_asyncio_prompt(page: Path, tmp_path: Path) -> None:
    code = "\n\n".join(block.text for block in pages.blocks(page) if block.info == "python")
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=code + "\n\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(pages.ROOT / "src")},
        timeout=180,
    )
    # The prompt goes on after an error, so the exit code says nothing.
    assert "Error" not in done.stderr, done.stderr
    assert done.returncode == 0
