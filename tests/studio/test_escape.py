"""Whatever agents store is shown as text: nothing of it runs, and nothing of it becomes a part of a page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from tests.scratch import find_memory
from tests.studio.browser import Watched
from tests.studio.served import run, studio

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = "<script>window.ran=1</script><img src=x onerror='window.ran=1'><b class=evil>\"'&amp;"
URL = "javascript:window.ran=1"


async def store_everywhere(url: str) -> None:
    """Store HTML in all that a page shows."""
    async with dgent.open(url, author=EVIL) as u:
        for id, parent in ((EVIL, None), (URL, EVIL)):
            data = {EVIL: EVIL, "words": f"findme {EVIL}", "list": [EVIL, {EVIL: URL}]}
            datum = dgent.Datum(
                id,
                schema=EVIL,
                schema_version=1,
                data=data,
                tags=frozenset({EVIL}),
                author=EVIL,
                source=EVIL,
                parent_id=parent,
            )
            await u.put(datum, note=EVIL)
        await u.put(dgent.Datum(EVIL, schema=EVIL, schema_version=1, data={EVIL: "changed"}, author=EVIL))
        await u.associate(EVIL, URL, EVIL)
        library = Library(u, EVIL)
        block = await library.create(EVIL, text=f"findme {EVIL}\n", description=EVIL, kind="core")
        await block.append(EVIL, message=EVIL)
        await block.undo()
        await block.append(URL, message=EVIL)
        await Library(u, URL).create(URL, text=URL)
        await library.share(EVIL, with_agent=URL, permission="append")
        await library.archive(f"findme {EVIL}", tags=[EVIL])
        cupboard = Cupboard(u)
        lost = await cupboard.start(EVIL, EVIL)
        await cupboard.add(EVIL, trail=lost)
        await cupboard.abandon(lost, reason=EVIL, lesson=f"findme {EVIL}")
        trail = await cupboard.start(EVIL, EVIL)
        labels = {"description": EVIL, "labels": [EVIL], "owner": EVIL}
        first = await cupboard.add(f"findme {EVIL}", state="ready", properties=labels, trail=trail)
        await cupboard.add(EVIL, state="ready", parents=first)
        await cupboard.comment(first, EVIL)
        await cupboard.take_one(first.id, EVIL, lease_s=600)


PATHS = [
    "overview",
    "timeline",
    *(f"timeline/{seq}" for seq in range(1, 12)),
    f"timeline?author={quote(EVIL, safe='')}&schema={quote(EVIL, safe='')}",
    "memory",
    *(
        f"memory/{quote(EVIL, safe='')}/{quote(EVIL, safe='')}?tab={tab}"
        for tab in ("", "history", "tree", "sharing")
    ),
    f"memory/{quote(URL, safe='')}/{quote(URL, safe='')}",
    *(f"work/{tab}" for tab in ("board", "ready", "trails", "lessons", "graph")),
    "data",
    f"data/{quote(EVIL, safe='')}",
    f"data/{quote(EVIL, safe='')}?where={quote('words~=' + EVIL, safe='')}&tag={quote(EVIL, safe='')}",
    f"data/{quote(EVIL, safe='')}/{quote(EVIL, safe='')}",
    f"data/{quote(EVIL, safe='')}/{quote(URL, safe='')}",
    "search?q=findme",
    f"search?q={quote(EVIL, safe='')}",
    f"{quote(EVIL, safe='')}/{quote(EVIL, safe='')}",
]


def test_what_is_stored_is_shown_as_text(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="dgent-test-", dir=find_memory()) as folder:
        url = f"sqlite:///{Path(folder) / 'evil.db'}"
        run(lambda: store_everywhere(url))
        with studio("--url", url, "--agent", EVIL, home=folder) as link:
            page = browser.new_page()
            page.set_default_timeout(120_000)  # the machine may be busy
            watched = Watched(page, link)
            seen = 0
            for path in PATHS:
                watched.open(path)
                for each in page.locator("summary, .version").all()[:6]:
                    each.click()
                page.locator("main:not(:has([aria-busy]))").wait_for()
                seen += EVIL in (page.locator("main").inner_text() + page.title())
                assert page.locator("script:not([src]), .evil, [onerror], main img").count() == 0, path
                assert page.locator("a[href^='javascript:']").count() == 0, path
            for each in ("crumb", "trail"):
                watched.open("work/trails" if each == "trail" else "work/ready")
                page.locator("main .list a").first.click()
                page.locator("main:not([aria-busy]) h1", has_text="window.ran").wait_for()
            page.get_by_role("button", name="Abandon").click()
            page.locator("dialog").get_by_text("window.ran").first.wait_for()
            assert page.locator("dialog .evil").count() == 0
            assert page.evaluate("window.ran") is None
            assert seen > len(PATHS) / 2
            assert watched.problems == []
            page.close()
