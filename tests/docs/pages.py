"""The pages of the documentation, their code blocks, and a way to run a page from top to bottom.

A page's `python` blocks run in order in one namespace that understands `await`, as they would in
`python -m asyncio`. A `text` block right under one is what it prints. A block marked
`python fragment` is not run, only compiled. One marked `python with crewai` is run where that package is
installed, and compiled elsewhere. The `sh` blocks are the matter of shell.py.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import re
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import dgent

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Run by `make adk`: ADK cannot be installed beside all that the others need.
APART = {DOCS / "guides/google-adk.md", ROOT / "examples/google_adk.py"}
PAGES = [README, CHANGELOG, *sorted(DOCS.rglob("*.md"))]

WITH = "python with "  # and a package that tests do not install

_FENCE = re.compile(r"^```(.*)$")


class Block(NamedTuple):
    """A fenced block: what follows the fence, its text, its first line, and what it shows the output of."""

    info: str
    text: str
    line: int
    output_of: str


def name(page: Path) -> str:
    """A page as tests call it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    info, start, inside, above = "", 0, False, ""
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not inside:
            info, start, inside, body = fence[1].strip(), number + 1, True, []
        elif fence:
            shows = above in ("python", "sh") or above.startswith(WITH)
            output_of = above if info == "text" and shows else ""
            found.append(Block(info, "\n".join(body) + "\n", start, output_of))
            inside, above = False, info
        elif inside:
            body.append(line)
        elif line.strip():
            above = ""
    assert not inside, f"{name(page)} has a fence that is never closed"
    return found


def is_run(info: str) -> bool:
    """Whether blocks that are marked so run here."""
    return info == "python" or (info.startswith(WITH) and is_installed(info.removeprefix(WITH)))


def is_installed(module: str) -> bool:
    """Whether a package of another framework is here."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


def prose(page: Path) -> str:
    """The text of a page outside its fenced blocks."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def compiled(page: Path, block: Block) -> CodeType:
    """The code of a block, its lines numbered as in the page."""
    # dont_inherit: a page must not get this file's `from __future__ import annotations`.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    padded = "\n" * (block.line - 1) + block.text
    return compile(padded, name(page), "exec", flags=flags, dont_inherit=True)


def run(page: Path) -> None:
    """Run every block of a page and compare what is printed with what the page says.

    A page that never awaits runs without an event loop, as its reader would run it.
    """
    module = ModuleType("page_" + re.sub(r"\W", "_", name(page)))
    sys.modules[module.__name__] = module  # type hints are looked up in the module of their class
    code = {block: compiled(page, block) for block in blocks(page) if is_run(block.info)}
    try:
        if any(each.co_flags & inspect.CO_COROUTINE for each in code.values()):
            asyncio.run(_run_in_loop(page, module, code))
        else:
            printed = io.StringIO()
            for block in blocks(page):
                if block in code:
                    with redirect_stdout(io.StringIO()) as printed:
                        exec(code[block], module.__dict__)
                _compare(page, block, printed.getvalue())
    finally:
        del sys.modules[module.__name__]
        dgent.set_universe(None)


async def _run_in_loop(page: Path, module: ModuleType, code: dict[Block, CodeType]) -> None:
    printed = io.StringIO()
    try:
        for block in blocks(page):
            if block in code:
                with redirect_stdout(io.StringIO()) as printed:
                    result = eval(code[block], module.__dict__)
                    if inspect.isawaitable(result):
                        await result
            _compare(page, block, printed.getvalue())
    finally:
        for value in list(vars(module).values()):
            if isinstance(value, dgent.Universe):
                await value.close()


def _compare(page: Path, block: Block, printed: str) -> None:
    if is_run(block.output_of):
        assert printed == block.text, f"{name(page)}:{block.line} prints\n{printed}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        run(ROOT / each)
        print(f"{each} runs: {', '.join(b.info for b in blocks(ROOT / each) if is_run(b.info))}")
