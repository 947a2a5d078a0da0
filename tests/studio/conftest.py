"""A browser, and a studio to look at."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.scratch import find_memory
from tests.studio.known_gaps import GAPS, skip
from tests.studio.served import run, studio
from tests.studio.story import tell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.studio.browser import Watched


# Not for the session: while it runs, its event loop is that of the thread, and no other can run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; its tests are skipped where there is none."""
    from tests.studio.browser import CHROMIUM, chromium

    if CHROMIUM is None:
        skip("chromium")
    with chromium() as started:
        yield started


class Shown(NamedTuple):
    """A studio with a page that is open, and the store that it shows."""

    watched: Watched
    url: str


@pytest.fixture(scope="module")
def shown(browser: Browser) -> Iterator[Shown]:
    """A studio over a store that looks lived in; the tests of a file share it."""
    from tests.studio.browser import Watched

    with tempfile.TemporaryDirectory(prefix="dgent-test-", dir=find_memory()) as folder:
        url = f"sqlite:///{Path(folder) / 'story.db'}"
        run(lambda: tell(url))
        with studio("--url", url, home=folder) as link:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(120_000)  # the machine may be busy
            yield Shown(Watched(page, link), url)
            page.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that the table does not explain into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if not any(gap in reason for gap in GAPS.values()):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped without a row in tests/studio/known_gaps.py"
    return report
