"""Text for a terminal: colours, columns, relative times; control characters are escaped."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import click

from dgent import clock

# Characters that move the cursor, hide text or turn its direction: escaped, never sent.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_STYLED = re.compile("\x1b\\[[0-9;]*m")
ENDLESS = 1_000_000
_STEPS = ((60, 1, "second"), (3600, 60, "minute"), (86400, 3600, "hour"), (86400 * 30, 86400, "day"))


def clean(text: str) -> str:
    """Escape control characters."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def terminal_size() -> os.terminal_size:
    """Return the columns and lines of the terminal; 100 and 24 where there is none."""
    import shutil  # loads every compressor, and many answers need no size

    return shutil.get_terminal_size((100, 24))


class Paint:
    """Styles text in colour on a terminal, and leaves it plain elsewhere."""

    def __init__(
        self, color: bool, width: int | None = None, sided: bool = False, terminal: bool = False
    ) -> None:
        self.color, self.sided, self.terminal = color, sided, terminal
        self._width = width

    @cached_property
    def width(self) -> int:
        """Return the columns there are to draw in; a pipe has no end, unless COLUMNS gives it one."""
        if self._width is None and not self.terminal and not os.environ.get("COLUMNS"):
            return ENDLESS
        return self._width or terminal_size().columns

    def __call__(self, text: object, **style: Any) -> str:
        """Return text in a style, with control characters escaped."""
        plain = clean(str(text))
        return click.style(plain, **style) if style and self.color and plain else plain

    def dim(self, text: object) -> str:
        """Return dimmed text."""
        return self(text, dim=True)

    def bold(self, text: object) -> str:
        """Return bold text."""
        return self(text, bold=True)


def ago(moment: datetime) -> str:
    """Return a past time in words: 2 hours ago."""
    seconds = (clock.now() - moment).total_seconds()
    if seconds < 0:
        return "in the future"
    if seconds < 5:
        return "just now"
    for below, unit, name in _STEPS:
        if seconds < below:
            number = int(seconds // unit)
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return f"{moment:%Y-%m-%d}"


def until(moment: datetime) -> str:
    """Return a future time in words: for 2 hours."""
    seconds = (moment - clock.now()).total_seconds()
    if seconds <= 0:
        return f"until {ago(moment)}"
    for below, unit, name in ((90, 1, "second"), (5400, 60, "minute"), (172800, 3600, "hour")):
        if seconds < below:
            return f"for {many(round(seconds / unit), name)}"
    return f"until {moment:%Y-%m-%d %H:%M} UTC"


def size(number: int) -> str:
    """Return a number of bytes with a unit: 1.2 MB."""
    amount = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def many(number: int, noun: str) -> str:
    """Return a number with its noun: 1 record, 2 records."""
    plural = f"{noun}es" if noun.endswith(("s", "sh", "ch", "x")) else f"{noun}s"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else plural
    return f"{number:,} {noun if number == 1 else plural}"


def width(text: str) -> int:
    """Return how many columns a text takes."""
    plain = _STYLED.sub("", text)
    if plain.isascii():
        return len(plain)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in plain)
    return len(plain) + wide - sum(unicodedata.combining(letter) > 0 for letter in plain)


def cut(text: str, most: int) -> str:
    """Shorten a text to at most so many columns, on one line."""
    line = " ".join(text.split())
    if width(line) <= most:
        return line
    kept = line[: max(most - 3, 0)]
    while kept and width(kept) > most - 3:
        kept = kept[:-1]
    return kept + "..."


def fit(text: str, exactly: int) -> str:
    """Shorten or pad a text to exactly so many columns; keeps its indent."""
    indent = text[: len(text) - len(text.lstrip())]
    shown = indent + cut(text, exactly - len(indent))
    return shown + " " * (exactly - width(shown))


def table(paint: Paint, heads: Sequence[str], rows: Sequence[Sequence[str]], last: int = 0) -> list[str]:
    """Format rows in columns that fit the width: ids shrink first, then other wide ones.

    The column numbered `last` from the end, which has the name or the text, shrinks when all others have.
    """
    if not rows:
        return []
    widths = [max(width(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    flexible = len(heads) - 1 - last
    ids = [place for place, head in enumerate(heads) if head in IDS and place != flexible]
    others = [place for place in range(len(heads)) if place != flexible and place not in ids]
    order = [*((place, SHORT_ID) for place in ids), *((place, NARROW) for place in others), (flexible, 12)]
    over = sum(widths) + 2 * (len(heads) - 1) - paint.width
    for place, least in order:
        shrunk = max(min(widths[place], least), widths[place] - max(over, 0))
        over -= widths[place] - shrunk
        widths[place] = shrunk
    return [_line([paint.dim(head) for head in heads], widths), *(_line(row, widths) for row in rows)]


IDS = ("id", "from", "to", "crumb", "commit")
SHORT_ID, NARROW = 11, 18  # the least that ids and other columns are shortened to


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = [_cut_styled(cell, most) for cell, most in zip(cells, widths, strict=True)]
    return "  ".join(
        part + " " * (most - width(part)) for part, most in zip(parts, widths, strict=True)
    ).rstrip()


def _cut_styled(text: str, most: int) -> str:
    """Shorten a text that may have one style, which ends where it ends."""
    if width(text) <= most:
        return text
    plain = _STYLED.sub("", text)
    styles = _STYLED.findall(text)
    shown = cut(plain, most)
    return f"{styles[0]}{shown}{styles[-1]}" if len(styles) > 1 and text.startswith(styles[0]) else shown
