"""The badge of a low origin, in a real browser: on every page that shows a stranger's words."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dgent
from dgent.blocks import Library
from dgent.messages import Messages, Part
from dgent.universe.gate import Principal
from tests.scratch import find_memory
from tests.studio.browser import Watched
from tests.studio.served import run, studio

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = "untrusted <b class=evil onclick=alert(1)>page</b>"


async def fill(url: str) -> None:
    """Store words of the partner and of a stranger."""
    async with dgent.open(url, author="ann") as u:
        await Library(u, "scout").create("plain", text="lighthouse of the partner")
        await Library(u, "scout").create("notes", text="mine")
        stranger: dict[str, Any] = {"schema": "note", "schema_version": 1}
        await u.put(dgent.Datum("own", data={"text": "mine"}, **stranger))
        eve = u.acting(Principal("eve", "conversant"))
        await eve.put(dgent.Datum("hers", data={"text": "lighthouse"}, source=EVIL, **stranger))
        await eve.put(dgent.Datum("found", data={"text": "lighthouse"}))
        scout = Library(u.acting(Principal("scout", "conversant")), "scout", trust="conversant")
        await (await scout.get("notes")).append("lighthouse")
        batch = await Messages(u, "scout").begin()
        await batch.add("user", "read it", by="ann")
        await batch.add("assistant", [Part("tool_call", call="c1", name="fetch", arguments={})])
        await batch.add_result("c1", EVIL, trust="untrusted", origin="tool fetch")
        await batch.complete()


PAGES = {
    "search?q=lighthouse": ["origin: conversant"] * 2,
    "data/note": ["origin: conversant"],
    "data/note/hers": ["origin: conversant"] * 2,  # the record and its one version
    "data/note/own": [],
    "memory/scout/notes": ["origin: conversant"] * 2,  # in the list and above the text
    "memory/scout/plain": ["origin: conversant"],  # in the list alone
    "chat/scout": ["origin: untrusted"],
}


def test_a_stranger_s_words_have_a_badge(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="dgent-test-", dir=find_memory()) as folder:
        url = f"sqlite:///{Path(folder) / 'a.db'}"
        run(lambda: fill(url))
        with studio("--url", url, home=folder) as link:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            watched = Watched(page, link)
            for path, badges in PAGES.items():
                watched.open(path)
                page.locator("main h1").first.wait_for()
                if badges:
                    page.locator("main .chip.origin").first.wait_for()
                assert page.locator("main .chip.origin").all_inner_texts() == badges, path
                assert page.locator(".evil").count() == 0 and not watched.is_wider_than_the_window()
            watched.open("timeline")
            page.locator("main .chip.origin").first.wait_for()
            assert set(page.locator("main .chip.origin").all_inner_texts()) >= {"origin: conversant"}
            page.close()
            assert watched.problems == []
