"""How long tests look: a short look in `make test`, a long one in `make soak` (DGENT_SOAK times as long)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

SOAK = int(os.environ.get("DGENT_SOAK", "1"))


def times(count: int) -> int:
    """So many in a short look, so many times more in a long one."""
    return count * SOAK


def examples(count: int) -> int:
    """A quarter as many in a short look, so many times more in a long one."""
    return max(1, count // 4) if SOAK == 1 else count * SOAK


def first(cases: Iterable[T], count: int) -> list[T]:
    """The first of the cases, which differ most; every one in a long look."""
    return list(cases) if SOAK > 1 else list(cases)[:count]


def some(steps: Iterable[T], count: int) -> list[T]:
    """The first, the last and others by chance, `count` in all and in order; every one in a long look."""
    all_steps = list(steps)
    if SOAK > 1 or len(all_steps) <= count:
        return all_steps
    middle = random.sample(range(1, len(all_steps) - 1), count - 2)
    return [all_steps[at] for at in sorted({0, len(all_steps) - 1, *middle})]
