"""Inspect a JSONL store: unusual lines, conflicts, git, and the cache."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from dgent.store.jsonl.cache import RecordConflict, Report
from dgent.store.jsonl.damage import SETTLE
from dgent.store.jsonl.folder import FORMAT
from dgent.store.jsonl.git import is_set_up
from dgent.store.jsonl.scan import BAD, CUT, DAMAGED, HAND, INCOMPLETE, LINK, MARKER
from dgent.store.jsonl.settle import REASON
from dgent.store.sqlite.inspect import _room
from dgent.store.sqlite.upkeep import SQLiteUpkeep
from dgent.store.upkeep import Duplicate, Finding, Level
from dgent.system.progress import Progress
from dgent.system.threads import in_thread

if TYPE_CHECKING:
    from dgent.store.jsonl.backend import JSONLBackend

NAMED = 20  # so many unusual lines are listed one by one
_CACHE = ("integrity", "entries", "indexes", "forgetting")  # the findings about the cache that are reported

_LEVELS: dict[str, Level] = {
    BAD: "problem",
    CUT: "warning",
    MARKER: "warning",
    HAND: "note",
    INCOMPLETE: "warning",
    DAMAGED: "problem",
    LINK: "problem",
}
_HINTS = {
    BAD: "correct the line, or remove it; it is kept as it is",
    CUT: "a write was interrupted here, and was never acknowledged; it is kept until you remove it",
    MARKER: "both sides were read; `dgent jsonl compact --history` leaves the marker out",
    HAND: "it was applied as a new version; `dgent jsonl compact --history` seals it",
    INCOMPLETE: (
        "a commit of several records was interrupted, and was never acknowledged, or its other files have not"
        " arrived yet; `dgent doctor --damaged drop` removes its lines"
    ),
    DAMAGED: SETTLE,
    LINK: "a link is not followed: put the file itself in its place, or remove it",
}


class JSONLUpkeep(SQLiteUpkeep):
    """The maintenance interface of an open folder."""

    _backend: JSONLBackend

    async def inspect(
        self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Look for problems; `deep` also checks the cache, `fix` repairs there what is safe to repair."""
        backend = self._backend
        reports, conflicts = await backend.check_lines()
        found = [
            Finding("ok", "universe", f"its id is {await self.universe_id()}"),
            Finding("ok", "format", f"format {FORMAT}; sync is {backend.policy.strategy}"),
            *_line_findings(reports),
            *_conflict_findings(conflicts),
            *await in_thread(lambda _: _git_findings(backend.folder)),
        ]
        if deep:
            whole = await super().inspect(deep=True, fix=fix, progress=progress)
            return found + [each for each in whole if each.subject in _CACHE]
        return found + [finding for finding, _ in _room(backend)]

    async def copy_to(self, path: str, progress: Progress | None = None) -> Duplicate:
        """Write a copy of one moment to a new SQLite file, checked before this returns."""
        await self._backend.last_seq()  # updates the cache from the files
        return await super().copy_to(path, progress)


def level_of(report: Report) -> Level:
    """Return the severity of a report."""
    return _LEVELS.get(report.kind, "warning")


def hint_of(report: Report) -> str:
    """Return what to do about a report."""
    return _HINTS.get(report.kind, "")


def _line_findings(reports: list[Report]) -> list[Finding]:
    if not reports:
        return [Finding("ok", "lines", "every line was read")]
    found = [
        Finding(level_of(each), "lines", f"{each.name}:{each.line}: {each.kind}: {each.text}", hint_of(each))
        for each in reports[:NAMED]
    ]
    if len(reports) > NAMED:
        found.append(Finding("warning", "lines", f"{len(reports) - NAMED:,} more unusual lines"))
    return found


def _conflict_findings(conflicts: list[RecordConflict]) -> list[Finding]:
    found = [
        Finding("problem", "conflict", describe_conflict(each), settle_hint(each))
        for each in conflicts[:NAMED]
    ]
    if len(conflicts) > NAMED:
        found.append(Finding("problem", "conflict", f"{len(conflicts) - NAMED:,} more conflicts"))
    return found


def describe_conflict(conflict: RecordConflict) -> str:
    """Describe what two copies changed, and which version counts; or why somebody must look at it."""
    reasons = _list_reasons(conflict)
    if reasons:
        return f"{conflict.id!r} was merged from two copies: {'; '.join(reasons)}"
    what = f" in {', '.join(conflict.fields)}" if conflict.fields else ""
    return (
        f"{conflict.id!r} was changed in two copies{what}; rev {conflict.rev} counts, both are in its history"
    )


def _list_reasons(conflict: RecordConflict) -> list[str]:
    return [each.removeprefix(REASON) for each in conflict.fields if each.startswith(REASON)]


def settle_hint(conflict: RecordConflict) -> str:
    """Return a hint with the commands that settle a conflict."""
    id = shlex.quote(conflict.id)
    if _list_reasons(conflict):
        return f"look at it, and correct it if needed; then accept it as it is with `dgent jsonl settle {id}`"
    return (
        f"compare the versions with `dgent history {id}`, then write the record as it should be,"
        f" or accept it as it is with `dgent jsonl settle {id}`"
    )


def _git_findings(folder: str) -> list[Finding]:
    set_up = is_set_up(folder) if os.path.isdir(folder) else None
    if set_up is None:
        return []
    if set_up:
        return [Finding("ok", "git", "git merges its files line by line")]
    message = "git does not know how to merge its files; two branches that append will conflict"
    return [Finding("note", "git", message, "dgent jsonl git-setup")]
