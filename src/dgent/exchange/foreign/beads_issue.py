"""An issue of the beads tracker as a crumb, and a crumb as an issue.

What the two have in common is translated, and goes both ways. What a crumb has no place for is noted beside
it and written again as it was. So is whatever is written in a way that would not come out again: as long as
the crumb still says what it became.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dgent.cupboard.builtin import CATEGORIES, DESCRIPTION, LABELS, OWNER, PRIORITY, TYPE
from dgent.cupboard.definition import Definitions
from dgent.cupboard.record import CrumbRecord, LinkRecord, MetadataRecord
from dgent.exchange.foreign.fields import format_time, parse_time
from dgent.exchange.foreign.origin import Written, read_note, restore_fields

NOTE = "beads"
"""Where a record notes what its issue says beyond it."""

DEPENDENCIES = "beads_dependencies"
TEXTS = ("design", "acceptance_criteria", "notes", "close_reason")
"""Long texts of an issue; each is a metadata entry of a schema of that name."""

STATES = {
    "open": "ready",
    "in_progress": "taken",
    "hooked": "taken",
    "blocked": "pending",
    "deferred": "pending",
    "pinned": "pending",
    "closed": "pebble",
    "tombstone": "dust",
}
STATUSES = {
    "draft": "deferred",
    "pending": "blocked",
    "ready": "open",
    "taken": "in_progress",
    "pebble": "closed",
    "dust": "closed",
}
PRIORITIES = [id for id, category in CATEGORIES.items() if category.property_id == PRIORITY]
MIDDLE = 2  # the priority of whoever has none

ORDER = {
    name: place
    for place, name in enumerate(
        (
            *("id", "issue_id", "depends_on_id", "type", "content_hash", "title", "description", "design"),
            *("acceptance_criteria", "notes", "status", "priority", "issue_type", "assignee", "author"),
            *("text", "estimated_minutes", "created_at", "created_by", "updated_at", "closed_at"),
            *("close_reason", "external_ref", "defer_until", "compaction_level", "compacted_at"),
            *("compacted_at_commit", "original_size", "source_repo", "labels", "dependencies", "comments"),
        )
    )
}
"""The order of fields in a line of beads, and of those in its dependencies and comments."""

_encode = msgspec.json.Encoder().encode


def derive_id(*parts: object) -> str:
    """An id that follows from what something is, so that the same thing gets it again."""
    h = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return f"{h[:8]}-{h[8:12]}-8{h[13:16]}-8{h[17:20]}-{h[20:32]}"


def category_id(name: str) -> str:
    """The id of a type of work that is not built in: two stores that get it agree on it."""
    return derive_id("category", TYPE, name)


# -- what is noted ------------------------------------------------------------------------


def make_note(
    given: Mapping[str, Any], made: Mapping[str, Any], known: Iterable[str], apart: Iterable[str] = ()
) -> dict[str, Any]:
    """What to note about an object, given what would be written of what became of it.

    `known` are the fields that became something, those `apart` became records of their own.
    """
    fields, gone = set(known), set(apart)
    written: Written = {}
    for name in fields - gone:
        if name not in given:
            if name in made:
                written[name] = [made[name]]
        elif name not in made or _encode(made[name]) != _encode(given[name]):
            written[name] = [made.get(name), given[name]]
    note: dict[str, Any] = {
        "written": {name: written[name] for name in sorted(written)},
        "rest": {name: value for name, value in given.items() if name not in fields | gone},
        "order": [] if list(given) == _sort_fields(given) else list(given),
    }
    return {name: value for name, value in note.items() if value}


def restore_written(made: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """The object that is written: as it was, where nothing changed since."""
    rest = note.get("rest")
    line = (rest if isinstance(rest, dict) else {}) | restore_fields(dict(made), note.get("written"))
    order = note.get("order")
    names = _sort_fields(line)
    if isinstance(order, list):
        places = {name: place for place, name in enumerate(order)}
        names.sort(key=lambda name: places.get(name, len(places)))
    return {name: line[name] for name in names}


def _sort_fields(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (ORDER.get(name, len(ORDER)), name))


# -- an issue -----------------------------------------------------------------------------

CRUMB_FIELDS = (
    *("id", "title", "description", "status", "priority", "issue_type", "assignee", "labels"),
    *("created_at", "updated_at", "defer_until"),
)


def build_crumb(
    given: Mapping[str, Any], definitions: Definitions, changed_at: datetime
) -> tuple[Any, datetime]:
    """The crumb of an issue, without its note, and when it was made."""
    created = _parse_time(given.get("created_at")) or changed_at
    status, priority = given.get("status"), given.get("priority")
    title, labels = given.get("title"), given.get("labels")
    kind, assignee = given.get("issue_type"), _text(given.get("assignee"))
    state = STATES.get(status, "pending") if isinstance(status, str) else "ready"
    choice = definitions.by_id[TYPE].find_option(kind) if isinstance(kind, str) and kind else None
    properties: dict[str, Any] = {
        PRIORITY: PRIORITIES[priority] if type(priority) is int and 0 <= priority <= 4 else None,
        TYPE: None if choice is None else choice.id,
        DESCRIPTION: _text(given.get("description")),
        OWNER: assignee,
        LABELS: labels if _are_texts(labels) else [],
    }
    crumb = CrumbRecord(
        title if isinstance(title, str) and title else given["id"],
        state,
        _parse_time(given.get("updated_at")) or created,
        definitions.encode_values("crumb", properties),
        _parse_time(given.get("defer_until")),
        assignee or None if state == "taken" else None,
    )
    return crumb, created


def build_issue(
    id: str, crumb: CrumbRecord, created_at: datetime, definitions: Definitions
) -> dict[str, Any]:
    """The fields of an issue that its crumb has."""
    values = crumb.properties
    priority, kind = values.get(PRIORITY), values.get(TYPE)
    choice = definitions.by_id[TYPE].find_option(kind) if isinstance(kind, str) else None
    line = {
        "id": id,
        "title": crumb.name,
        "description": values.get(DESCRIPTION) or "",
        "status": STATUSES[crumb.state],
        "priority": PRIORITIES.index(priority) if priority in PRIORITIES else MIDDLE,
        "issue_type": "task" if choice is None else choice.name,
        "created_at": format_time(created_at),
        "updated_at": format_time(crumb.updated_at),
    }
    optional = {
        "assignee": (crumb.holder if crumb.state == "taken" else None) or values.get(OWNER),
        "labels": values.get(LABELS),
        "defer_until": format_time(crumb.defer_until),
    }
    return line | {name: value for name, value in optional.items() if value}


def is_tombstone(crumb: CrumbRecord) -> bool:
    """Whether a crumb is what an issue became that was deleted in beads, where it blocks nothing."""
    written = read_note(crumb.extra, NOTE).get("written")
    status = written.get("status") if isinstance(written, dict) else None
    return crumb.state == "dust" and isinstance(status, list) and status[-1:] == ["tombstone"]


def refresh(line: dict[str, Any], crumb: CrumbRecord) -> dict[str, Any]:
    """An issue whose crumb was changed here: what follows from its state is mended, an old hash goes."""
    note = read_note(crumb.extra, NOTE)
    if note.get("updated_at") != format_time(crumb.updated_at):
        line.pop("content_hash", None)
    if note.get("state") != crumb.state:
        line.pop("closed_at", None)
        if line["status"] == "closed":
            line["closed_at"] = format_time(crumb.updated_at)
    return {name: line[name] for name in _sort_fields(line)} if "closed_at" in line else line


# -- what belongs to it ---------------------------------------------------------------------

DEPENDENCY_FIELDS = ("issue_id", "depends_on_id", "type", "created_at")
COMMENT_FIELDS = ("issue_id", "author", "text", "created_at")


def build_dependency(link: LinkRecord, created_at: datetime) -> dict[str, Any]:
    """A child_of link as a dependency: the one that waits depends on the other."""
    return {
        "issue_id": link.from_id,
        "depends_on_id": link.to_id,
        "type": "blocks",
        "created_at": format_time(created_at),
    }


def build_comment(entry: MetadataRecord, created_at: datetime, author: str | None) -> dict[str, Any]:
    """A comment as beads has it."""
    said_by = entry.extra.get("author", author)
    line = {
        "issue_id": entry.crumb_id,
        "author": said_by,
        "text": entry.content,
        "created_at": format_time(created_at),
    }
    return {name: value for name, value in line.items() if value is not None}


def _parse_time(value: Any) -> datetime | None:
    try:
        return parse_time(value)
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def parse_time_or(value: Any, default: datetime) -> datetime:
    """A time, or another one where it is none."""
    return _parse_time(value) or default
