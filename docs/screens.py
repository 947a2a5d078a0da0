"""Makes the pictures in docs/screens/ by running `dgent`: `python docs/screens.py`, or `--check` them.

The real command line runs in an empty home, in colour, with its clock stopped at given moments. What it
prints becomes SVG: plain text in boxes of fixed width, so that it looks the same with any font. Two runs
give the same bytes, because what no clock decides (a random id, free space, versions) is replaced.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent / "screens"
COLUMNS = 100

# The clock of one call: 2026-03-02, 09:00 UTC, and so many minutes.
RUN = """
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from dgent import clock, ids
moment = datetime(2026, 3, 2, 9, tzinfo=UTC) + timedelta(minutes=int(sys.argv.pop(1)))
clock.now = lambda: moment
clock.now_us = lambda: clock.to_us(moment)
ids.time = SimpleNamespace(time_ns=lambda: clock.to_us(moment) * 1000)
from dgent.doors.cli.main import main
main()
"""

MARK = ("--schema", "witness.mark", "--id")
STORY: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("--agent", "ann", "remember", "Use SQLite for the store", "--id", "choice", "-t", "decision")),
    (50, ("remember", '{"action": "ship it", "weight": 5}', *MARK, "release", "-t", "release")),
    (65, ("remember", '{"action": "wait a day", "weight": 2}', *MARK, "wait", "--parent", "release")),
    (
        130,
        (
            "remember",
            '{"action": "ship it", "weight": 8, "because": ["tests pass", "ann agrees"]}',
            *MARK,
            "release",
            "-t",
            "release",
            "-m",
            "the review is in",
        ),
    ),
    (170, ("--agent", "ann", "data", "delete", "wait", "-m", "no longer needed")),
    (175, ("--agent", "ann", "undo")),
)
ON_REDIS = ("--trail", "try redis")
WORK: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("crumb", "add", "Write the parser", "-s", "ready", "--type", "task", "--priority", "high")),
    (2, ("crumb", "add", "Document the parser", "-s", "ready", "--parent", "Write the parser")),
    (5, ("explore", "try redis", "--goal", "a faster cache")),
    (9, ("crumb", "add", "Install redis", "-s", "ready", *ON_REDIS)),
    (11, ("crumb", "add", "Fill it", "-s", "pending", "--parent", "Install redis", *ON_REDIS)),
    (12, ("crumb", "add", "Measure it", "--parent", "Fill it", *ON_REDIS)),
    (13, ("crumb", "add", "Read about eviction", "--parent", "Install redis", *ON_REDIS)),
    (170, ("done", "Install redis")),
    (176, ("take", "--agent", "ann")),
)
MEMORY: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("block", "create", "persona", "I like short answers.\n", "-t", "persona")),
    (4, ("block", "append", "persona", "I ask when I am not sure.\n", "-m", "after the review")),
    (20, ("block", "replace", "persona", "short", "long and winding")),
    (22, ("block", "undo", "persona")),
    (90, ("block", "replace", "persona", "short", "plain", "-m", "short was rude at times")),
    (170, ("block", "edit", "persona", "2", "2", "I ask before I guess.\nI say what I left out.\n")),
)
LOOKED_AT = 178

SCREENS = {"status": ("status",), "log": ("log",), "diff": ("diff", "release"), "doctor": ("doctor",)}
WORK_SCREENS = {"board": ("board",), "trail": ("trail", "get", "try redis")}
MEMORY_SCREENS = {
    "block-history": ("block", "history", "persona"),
    "block-diff": ("block", "diff", "persona", "2", "6"),
}

SAME = (
    (r"(?<![0-9a-f-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "019caef2-4680-7000-8000-5d1c6ab2f0e4"),
    (r"\bdg-[0-9a-z]{4,}", "dg-a3f8"),
    (r"\b[\d,]+ MiB free", "48,000 MiB free"),
    (r"\b[\d.]+ [KM]B\b", "77.8 KB"),
    (r"\bSQLite [\d.]+\d", "SQLite 3.51.0"),
    (r"\bapsw [\d.]+\d", "apsw 3.51.0.0"),
)
"""What would differ from machine to machine, and what is shown instead."""

# -- running ------------------------------------------------------------------------------


def printed(home: Path, minutes: int, *words: str) -> str:
    """What `dgent` prints in a home at a moment."""
    source = Path(__file__).resolve().parents[1] / "src"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DGENT_", "XDG_")) and name != "NO_COLOR"
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(minutes), *words, "--color", "always"],
        capture_output=True,
        cwd=home,
        env=kept | {"HOME": str(home), "PYTHONPATH": str(source), "COLUMNS": str(COLUMNS)},
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(home), "~")


def screens() -> dict[str, str]:
    """Every picture by its file name."""
    shown = {**told(STORY, SCREENS), **told(WORK, WORK_SCREENS), **told(MEMORY, MEMORY_SCREENS)}
    for pattern, instead in SAME:
        shown = {name: re.sub(pattern, instead, text) for name, text in shown.items()}
    words = SCREENS | WORK_SCREENS | MEMORY_SCREENS
    return {f"{name}.svg": drawn(words[name], text) for name, text in shown.items()}


def told(story: Iterable[tuple[int, tuple[str, ...]]], screens: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """What commands print at the end of a story that begins in an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        printed(home, 0, "config", "set", "author", "scout")
        for minutes, words in story:
            printed(home, minutes, *words)
        return {name: printed(home, LOOKED_AT, *words) for name, words in screens.items()}


# -- drawing ------------------------------------------------------------------------------

CELL, LINE, SIZE, EDGE = 8.4, 19, 14, 16
BACK, PLAIN = "#1b1e24", "#d4d7dd"
# The eight colours of a terminal, then the bright ones.
COLORS = (
    *("#3a3f4b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d4d7dd"),
    *("#5c6370", "#ff7b86", "#b1e18b", "#ffd68a", "#7cc4ff", "#dd94f2", "#6fd3e0", "#ffffff"),
)
_STYLE = re.compile("\x1b\\[([0-9;]*)m")


class Style(NamedTuple):
    """How a piece of text looks."""

    color: str = PLAIN
    bold: bool = False
    dim: bool = False

    def after(self, codes: str) -> Style:
        """The style after an escape sequence with these codes."""
        style = self
        for code in map(int, codes.split(";") if codes else ["0"]):
            if code == 0:
                style = Style()
            elif code in (1, 2):
                style = style._replace(bold=style.bold or code == 1, dim=style.dim or code == 2)
            elif code == 22:
                style = style._replace(bold=False, dim=False)
            elif code == 39:
                style = style._replace(color=PLAIN)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                style = style._replace(color=COLORS[code - 30 if code < 90 else code - 82])
            else:
                raise ValueError(f"this does not know the style {code}")
        return style


def pieces(line: str) -> Iterator[tuple[int, str, Style]]:
    """A line as pieces of one style each: the column, the text, the style. A style ends with its line."""
    style, column = Style(), 0
    parts = _STYLE.split(line)
    for text, codes in zip(parts[::2], [*parts[1::2], ""], strict=True):
        for word in re.finditer(r"\S+(?: \S+)*", text):
            yield column + word.start(), word[0], style
        column += len(text)
        style = style.after(codes)


def drawn(words: tuple[str, ...], text: str) -> str:
    """A picture of a terminal in which a command was run."""
    lines = [f"\x1b[2m$\x1b[0m \x1b[1mdgent {' '.join(words)}\x1b[0m", *text.rstrip("\n").split("\n")]
    width, height = round(COLUMNS * CELL + 2 * EDGE), len(lines) * LINE + 2 * EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>dgent {escape(' '.join(words))}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACK}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{SIZE}">',
    ]
    for number, line in enumerate(lines):
        y = EDGE + number * LINE + SIZE
        for column, piece, style in pieces(line):
            look = f' fill="{style.color}"'
            look += ' font-weight="bold"' if style.bold else ""
            look += ' opacity="0.6"' if style.dim else ""
            place = f'x="{EDGE + column * CELL:.1f}" y="{y}" textLength="{len(piece) * CELL:.1f}"'
            out.append(f'<text {place} lengthAdjust="spacingAndGlyphs"{look}>{escape(piece)}</text>')
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    made = screens()
    if sys.argv[1:] != ["--check"]:
        for name, text in made.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    stored = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    stale = sorted(name for name in {*made, *stored} if made.get(name) != stored.get(name))
    for name in stale:
        print(f"docs/screens/{name} is stale: run `python docs/screens.py`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
