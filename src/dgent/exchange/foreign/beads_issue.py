"""Convert an issue of the beads tracker to a crumb, and a crumb to an issue.

Common fields are translated both ways. Fields that a crumb has no place for are stored in a note and exported
unchanged. So are fields in a spelling that would not be exported the same way, as long as the crumb still has
the value they became.
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
"""The key in `extra` of a record for the note about its issue."""

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
MIDDLE = 2  # the default priority

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
    """Return an id that is the same for the same parts."""
    h = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return f"{h[:8]}-{h[8:12]}-8{h[13:16]}-8{h[17:20]}-{h[20:32]}"


def category_id(name: str) -> str:
    """Return the id of the category of a type that is not built in, the same in every store."""
    return derive_id("category", TYPE, name)


# -- notes --------------------------------------------------------------------------------


def make_note(
    given: Mapping[str, Any], made: Mapping[str, Any], known: Iterable[str], apart: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the note about an object that restores it on export; `made` is what would be exported.

    `known` are the fields that were translated; those `apart` became separate records.
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
    """Return the object to export, with unchanged fields as they were read."""
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
    """Return the crumb of an issue, without its note, and its creation time."""
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
    """Return the fields of an issue that follow from its crumb."""
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
    """Check whether a crumb is an issue that was deleted in beads, where it blocks nothing."""
    written = read_note(crumb.extra, NOTE).get("written")
    status = written.get("status") if isinstance(written, dict) else None
    return crumb.state == "dust" and isinstance(status, list) and status[-1:] == ["tombstone"]


def refresh(line: dict[str, Any], crumb: CrumbRecord) -> dict[str, Any]:
    """Update the derived fields of an issue whose crumb was changed here: closing time and hash."""
    note = read_note(crumb.extra, NOTE)
    if note.get("updated_at") != format_time(crumb.updated_at):
        line.pop("content_hash", None)
    if note.get("state") != crumb.state:
        line.pop("closed_at", None)
        if line["status"] == "closed":
            line["closed_at"] = format_time(crumb.updated_at)
    return {name: line[name] for name in _sort_fields(line)} if "closed_at" in line else line


# -- dependencies and comments ---------------------------------------------------------------

DEPENDENCY_FIELDS = ("issue_id", "depends_on_id", "type", "created_at")
COMMENT_FIELDS = ("issue_id", "author", "text", "created_at")


def build_dependency(link: LinkRecord, created_at: datetime) -> dict[str, Any]:
    """Return a child_of link as a dependency of the child on the parent."""
    return {
        "issue_id": link.from_id,
        "depends_on_id": link.to_id,
        "type": "blocks",
        "created_at": format_time(created_at),
    }


def build_comment(entry: MetadataRecord, created_at: datetime, author: str | None) -> dict[str, Any]:
    """Return a comment in the format of beads."""
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
    """Parse a time; return the default if it is not valid."""
    return _parse_time(value) or default
