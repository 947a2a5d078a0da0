"""Patterns of paths: globs with `**`, and the rules of `.gitignore` files.

A pattern is matched step by step, and a step by the standard library's `fnmatch`: the time that takes grows
with pattern and path, never by powers of them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_RULES = 2_000
MAX_PATTERN = 500


@lru_cache(2048)
def _compile(step: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(step))


def fits(pattern: Sequence[str], steps: Sequence[str]) -> bool:
    """Check whether the steps of a path fit those of a pattern; `**` stands for any number of steps."""
    reached = [True] + [False] * len(steps)
    for wanted in pattern:
        if wanted == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [at >= first for at in range(len(reached))]
        else:
            found = _compile(wanted).match
            inner = [before and found(step) is not None for before, step in zip(reached, steps, strict=False)]
            reached = [False, *inner]
    return reached[-1]


def matches(pattern: str, path: str) -> bool:
    """Check whether a path fits a glob; one without / fits the last step of any path."""
    steps = pattern[:MAX_PATTERN].removeprefix("./").split("/")
    return fits(steps if len(steps) > 1 else ("**", *steps), path.split("/"))


class IgnoreRule(NamedTuple):
    """One line of a `.gitignore` file; `above` is the folder it holds for, with a slash."""

    above: str
    pattern: tuple[str, ...]
    folders: bool
    keeps: bool


class Ignored:
    """The rules of the `.gitignore` files on the way down a tree."""

    def __init__(self) -> None:
        self._rules: list[IgnoreRule] = []

    def add(self, folder: str, text: str) -> None:
        """Add the rules of a folder's file."""
        above = f"{folder}/" if folder else ""
        for line in text.splitlines():
            line = line.rstrip()
            if not line or line.startswith("#") or len(self._rules) >= MAX_RULES or len(line) > MAX_PATTERN:
                continue
            keeps, line = line.startswith("!"), line.removeprefix("!")
            folders, line = line.endswith("/"), line.rstrip("/")
            if line:
                pattern = tuple(line.removeprefix("/").split("/")) if "/" in line else (line,)
                deep = pattern if "/" in line else ("**", *pattern)
                self._rules.append(IgnoreRule(above, deep, folders, keeps))

    def covers(self, path: str, is_folder: bool) -> bool:
        """Check whether a path is left out; the last rule that fits decides."""
        last = path.rpartition("/")[2]
        for rule in reversed(self._rules):
            if not path.startswith(rule.above) or (rule.folders and not is_folder):
                continue
            if len(rule.pattern) == 2 and rule.pattern[0] == "**":
                found = _compile(rule.pattern[1]).match(last) is not None  # most rules; much quicker
            else:
                found = fits(rule.pattern, path[len(rule.above) :].split("/"))
            if found:
                return not rule.keeps
        return False
