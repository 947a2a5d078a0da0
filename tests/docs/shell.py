"""The shell blocks of the documentation, and a way to run those that call `dgent`.

The blocks of a page run in order in one empty home, with `dgent` on the PATH. A `text` block right under
one is what a person would see: standard output and standard error. What differs from run to run (ids,
times, sizes) is made alike on both sides before they are compared.

When the output of a command changes, `python -m tests.docs.shell PAGE...` writes it into the pages anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.command import make_command
from tests.docs import pages

COLUMNS = "100"
_CALLS = re.compile(r"(?m)^(?:\w+=\S* )*dgent\b|\| dgent\b")
_ALIKE = (
    (r"\bjust now\b|\b\d+ (?:second|minute)s? ago\b", "just now"),
    ("made just now, changed just now", "made just now"),  # a slow machine took longer than that
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "an id"),
    (r"\bdg-[0-9a-z]{4,}", "a short id"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "a time"),
    (r"\b[\d,.]+ (?:[KMG]B|MiB)\b|(?<=size bytes  )[\d,]+", "a size"),
    (r"\b(SQLite|apsw) [\d.]+\d", r"\1 x.y"),
    (r"(?<=\S)  +", "  "),
)


def calls_dgent(block: pages.Block) -> bool:
    return block.info == "sh" and _CALLS.search(block.text) is not None


def alike(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, instead in _ALIKE:
        text = re.sub(pattern, instead, text)
    return text


class Shell:
    """A shell in a home of its own, with `dgent` on the PATH."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.home.mkdir()
        script = base / "bin" / "dgent"
        script.parent.mkdir()
        make_command(script)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DGENT_", "XDG_"))}
        self.environment = kept | {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(script.parent), os.environ["PATH"]]),
            "PYTHONPATH": str(pages.ROOT / "src"),
            "COLUMNS": COLUMNS,
            "NO_COLOR": "1",
        }

    def run(self, text: str) -> tuple[int, str]:
        """Run some lines, as far as the first that fails; how they ended, and what was to be seen."""
        done = subprocess.run(
            ["sh", "-e", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=180,
        )
        return done.returncode, done.stdout.replace(str(self.home), "~")


def refill(page: Path) -> None:
    """Write what a page's shell blocks print into the `text` blocks under them."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[tuple[int, int, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        shell, seen = Shell(Path(folder)), None
        for block in pages.blocks(page):
            if calls_dgent(block):
                code, seen = shell.run(block.text)
                assert code == 0, f"{pages.name(page)}:{block.line} ends with {code}\n{seen}"
            elif block.output_of == "sh" and seen is not None:
                start = block.line - 1
                end = next(number for number in range(start, len(lines)) if lines[number] == "```")
                if alike("\n".join(lines[start:end]) + "\n") != alike(seen):
                    found.append((start, end, seen.splitlines()))
    for start, end, printed in reversed(found):
        lines[start:end] = printed
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        refill(Path(given).resolve())
