"""The examples and the demo run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs import pages

LIMIT_S = 120  # a busy machine is slow; what hangs takes for ever


DEMO = ("-c", "from dgent.doors.cli.main import main; main()", "demo")


def _run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(pages.ROOT / "src"), **environment},
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize("example", sorted({*pages.EXAMPLES} - pages.APART), ids=pages.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, str(example))
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_demo_tells_the_whole_story_without_colour(tmp_path: Path) -> None:
    started = time.monotonic()
    done = _run(tmp_path, *DEMO, HOME=str(tmp_path), NO_COLOR="1")
    assert time.monotonic() - started < LIMIT_S
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    for word in ("Remember", "Recall", "Steps 1 -> 2 -> 3", "VersionConflict", "Undo", "Forget", "checked"):
        assert word in done.stdout
    # All three promises, and one search over them.
    for line in (
        "rolled back to version 2 -> I answer briefly. I ask first.",
        "the lesson -> a cache does not",
        "scout -> Yes: an index on dates does not help",
    ):
        assert line in done.stdout
    assert all(f"{kind} -> " in done.stdout for kind in ("record", "block", "crumb", "lesson"))
    connect, see = done.stdout.splitlines()[-2:]
    assert connect.startswith("Connect an agent: dgent mcp install")
    assert see.endswith("dgent studio")


def test_every_example_is_named_in_the_docs() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
    assert all(pages.name(example) in text for example in pages.EXAMPLES)
