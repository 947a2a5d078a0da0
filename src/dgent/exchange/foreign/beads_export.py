"""Export the crumbs of a cupboard as a file of issues of the beads tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.record import CRUMB, LINE, LINK, METADATA, MetadataRecord
from dgent.errors import Conflict
from dgent.exchange import folders
from dgent.exchange.foreign import beads_issue, files
from dgent.exchange.foreign.beads_import import FILE, LISTS
from dgent.exchange.foreign.beads_issue import DEPENDENCIES, NOTE, TEXTS
from dgent.exchange.foreign.incoming import line_bytes, load_records
from dgent.exchange.foreign.origin import read_note, restore_fields
from dgent.exchange.foreign.report import ExportResult
from dgent.model.crystal import Crystal
from dgent.model.schema import Schema
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread

LAST = 2**62  # the place of dependencies and comments made here: behind all imported ones


async def export_beads(
    cupboard: Cupboard,
    path: Path,
    *,
    imported: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Write all crumbs as issues, or only those that were `imported`, as of one moment.

    Imported issues are written with all values that were read, except for changes made here. An existing
    file is refused unless `replace`.
    """
    universe = await cupboard._ready()
    folders.check_path(path, "path")
    if path.exists() and not replace:
        raise Conflict(f"{path} already exists", hint="name a new file, or say that it may be replaced")
    seq = await universe.seq()
    out = _IssueExport(cupboard, seq, ProgressReporter(progress))
    lines = await out.lines(imported)
    size = await in_thread(lambda _: files.write_lines(path, lines))
    out.pace.end()
    return ExportResult(str(path), {path.name: len(lines)}, seq, size)


class _IssueExport:
    """One export of a cupboard as issues."""

    def __init__(self, cupboard: Cupboard, seq: int, pace: ProgressReporter) -> None:
        self.cupboard, self.seq, self.pace = cupboard, seq, pace

    async def all(self, schema: Schema[Any]) -> list[Crystal[Any]]:
        """Return all records of a schema."""
        return await load_records(self.cupboard._universe, schema, self.seq, self.pace)

    async def lines(self, imported: bool) -> list[bytes]:
        """Return the lines of the file."""
        links: dict[str, list[Crystal[Any]]] = {}
        for link in await self.all(LINK):
            if link.value.link_type == "child_of":
                links.setdefault(link.value.from_id, []).append(link)
        entries: dict[str, list[Crystal[Any]]] = {}
        for entry in await self.all(METADATA):
            entries.setdefault(entry.value.crumb_id, []).append(entry)
        lines = [line_bytes(kept.value) for kept in await self.all(LINE) if kept.value.file == FILE]
        for crumb in await self.all(CRUMB):
            if NOTE in crumb.value.extra or not imported:
                issue = self._issue(crumb, links.get(crumb.id, []), entries.get(crumb.id, []))
                lines.append(files.encode_line(issue))
        return lines

    def _issue(
        self, crumb: Crystal[Any], links: list[Crystal[Any]], entries: list[Crystal[Any]]
    ) -> dict[str, Any]:
        note = read_note(crumb.value.extra, NOTE)
        made = beads_issue.build_issue(crumb.id, crumb.value, crumb.created_at, self.cupboard._definitions)
        written = restore_fields(dict(made), note.get("written"))
        lists: dict[str, list[tuple[int, Any]]] = {name: _others(note, name) for name in LISTS}
        for link in links:
            mine = read_note(link.value.extra, NOTE)
            line = beads_issue.restore_values(beads_issue.build_dependency(link.value, link.created_at), mine)
            lists["dependencies"].append((mine.get("place", LAST), line))
        for entry in entries:
            self._add_entry(written, lists, entry)
        for name, values in lists.items():
            if values:
                written[name] = [value for _, value in sorted(values, key=lambda each: each[0])]
        return beads_issue.refresh(beads_issue.restore_values(written, {**note, "written": {}}), crumb.value)

    def _add_entry(
        self, issue: dict[str, Any], lists: dict[str, list[tuple[int, Any]]], entry: Crystal[Any]
    ) -> None:
        record: MetadataRecord = entry.value
        note = read_note(record.extra, NOTE)
        where = note.get("place", LAST)
        if record.table_name == "comments":
            # A comment imported without an author is written without one.
            made = beads_issue.build_comment(record, entry.created_at, None if note else entry.author)
            lists["comments"].append((where, beads_issue.restore_values(made, note)))
        elif record.table_name == DEPENDENCIES:
            lists["dependencies"].append((where, _decode_or_text(record.content)))
        elif record.table_name in TEXTS and (note or record.table_name not in issue):
            issue[record.table_name] = record.content


def _others(note: Any, field: str) -> list[tuple[int, Any]]:
    """Return the entries of a list that did not become records, with their places."""
    others = note.get("others", {}).get(field, {})
    return [(int(where), value) for where, value in others.items()]


def _decode_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
