"""Differences between two states of a document: lines for texts, paths for the rest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec


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


def compare_lines(before: str, after: str, names: tuple[str, str], context: int = 3) -> str:
    """Return the unified diff of two texts."""
    left, right = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found = difflib.unified_diff(left, right, *names, n=context)
    return "".join(line if line.endswith("\n") else line + "\n\\ no newline at the end\n" for line in found)


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
