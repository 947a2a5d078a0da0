"""The chat page in a real browser: streamed answers, folded tools, consent, and text that stays text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.messages import Messages
from tests.scratch import find_memory
from tests.studio.browser import Watched
from tests.studio.conftest import Shown
from tests.studio.served import run, studio

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
SETTINGS = """
[agent.scout]
model = "script:{folder}/script.jsonl"
rules = [{{ rule = "consent", tools = ["remember"] }}]
[agent.critic]
model = "script:{folder}/critic.jsonl"
"""


def keep(text: str) -> dict[str, Any]:
    return {"calls": [{"name": "remember", "arguments": {"data": text}}]}


STEPS: list[Any] = [
    {"text": f"Hello {EVIL}. ", "calls": [{"name": "recall", "arguments": {"words": EVIL}}]},
    f"All of it {EVIL} is text.",
    keep("with consent"),
    "Kept with consent.",
    keep("refused"),
    "Then not.",
    {"text": "one two three", "pause_s": 300, "piece": 4},
]


async def fill(url: str) -> None:
    async with dgent.open(url, author="ann") as u:
        for name in ("scout", "critic"):
            await Library(u, name).agents.create(name)
        await Messages(u, "critic").add("user", f"from a stranger {EVIL}", trust="conversant", origin="chat")


@pytest.fixture(scope="module")
def shown(browser: Browser) -> Iterator[Shown]:
    with tempfile.TemporaryDirectory(prefix="dgent-test-", dir=find_memory()) as folder:
        url = f"sqlite:///{Path(folder) / 'chat.db'}"
        (Path(folder) / "dgent").mkdir()
        (Path(folder) / "dgent" / "config.toml").write_text(SETTINGS.format(folder=folder))
        (Path(folder) / "script.jsonl").write_text("\n".join(map(json.dumps, STEPS)))
        run(lambda: fill(url))
        with studio("--url", url, home=folder) as link:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(30_000)
            yield Shown(Watched(page, link), url)
            page.close()


def send(page: Page, text: str) -> None:
    page.get_by_label("Write to scout").fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_conversation(shown: Shown) -> None:
    """One test: the steps of the script come in order."""
    watched, page = shown.watched, shown.watched.page
    watched.problems.clear()
    watched.open("chat/scout")
    page.get_by_text("Nothing was said to scout yet.").wait_for()
    send(page, f"hello {EVIL}")
    page.get_by_text("is text.").wait_for()
    fold = page.locator("details.tool").first
    fold.wait_for()
    assert fold.get_attribute("open") is None, "tool calls are folded"
    assert "recall" in fold.inner_text()
    fold.locator("summary").click()
    assert page.locator("main img[onerror], main script").count() == 0
    page.locator("article.said", has_text=f"All of it {EVIL} is text.").wait_for()

    send(page, "keep it")
    page.get_by_text("scout (partner) wants to call remember").wait_for()
    page.get_by_role("button", name="Allow once").click()
    page.get_by_text("Kept with consent.").first.wait_for()
    send(page, "and this")
    page.get_by_role("button", name="Deny").click()
    page.get_by_text("Then not.").first.wait_for()

    send(page, "count")
    page.get_by_text("one", exact=True).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Send").wait_for()
    assert not watched.is_wider_than_the_window()

    watched.open("chat/critic")
    page.get_by_text("from a stranger").wait_for()
    page.locator("article .chip", has_text="conversant").wait_for()
    page.set_viewport_size({"width": 380, "height": 900})
    assert not watched.is_wider_than_the_window()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_label("Write to critic").fill("hello")
    page.keyboard.press("Enter")
    page.get_by_text("there is no script").wait_for()
    assert watched.problems == []
