"""SQLAlchemy's own suite for dialects, on the dialect of dgent, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.soak import SOAK

FOLDER = Path(__file__).parent / "dialect"
ROOT = FOLDER.parents[2]
# Reflection of many tables at once is the same calls again, in 680 combinations.
SHORT = [] if SOAK > 1 else ["-k", "not multi and not test_metadata"]
PASSED, EXCLUDED = (777, 18) if SOAK > 1 else (477, 16)


def test_the_dialect_passes_the_suite_of_sqlalchemy(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-rs",
        *SHORT,
        "-c",
        str(FOLDER / "setup.cfg"),
    ]
    places = ["--rootdir", str(FOLDER), "--confcutdir", str(FOLDER), "--dburi", "sqlite+dgent:///suite.db"]
    found = subprocess.run(
        [*command, *places, str(FOLDER / "suite.py")],
        cwd=tmp_path,  # the suite leaves its files where it runs
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
    counts = {
        name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|skipped)", found.stdout)
    }
    assert counts["passed"] >= PASSED and "failed" not in counts
    excluded = re.findall(r"SKIPPED \[(\d+)\].*: excluded: ", found.stdout)
    assert sum(map(int, excluded)) == EXCLUDED
