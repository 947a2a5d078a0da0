"""The pictures of the studio in the docs show what it shows now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.studio.shots import FOLDER, PICTURES, compare, dump

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_the_pictures_are_fresh(browser: Browser) -> None:
    stale = compare(dump(browser))
    assert stale == [], "python -m tests.studio.shots makes them again:\n" + "\n".join(stale)


def test_the_pictures_are_small() -> None:
    sizes = {name: (FOLDER / f"{name}.png").stat().st_size for name in PICTURES.values()}
    assert max(sizes.values()) < 150_000, sizes
