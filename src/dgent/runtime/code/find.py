"""The tools `glob` and `grep`: find files by name, and lines by content."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Annotated, Any

from dgent.errors import DgentError, InputError
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.ignore import MAX_PATTERN, matches
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool
from dgent.system.process import close_pipes

MAX_FOUND = 1_000
MAX_LINE = 400  # characters of a line that is shown
MAX_SEARCHED = 64 * 1024 * 1024  # characters of all files of one search
SEARCH_S = 10.0

# Runs alone: an expression may take for ever, and nothing but the end of its process stops it.
_SEARCH = """
import json, re, sys
flags, limit, width = json.loads(sys.stdin.readline())
find, left = re.compile(sys.stdin.readline()[:-1].encode().decode("unicode_escape"), flags).search, limit
for row in sys.stdin:
    name, text = json.loads(row)
    for number, line in enumerate(text.split("\\n"), 1):
        if left and find(line):
            left -= 1
            print(json.dumps([name, number, line[:width]]))
"""


def glob_tool(context: CodeContext) -> Tool:
    """Return the tool that finds files by their names."""

    async def glob(
        pattern: Annotated[str, "a glob such as src/**/*.py; one without / fits the name in any folder"],
        path: Annotated[str, "the folder to look in"] = "",
        limit: Annotated[int, "how many names"] = 200,
        ignored: Annotated[bool, "also files that .gitignore names"] = False,
    ) -> Answer:
        """Find files by name, in order. Links are left out."""
        found, stopped = await _list(context, pattern, path, ignored)
        most = max(1, min(limit, MAX_FOUND))
        note = f"{len(found)} found" if len(found) <= most else f"the first {most} of {len(found)}"
        note += "; the workspace has more files than are looked at" if stopped else ""
        return {"ok": True, "message": note, "data": {"files": found[:most]}}

    return function_tool(glob, effect="read", kind="search")


def grep_tool(context: CodeContext) -> Tool:
    """Return the tool that finds lines."""

    async def grep(
        pattern: Annotated[str, "the text to find in a line, or an expression with regex=true"],
        call: Call,
        path: Annotated[str, "the folder or file to look in"] = "",
        files: Annotated[str, "a glob that the files must fit, such as *.py"] = "",
        regex: Annotated[bool, "the pattern is a regular expression of Python"] = False,
        ignore_case: bool = False,
        limit: Annotated[int, "how many lines"] = 100,
    ) -> Answer:
        """Find lines by their content. Binary and very large files are left out."""
        if not pattern or len(pattern) > MAX_PATTERN or "\n" in pattern:
            raise InputError(f"a pattern has 1 to {MAX_PATTERN} characters in one line", field="pattern")
        names, stopped = await _list(context, files or "**", path, False)
        texts, left_out = await asyncio.to_thread(_read_all, context, names, call)
        most = max(1, min(limit, MAX_FOUND))
        if regex:
            hits = await _search(_check(pattern, ignore_case), ignore_case, texts, most + 1)
        else:
            hits = await asyncio.to_thread(_search_text, pattern, ignore_case, texts, most + 1)
        note = f"{len(hits)} lines found" if len(hits) <= most else f"the first {most} lines; there are more"
        note += f"; {left_out} files left out (binary, too large or not allowed)" if left_out else ""
        note += "; the workspace has more files than are looked at" if stopped else ""
        rows = [{"path": name, "line": number, "text": text} for name, number, text in hits[:most]]
        return {"ok": True, "message": note, "data": {"lines": rows}}

    return function_tool(grep, effect="read", kind="search")


async def _list(context: CodeContext, pattern: str, path: str, ignored: bool) -> tuple[list[str], bool]:
    """Return the names of files below a folder that fit a glob, relative to that folder, or one file."""
    workspace = context.workspace
    below = workspace.name(path)
    is_file = await asyncio.to_thread(_is_file, context, below)
    if below and is_file:
        return [below], False
    walk = await asyncio.to_thread(lambda: workspace.walk(below, ignored=ignored))
    start = len(below) + 1 if below else 0
    return [name for name in walk.names if matches(pattern, name[start:])], walk.stopped


def _is_file(context: CodeContext, name: str) -> bool:
    try:
        return bool(name) and context.workspace.read(name).text is not None
    except DgentError:
        return False


def _read_all(context: CodeContext, names: list[str], call: Call) -> tuple[list[tuple[str, str]], int]:
    texts, size, left_out = [], 0, 0
    for name in names:
        try:
            context.policy.require_path("grep", "read", name, call)
            text = context.workspace.read(name).text
        except DgentError:
            text = None
        if text is None or size + len(text) > MAX_SEARCHED:
            left_out += 1
        else:
            size += len(text)
            texts.append((name, text))
    return texts, left_out


def _search_text(pattern: str, ignore_case: bool, texts: list[tuple[str, str]], most: int) -> list[Any]:
    wanted = pattern.casefold() if ignore_case else pattern
    hits: list[Any] = []
    for name, text in texts:
        if wanted not in (text.casefold() if ignore_case else text):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if wanted in (line.casefold() if ignore_case else line):
                hits.append((name, number, line[:MAX_LINE].rstrip("\r")))
                if len(hits) >= most:
                    return hits
    return hits


def _check(pattern: str, ignore_case: bool) -> str:
    try:
        re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(
            f"{pattern!r} is not a valid expression: {error}", hint="or pass regex=false"
        ) from None
    return pattern


async def _search(pattern: str, ignore_case: bool, texts: list[tuple[str, str]], most: int) -> list[Any]:
    """Search by a regular expression in a process of its own, which is ended when it takes too long."""
    flags = int(re.IGNORECASE) if ignore_case else 0
    escaped = pattern.encode("unicode_escape").decode()
    head = [json.dumps([flags, most, MAX_LINE]), escaped]
    given = "\n".join([*head, *map(json.dumps, texts)]) + "\n"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _SEARCH),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(given.encode()), SEARCH_S)
    except TimeoutError:
        raise InputError(
            f"the expression {pattern!r} took longer than {SEARCH_S:g} s",
            hint="make it simpler",
            field="pattern",
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
            close_pipes(process)
    return [json.loads(line) for line in out.splitlines()]
