"""Makes the pictures in docs/screens/ by running `dgent`: `python docs/screens.py`, or `--check` them.

The real command line runs in an empty home, in colour, with its clock stopped at given moments. What it
prints becomes SVG: plain text in boxes of fixed width, so that it looks the same with any font. Two runs
give the same bytes, because what no clock decides (a random id, free space, versions) is replaced.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple, NoReturn

FOLDER = Path(__file__).resolve().parent / "screens"
COLUMNS = 100
COLOR = ("--color", "always")

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
if sys.argv[1:2] == ["--python"]:
    import ast, asyncio, inspect
    names = {}
    for statement in sys.stdin.read().split("\\n\\n"):
        print(">>> " + statement.replace("\\n", "\\n... "))
        made = compile(statement + "\\n", "<stdin>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if made.co_flags & inspect.CO_COROUTINE:
            runner = names.setdefault("_runner", asyncio.Runner())
            runner.run(eval(made, names))
        else:
            exec(made, names)
    sys.exit()
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

ISSUES = """\
{"id":"app-1","title":"Crash on start","status":"open","priority":0,"issue_type":"bug",\
"created_at":"2026-03-02T08:00:00Z"}
{"id":"app-2","title":"Write the manual","status":"open","priority":2,"issue_type":"task",\
"created_at":"2026-03-02T08:30:00Z",\
"dependencies":[{"issue_id":"app-2","depends_on_id":"app-1","type":"blocks"}]}
"""
PYTHON = """\
from dataclasses import dataclass

import dgent

@dataclass(frozen=True)
class Mark:
    action: str
    weight: int = 1

u = await dgent.open("sqlite:///memory.db", author="scout")

u.register(dgent.Schema("witness.mark", contract=Mark, text={"action": 1}))

mark = await u.remember(Mark("ship it", 5), id="release", tags={"release"})

await u.update(mark, weight=8)

await u.undo(await u.seq())

[(version.rev, version.datum.data["weight"]) for version in await u.history("release")]

[hit.value for hit in await u.search("ship")]

await u.close()
"""
WALKS: dict[str, tuple[str, tuple[tuple[int, tuple[str, ...]], ...]]] = {
    "agent": (
        "An agent's memory and work: edited, broken, rolled back; tried, abandoned, learned; found",
        (
            (0, ("block", "create", "persona", "I answer briefly.")),
            (9, ("block", "replace", "persona", "briefly", "at length", "-m", "a bad idea")),
            (12, ("block", "rollback", "persona", "1")),
            (15, ("explore", "try a cache", "--goal", "the page in 100 ms")),
            (16, ("crumb", "add", "Fill the cache", "--trail", "try a cache")),
            (70, ("trail", "abandon", "try a cache", "--lesson", "every page differs", "-y")),
            (75, ("search", "briefly", "differs")),
            (76, ("log", "-n", "4")),
        ),
    ),
    "python": (
        "A Python developer: typed values, history and undo in one file, seen from the shell too",
        (
            (0, ("python", "-m", "asyncio")),
            (9, ("--url", "sqlite:///memory.db", "log")),
        ),
    ),
    "beads": (
        "A user of beads: issues come in, work goes on, the log says who did what",
        (
            (0, ("beads", "import", "issues.jsonl")),
            (1, ("ready",)),
            (2, ("take", "--agent", "ann")),
            (30, ("done", "Crash on start", "--agent", "ann")),
            (31, ("ready",)),
            (32, ("log", "-n", "3")),
        ),
    ),
}
"""Walks: everything that was typed, and everything that was printed."""

SCREENS = {"status": ("status",), "log": ("log",), "diff": ("diff", "release"), "doctor": ("doctor",)}
WORK_SCREENS = {"board": ("board",), "trail": ("trail", "get", "try redis")}
MEMORY_SCREENS = {
    "block-history": ("block", "history", "persona"),
    "block-diff": ("block", "diff", "persona", "2", "6"),
}

SAME = (
    (r"(?<![0-9a-f-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "019caef2-4680-7000-8000-5d1c6ab2f0e4"),
    (r"dg-[0-9a-z]{4,}", "dg-a3f8"),  # behind a colour there is no boundary of a word
    (r"\b[\d,]+ MiB free", "48,000 MiB free"),
    (r"\b[\d.]+ [KM]B\b", "77.8 KB"),
    (r"\bSQLite [\d.]+\d", "SQLite 3.51.0"),
    (r"\bapsw [\d.]+\d", "apsw 3.51.0.0"),
)
"""What would differ from machine to machine, and what is shown instead."""

# -- running ------------------------------------------------------------------------------


def walked(steps: Iterable[tuple[int, tuple[str, ...]]]) -> list[str]:
    """The lines of a terminal in which commands were typed one after the other, in an empty home."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "issues.jsonl").write_text(ISSUES, encoding="utf-8")
        printed(home, 0, "config", "set", "author", "scout")
        for minutes, words in steps:
            python = words[0] == "python"
            text = printed(home, minutes, *(("--python",) if python else words), typed=PYTHON)
            shown = shlex.join(words if python else ("dgent", *words))
            lines += [f"\x1b[2m$\x1b[0m \x1b[1m{shown}\x1b[0m", *text.rstrip("\n").split("\n")]
    return lines


def printed(home: Path, minutes: int, *words: str, typed: str = "") -> str:
    """What `dgent` prints in a home at a moment."""
    load_commands()
    color = [] if typed and "--python" in words else COLOR
    argv = ["dgent", str(minutes), *words, *color]
    with ExitStack() as files:
        streams = [files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        streams[0].write(typed.rstrip("\n"))
        streams[0].seek(0)
        child = os.fork()
        if not child:
            run_command(home, argv, [stream.fileno() for stream in streams])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out, err = (stream.seek(0) or stream.read() for stream in streams[1:])
    assert code == 0, err
    return out.replace(str(home), "~")


@cache
def load_commands() -> None:
    """Import what the commands need, once: loading takes most of the time of a command."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    modules = importlib.import_module("dgent.verbs.index").MODULES.values()
    for module in ("dgent.doors.cli.command", "dgent.doors.cli.session", *sorted(set(modules))):
        importlib.import_module(module)


def run_command(home: Path, argv: list[str], streams: list[int]) -> NoReturn:
    """Be the command: in a process of its own, with its own streams, folder and environment."""
    code = 1
    try:
        for place, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(streams[place], place)
            stream = open(place, "w" if place else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        for name in list(os.environ):
            if name.startswith(("DGENT_", "XDG_")) or name == "NO_COLOR":
                del os.environ[name]
        os.environ.update(HOME=str(home), COLUMNS=str(COLUMNS))
        os.chdir(home)
        sys.argv = argv
        exec(RUN, {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def screens() -> dict[str, str]:
    """Every picture by its file name."""
    words = SCREENS | WORK_SCREENS | MEMORY_SCREENS
    shown = {**told(STORY, SCREENS), **told(WORK, WORK_SCREENS), **told(MEMORY, MEMORY_SCREENS)}
    pages = {
        name: (f"dgent {' '.join(words[name])}", [_typed(words[name]), *text.rstrip("\n").split("\n")])
        for name, text in shown.items()
    }
    pages |= {f"walk-{name}": (title, walked(steps)) for name, (title, steps) in WALKS.items()}
    return {f"{name}.svg": drawn(title, map(same, lines)) for name, (title, lines) in pages.items()}


def same(line: str) -> str:
    """A line without what would differ from machine to machine."""
    for pattern, instead in SAME:
        line = re.sub(pattern, instead, line)
    return line


def _typed(words: tuple[str, ...]) -> str:
    return f"\x1b[2m$\x1b[0m \x1b[1mdgent {' '.join(words)}\x1b[0m"


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


def drawn(title: str, text: Iterable[str]) -> str:
    """A picture of a terminal with these lines."""
    lines = list(text)
    width, height = round(COLUMNS * CELL + 2 * EDGE), len(lines) * LINE + 2 * EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>",
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
    stored = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.svg")}
    stale = sorted(name for name in {*made, *stored} if made.get(name) != stored.get(name))
    for name in stale:
        print(f"docs/screens/{name} is stale: run `python docs/screens.py`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
