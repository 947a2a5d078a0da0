"""The pictures of the terminal are what the command line prints, and hold nothing but text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs import pages

SCREENS = sorted((pages.DOCS / "screens").glob("*.svg"))


def test_pictures_are_not_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(pages.DOCS / "screens.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_there_is_a_picture_of_each() -> None:
    names = {"status", "log", "diff", "doctor", "board", "trail", "block-history", "block-diff"}
    walks = {"walk-python", "walk-beads", "walk-agent"}
    assert {screen.stem for screen in SCREENS} == names | walks
    guides = [pages.DOCS / "guides" / name for name in ("command-line.md", "track-work.md")]
    text = "".join(guide.read_text(encoding="utf-8") for guide in guides)
    assert all(f"](../screens/{screen.name})" in text for screen in SCREENS if screen.stem in names)
    everywhere = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
    assert all(f"screens/{walk}.svg)" in everywhere for walk in walks)


@pytest.mark.parametrize("screen", SCREENS, ids=pages.name)
def test_a_picture_is_plain_text(screen: Path) -> None:
    text = screen.read_text(encoding="utf-8")
    kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert kinds == {"svg", "title", "rect", "g", "text"}
    assert re.findall(r"(?!sqlite:)\b\w+://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import|\son\w+=|/tmp/|\x1b", text)
    assert screen.stat().st_size < 20_000
