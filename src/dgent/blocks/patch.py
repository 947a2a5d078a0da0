"""Applying a unified difference to a text, with its context verified."""

from __future__ import annotations

import re
from typing import NamedTuple

from dgent.blocks import errors

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


class _Hunk(NamedTuple):
    """A part of a patch: where it should be, what must be there, and what comes instead."""

    line: int
    old: list[str]
    new: list[str]


def patched(text: str, patch: str) -> str:
    """The text after a patch; NoMatch when a line that it names is not there."""
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
                f"{line!r:.80} is no line of a patch", hint="lines start with a space, - or +"
            )
    if not hunks:
        raise errors.NoMatch("the patch has no part that begins with @@", hint="give a unified difference")
    return hunks


def _find(lines: list[str], hunk: _Hunk, shift: int) -> int:
    """Where the old lines of a hunk are: where it says, or at the one other place that has them."""
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
