"""What an import or an export came to."""

from __future__ import annotations

from typing import Literal

import msgspec

NAMED = 200  # so many problems are problems one by one

Existing = Literal["newer", "skip", "replace"]
"""What happens to what is there already: the newer one wins, it stays, or the file's takes its place."""


class Problem(msgspec.Struct, frozen=True):
    """Something odd in a file, and what was done about it."""

    file: str
    line: int
    message: str


class ImportResult(msgspec.Struct, frozen=True):
    """What an import came to, or would come to; `seq` is the last commit it made.

    `kept` lines are those that no record can hold: they are kept as they are, and written out again.
    `problems` names the first of what was odd, of `odd` in all.
    """

    added: int
    changed: int
    unchanged: int
    skipped: int
    kept: int
    odd: int
    problems: list[Problem]
    seq: int | None
    dry_run: bool


class ExportResult(msgspec.Struct, frozen=True):
    """What an export wrote: lines by file, as of one commit."""

    path: str
    lines: dict[str, int]
    seq: int
    size_bytes: int


class ImportTally:
    """An import being counted."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("added", "changed", "unchanged", "skipped", "kept"), 0)
        self.odd = 0
        self.problems: list[Problem] = []

    def count(self, what: str) -> None:
        """One more record was added, changed, left unchanged, skipped, or a line kept."""
        self.counts[what] += 1

    def report(self, file: str, line: int, message: str) -> None:
        """Something is odd."""
        self.odd += 1
        if len(self.problems) < NAMED:
            self.problems.append(Problem(file, line, message))

    def done(self, seq: int | None, dry_run: bool) -> ImportResult:
        """The end of it."""
        problems = sorted(self.problems, key=lambda each: (each.file, each.line))
        return ImportResult(**self.counts, odd=self.odd, problems=problems, seq=seq, dry_run=dry_run)
