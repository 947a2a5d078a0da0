"""Makes docs/screens/studio*.png and studio.txt: `python -m tests.studio.shots`, or `--check` the text.

The real studio shows the story of these tests in Chromium, with the clocks of both stopped. Pixels differ
from machine to machine, so what is compared is the text of each page: a picture is stale when that is.
"""

from __future__ import annotations

import difflib
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.studio.browser import Watched, chromium
from tests.studio.served import run, studio
from tests.studio.story import END, tell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screens"
TEXT = FOLDER / "studio.txt"
HOME = "/home/ann/.local/share/dgent"
PICTURES = {"overview": "studio", "memory/scout/persona?tab=history": "studio-memory", "work": "studio-work"}
PAGES = (
    "overview",
    "timeline",
    "memory/scout",
    "memory/scout/persona?tab=history",
    "memory/scout/persona?tab=tree",
    "work",
    "work/ready",
    "work/graph",
    "data",
    "data/research.source",
    "data/witness.mark/ship",
    "search?q=ship+agents",
)


@contextmanager
def _story(browser: Browser) -> Iterator[Watched]:
    """Open the studio with the story, at the moment at which it ends."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/memory.db"
        run(lambda: tell(url))
        with studio("--url", url, moment=END, home=folder) as link:
            context = browser.new_context(
                viewport={"width": 1280, "height": 800}, timezone_id="UTC", locale="en", color_scheme="light"
            )
            page = context.new_page()
            page.clock.set_fixed_time(END)
            yield Watched(page, link)
            context.close()


def _show(watched: Watched, path: str) -> str:
    """Open a page, and return its text without what chance decides."""
    page = watched.open(path)
    page.locator("main:not(:has([aria-busy]))").wait_for()
    place = page.locator(".heading p", has_text="sqlite · ")
    if place.count():  # not where it happens to be
        place.evaluate(f"node => {{ node.textContent = 'sqlite · {HOME}/memory.db'; }}")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", page.locator("main").inner_text())
    text = re.sub(r"\bdg-\w{4}\b", "dg-ID", text)
    text = re.sub(r"\d+(\.\d)? [kM]B", "SIZE", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def dump(browser: Browser, pictures: bool = False) -> str:
    """Return the text of all pages; takes their pictures too, if that is wanted."""
    parts: list[str] = []
    with _story(browser) as watched:
        for path in PAGES:
            parts.append(f"== {path}\n{_show(watched, path)}\n")
            if pictures and path in PICTURES:
                watched.page.screenshot(path=FOLDER / f"{PICTURES[path]}.png")
        assert watched.problems == [], watched.problems
    return "\n".join(parts)


def compare(made: str) -> list[str]:
    """Return how a text differs from the one that is kept."""
    kept = TEXT.read_text() if TEXT.exists() else ""
    return list(difflib.unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm=""))


def main() -> int:
    """Make the pictures and the text, or check the text."""
    check = "--check" in sys.argv[1:]
    with chromium() as browser:
        made = dump(browser, pictures=not check)
    if check:
        print("\n".join(compare(made)))
        return bool(compare(made))
    TEXT.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
