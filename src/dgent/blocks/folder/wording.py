"""The difference of two texts as few small replacements, so that what others did between them stays.

Lines are compared first, and inside of lines that changed the words. A line that differs only in how it ends
is the same line.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from dgent.blocks.folder.matching import rising
from dgent.blocks.splice import common

MOST_LINES = 1_000_000  # pairs to compare; what differs in more is replaced as a whole
MOST_WORDS = 20_000
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
    keys = [_ended(each) for each in left], [_ended(each) for each in right]
    for start, old, new in _differing(left, right, *keys, MOST_LINES):
        found += _inside(start, "".join(old), "".join(new))
    return found


def _inside(start: int, old: str, new: str) -> Iterator[Splice]:
    """The difference of some lines, by words."""
    if not old or not new:
        yield Splice(start, len(old), new)
        return
    left, right = _WORDS.findall(old), _WORDS.findall(new)
    for place, was, now in _differing(left, right, left, right, MOST_WORDS):
        yield Splice(start + place, len("".join(was)), "".join(now))


def _differing(
    left: Sequence[str], right: Sequence[str], left_keys: Sequence[str], right_keys: Sequence[str], most: int
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """Where two sequences differ: at which character of the first, what is there, and what comes instead."""
    places = [0, *accumulate(map(len, left))]
    for a, a_end, b, b_end in _gaps(left_keys, right_keys):
        old, new = left_keys[a:a_end], right_keys[b:b_end]
        if len(old) * len(new) > most:
            codes = [("replace", 0, len(old), 0, len(new))]
        else:
            # Blanks are everywhere: what they seem to have in common says nothing.
            codes = list(difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes())
        for tag, first, last, other, other_last in codes:
            if tag != "equal":
                yield places[a + first], left[a + first : a + last], right[b + other : b + other_last]


def _gaps(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """What is between the parts that are there once on each side, in the same order: those stay."""
    start = common(left, right)
    end = common(left[start:][::-1], right[start:][::-1])
    last, other_last = len(left) - end, len(right) - end
    once = _once(right[start:other_last])
    pairs = {start + a: start + once[key] for key, a in _once(left[start:last]).items() if key in once}
    a = b = start
    for place in sorted(rising(sorted(pairs), pairs)):
        yield a, place, b, pairs[place]
        a, b = place + 1, pairs[place] + 1
    yield a, last, b, other_last


def _once(parts: Sequence[str]) -> dict[str, int]:
    """Where each part is that is there once, and says something."""
    counted = Counter(parts)
    return {each: place for place, each in enumerate(parts) if counted[each] == 1 and not each.isspace()}


def _ended(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line
