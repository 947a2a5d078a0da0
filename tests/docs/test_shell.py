"""Every shell block that calls `dgent` runs, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.shell import Shell, alike, calls_dgent

WITH_SHELL = [page for page in pages.PAGES if any(map(calls_dgent, pages.blocks(page)))]
AGAIN = "if that is right, run `python -m tests.docs.shell` with this page"


@pytest.mark.parametrize("page", WITH_SHELL, ids=pages.name)
def test_shell_blocks_run(page: Path, tmp_path: Path) -> None:
    shell, seen = Shell(tmp_path), None
    for block in pages.blocks(page):
        if calls_dgent(block):
            code, seen = shell.run(block.text)
            assert code == 0, f"{pages.name(page)}:{block.line} ends with {code}\n{seen}"
        elif block.output_of == "sh" and seen is not None:
            assert alike(seen) == alike(block.text), (
                f"{pages.name(page)}:{block.line} prints\n{seen}\n{AGAIN}"
            )


def test_the_usual_pages_have_shell_blocks() -> None:
    names = {pages.name(page) for page in WITH_SHELL}
    assert {"README.md", "docs/start.md", "docs/guides/command-line.md"} <= names
