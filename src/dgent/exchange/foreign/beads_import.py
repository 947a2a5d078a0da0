"""Import a file of issues of the beads tracker into a cupboard.

An issue becomes a crumb with the same id. Its dependencies become links: `beads_issue.LINK_TYPES` has the
type of each. Those of other types, and those that lead to a missing or deleted issue (a tombstone) or close a
cycle, become metadata. Comments stay comments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dgent import ids
from dgent.cupboard import batch
from dgent.cupboard.builtin import schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.kind import LINK_RULES, WAITING
from dgent.cupboard.record import (
    CRUMB,
    LINK,
    METADATA,
    TYPE,
    CategoryRecord,
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
    SchemaRecord,
)
from dgent.cupboard.short_id import can_be_short_id, needs_short_id
from dgent.cupboard.waiting import Edge
from dgent.errors import InputError
from dgent.exchange.foreign import beads_issue, files, links
from dgent.exchange.foreign.beads_issue import DEPENDENCIES, NOTE, TEXTS, derive_id
from dgent.exchange.foreign.incoming import ImportRun, group_newest_first, note_of
from dgent.exchange.foreign.origin import format_time, parse_time, read_note
from dgent.exchange.foreign.report import Existing, ImportResult, ImportTally
from dgent.model.query import Query
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread

FILE = "beads"
LISTS = ("dependencies", "comments")
_SCHEMAS = {
    **{name: SchemaRecord(name, "A part of an issue of the beads tracker.") for name in TEXTS},
    DEPENDENCIES: SchemaRecord(
        DEPENDENCIES, "How an issue of the beads tracker depends on others, where no link can say it.", "json"
    ),
}


async def import_beads(
    cupboard: Cupboard,
    path: Path,
    *,
    existing: Existing = "newer",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Import the issues of a file in one commit; importing it again changes nothing.

    `existing` decides about issues that exist with other content: the newer one wins, they stay, or the
    file's replace them. The same holds for those that were deleted here.
    """
    pace = ProgressReporter(progress, path.stat().st_size if path.is_file() else None)
    lines = await in_thread(lambda stopped: files.read_lines(path, pace, stopped))
    plan = _BeadsImport(lines, existing, await _find_full_ids(cupboard, lines))
    tally, seq = await batch.change(cupboard, plan.run, note_of(path), dry_run=dry_run)
    pace.end()
    return tally.done(seq, dry_run)


MANY = 500  # short ids that are looked up at once


async def _find_full_ids(cupboard: Cupboard, lines: files.SourceFile) -> dict[str, str]:
    """Return the ids of the records of issues that an export of dgent wrote with their short ids.

    The line has the id; where another program left it out, the crumb here that has this short id.
    """
    found: dict[str, str] = {}
    unknown: list[str] = []
    for line in lines.lines:
        given = line.given or {}
        id, full = given.get("id"), given.get(beads_issue.FULL_ID)
        if not isinstance(id, str):
            continue
        if isinstance(full, str) and needs_short_id(full):
            found[id] = full
        elif can_be_short_id(id):
            unknown.append(id)
    universe = await cupboard._ready()
    for start in range(0, len(unknown), MANY):
        where = {"short_id": {"$in": unknown[start : start + MANY]}}
        for crumb in await universe.recall(Query(schema=CRUMB.name, where=where, limit=None)):
            found.setdefault(crumb.value.short_id, crumb.id)
    return found


class _Issue(NamedTuple):
    """An issue and its line."""

    line: files.SourceLine
    id: str
    given: dict[str, Any]


class _Part(NamedTuple):
    """A dependency or a comment of an issue, and its place in the list."""

    issue: _Issue
    place: int
    given: dict[str, Any]


class _BeadsImport:
    """One import of a file; `run` is repeated after a conflict."""

    def __init__(self, lines: files.SourceFile, existing: Existing, full_ids: Mapping[str, str]) -> None:
        self._full_ids = full_ids
        self.existing, self.name, self.changed_at = existing, lines.name, lines.changed_at
        self.bad: list[tuple[files.SourceLine, str]] = []
        self.twice: list[tuple[files.SourceLine, str]] = []
        found = list(self._issues(lines))
        self.issues: list[_Issue] = []
        for winner, *others in group_newest_first(found, lambda each: each.id, self._age).values():
            self.issues.append(winner)
            for other in others:
                message = f"line {winner.line.number} has the same id and is used instead"
                self.twice.append((other.line, message))

    def _issues(self, lines: files.SourceFile) -> Iterator[_Issue]:
        for line in lines.lines:
            try:
                if line.given is None:
                    raise InputError(line.wrong)
                given = beads_issue.rename(line.given, self._full_ids)
                if self._full_ids.get(str(line.given.get("id"))) == given.get(beads_issue.FULL_ID):
                    given.pop(beads_issue.FULL_ID, None)
                yield _Issue(line, ids.check_id(given.get("id")), given)
            except InputError as error:
                self.bad.append((line, error.message))

    def _age(self, issue: _Issue) -> Any:
        return beads_issue.parse_time_or(issue.given.get("updated_at"), parse_time("0002-01-01"))

    async def run(self, changeset: Changeset) -> ImportTally:
        """Put everything into a changeset."""
        run = ImportRun(changeset, self.existing, {FILE: self.name})
        for line, reason in self.bad:
            run.keep_line(FILE, line, reason)
        for line, message in self.twice:
            run.report(FILE, line, message)
        await run.load([*self._ids(), *(schema_id(name) for name in _SCHEMAS)])
        self._define_types(run)
        known = await self._find_earlier(run)
        taken = [issue for issue in self.issues if self._import_issue(run, issue)]
        await self._import_parts(run, taken, known)
        self._register_schemas(run)
        await run.settle_lines([FILE])
        return run.tally

    def _ids(self) -> Iterator[str]:
        for issue in self.issues:
            yield issue.id
            for part in _objects(issue, "dependencies"):
                target = part.given.get("depends_on_id")
                if isinstance(target, str) and _is_id(target):
                    yield target

    def _define_types(self, run: ImportRun) -> None:
        """Add a category for every type of issue."""
        changeset = run.changeset
        types = changeset.definitions.by_id[TYPE]
        given: set[str] = {
            issue.given["issue_type"] for issue in self.issues if _is_text(issue, "issue_type")
        }
        first = 1 + max((choice.ordinal for choice in types.options), default=-1)
        new = {
            beads_issue.category_id(name): CategoryRecord(TYPE, name, first + place)
            for place, name in enumerate(sorted(name for name in given if types.find_option(name) is None))
        }
        for id, record in new.items():
            changeset.put(id, record)
        if new:
            changeset.definitions = changeset.definitions.with_categories(new)
            changeset.mark_redefined()

    async def _find_earlier(self, run: ImportRun) -> dict[str, str]:
        """Return links and metadata that earlier imports made of these issues, with the issue of each."""
        changeset = run.changeset
        mine = {issue.id for issue in self.issues if changeset.get_stored(issue.id) is not None}
        found: dict[str, str] = {}
        for schema, owner in ((LINK, "from_id"), (METADATA, "crumb_id")) if mine else ():
            for each in await changeset.tx.recall(Query(schema=schema.name, limit=None)):
                if getattr(each.value, owner) in mine and NOTE in each.value.extra:
                    changeset.add_loaded(each)
                    found[each.id] = getattr(each.value, owner)
        return found

    def _import_issue(self, run: ImportRun, issue: _Issue) -> bool:
        """Import an issue as a crumb; return whether its links and metadata may be changed."""
        given, definitions = issue.given, run.changeset.definitions
        crumb, created = beads_issue.build_crumb(given, definitions, self.changed_at)
        made = beads_issue.build_issue(issue.id, crumb, created, definitions)
        apart = {name for name in TEXTS if _is_text(issue, name)}
        apart |= {name for name in LISTS if isinstance(given.get(name), list) and given[name]}
        note = beads_issue.make_note(given, made, beads_issue.CRUMB_FIELDS, apart)
        if others := {name: odd for name in apart & set(LISTS) if (odd := _list_odd(given, name))}:
            note["others"] = others
        note |= {"state": crumb.state, "updated_at": format_time(crumb.updated_at)}
        self._report_odd_values(run, issue)
        crumb = replace(crumb, extra={NOTE: note})
        stated = _is_text(issue, "updated_at")
        verdict = run.import_record(FILE, issue.line, issue.id, crumb, created, stated=stated)
        return verdict in ("added", "changed", "unchanged")

    def _report_odd_values(self, run: ImportRun, issue: _Issue) -> None:
        status, priority = issue.given.get("status"), issue.given.get("priority")
        if status is not None and (not isinstance(status, str) or status not in beads_issue.STATES):
            run.report(FILE, issue.line, f"{status!r:.60} is not a known status; the crumb is pending")
        if priority is not None and (type(priority) is not int or not 0 <= priority <= 4):
            run.report(FILE, issue.line, f"{priority!r:.60} is not a priority from 0 to 4")

    # -- links and metadata of issues ---------------------------------------------------------

    async def _import_parts(self, run: ImportRun, taken: list[_Issue], known: dict[str, str]) -> None:
        parts: dict[str, _PartRecord] = {}
        dependencies = [part for issue in taken for part in _objects(issue, "dependencies")]
        for id, made in self._dependencies(run, dependencies, await self._find_edges(run, dependencies)):
            parts[_make_unique_id(parts, id)] = made
        for issue in taken:
            for id, made in self._read_metadata(issue):
                parts[_make_unique_id(parts, id)] = made
        forms = {id: _forms(part) for id, part in parts.items()}
        await run.load([*parts, *(form for both in forms.values() for form in both)])
        for id, part in parts.items():
            if id in forms[id]:
                (other,) = forms[id] - {id}
                run.unite(id, other, (part.issue.id, part.target))
            run.import_record(
                FILE, part.issue.line, id, part.record, part.created_at, changed_at=part.changed_at
            )
        owners = {issue.id for issue in taken}
        for id, owner in known.items():
            if owner in owners and id not in parts:
                run.changeset.drop(id)
        await self._release_waiting(run.changeset, taken)

    async def _release_waiting(self, changeset: Changeset, taken: list[_Issue]) -> None:
        """Turn links to issues that became tombstones into metadata, so that no crumb waits for them."""
        gone = {issue.id for issue in taken if beads_issue.is_tombstone(changeset.record(issue.id))}
        found = await batch.all_links(changeset, *WAITING) if gone else {}
        waits = {id: link for id, link in found.items() if link.to_id in gone}
        entries = {
            id: beads_issue.dependency_id(link.from_id, link.to_id, link.link_type)
            for id, link in waits.items()
        }
        await changeset.load([*waits, *entries.values()])
        for id, link in waits.items():
            note, created = read_note(link.extra, NOTE), changeset.created_at(id)
            changeset.drop(id)
            if changeset.record(entries[id]) is None:
                line = beads_issue.restore_values(beads_issue.build_dependency(link, created), note)
                extra = {NOTE: {"place": note["place"]}} if "place" in note else {}
                content = msgspec.json.encode(line).decode()
                entry = MetadataRecord(link.from_id, DEPENDENCIES, content, extra=extra)
                changeset.put(entries[id], entry, created_at=created)

    async def _find_edges(self, run: ImportRun, parts: list[_Part]) -> set[Edge]:
        """Return the dependencies that become links: of a known type, to a crumb, closing no cycle."""
        wanted: list[Edge] = []
        for part in parts:
            target, link_type = part.given.get("depends_on_id"), _link_type(part.given)
            if not link_type:
                continue
            if part.given.get("issue_id", part.issue.id) != part.issue.id or not isinstance(target, str):
                run.report(FILE, part.issue.line, "a dependency of another issue is kept as metadata")
            elif not _is_id(target) or not isinstance(run.changeset.record(target), CrumbRecord):
                run.report(
                    FILE,
                    part.issue.line,
                    f"it depends on {target!r:.80}, which does not exist; kept as metadata",
                )
            elif not beads_issue.is_tombstone(run.changeset.record(target)):
                wanted.append((link_type, part.issue.id, target))
        fixed = (await batch.all_links(run.changeset, *WAITING)).values()
        waiting = [edge[1:] for edge in wanted if edge[0] in WAITING]
        _, wrong = links.split_acyclic(waiting, ((link.from_id, link.to_id) for link in fixed))
        lines = {part.issue.id: part.issue.line for part in parts}
        for child, parent in sorted(wrong):
            run.report(
                FILE, lines[child], f"{child!r} would wait for itself by way of {parent!r}; kept as metadata"
            )
        return {edge for edge in wanted if edge[0] not in WAITING or edge[1:] not in wrong}

    def _dependencies(
        self, run: ImportRun, parts: list[_Part], edges: set[Edge]
    ) -> Iterator[tuple[str, _PartRecord]]:
        left = set(edges)
        for part in parts:
            issue, given = part.issue, part.given
            created = beads_issue.parse_time_or(given.get("created_at"), self._creation_time(run, issue))
            link_type, target = _link_type(given), given.get("depends_on_id")
            edge = (link_type, issue.id, target if isinstance(target, str) else "")
            if edge in left and given.get("issue_id", issue.id) == issue.id:
                left.discard(edge)  # a repeated one becomes metadata
                if LINK_RULES[link_type].mutual:
                    left.discard((link_type, edge[2], edge[1]))
                link = LinkRecord(*edge)
                made = beads_issue.build_dependency(link, created)
                note = beads_issue.make_note(given, made, beads_issue.DEPENDENCY_FIELDS) | {
                    "place": part.place
                }
                link = replace(link, extra={NOTE: note})
                made_id = beads_issue.link_id(link.from_id, link.to_id, link_type)
                yield made_id, _PartRecord(issue, link, created, created, link_type, edge[2])
                continue
            content = msgspec.json.encode(given).decode()
            record = MetadataRecord(issue.id, DEPENDENCIES, content, extra={NOTE: {"place": part.place}})
            yield (
                derive_id("dependency", issue.id, target, given.get("type")),
                _PartRecord(issue, record, created, created, link_type, edge[2] if link_type else ""),
            )

    def _read_metadata(self, issue: _Issue) -> Iterator[tuple[str, _PartRecord]]:
        """Yield the metadata of an issue: its comments and long texts."""
        begun = beads_issue.parse_time_or(issue.given.get("created_at"), self.changed_at)
        for part in _objects(issue, "comments"):
            given = part.given
            created = beads_issue.parse_time_or(given.get("created_at"), begun)
            author = {"author": given["author"]} if isinstance(given.get("author"), str) else {}
            entry = MetadataRecord(issue.id, "comments", given["text"], extra=author)
            note = beads_issue.make_note(
                given, beads_issue.build_comment(entry, created, None), beads_issue.COMMENT_FIELDS
            )
            record = replace(entry, extra={**author, NOTE: {**note, "place": part.place}})
            yield (
                derive_id("comment", issue.id, given.get("id", part.place)),
                _PartRecord(issue, record, created, created),
            )
        for name in TEXTS:
            if _is_text(issue, name):
                record = MetadataRecord(issue.id, name, issue.given[name], extra={NOTE: {"field": name}})
                changed = beads_issue.parse_time_or(issue.given.get("updated_at"), begun)
                yield derive_id("text", issue.id, name), _PartRecord(issue, record, begun, changed)

    def _creation_time(self, run: ImportRun, issue: _Issue) -> datetime:
        return run.changeset.created_at(issue.id)

    def _register_schemas(self, run: ImportRun) -> None:
        """Register the metadata schemas of the imported entries."""
        used = {
            record.table_name
            for _, record, _ in run.changeset.changes()
            if isinstance(record, MetadataRecord)
        }
        for name in sorted(used & set(_SCHEMAS)):
            if run.changeset.record(schema_id(name)) is None:
                run.changeset.put(schema_id(name), _SCHEMAS[name])


class _PartRecord(NamedTuple):
    """The record of a dependency, a comment or a text of an issue.

    `link_type` and `target` are the link that a dependency is, or would be; "" for everything else.
    """

    issue: _Issue
    record: LinkRecord | MetadataRecord
    created_at: datetime
    changed_at: datetime
    link_type: str = ""
    target: str = ""


def _forms(part: _PartRecord) -> frozenset[str]:
    """Return the ids that a dependency has as a link and as metadata; none for other parts."""
    if not part.target:
        return frozenset()
    edge = part.issue.id, part.target, part.link_type
    return frozenset((beads_issue.link_id(*edge), beads_issue.dependency_id(*edge)))


def _link_type(dependency: dict[str, Any]) -> str:
    """Return the type of link that a dependency becomes; empty for one that stays metadata."""
    given = dependency.get("type")
    return beads_issue.LINK_TYPES.get(given, "") if isinstance(given, str) else ""


def _objects(issue: _Issue, field: str) -> Iterator[_Part]:
    """Yield the entries of a list of an issue that can become records."""
    given = issue.given.get(field)
    for place, each in enumerate(given if isinstance(given, list) else ()):
        if _is_object(each, field):
            yield _Part(issue, place, each)


def _list_odd(given: dict[str, Any], field: str) -> dict[str, Any]:
    """Return the entries of a list that cannot become records, by their places."""
    return {str(place): each for place, each in enumerate(given[field]) if not _is_object(each, field)}


def _is_object(each: Any, field: str) -> bool:
    if not isinstance(each, dict):
        return False
    return field != "comments" or (isinstance(each.get("text"), str) and bool(each["text"]))


def _is_text(issue: _Issue, field: str) -> bool:
    value = issue.given.get(field)
    return isinstance(value, str) and bool(value)


def _is_id(value: str) -> bool:
    try:
        return bool(ids.check_id(value))
    except InputError:
        return False


def _make_unique_id(parts: dict[str, _PartRecord], id: str) -> str:
    """Return an unused id for a part, numbered where parts are equal."""
    number, found = 1, id
    while found in parts:
        number, found = number + 1, derive_id(id, number)
    return found
