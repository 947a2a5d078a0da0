"""Markdown that arrives in pieces: shown at once as plain text, and drawn when a block of it is whole.

Whoever wrote it may be hostile, so control characters are escaped first, and links show where they lead.
"""

from __future__ import annotations

import html
import io
import os
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

from dgent.doors.cli.style import clean

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LINES = re.compile(r"([\n\t])")
_ENTITY = re.compile(r"&#?\w{1,32};?")
MAX_LINE = 8_000  # characters of one line that are kept for drawing it


def clean_lines(text: str) -> str:
    """Escape control characters except for line ends; a tab becomes spaces."""
    parts = _LINES.split(text.replace("\r\n", "\n"))
    return "".join("\n" if part == "\n" else "    " if part == "\t" else clean(part) for part in parts)


class MarkdownStream:
    """Writes markdown to a terminal as it arrives; `draw` off leaves it as plain text.

    The plain text of a block is replaced once the block is whole, unless it does not fit on the screen.
    """

    def __init__(
        self, write: Callable[[str], object], size: Callable[[], os.terminal_size], *, draw: bool = True
    ) -> None:
        self._write, self._size, self._draw = write, size, draw and find_drawing() is not None
        self._block = ""  # the block that is being written, while it may be drawn
        self._line = ""  # its last line, as far as it came
        self._fence = ""  # what closes the code that is being written
        self._rows, self._column = 0, 0  # of the plain text on the screen
        self._held = ""  # half of a line end
        self.is_empty = True

    def add(self, text: str) -> None:
        """Write a piece."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = clean_lines(text[: len(text) - len(self._held)])
        if not self._draw:
            self._write(text)
            self._column = len(text) - (text.rfind("\n") + 1) or (self._column if "\n" not in text else 0)
        else:
            for line in text.splitlines(keepends=True):
                self._add_line(line)
        self.is_empty = self.is_empty and not text

    def close(self) -> None:
        """End the text: draw what is left, and end its line."""
        if self._held:
            self._held = ""
            self.add("\\r")
        if self._draw and self._block:
            self._finish_block()
        elif self._column:
            self._write("\n")
        self._column = 0

    def _add_line(self, text: str) -> None:
        """Write a piece without a line end, or with one at its end."""
        if self._block or text.strip():
            if self._rows < self._size().lines:  # what does not fit on the screen is never drawn
                self._block += text
            self._line = (self._line + text)[:MAX_LINE]
            self._write_plain(text)
        if text.endswith("\n"):
            line, self._line = self._line.rstrip(), ""
            if self._closes_block(line) and self._block:
                self._finish_block()

    def _closes_block(self, line: str) -> bool:
        found = _FENCE.match(line)
        if self._fence:
            if found and found[1].startswith(self._fence) and line.strip() == found[1]:
                self._fence = ""
                return True
            return False
        if found:
            self._fence = found[1]
            return False
        return not line

    def _write_plain(self, text: str) -> None:
        """Write text, with line ends where the screen ends, so that its rows can be counted."""
        columns = max(self._size().columns - 1, 10)
        out = []
        for letter in text:
            if letter == "\n":
                self._rows, self._column = self._rows + 1, 0
            else:
                wide = _width(letter)
                if self._column + wide > columns:
                    out.append("\n")
                    self._rows, self._column = self._rows + 1, 0
                self._column += wide
            out.append(letter)
        self._write("".join(out))

    def _finish_block(self) -> None:
        """Replace the plain text of a block by its drawing."""
        block, rows, size = self._block, self._rows, self._size()
        self._block, self._rows = "", 0
        if rows >= size.lines - 1:
            # Its beginning has left the screen and cannot be replaced.
            if self._column:
                self._write("\n")
            self._column = 0
            return
        self._column = 0
        up = f"\x1b[{rows}A" if rows else ""
        self._write(f"\r{up}\x1b[J{draw_markdown(block, size.columns)}\n")


def _width(letter: str) -> int:
    if letter.isascii():
        return 1
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


@cache
def find_drawing() -> Any:
    """Return the classes that draw markdown, which load late; None where rich is not installed."""
    try:
        from rich.console import Console
        from rich.markdown import Markdown
    except ImportError:
        return None
    return Console, Markdown


def _disarm(entity: re.Match[str]) -> str:
    """Keep an entity that stands for a control character as it is written."""
    letter = html.unescape(entity[0])
    return entity[0] if clean(letter) == letter else f"&amp;{entity[0][1:]}"


def draw_markdown(text: str, columns: int) -> str:
    """Return markdown as styled lines; the text must be clean already."""
    console, markdown = find_drawing()
    out = io.StringIO()
    text = _ENTITY.sub(_disarm, text)
    terminal = console(file=out, width=columns, force_terminal=True, color_system="standard", emoji=False)
    # A link that shows only its text could lead anywhere.
    terminal.print(markdown(text, hyperlinks=False))
    return out.getvalue()
