"""The runner of the tests: every test is run and reported once, whatever happens to its process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import os, sys
import pytest

@pytest.fixture(scope="module")
def made():
    print("made", file=sys.__stdout__)
    yield
    open("ended", "a").write("x")

@pytest.mark.parametrize("n", range(30))
def test_n(n, made):
    if n == 7:
        os._exit(0)
    if n == 11:
        os.kill(os.getpid(), 9)
    print(f"printed by {n}")
    assert n != 20

def test_skip():
    pytest.skip("for a reason")
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Run the tests above by the runner; its exit code, and what it prints."""
    (folder / "conftest.py").write_text("from tests.parallel import pytest_addoption, pytest_runtestloop\n")
    (folder / "test_it.py").write_text(TESTS)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "DGENT_"))}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    done = subprocess.run(
        words, cwd=folder, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("forks", ["1", "3"])
def test_each_is_reported_once(forks: str, tmp_path: Path) -> None:
    code, shown = run(tmp_path, "--forks", forks)
    assert code == 1
    assert "3 failed, 27 passed, 1 skipped" in shown
    assert re.search(r"test_n\[7\] - the process of the test ended with 0", shown)
    assert re.search(r"test_n\[11\] - the process of the test ended with -9", shown)
    assert "printed by 20" in shown and "printed by 19" not in shown  # only what a failed one printed
    # Once in each process that came to its end.
    assert 1 <= len((tmp_path / "ended").read_text()) <= int(forks)


def test_the_first_failure_ends_it(tmp_path: Path) -> None:
    code, shown = run(tmp_path, "--forks", "2", "-x", "--deselect", "test_it.py::test_n[7]", "-k", "not 11")
    assert code == 2 or code == 1
    assert "1 failed" in shown and "stopping after 1 failures" in shown


def test_a_test_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    code, shown = run(tmp_path, "--forks", "2")
    assert code == 2
    assert "1 error" in shown and "passed" not in shown
