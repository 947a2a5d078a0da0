"""Edits of texts: append, write, replace, edit a range of lines, patch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from dgent.blocks import errors
from dgent.blocks.document.document import Document
from dgent.blocks.edit.editable import Editable, check_text
from dgent.blocks.history.version import Version
from dgent.errors import InputError

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


class TextEdits(Editable):
    """The edits of a text."""

    async def _append_text(self, text: object, by: str | None, message: str, expect: int | None) -> Version:
        wanted, name = check_text(text), self._body()

        def change(document: Document) -> None:
            document.splice(document.length(name), 0, wanted, name)

        return await self._edit("append", "append", change, by, message, expect)

    async def write(
        self, text: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Replace all of a text; parts that stay the same are not rewritten."""
        self._require_kind("text", "write")
        wanted, name = check_text(text), self._body()
        return await self._edit(
            "write", "overwrite", lambda document: document.write(wanted, name), by, message, expect
        )

    async def replace(
        self,
        old: str,
        new: str,
        *,
        which: str | int = "first",
        regex: bool = False,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the first match of a text, all (`which="all"`), or the nth; `old` may be a regex."""
        self._require_kind("text", "replace")
        places, name = _places(check_text(old), check_text(new), which, regex, self.limit), self._body()

        def change(document: Document) -> None:
            found = places(document.text(name))
            for start, length, text in reversed(found):
                document.splice(start, length, text, name)

        return await self._edit("replace", "overwrite", change, by, message, expect)

    async def edit_range(
        self,
        start: int,
        end: int,
        text: str,
        *,
        by: str | None = None,
        message: str = "",
        expect: int | None = None,
    ) -> Version:
        """Replace the lines from `start` to `end`, both counted from 1."""
        self._require_kind("text", "edit_range")
        wanted, name = check_text(text), self._body()

        def change(document: Document) -> None:
            lines = document.text(name).splitlines(keepends=True)
            if not 1 <= start <= end <= max(len(lines), 1):
                raise errors.NoMatch(f"there are {len(lines)} lines, so none from {start} to {end}")
            first = sum(map(len, lines[: start - 1]))
            old = "".join(lines[start - 1 : end])
            tail = "\n" if wanted and not wanted.endswith("\n") and old.endswith("\n") else ""
            document.splice(first, len(old), wanted + tail, name)

        return await self._edit("edit_range", "overwrite", change, by, message, expect)

    async def patch(
        self, patch: str, *, by: str | None = None, message: str = "", expect: int | None = None
    ) -> Version:
        """Apply a unified diff; every line of its context must be there."""
        self._require_kind("text", "patch")
        wanted, name = check_text(patch), self._body()
        return await self._edit(
            "patch",
            "overwrite",
            lambda document: document.write(apply_patch(document.text(name), wanted), name),
            by,
            message,
            expect,
        )


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
        if type(which) is not int or not 1 <= which <= len(found):
            raise errors.NoMatch(f"{old!r} was found {len(found)} times, so {which!r} is not a valid match")
        return [found[which - 1]]

    return find
