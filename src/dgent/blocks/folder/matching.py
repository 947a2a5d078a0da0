"""Which item of a list is which item of another, and how one order becomes another with few moves."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dgent.blocks.diff import sameness

MOST = 10_000  # pairs of changed items to compare
T = TypeVar("T", bound=Hashable)
TEXT = 100  # what a text in common counts, against another value


def matched(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """For each item after, which one before it is; None for one that is new.

    Items that are equal first, in order and then anywhere; then those between the same neighbours which are
    most alike, and then those anywhere that have a text in common.
    """
    left, right = list(map(sameness, before)), list(map(sameness, after))
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
    """How much two items have in common: fields that agree, and a text counts for more than a number."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return 0
    same = [key for key in a.keys() & b.keys() if sameness(a[key]) == sameness(b[key])]
    return sum(TEXT if isinstance(a[key], str) and a[key] else 1 for key in same)


class Step(NamedTuple):
    """An item that goes to a place: from one before, or from nowhere when it is new."""

    item: Hashable
    start: int | None
    to: int


def steps(now: Sequence[Hashable], wanted: Sequence[Hashable]) -> Iterator[Step]:
    """What brings items into an order; those of `now` must be among the wanted ones."""
    order = list(now)
    place = {item: number for number, item in enumerate(order)}
    stay = rising([item for item in wanted if item in place], place)
    before: Hashable = None
    for number, item in enumerate(wanted):
        if item not in stay:
            start = order.index(item) if item in place else None
            if start is not None:
                del order[start]
            to = 0 if number == 0 else order.index(before) + 1
            order.insert(to, item)
            if start != to:
                yield Step(item, start, to)
        before = item


def rising(items: Sequence[T], place: Mapping[T, int]) -> set[T]:
    """As many items as can stay where they are: the longest run of them whose places rise."""
    ends: list[int] = []  # the lowest place that a run of each length ends with
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
