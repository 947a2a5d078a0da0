"""A headless Chromium, and a page that notes what it must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium with a folder of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page whose errors, dialogs and requests are noted."""

    def __init__(self, page: Page, link: str) -> None:
        self.page, self.problems = page, list[str]()
        self.base = "http://" + urlsplit(link).netloc
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", self._note_dialog)
        page.on("request", self._note_request)
        page.goto(link)
        page.locator("main h1").wait_for()

    def _note_console(self, message: Any) -> None:
        # A refused call is in the console too, whatever the page makes of it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"console: {message.text}")

    def _note_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "about:")):
            self.problems.append(f"request: {request.url}")

    def open(self, path: str) -> Page:
        """Open a page of the studio, and wait until it is drawn."""
        self.page.goto(f"{self.base}/#/{path}")
        self.page.locator("main:not([aria-busy]) h1").wait_for()
        return self.page

    def is_wider_than_the_window(self) -> bool:
        """Return whether one must scroll to the side."""
        found: bool = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return found
