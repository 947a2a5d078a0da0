"""Differences between two states of a document: lines for texts, paths for the rest, moves of items."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from dgent.model import html

MOST = 10_000  # pairs of changed items to compare
T = TypeVar("T", bound=Hashable)
TEXT = 100  # the weight of an equal text, against 1 of another equal value


@dataclass(frozen=True)
class Difference:
    """One place where two values differ; `before` or `after` is None where there was nothing."""

    path: tuple[str | int, ...]
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff:
    """The difference between two versions: as lines for people, and by path for programs."""

    before: int
    after: int
    text: str
    changes: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text or self.changes)

    def _repr_html_(self) -> str:
        """Return the difference as a notebook shows it."""
        return html.draw_lines(self.text.splitlines())


def compare_lines(before: str, after: str, names: tuple[str, str], context: int = 3) -> str:
    """Return the unified diff of two texts."""
    left, right = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found = difflib.unified_diff(left, right, *names, n=context)
    return "".join(line if line.endswith("\n") else line + "\n\\ no newline at the end\n" for line in found)


SHOWN_LINES = 20  # around a change


def show_changed(before: str, after: str) -> str:
    """Return the lines of a text that a change touched, numbered, with one line around them.

    Several changes are shown as one stretch; of a long one the first lines.
    """
    old, new = before.split("\n"), after.split("\n")
    if old == new:
        return ""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first, last = max(start - 1, 0), min(len(new) - end + 1, len(new))
    shown = number_lines(new[first : min(last, first + SHOWN_LINES)], first + 1)
    more = last - first - SHOWN_LINES
    return f"{shown}\n… and {more} more lines" if more > 0 else shown


def number_lines(lines: Iterable[str], first: int) -> str:
    """Return lines with their numbers in front, counted from `first`."""
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


def compare_values(before: Any, after: Any, path: tuple[str | int, ...] = ()) -> Iterator[Difference]:
    """Yield the differences of two values by path; list items are matched, so one more is one difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from compare_values(before.get(key), after.get(key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_items(before, after, path)
    elif before != after or type(before) is not type(after):
        yield Difference(path, before, after)


def _compare_items(before: list[Any], after: list[Any], path: tuple[str | int, ...]) -> Iterator[Difference]:
    matcher = difflib.SequenceMatcher(None, list(map(equality_key, before)), list(map(equality_key, after)))
    for tag, left, left_end, right, right_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = max(left_end - left, right_end - right)
        for step in range(pairs):
            was = before[left + step] if left + step < left_end else None
            now = after[right + step] if right + step < right_end else None
            place = right + step if right + step < right_end else left + step
            yield Difference((*path, place), was, now)


def equality_key(value: Any) -> bytes:
    """Return a key that is the same for equal values, whatever the order of their fields."""
    return msgspec.json.encode(value, order="sorted")


# -- items and their moves --------------------------------------------------------------------


def match_items(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """Return, for each item after, the index of the item before that it is; None for a new one.

    Equal items are matched first, in order and then anywhere; then those between the same neighbours that are
    most alike, and then those anywhere that have a text in common.
    """
    left, right = list(map(equality_key, before)), list(map(equality_key, after))
    found: list[int | None] = [None] * len(after)
    free = set(range(len(before)))
    changed = []
    for tag, a, a_end, b, b_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            for step in range(a_end - a):
                found[b + step] = a + step
                free.discard(a + step)
        elif tag == "replace":
            changed.append((range(a, a_end), range(b, b_end)))
    where = defaultdict(list)
    for place in sorted(free, reverse=True):
        where[left[place]].append(place)
    for place, key in enumerate(right):
        if found[place] is None and where[key]:
            found[place] = where[key].pop()
    for old, new in changed:
        _pair(_free(old, found), _open(new, found), before, after, found, 1)
    _pair(_free(range(len(before)), found), _open(range(len(after)), found), before, after, found, TEXT)
    return found


def _free(places: Iterable[int], found: list[int | None]) -> list[int]:
    used = {each for each in found if each is not None}
    return [each for each in places if each not in used]


def _open(places: Iterable[int], found: list[int | None]) -> list[int]:
    return [each for each in places if found[each] is None]


def _pair(
    old: list[int],
    new: list[int],
    before: Sequence[Any],
    after: Sequence[Any],
    found: list[int | None],
    least: int,
) -> None:
    """Match changed items: those with most in common first, and items without fields in their order."""
    pairs: list[tuple[int, int, int]] = []
    if len(old) * len(new) <= MOST:
        pairs = [(-_likeness(before[a], after[b]), b, a) for a in old for b in new]
    for likeness, b, a in sorted(pairs):
        if -likeness >= least and a in old and b in new:
            found[b] = a
            old.remove(a)
            new.remove(b)
    if least > 1:
        return
    for a, b in zip(old, new, strict=False):
        if not isinstance(before[a], dict) and not isinstance(after[b], dict):
            found[b] = a


def _likeness(a: Any, b: Any) -> int:
    """Score how much two items have in common: equal fields, of which texts count most."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return 0
    same = [key for key in a.keys() & b.keys() if equality_key(a[key]) == equality_key(b[key])]
    return sum(TEXT if isinstance(a[key], str) and a[key] else 1 for key in same)


class Move(NamedTuple):
    """A move of an item to a place; `start` is None when it is new."""

    item: Hashable
    start: int | None
    to: int


def plan_moves(now: Sequence[Hashable], wanted: Sequence[Hashable]) -> Iterator[Move]:
    """Yield the moves that bring items into an order; all of `now` must be among the wanted ones."""
    order = list(now)
    place = {item: number for number, item in enumerate(order)}
    stay = find_rising([item for item in wanted if item in place], place)
    before: Hashable = None
    for number, item in enumerate(wanted):
        if item not in stay:
            start = order.index(item) if item in place else None
            if start is not None:
                del order[start]
            to = 0 if number == 0 else order.index(before) + 1
            order.insert(to, item)
            if start != to:
                yield Move(item, start, to)
        before = item


def find_rising(items: Sequence[T], place: Mapping[T, int]) -> set[T]:
    """Return the most items that can stay in place: the longest run whose places rise."""
    ends: list[int] = []  # the lowest place at the end of a run of each length
    last: list[T] = []
    previous: dict[T, T | None] = {}
    for item in items:
        at = bisect_left(ends, place[item])
        previous[item] = last[at - 1] if at else None
        ends[at : at + 1] = [place[item]]
        last[at : at + 1] = [item]
    stay: set[T] = set()
    step = last[-1] if last else None
    while step is not None:
        stay.add(step)
        step = previous[step]
    return stay
