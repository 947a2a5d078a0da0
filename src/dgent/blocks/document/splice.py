"""Splices: the changes that turn one text into another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
