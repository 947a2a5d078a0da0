"""The suite as a stranger uses it: the snippet in `dgent.testing` runs, and finds a broken engine."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import dgent.testing

ENGINE = """
from dgent.store.memory.backend import MemoryBackend

class MyBackend(MemoryBackend):
    def __init__(self, path):
        super().__init__()
"""
BROKEN = """
    async def get(self, id, as_of=None, lazy=False):
        found = await super().get(id, as_of, lazy)
        return found and found.replace(tags=frozenset())
"""
GAPS = """
import pytest

def test_skipped():
    pytest.skip("because")
"""


def _snippet() -> str:
    """The code in the package's docstring: every indented line of it."""
    lines = (dgent.testing.__doc__ or "").splitlines()
    code = textwrap.dedent("\n".join(line for line in lines if not line or line.startswith("    ")))
    return code.replace("persistent = True ", "persistent = False")


def _run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    settings = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    options = ["-q", "-W", "error", *(part for setting in settings for part in ("-o", setting)), *args]
    source = str(Path(dgent.testing.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(Path(__file__).parents[2])])}
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_stranger_runs_the_suite_and_it_finds_his_bug(tmp_path: Path) -> None:
    (tmp_path / "test_my_engine.py").write_text(_snippet())
    (tmp_path / "my_engine.py").write_text(ENGINE)
    done = _run(tmp_path, "-k", "BasicContract or VersionContract")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    (tmp_path / "my_engine.py").write_text(ENGINE + BROKEN)
    done = _run(tmp_path, "-k", "TestBasicContract and as_it_was")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout


def test_a_skip_without_a_row_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.contract.conftest import *\n")
    (tmp_path / "test_gap.py").write_text(GAPS)
    done = _run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "known_gaps.py" in done.stdout
