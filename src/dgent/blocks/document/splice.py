"""The changes that make one text another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MOST_LINES = 1_000  # compared one by one; comparing takes the square of them at worst


class Splice(NamedTuple):
    """Replace so many characters from a place on; places count as after the splices before."""

    start: int
    length: int
    text: str


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many letters two texts begin with together."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # halving: comparing slices is much quicker than letters
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def counts(before: str, after: str) -> tuple[int, int]:
    """How many characters came and went between two texts that mostly agree at both ends."""
    start, end = _ends(before, after)
    return len(after) - start - end, len(before) - start - end


def narrowed(start: int, old: str, new: str) -> Splice:
    """The splice that makes a part of a text another one, without what both begin and end with."""
    first, last = _ends(old, new)
    return Splice(start + first, len(old) - first - last, new[first : len(new) - last])


def by_lines(old: str, new: str) -> Iterator[Splice]:
    """The splices that make a text another one, each within lines that differ."""
    left, right = old.splitlines(keepends=True), new.splitlines(keepends=True)
    first, last = _ends(left, right)
    place = sum(map(len, left[:first]))
    left, right = left[first : len(left) - last], right[first : len(right) - last]
    if max(len(left), len(right)) > MOST_LINES:
        yield narrowed(place, "".join(left), "".join(right))
        return
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right).get_opcodes():
        now = "".join(right[b:b_end])
        if tag != "equal":
            yield narrowed(place, "".join(left[a:a_end]), now)
        place += len(now)


def _ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How much two texts, or two lists of lines, begin with and end with together."""
    start = common(old, new)
    return start, common(old[start:][::-1], new[start:][::-1])
