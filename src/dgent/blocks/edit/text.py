"""Edits of texts: append, write, replace, insert and edit lines, patch, and several of these at once."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.document.value import check_text
from dgent.blocks.edit.edit import Edit, Part
from dgent.blocks.history.version import Version
from dgent.errors import InputError, VersionConflict

if TYPE_CHECKING:
    from dgent.blocks.block import Block
    from dgent.blocks.edit.editable import Section


NAMED_LINES = 10  # in the error about a text that is there several times


def append(part: Part, text: object) -> Edit:
    """Build the edit that adds to the end of a text."""
    wanted, name = check_text(text), part.body
    return Edit("append", "append", lambda document: document.splice(document.length(name), 0, wanted, name))


def write(part: Part, text: object) -> Edit:
    """Build the edit that replaces all of a text; parts that stay the same are not rewritten."""
    part.require_kind("text", "write")
    wanted, name = check_text(text), part.body
    return Edit("write", "overwrite", lambda document: document.write(wanted, name), sequence=name)


def replace(part: Part, old: object, new: object, which: str | int, regex: bool) -> Edit:
    """Build the edit that replaces the matches of a text or a pattern."""
    part.require_kind("text", "replace")
    places, name = _places(check_text(old), check_text(new), which, regex, part.limit), part.body

    def change(document: Document) -> None:
        found = places(document.text(name))
        for start, length, text in reversed(found):
            document.splice(start, length, text, name)

    return Edit("replace", "overwrite", change, sequence=name)


def edit_range(part: Part, start: int, end: int, text: object) -> Edit:
    """Build the edit that replaces the lines from `start` to `end`, both counted from 1."""
    part.require_kind("text", "edit_range")
    wanted, name = check_text(text), part.body

    def change(document: Document) -> None:
        lines = document.text(name).splitlines(keepends=True)
        if not 1 <= start <= end <= max(len(lines), 1):
            raise errors.NoMatch(f"there are {len(lines)} lines, so none from {start} to {end}")
        first = sum(map(len, lines[: start - 1]))
        old = "".join(lines[start - 1 : end])
        tail = "\n" if wanted and not wanted.endswith("\n") and old.endswith("\n") else ""
        document.splice(first, len(old), wanted + tail, name)

    return Edit("edit_range", "overwrite", change, sequence=name)


def insert(part: Part, line: object, text: object) -> Edit:
    """Build the edit that inserts lines behind a line; behind 0 is the top."""
    part.require_kind("text", "insert")
    wanted, name = check_text(text), part.body

    def change(document: Document) -> None:
        lines = document.text(name).splitlines(keepends=True)
        if type(line) is not int or not 0 <= line <= len(lines):
            raise errors.NoMatch(f"there are {len(lines)} lines, so no line {line}")
        whole = wanted if wanted.endswith("\n") or line == len(lines) else wanted + "\n"
        head = "\n" if line and not lines[line - 1].endswith("\n") else ""
        document.splice(sum(map(len, lines[:line])), 0, head + whole, name)

    return Edit("insert", "overwrite", change, sequence=name)


MAX_EDITS = 100  # in one version
_FORMS: dict[frozenset[str], Callable[[Part, Mapping[str, Any]], Edit]] = {
    frozenset(("old", "new")): lambda part, each: replace(part, each["old"], each["new"], "only", False),
    frozenset(("old", "new", "all")): lambda part, each: replace(
        part, each["old"], each["new"], "all" if each["all"] is True else "only", False
    ),
    frozenset(("line", "text")): lambda part, each: insert(part, each["line"], each["text"]),
    frozenset(("start", "end", "text")): lambda part, each: edit_range(
        part, each["start"], each["end"], each["text"]
    ),
}


def edit_many(part: Part, edits: object) -> Edit:
    """Build one edit of several, each made in the text that those before it leave; all happen, or none."""
    part.require_kind("text", "edit_many")
    if not isinstance(edits, list | tuple) or not 1 <= len(edits) <= MAX_EDITS:
        raise InputError(f"expected a list of 1 to {MAX_EDITS} edits, got {edits!r:.80}", field="edits")
    built = [_read_edit(part, number, each) for number, each in enumerate(edits, 1)]

    def change(document: Document) -> None:
        for number, each in enumerate(built, 1):
            try:
                each.change(document)
            except errors.NoMatch as error:
                raise errors.NoMatch(f"edit {number}: {error.message}", hint=error.hint) from None

    return Edit("edit", "overwrite", change, sequence=part.body)


def _read_edit(part: Part, number: int, edit: object) -> Edit:
    if isinstance(edit, Mapping) and (build := _FORMS.get(frozenset(edit))):
        return build(part, edit)
    raise InputError(
        f"edit {number} is not a valid edit: {edit!r:.80}",
        hint="give old and new (and all), line and text to insert, or start, end and text",
        field="edits",
    )


def patch(part: Part, patch: object) -> Edit:
    """Build the edit that applies a unified diff."""
    part.require_kind("text", "patch")
    wanted, name = check_text(patch), part.body

    def change(document: Document) -> None:
        document.write(apply_patch(document.text(name), wanted), name)

    return Edit("patch", "overwrite", change, sequence=name)


def _places(
    old: str, new: str, which: str | int, regex: bool, limit: int
) -> Callable[[str], list[tuple[int, int, str]]]:
    """Return a function that finds the replacements in a text, in order: start, length, new text."""
    if not old:
        raise InputError("what to replace must not be empty", field="old")
    try:
        pattern = re.compile(old if regex else re.escape(old))
    except re.error as error:
        raise InputError(f"{old!r} is not a valid pattern: {error}", field="old") from None

    def find(text: str) -> list[tuple[int, int, str]]:
        found = []
        room = max(limit, len(text))
        for match in pattern.finditer(text):
            try:
                instead = match.expand(new) if regex else new
            except (re.error, IndexError) as error:
                raise InputError(f"{new!r} is not a valid replacement: {error}", field="new") from None
            found.append((match.start(), match.end() - match.start(), instead))
            if which == "first":
                break
            room -= len(instead) if which == "all" else 0
            if room < 0:  # checked here, before a few letters expand to gigabytes
                raise errors.LimitExceeded(f"there would be more than {limit} characters", limit=limit)
        if not found:
            raise errors.NoMatch(f"{old!r} is not there")
        if which in ("first", "all"):
            return found
        if which == "only":
            if len(found) > 1:
                raise _ambiguous_error(old, text, [start for start, _, _ in found])
            return found
        if type(which) is not int or not 1 <= which <= len(found):
            raise errors.NoMatch(f"{old!r} was found {len(found)} times, so {which!r} is not a valid match")
        return [found[which - 1]]

    return find


def _ambiguous_error(old: str, text: str, starts: list[int]) -> errors.NoMatch:
    lines = [text.count("\n", 0, start) + 1 for start in starts[:NAMED_LINES]]
    named = ", ".join(map(str, dict.fromkeys(lines))) + (", …" if len(starts) > NAMED_LINES else "")
    return errors.NoMatch(
        f"{old!r:.80} is there {len(starts)} times, in lines {named}",
        hint="give more of the text around it, so that it is there once, or replace all",
    )


# -- patches ------------------------------------------------------------------------------------

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


class _Hunk(NamedTuple):
    """A part of a patch: its line, the old lines, and the new ones."""

    line: int
    old: list[str]
    new: list[str]


def apply_patch(text: str, patch: str) -> str:
    """Apply a patch to a text; raises NoMatch when a line of its context is not there."""
    lines = text.split("\n")
    shift = 0
    for hunk in _hunks(patch):
        place = _find(lines, hunk, shift)
        lines[place : place + len(hunk.old)] = hunk.new
        shift = place - hunk.line + len(hunk.new) - len(hunk.old)
    return "\n".join(lines)


def _hunks(patch: str) -> list[_Hunk]:
    hunks: list[_Hunk] = []
    for line in patch.split("\n"):
        start = _HUNK.match(line)
        if start:
            hunks.append(_Hunk(max(int(start[1]) - 1, 0), [], []))
        elif not hunks or line.startswith("\\"):
            continue  # the names of the files, or a remark on a missing end of line
        elif line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                hunks[-1].old.append(line[1:])
            if line[0] != "-":
                hunks[-1].new.append(line[1:])
        elif line:
            raise errors.NoMatch(
                f"{line!r:.80} is not a valid line of a patch", hint="lines start with a space, - or +"
            )
    if not hunks:
        raise errors.NoMatch("the patch has no part that begins with @@", hint="give a unified diff")
    return hunks


def _find(lines: list[str], hunk: _Hunk, shift: int) -> int:
    """Return the line of a hunk's old lines: where it says, or at the only other place that has them."""
    wanted = hunk.line + shift
    if lines[wanted : wanted + len(hunk.old)] == hunk.old and wanted >= 0:
        return wanted
    places = [
        place
        for place in range(len(lines) - len(hunk.old) + 1)
        if lines[place : place + len(hunk.old)] == hunk.old
    ]
    if len(places) == 1:
        return places[0]
    first = hunk.old[0] if hunk.old else ""
    where = "nowhere" if not places else f"at {len(places)} places"
    raise errors.NoMatch(f"the lines from {first!r:.80} on are {where} in the text")


# -- patterns that somebody else wrote ------------------------------------------------------------
# They are tried first in a process that can be stopped: a search can take hours on a text of some hundred
# characters, and Python cannot stop one in this process.

TIME_S = 2.0
MAX_PATTERN = 1000
_TRIAL = "import json,re,sys;p,t=json.load(sys.stdin);sum(1 for _ in re.finditer(p,t))"


async def replace_by_pattern(
    target: Block | Section,
    pattern: str,
    new: str,
    which: str | int,
    *,
    message: str = "",
    expect: int | None = None,
    tries: int = 5,
) -> Version:
    """Replace by a pattern in exactly the text that it was tried on; try again when others edit meanwhile."""
    tried = expect
    if pattern and target.document_kind == "text":  # anything else is refused anyway
        await check_pattern(pattern, await target.text())
        tried = target._block.version if expect is None else expect
    try:
        return await target.replace(pattern, new, which=which, regex=True, message=message, expect=tried)
    except VersionConflict:
        if expect is not None or tries == 1:
            raise
    return await replace_by_pattern(target, pattern, new, which, message=message, tries=tries - 1)


async def check_pattern(pattern: str, text: str) -> None:
    """Raise when looking for a pattern in a text takes too long."""
    if len(pattern) > MAX_PATTERN:
        raise InputError(f"a pattern has at most {MAX_PATTERN} characters", field="old")
    try:
        plain = not re.compile(pattern).groups and not set(pattern) & {*"*+{?"}
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{pattern!r:.80} is not a valid pattern: {error}", field="old") from None
    if not plain and not await asyncio.to_thread(_ends, json.dumps([pattern, text]).encode()):
        raise InputError(
            f"looking for {pattern!r:.80} takes too long", hint="use a simpler pattern", field="old"
        )


def _ends(trial: bytes) -> bool:
    command = [sys.executable, "-I", "-S", "-c", _TRIAL]
    try:
        subprocess.run(
            command,
            input=trial,
            timeout=TIME_S,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError("a pattern cannot be tried here", hint="replace a text instead") from error
    return True
