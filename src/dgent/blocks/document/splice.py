"""Splices: the changes that turn one text into another."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from dgent.blocks.document.diff import find_rising

MOST_LINES = 1_000  # compared one by one, which takes the square of them at worst


class Splice(NamedTuple):
    """Replace `length` characters at `start`, a place in the text after the splices before."""

    start: int
    length: int
    text: str


def count_common(a: Sequence[str], b: Sequence[str]) -> int:
    """Count the letters that two texts have in common at the start."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # halving: comparing slices is much quicker than letters
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def count_changes(before: str, after: str) -> tuple[int, int]:
    """Count the characters added and removed between two texts that mostly agree at both ends."""
    start, end = _count_ends(before, after)
    return len(after) - start - end, len(before) - start - end


def narrow(start: int, old: str, new: str) -> Splice:
    """Return the splice from `old` to `new` without what both begin and end with."""
    first, last = _count_ends(old, new)
    return Splice(start + first, len(old) - first - last, new[first : len(new) - last])


def splice_lines(old: str, new: str) -> Iterator[Splice]:
    """Yield the splices that turn a text into another, each within lines that differ."""
    left, right = old.splitlines(keepends=True), new.splitlines(keepends=True)
    first, last = _count_ends(left, right)
    place = sum(map(len, left[:first]))
    left, right = left[first : len(left) - last], right[first : len(right) - last]
    if max(len(left), len(right)) > MOST_LINES:
        yield narrow(place, "".join(left), "".join(right))
        return
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right).get_opcodes():
        now = "".join(right[b:b_end])
        if tag != "equal":
            yield narrow(place, "".join(left[a:a_end]), now)
        place += len(now)


def _count_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Count what two texts, or two lists of lines, have in common at the start and at the end."""
    start = count_common(old, new)
    return start, count_common(old[start:][::-1], new[start:][::-1])


# -- by words, for edits that are merged with others ------------------------------------------------

MOST_LINE_PAIRS = 1_000_000  # pairs to compare; larger differences are replaced as a whole
MOST_WORD_PAIRS = 20_000
_WORDS = re.compile(r"\w+|\s|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+\Z")


class TextSplice(NamedTuple):
    """A replacement of part of a text; places count characters of the old text."""

    start: int
    length: int
    text: str


def find_splices(before: str, after: str) -> list[TextSplice]:
    """Return the splices that turn one text into another, from start to end."""
    left, right = _LINES.findall(before), _LINES.findall(after)
    found: list[TextSplice] = []
    keys = [_normalize_end(each) for each in left], [_normalize_end(each) for each in right]
    for start, old, new in _find_differences(left, right, *keys, MOST_LINE_PAIRS):
        found += _inside(start, "".join(old), "".join(new))
    return found


def _inside(start: int, old: str, new: str) -> Iterator[TextSplice]:
    """Yield the splices between some lines, by words."""
    if not old or not new:
        yield TextSplice(start, len(old), new)
        return
    left, right = _WORDS.findall(old), _WORDS.findall(new)
    for place, was, now in _find_differences(left, right, left, right, MOST_WORD_PAIRS):
        yield TextSplice(start + place, len("".join(was)), "".join(now))


def _find_differences(
    left: Sequence[str], right: Sequence[str], left_keys: Sequence[str], right_keys: Sequence[str], most: int
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """Yield where two sequences differ: the character in the first, its parts, and their replacement."""
    places = [0, *accumulate(map(len, left))]
    for a, a_end, b, b_end in _gaps(left_keys, right_keys):
        old, new = left_keys[a:a_end], right_keys[b:b_end]
        if len(old) * len(new) > most:
            codes = [("replace", 0, len(old), 0, len(new))]
        else:
            # Blanks are everywhere, so equal blanks do not show that parts match.
            codes = list(difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes())
        for tag, first, last, other, other_last in codes:
            if tag != "equal":
                yield places[a + first], left[a + first : a + last], right[b + other : b + other_last]


def _gaps(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges between the parts that occur once on each side in the same order."""
    start = count_common(left, right)
    end = count_common(left[start:][::-1], right[start:][::-1])
    last, other_last = len(left) - end, len(right) - end
    once = _index_unique(right[start:other_last])
    pairs = {
        start + a: start + once[key] for key, a in _index_unique(left[start:last]).items() if key in once
    }
    a = b = start
    for place in sorted(find_rising(sorted(pairs), pairs)):
        yield a, place, b, pairs[place]
        a, b = place + 1, pairs[place] + 1
    yield a, last, b, other_last


def _index_unique(parts: Sequence[str]) -> dict[str, int]:
    """Return the index of each part that occurs once and is not blank."""
    counted = Counter(parts)
    return {each: place for place, each in enumerate(parts) if counted[each] == 1 and not each.isspace()}


def _normalize_end(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line
