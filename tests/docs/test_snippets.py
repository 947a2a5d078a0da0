"""Every Python block in the README and the docs runs, and prints what the page says it prints."""

from __future__ import annotations

import asyncio
import codecs
import os
import pty
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command import dgent
from tests.docs import pages
from tests.docs.interpreter import OTHERS, find_python, make_environment
from tests.postgres.lease import url_for
from tests.remote.host import find_host

WITH_CODE = [
    page
    for page in pages.PAGES
    if page not in pages.APART and any(b.info == "python" for b in pages.blocks(page))
]
KNOWN_FENCES = {"python", "python fragment", "text", "sh", "sql"}
# What the tests do not install, and why. Blocks that need it run where somebody did; a skip needs a row here.
FRAMEWORKS = {
    "autogen_ext.tools.mcp": "it needs a version of mcp below 2, and the tests the one above",
    "claude_agent_sdk": "it brings Claude Code, about 400 MB",
    "crewai": "it brings about 1 GB, and a version of mcp below 2",
    "llama_index.tools.mcp": "it brings about 280 MB",
    "strands": "it needs an older mcp than constraints.txt has, and brings about 100 MB",
}
FRAGMENTS = 4  # how many blocks of all pages together may be there without being run


@pytest.mark.parametrize("page", WITH_CODE, ids=pages.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if '"command": "dgent"' in page.read_text(encoding="utf-8"):
        monkeypatch.setenv("PATH", os.path.dirname(dgent()) + os.pathsep + os.environ["PATH"])
    if "DATABASE_URL" in page.read_text(encoding="utf-8"):
        monkeypatch.setenv("DATABASE_URL", url_for(tmp_path))
    if "SERVER_URL" not in page.read_text(encoding="utf-8"):
        pages.run(page)
        return
    host = find_host()
    url, token = asyncio.run(host.serve_one(f"sqlite:///{tmp_path / 'store.db'}", "scout"))
    monkeypatch.setenv("SERVER_URL", url)
    monkeypatch.setenv("DGENT_TOKEN", token)
    try:
        pages.run(page)
    finally:  # else the threads of its store would stay, and others count threads
        asyncio.run(host.remove(url.rpartition("/")[2]))


@pytest.mark.parametrize("module", FRAMEWORKS)
def test_the_page_of_a_framework_has_a_block_that_needs_it(module: str) -> None:
    found = [(page, b) for page in WITH_CODE for b in pages.blocks(page) if b.info == pages.WITH + module]
    assert found
    for page, block in found:
        pages.compiled(page, block)
    if not pages.is_installed(module):
        pytest.skip(f"{module} is not installed: {FRAMEWORKS[module]}")


def test_fences_are_known_and_fragments_are_rare() -> None:
    found = [(page, block) for page in pages.PAGES for block in pages.blocks(page)]
    known = KNOWN_FENCES | {pages.WITH + module for module in FRAMEWORKS}
    unknown = [f"{pages.name(page)}:{b.line} {b.info!r}" for page, b in found if b.info not in known]
    assert not unknown
    fragments = [(page, block) for page, block in found if block.info == "python fragment"]
    assert len(fragments) <= FRAGMENTS
    for page, block in fragments:
        pages.compiled(page, block)


PASTED = [pages.README, pages.DOCS / "start.md"]


@pytest.mark.parametrize("page", PASTED, ids=pages.name)
def test_page_can_be_pasted_into_the_asyncio_prompt(page: Path, tmp_path: Path) -> None:
    """On a terminal, block by block, as a reader does; the prompt is a real one."""
    paste_page(page, Path(sys.executable), tmp_path, sys.version_info >= (3, 13))


@pytest.mark.parametrize("page", PASTED, ids=pages.name)
@pytest.mark.parametrize("version", OTHERS)
def test_page_can_be_pasted_into_the_prompt_of_another_python(
    version: str, page: Path, tmp_path: Path
) -> None:
    """The prompt differs: that of 3.13 edits several lines, and reads a paste as a whole."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    paste_page(page, make_environment(version, python), tmp_path, version == "3.13")


def paste_page(page: Path, python: Path, folder: Path, marked: bool) -> None:
    """Paste the blocks of a page one after another; `marked`: the prompt asks for marks around a paste."""
    prompt = Prompt([str(python), "-m", "asyncio"], folder, marked)
    try:
        for block in pages.blocks(page):
            if block.info == "python":
                prompt.paste(block.text)
            elif block.output_of == "python":
                assert all(line in prompt.seen for line in block.text.splitlines()), prompt.seen
    finally:
        prompt.close()
    # The prompt goes on after an error, so the exit code says nothing.
    assert "Error" not in prompt.seen and "Traceback" not in prompt.seen, prompt.seen


class Prompt:
    """A Python prompt on a terminal of its own, into which somebody pastes."""

    def __init__(self, command: list[str], folder: Path, marked: bool) -> None:
        self.seen, self._brackets = "", False
        self._parent, child = pty.openpty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        settings = {
            "PYTHONPATH": str(pages.ROOT / "src"),
            "TERM": "xterm",
            "HOME": str(folder),
            "COLUMNS": "200",
        }
        env = {**os.environ, **settings, "PYTHON_HISTORY": str(folder / "history")}
        self._process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, cwd=folder, env=env, start_new_session=True
        )
        os.close(child)
        self._read_until(">>> ")
        ends = time.monotonic() + 180
        while marked and not self._brackets and time.monotonic() < ends:  # asked for after the first prompt
            self._read()

    def paste(self, text: str) -> None:
        """Paste a block and press Enter; returns when the prompt is back."""
        mark = f"pasted-{len(self.seen)}"
        # A terminal marks what is pasted for programs that ask for it, as the prompt of 3.13 does.
        self._write(f"\x1b[200~{text.rstrip()}\n\x1b[201~\n" if self._brackets else f"{text}\n\n")
        self._write(f"\nprint('{mark[:3]}' + '{mark[3:]}')\n")
        self._read_until(mark)

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._parent, data[:512]) :]

    def close(self) -> None:
        """Leave the prompt."""
        with suppress(OSError):
            os.write(self._parent, b"\nexit()\n\x04")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._parent)

    def _read_until(self, wanted: str) -> None:
        start, ends = len(self.seen), time.monotonic() + 180
        while wanted not in self.seen[start:]:
            assert time.monotonic() < ends, f"no {wanted!r} in\n{self.seen}"
            self._read()

    def _read(self) -> None:
        if select.select([self._parent], [], [], 1)[0]:
            raw = self._decoder.decode(os.read(self._parent, 65536))  # a read may end inside a character
            self._brackets = self._brackets or "\x1b[?2004h" in raw
            self.seen += re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", raw)
