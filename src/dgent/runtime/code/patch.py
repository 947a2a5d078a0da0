"""The tool `patch`: apply a unified diff, every hunk of every file or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from dgent.errors import InputError, NotFound
from dgent.runtime.code.change import FileChange
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.read import split_lines
from dgent.runtime.code.workspace import FileState
from dgent.runtime.tool.function import function_tool
from dgent.runtime.tool.tool import Answer, Call, Tool

MAX_FILES = 200
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
NOTHING = "/dev/null"


class Hunk(msgspec.Struct):
    """One hunk: the line it begins at, and the lines that it finds and leaves there."""

    line: int
    number: int
    old: list[str] = msgspec.field(default_factory=list)
    new: list[str] = msgspec.field(default_factory=list)


class FilePatch(msgspec.Struct):
    """The hunks of one file; the old or new path is None where the file is made or removed."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = msgspec.field(default_factory=list)


def patch_tool(context: CodeContext) -> Tool:
    """Return the tool that applies a diff."""

    async def patch(
        diff: Annotated[str, "a unified diff: ---, +++ and @@ lines; paths relative to the workspace"],
        call: Call,
    ) -> Answer:
        """Apply a unified diff to one or more files. Where one hunk does not fit, nothing is changed."""
        changes: dict[str, FileChange] = {}
        for each in parse(diff):
            if each.old and each.new and each.old != each.new:
                raise InputError(
                    f"the diff renames {each.old!r}", hint="write the new file, remove the old one"
                )
            name, before = await context.look("patch", each.new or each.old or "", call)
            if name in changes:
                raise InputError(f"the diff has {name!r} twice", hint="put its hunks under one header")
            after = _apply(each, before, name)
            if after.text is not None:
                context.workspace.check_text(name, after.text)
            changes[name] = FileChange(name, before, after)
        return await context.change("patch", list(changes.values()), call)

    return function_tool(patch, effect="write", kind="edit")


def _apply(patch: FilePatch, before: FileState, name: str) -> FileState:
    if patch.old is None:
        if before.text is not None:
            raise InputError(f"the diff makes {name!r}, which is there already")
    elif before.text is None:
        raise NotFound(f"there is no file {name!r}", hint="the header of a new file has --- /dev/null")
    text = apply_hunks(before.text or "", patch.hunks, name)
    if patch.new is None:
        if text:
            raise InputError(f"the diff removes {name!r}, but {len(text)} characters of it are left")
        return FileState(None)
    return FileState(text, before.mode)


def apply_hunks(text: str, hunks: list[Hunk], name: str) -> str:
    """Return a text with hunks applied, in order; InputError for the first that does not fit.

    A hunk fits where its lines are, character by character: at its own line number, or else at the only
    other place after the hunk before it.
    """
    lines = split_lines(text)
    crlf = bool(lines) and all(line.endswith("\r\n") for line in lines)
    made: list[str] = []
    done = 0
    moved = 0
    for hunk in hunks:
        old, new = (_with_ends(each, crlf) for each in (hunk.old, hunk.new))
        wanted = hunk.line - 1 + moved if old else hunk.line + moved
        at = _find(lines, old, wanted, done, name, hunk.number)
        moved += at - wanted
        made += lines[done:at] + new
        done = at + len(old)
    rest = lines[done:]
    if rest and made and not made[-1].endswith("\n"):
        raise InputError(f"the diff ends {name!r} without a newline, but more lines follow")
    return "".join(made + rest)


def _with_ends(lines: list[str], crlf: bool) -> list[str]:
    if not crlf:
        return lines
    return [f"{line[:-1]}\r\n" if line.endswith("\n") and line[-2:] != "\r\n" else line for line in lines]


def _find(lines: list[str], old: list[str], wanted: int, first: int, name: str, number: int) -> int:
    if not old:
        if first <= wanted <= len(lines):
            return wanted
        raise InputError(f"hunk {number} adds at line {wanted}, but {name!r} has {len(lines)} lines")
    if wanted >= first and lines[wanted : wanted + len(old)] == old:
        return wanted
    places = [
        at
        for at in range(first, len(lines) - len(old) + 1)
        if lines[at] == old[0] and lines[at : at + len(old)] == old
    ]
    if len(places) == 1:
        return places[0]
    what = "fits nowhere in" if not places else f"fits {len(places)} places of"
    raise InputError(
        f"hunk {number} (line {wanted + 1}) {what} {name!r}; nothing was changed",
        hint="read the file and copy the lines exactly" if not places else "give more lines of context",
    )


def parse(diff: str) -> list[FilePatch]:
    """Return the files of a unified diff; InputError where it is not one."""
    lines = split_lines(diff)
    files: list[FilePatch] = []
    at = number = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            files.append(FilePatch(*_paths(line, lines[at + 1])))
            at, number = at + 2, 0
        elif found := _HUNK.match(line):
            if not files:
                raise InputError("the diff has a hunk before any --- and +++ line")
            number += 1
            hunk = Hunk(int(found[1]), number)
            sizes = (int(found[2] or 1), int(found[4] or 1))
            at = _read_hunk(lines, at + 1, hunk, sizes)
            files[-1].hunks.append(hunk)
        elif line.startswith(("rename ", "copy ", "GIT binary patch", "Binary files ", "new mode ")):
            raise InputError(f"the diff has {line.strip()[:60]!r}, which is not supported")
        else:
            at += 1
    if not files or len(files) > MAX_FILES or any(not each.hunks for each in files):
        raise InputError(
            f"the diff must have 1 to {MAX_FILES} files, each with hunks", hint="send a unified diff"
        )
    return files


def _read_hunk(lines: list[str], at: int, hunk: Hunk, sizes: tuple[int, int]) -> int:
    """Read the lines of a hunk as its header counts them; returns the line after it."""
    while len(hunk.old) < sizes[0] or len(hunk.new) < sizes[1]:
        line = lines[at] if at < len(lines) else "end"
        sign, text = line[0], line[1:]
        if line in ("\n", "\r\n"):  # editors strip the space of an empty line
            sign, text = " ", line
        if sign not in " +-":
            raise InputError(
                f"hunk {hunk.number} has fewer lines than its header counts ({sizes[0]} old, {sizes[1]} new)",
                hint="count the lines of the hunk again",
            )
        text = text if text.endswith("\n") else f"{text}\n"
        for side in _sides(hunk, sign):
            side.append(text)
        at += 1
        if at < len(lines) and lines[at].startswith("\\ "):
            for side in _sides(hunk, sign):
                side[-1] = side[-1].removesuffix("\n")
            at += 1
    if (len(hunk.old), len(hunk.new)) != sizes or (at < len(lines) and _continues(lines, at)):
        raise InputError(
            f"hunk {hunk.number} has other lines than its header counts ({sizes[0]} old, {sizes[1]} new)",
            hint="count the lines of the hunk again",
        )
    return at


def _sides(hunk: Hunk, sign: str) -> Iterator[list[str]]:
    if sign != "+":
        yield hunk.old
    if sign != "-":
        yield hunk.new


def _continues(lines: list[str], at: int) -> bool:
    """Check for a line that still looks like one of the hunk, and is not the header of the next file."""
    header = lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")
    return lines[at][0] in "+- " and not header and not lines[at].startswith("-- ")


def _paths(old: str, new: str) -> tuple[str | None, str | None]:
    """Return the paths of a header; the a/ and b/ of git go where both have them."""
    paths = [line[4:].rstrip("\r\n").partition("\t")[0].strip() for line in (old, new)]
    if all(path == NOTHING or path.startswith(sign) for path, sign in zip(paths, ("a/", "b/"), strict=True)):
        paths = [path if path == NOTHING else path[2:] for path in paths]
    first, second = (None if path == NOTHING else path for path in paths)
    return first, second
