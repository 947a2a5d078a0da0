"""The test file in the guide for authors of engines works as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs import pages

ENGINE = """
from dgent.store.sqlite.backend import SQLiteBackend

class MyBackend(SQLiteBackend):
    def __init__(self, place):
        super().__init__(str(place))
"""
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def test_the_guides_test_file_runs(tmp_path: Path) -> None:
    guide = pages.DOCS / "guides" / "write-an-engine.md"
    file = next(block for block in pages.blocks(guide) if block.info == "python fragment")
    (tmp_path / "test_my_engine.py").write_text(file.text, encoding="utf-8")
    (tmp_path / "my_engine.py").write_text(ENGINE, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    # One contract is enough here: the others run over our own engines in tests/contract.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "TestBasicContract"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(pages.ROOT / "src"), str(tmp_path)])},
        timeout=180,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
