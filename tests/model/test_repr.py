"""Crystals, pages, diffs and trails show themselves: a short line at a prompt, escaped HTML in a notebook."""

from __future__ import annotations

import re
from dataclasses import dataclass

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard

EVIL = "<script>alert('x')</script>\n\"&"


@dataclass(frozen=True)
class Mark:
    action: str
    weight: int = 1


def check_html(text: str) -> None:
    """Nothing that was stored is a tag, and what is opened is closed."""
    assert "<script" not in text and "&lt;script&gt;" in text
    tags = re.findall(r"<(/?)(\w+)[^>]*>", text)
    assert {name for _, name in tags} <= {"table", "caption", "tr", "th", "td", "p", "pre", "span"}
    assert sum(not closes for closes, _ in tags) == sum(bool(closes) for closes, _ in tags)


async def test_a_crystal_is_one_short_line() -> None:
    async with dgent.open("memory:", author="scout") as u:
        u.register(dgent.Schema("witness.mark", contract=Mark))
        mark = await u.remember(Mark("ship it", 5), id="release")
        assert repr(mark) == "<Crystal witness.mark v1 'release' rev 1: Mark(action='ship it', weight=5)>"
        long = repr(await u.remember(Mark("x\n" * 5000)))
        assert len(long) < 220 and "\n" not in long and long.endswith("…>")


async def test_notebooks_get_escaped_html() -> None:
    async with dgent.open("memory:", author="scout") as u:
        u.register(dgent.Schema("witness.mark", contract=Mark))
        mark = await u.remember(Mark(EVIL), tags={EVIL})
        check_html(mark._repr_html_())
        page = await u.page(dgent.Query(schema="witness.mark", limit=1))
        check_html(page._repr_html_())
        check_html((await u.page(dgent.Query(), raw=True))._repr_html_())
        block = await Library(u, agent="scout").create("persona", text="plain")
        await block.append(EVIL)
        diff = (await block.diff(1, 2))._repr_html_()
        check_html(diff)
        assert "color:green" in diff
        cupboard = Cupboard(u)
        trail = await cupboard.start(EVIL, EVIL)
        await cupboard.abandon(trail, lesson=EVIL)
        check_html((await cupboard.lessons())[0]._repr_html_())


async def test_a_long_page_says_that_there_is_more() -> None:
    async with dgent.open("memory:") as u:
        for number in range(60):
            await u.put(dgent.Datum(str(number), data={"n": number}))
        text = (await u.page(dgent.Query(limit=None)))._repr_html_()
        assert text.count("<tr>") == 51 and "and 10 more" in text
        assert "there is more" in (await u.page(dgent.Query(limit=5)))._repr_html_()
