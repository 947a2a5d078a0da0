"""Reading a file of issues of the beads tracker into a cupboard.

An issue becomes a crumb under its own id. What it is blocked by becomes a `child_of` link to that; every
other kind of dependency, and those that lead nowhere, to a deleted issue (a tombstone) or round in a circle,
become metadata. Comments stay comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dgent import ids
from dgent.cupboard import batch
from dgent.cupboard.builtin import TYPE, schema_id
from dgent.cupboard.change import Draft
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.record import (
    LINK,
    METADATA,
    CategoryRecord,
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
    SchemaRecord,
)
from dgent.errors import InputError
from dgent.exchange.foreign import beads_issue, files
from dgent.exchange.foreign import links as graph
from dgent.exchange.foreign.beads_issue import DEPENDENCIES, NOTE, TEXTS, derived_id
from dgent.exchange.foreign.fields import moment, stamp
from dgent.exchange.foreign.incoming import Incoming, later
from dgent.exchange.foreign.origin import note_of
from dgent.exchange.foreign.report import Existing, TakenIn, Tally
from dgent.model.query import Query
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread

FILE = "beads"
LISTS = ("dependencies", "comments")
_SCHEMAS = {
    **{name: SchemaRecord(name, "A part of an issue of the beads tracker.") for name in TEXTS},
    DEPENDENCIES: SchemaRecord(
        DEPENDENCIES, "How an issue of the beads tracker depends on others without waiting for them.", "json"
    ),
}


async def import_beads(
    cupboard: Cupboard,
    path: Path,
    *,
    existing: Existing = "newer",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TakenIn:
    """Take in the issues of a file, in one commit; a second time changes nothing.

    `existing` says what happens to issues that are there already with other content: the newer one wins, it
    stays, or the file's takes its place. The same holds for those that were deleted here.
    """
    pace = ProgressReporter(progress, path.stat().st_size if path.is_file() else None)
    lines = await in_thread(lambda stopped: files.read(path, pace, stopped))
    plan = _Plan(lines, existing)
    tally, seq = await batch.change(cupboard, plan.run, f"import of {path.name}"[:200], dry_run=dry_run)
    pace.end()
    return tally.done(seq, dry_run)


class _Issue(NamedTuple):
    """A line that has an issue."""

    line: files.Line
    id: str
    given: dict[str, Any]


class _Part(NamedTuple):
    """A dependency or a comment of an issue: its place in the list, and what it says."""

    issue: _Issue
    place: int
    given: dict[str, Any]


class _Plan:
    """What to do with a file; worked out anew whenever somebody else was faster."""

    def __init__(self, lines: files.Lines, existing: Existing) -> None:
        self.existing, self.name, self.changed_at = existing, lines.name, lines.changed_at
        self.bad: list[tuple[files.Line, str]] = []
        self.twice: list[tuple[files.Line, str]] = []
        found = list(self._issues(lines))
        self.issues: list[_Issue] = []
        for winner, *others in later(found, lambda each: each.id, self._age).values():
            self.issues.append(winner)
            for other in others:
                message = f"line {winner.line.number} has the same id, and counts instead"
                self.twice.append((other.line, message))

    def _issues(self, lines: files.Lines) -> Iterator[_Issue]:
        for line in lines.lines:
            try:
                if line.given is None:
                    raise InputError(line.wrong)
                yield _Issue(line, ids.check_id(line.given.get("id")), line.given)
            except InputError as error:
                self.bad.append((line, error.message))

    def _age(self, issue: _Issue) -> Any:
        return beads_issue.moment_of(issue.given.get("updated_at"), moment("0002-01-01"))

    async def run(self, draft: Draft) -> Tally:
        """Put everything into a draft."""
        incoming = Incoming(draft, self.existing, {FILE: self.name})
        for line, reason in self.bad:
            incoming.keep(FILE, line, reason, place=line.number)
        for line, message in self.twice:
            incoming.tell(FILE, line, message)
        await incoming.load([*self._ids(), *(schema_id(name) for name in _SCHEMAS)])
        self._define_types(incoming)
        known = await self._known(incoming)
        taken = [issue for issue in self.issues if self._take_issue(incoming, issue)]
        await self._take_parts(incoming, taken, known)
        self._register(incoming)
        await incoming.settle_lines([FILE])
        return incoming.tally

    def _ids(self) -> Iterator[str]:
        for issue in self.issues:
            yield issue.id
            for part in _objects(issue, "dependencies"):
                target = part.given.get("depends_on_id")
                if isinstance(target, str) and _is_id(target):
                    yield target

    def _define_types(self, incoming: Incoming) -> None:
        """Have a category for every type of issue."""
        draft = incoming.draft
        types = draft.definitions.by_id[TYPE]
        given: set[str] = {
            issue.given["issue_type"] for issue in self.issues if _is_text(issue, "issue_type")
        }
        first = 1 + max((choice.ordinal for choice in types.choices), default=-1)
        new = {
            beads_issue.category_id(name): CategoryRecord(TYPE, name, first + place)
            for place, name in enumerate(sorted(name for name in given if types.choice(name) is None))
        }
        for id, record in new.items():
            draft.put(id, record)
        if new:
            draft.definitions = draft.definitions.extended(new)
            draft.redefine()

    async def _known(self, incoming: Incoming) -> dict[str, str]:
        """What earlier imports made of these issues beside their crumbs, and whose it is."""
        draft = incoming.draft
        mine = {issue.id for issue in self.issues if draft.stored(issue.id) is not None}
        found: dict[str, str] = {}
        for schema, owner in ((LINK, "from_id"), (METADATA, "crumb_id")) if mine else ():
            for each in await draft.tx.recall(Query(schema=schema.name, limit=None)):
                if getattr(each.value, owner) in mine and NOTE in each.value.extra:
                    draft.hold(each)
                    found[each.id] = getattr(each.value, owner)
        return found

    def _take_issue(self, incoming: Incoming, issue: _Issue) -> bool:
        """Make a crumb of an issue; whether what belongs to it may be touched."""
        given, definitions = issue.given, incoming.draft.definitions
        crumb, created = beads_issue.crumb_of(given, definitions, self.changed_at)
        made = beads_issue.issue_of(issue.id, crumb, created, definitions)
        apart = {name for name in TEXTS if _is_text(issue, name)}
        apart |= {name for name in LISTS if isinstance(given.get(name), list) and given[name]}
        note = beads_issue.noted(given, made, beads_issue.CRUMB_FIELDS, apart)
        if others := {name: odd for name in apart & set(LISTS) if (odd := _others(given, name))}:
            note["others"] = others
        note |= {"line": issue.line.number, "state": crumb.state, "updated_at": stamp(crumb.updated_at)}
        old = incoming.draft.record(issue.id)
        if isinstance(old, CrumbRecord) and "line" in note_of(old.extra, NOTE):
            note["line"] = note_of(old.extra, NOTE)["line"]  # it keeps its place, whatever came before it
        self._judge(incoming, issue)
        crumb = replace(crumb, extra={NOTE: note})
        told = _is_text(issue, "updated_at")
        verdict = incoming.take(
            FILE, issue.line, issue.id, crumb, created, told=told, place=issue.line.number
        )
        return verdict in ("added", "changed", "unchanged")

    def _judge(self, incoming: Incoming, issue: _Issue) -> None:
        status, priority = issue.given.get("status"), issue.given.get("priority")
        if status is not None and (not isinstance(status, str) or status not in beads_issue.STATES):
            incoming.tell(FILE, issue.line, f"{status!r:.60} is no known status; the crumb is pending")
        if priority is not None and (type(priority) is not int or not 0 <= priority <= 4):
            incoming.tell(FILE, issue.line, f"{priority!r:.60} is no priority from 0 to 4")

    # -- what belongs to issues ---------------------------------------------------------------

    async def _take_parts(self, incoming: Incoming, taken: list[_Issue], known: dict[str, str]) -> None:
        parts: dict[str, _Made] = {}
        dependencies = [part for issue in taken for part in _objects(issue, "dependencies")]
        for id, made in self._dependencies(incoming, dependencies, await self._edges(incoming, dependencies)):
            parts[_fresh(parts, id)] = made
        for issue in taken:
            for id, made in self._beside(issue):
                parts[_fresh(parts, id)] = made
        await incoming.load(parts)
        for id, (issue, record, created) in parts.items():
            # Whether it is there follows from its issue: an import also removes parts, and brings them back.
            incoming.take(FILE, issue.line, id, record, created, revive=True)
        owners = {issue.id for issue in taken}
        for id, owner in known.items():
            if owner in owners and id not in parts:
                incoming.draft.drop(id)
        await self._free(incoming.draft, taken)

    async def _free(self, draft: Draft, taken: list[_Issue]) -> None:
        """Let nobody wait for issues that became tombstones, also those that the file does not have."""
        gone = {issue.id for issue in taken if beads_issue.is_tombstone(draft.record(issue.id))}
        links = await batch.all_links(draft, "child_of") if gone else {}
        waits = {id: link for id, link in links.items() if link.to_id in gone}
        entries = {id: derived_id("dependency", *_edge(link), "blocks") for id, link in waits.items()}
        await draft.load([*waits, *entries.values()])
        for id, link in waits.items():
            note, created = note_of(link.extra, NOTE), draft.created_at(id)
            draft.drop(id)
            if draft.record(entries[id]) is None:
                line = beads_issue.restored(beads_issue.dependency_of(link, created), note)
                extra = {NOTE: {"place": note["place"]}} if "place" in note else {}
                content = msgspec.json.encode(line).decode()
                entry = MetadataRecord(link.from_id, DEPENDENCIES, content, extra=extra)
                draft.put(entries[id], entry, created_at=created)

    async def _edges(self, incoming: Incoming, parts: list[_Part]) -> set[tuple[str, str]]:
        """The dependencies that become links: those that block, lead somewhere, and not round in a circle."""
        wanted = []
        for part in parts:
            target = part.given.get("depends_on_id")
            if part.given.get("type") != "blocks":
                continue
            if part.given.get("issue_id", part.issue.id) != part.issue.id or not isinstance(target, str):
                incoming.tell(FILE, part.issue.line, "a dependency of another issue is kept as metadata")
            elif not _is_id(target) or not isinstance(incoming.draft.record(target), CrumbRecord):
                incoming.tell(
                    FILE,
                    part.issue.line,
                    f"it depends on {target!r:.80}, which is not there; kept as metadata",
                )
            elif not beads_issue.is_tombstone(incoming.draft.record(target)):
                wanted.append((part.issue.id, target))
        fixed = (await batch.all_links(incoming.draft, "child_of")).values()
        right, wrong = graph.acyclic(wanted, ((link.from_id, link.to_id) for link in fixed))
        lines = {part.issue.id: part.issue.line for part in parts}
        for child, parent in sorted(wrong):
            incoming.tell(
                FILE, lines[child], f"{child!r} would wait for itself by way of {parent!r}; kept as metadata"
            )
        return right

    def _dependencies(
        self, incoming: Incoming, parts: list[_Part], edges: set[tuple[str, str]]
    ) -> Iterator[tuple[str, _Made]]:
        left = set(edges)
        for part in parts:
            issue, given = part.issue, part.given
            created = beads_issue.moment_of(given.get("created_at"), self._created(incoming, issue))
            edge = (issue.id, given.get("depends_on_id"))
            if given.get("type") == "blocks" and edge in left and given.get("issue_id", edge[0]) == edge[0]:
                left.discard(edge)  # a second one of the same is metadata
                link = LinkRecord("child_of", *edge)
                made = beads_issue.dependency_of(link, created)
                note = beads_issue.noted(given, made, beads_issue.DEPENDENCY_FIELDS) | {"place": part.place}
                yield derived_id("link", *edge), _Made(issue, replace(link, extra={NOTE: note}), created)
                continue
            content = msgspec.json.encode(given).decode()
            record = MetadataRecord(issue.id, DEPENDENCIES, content, extra={NOTE: {"place": part.place}})
            yield derived_id("dependency", *edge, given.get("type")), _Made(issue, record, created)

    def _beside(self, issue: _Issue) -> Iterator[tuple[str, _Made]]:
        """The metadata of an issue: comments, and its long texts."""
        begun = beads_issue.moment_of(issue.given.get("created_at"), self.changed_at)
        for part in _objects(issue, "comments"):
            given = part.given
            created = beads_issue.moment_of(given.get("created_at"), begun)
            author = {"author": given["author"]} if isinstance(given.get("author"), str) else {}
            entry = MetadataRecord(issue.id, "comments", given["text"], extra=author)
            note = beads_issue.noted(
                given, beads_issue.comment_of(entry, created, None), beads_issue.COMMENT_FIELDS
            )
            record = replace(entry, extra={**author, NOTE: {**note, "place": part.place}})
            yield derived_id("comment", issue.id, given.get("id", part.place)), _Made(issue, record, created)
        for name in TEXTS:
            if _is_text(issue, name):
                record = MetadataRecord(issue.id, name, issue.given[name], extra={NOTE: {"field": name}})
                yield derived_id("text", issue.id, name), _Made(issue, record, begun)

    def _created(self, incoming: Incoming, issue: _Issue) -> datetime:
        return incoming.draft.created_at(issue.id)

    def _register(self, incoming: Incoming) -> None:
        """Make the kinds of metadata known that there are entries of."""
        used = {
            record.table_name
            for _, record, _ in incoming.draft.changes()
            if isinstance(record, MetadataRecord)
        }
        for name in sorted(used & set(_SCHEMAS)):
            if incoming.draft.record(schema_id(name)) is None:
                incoming.draft.put(schema_id(name), _SCHEMAS[name])


class _Made(NamedTuple):
    """A record that a part of an issue became."""

    issue: _Issue
    record: LinkRecord | MetadataRecord
    created_at: datetime


def _edge(link: LinkRecord) -> tuple[str, str]:
    return link.from_id, link.to_id


def _objects(issue: _Issue, field: str) -> Iterator[_Part]:
    """The entries of a list of an issue that can become records."""
    given = issue.given.get(field)
    for place, each in enumerate(given if isinstance(given, list) else ()):
        if _is_object(each, field):
            yield _Part(issue, place, each)


def _others(given: dict[str, Any], field: str) -> dict[str, Any]:
    """Those that cannot, by their places."""
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


def _fresh(parts: dict[str, _Made], id: str) -> str:
    """An id for the next one of those that are alike."""
    number, found = 1, id
    while found in parts:
        number, found = number + 1, derived_id(id, number)
    return found
