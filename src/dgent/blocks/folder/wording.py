"""The difference of two texts as few small replacements, so that what others did between them stays.

Lines are compared first, and inside of lines that changed the words. A line that differs only in how it ends
is the same line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from dgent.blocks.document import common

MOST = 4_000_000  # pairs to compare; what differs in more is replaced as a whole
_WORDS = re.compile(r"\w+|\s|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+\Z")


class Splice(NamedTuple):
    """A part of a text that becomes another one; places count characters."""

    start: int
    length: int
    text: str


def splices(before: str, after: str) -> list[Splice]:
    """What makes one text of another, from its start to its end."""
    left, right = _LINES.findall(before), _LINES.findall(after)
    found: list[Splice] = []
    for start, old, new in _differing(
        left, right, [_ended(each) for each in left], [_ended(each) for each in right]
    ):
        found += _inside(start, "".join(old), "".join(new))
    return found


def _inside(start: int, old: str, new: str) -> Iterator[Splice]:
    """The difference of some lines, by words."""
    if not old or not new:
        yield Splice(start, len(old), new)
        return
    left, right = _WORDS.findall(old), _WORDS.findall(new)
    for place, was, now in _differing(left, right, left, right):
        yield Splice(start + place, len("".join(was)), "".join(now))


def _differing(
    left: Sequence[str], right: Sequence[str], left_keys: Sequence[str], right_keys: Sequence[str]
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """Where two sequences differ: at which character of the first, what is there, and what comes instead."""
    start = common(left_keys, right_keys)
    end = common(left_keys[start:][::-1], right_keys[start:][::-1])
    places = [0, *accumulate(map(len, left))]
    old, new = left_keys[start : len(left) - end], right_keys[start : len(right) - end]
    # Blanks are everywhere: what they seem to have in common says nothing.
    if len(old) * len(new) > MOST:
        codes = [("replace", 0, len(old), 0, len(new))]
    else:
        codes = list(difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes())
    for tag, first, last, other, other_last in codes:
        if tag != "equal":
            begin = start + first
            yield places[begin], left[begin : start + last], right[start + other : start + other_last]


def _ended(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line
