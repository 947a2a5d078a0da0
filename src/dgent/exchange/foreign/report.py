"""Results of imports and exports."""

from __future__ import annotations

from typing import Literal

import msgspec

NAMED = 200  # problems listed

Existing = Literal["newer", "skip", "replace"]
"""The decision about existing records: the newer one wins, they stay, or the file's replace them."""


class Problem(msgspec.Struct, frozen=True):
    """A problem in a file, and what was done about it."""

    file: str
    line: int
    message: str


class ImportResult(msgspec.Struct, frozen=True):
    """The result of an import, or of its dry run; `seq` is the last commit it made.

    `kept` counts lines that no record can hold: they are stored unchanged and exported again. `problems`
    lists the first of `odd` problems.
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
    """The result of an export: lines by file, as of one commit."""

    path: str
    lines: dict[str, int]
    seq: int
    size_bytes: int


class ImportTally:
    """The counts of an import in progress."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("added", "changed", "unchanged", "skipped", "kept"), 0)
        self.odd = 0
        self.problems: list[Problem] = []

    def count(self, what: str) -> None:
        """Count a record as added, changed, unchanged or skipped, or a line as kept."""
        self.counts[what] += 1

    def report(self, file: str, line: int, message: str) -> None:
        """Report a problem."""
        self.odd += 1
        if len(self.problems) < NAMED:
            self.problems.append(Problem(file, line, message))

    def done(self, seq: int | None, dry_run: bool) -> ImportResult:
        """Return the result of the import."""
        problems = sorted(self.problems, key=lambda each: (each.file, each.line))
        return ImportResult(**self.counts, odd=self.odd, problems=problems, seq=seq, dry_run=dry_run)
