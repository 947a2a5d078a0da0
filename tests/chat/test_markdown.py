"""Markdown in a terminal: drawn by blocks, never longer than it is, and harmless whoever wrote it."""

from __future__ import annotations

import os
import re

import pytest

from dgent.doors.cli.markdown import MarkdownStream, clean_lines, draw_markdown

STYLE = re.compile(r"\x1b\[[0-9;]*m")
MOVES = re.compile(r"\r(?:\x1b\[\d+A)?\x1b\[J")

HOSTILE = [
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b]8;;http://evil.example\x1b\\safe\x1b]8;;\x1b\\",
    "\x9b31mred",
    "back\x08\x08\x08\x08space",
    "over\rwritten",
    "&#27;[2J",
    "&#x1b;]0;title&#7;",
    "&#X9B;31m",
    "`&#27;[2J`",
    "turned \u202egnp.exe",
    "```\n\x1b[2J\n```",
    "[text](javascript:alert(1))",
    "\ud800",
]


def stream(text: str, size: tuple[int, int] = (60, 24), step: int = 3, draw: bool = True) -> str:
    out: list[str] = []
    made = MarkdownStream(out.append, lambda: os.terminal_size(size), draw=draw)
    for start in range(0, len(text), step):
        made.add(text[start : start + step])
    made.close()
    return "".join(out)


def screen_of(written: str) -> list[str]:
    """What a terminal shows after all this was written: lines, replaced where the stream went back."""
    rows = [""]
    for part in re.split(r"(\r(?:\x1b\[\d+A)?\x1b\[J|\n)", STYLE.sub("", written)):
        if part == "\n":
            rows.append("")
        elif MOVES.fullmatch(part):
            up = int((re.findall(r"\d+", part) or ["0"])[0])
            assert up < len(rows), "went back above the beginning"
            rows = [*rows[: len(rows) - 1 - up], ""]
        else:
            rows[-1] += part
    return [row.rstrip() for row in rows]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("draw", [True, False])
def test_control_characters_do_nothing(text: str, step: int, draw: bool) -> None:
    written = stream(text, step=step, draw=draw)
    left = STYLE.sub("", MOVES.sub("", written))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", left), written


def test_blocks_are_drawn_when_they_are_whole() -> None:
    written = stream("# Title\n\nSome **bold** text.\n\n```python\nprint(1)\n\nprint(2)\n```\n- one\n- two")
    shown = screen_of(written)
    assert [row.strip() for row in shown if row] == [
        *("Title", "Some bold text."),
        *("print(1)", "print(2)", "• one", "• two"),
    ]
    assert written.index("Some **bold**") < written.rindex("bold"), "it was shown before it was drawn"


def test_a_link_shows_where_it_leads() -> None:
    assert "http://evil.example" in draw_markdown("[your bank](http://evil.example)", 80)


def test_what_does_not_fit_on_the_screen_stays_as_it_came() -> None:
    words = "word " * 400
    written = stream(f"{words}\n\n**end**", size=(40, 10))
    assert "\x1b[1A" not in written.partition("**end**")[0]
    rows = screen_of(written)
    assert "".join(rows).replace(" ", "") == "word" * 400 + "end"


@pytest.mark.parametrize(
    "text", ["日本語の長い文章です。" * 12, "e\u0301" * 200, "a" * 119, "a" * 59, "a" * 60]
)
def test_rows_are_counted_as_the_terminal_does(text: str) -> None:
    rows = screen_of(stream(f"before\n\n{text}\n\nafter"))
    assert rows[0] == "before"
    assert [row for row in rows if row][-1] == "after"
    plain = "".join(rows[1:]).removesuffix("after").replace(" ", "")
    assert plain == text


def test_a_huge_answer_is_passed_on_in_linear_time() -> None:
    out = stream("x" * 400_000, step=5)
    assert out.count("x") == 400_000


def test_line_ends_of_any_kind() -> None:
    assert clean_lines("a\r\nb\tc") == "a\nb    c"
    assert [row for row in screen_of(stream("a\r\nb\r\n\r\nc\r", step=1)) if row] == ["a b", "c\\r"]
