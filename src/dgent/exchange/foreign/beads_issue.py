"""Convert an issue of the beads tracker to a crumb, and a crumb to an issue.

Common fields are translated both ways. Fields that a crumb has no place for are stored in a note and exported
again. So are values that would not be exported the same, as long as the crumb still has what they became.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dgent.cupboard.builtin import CATEGORIES
from dgent.cupboard.definition import Definitions
from dgent.cupboard.record import (
    DESCRIPTION,
    LABELS,
    OWNER,
    PRIORITY,
    TYPE,
    CrumbRecord,
    LinkRecord,
    MetadataRecord,
)
from dgent.exchange.foreign.origin import (
    Written,
    format_time,
    is_same_value,
    parse_time,
    read_note,
    restore_fields,
)

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
    """Return the note about an object that restores its values on export; `made` is what would be exported.

    `known` are the fields that were translated; those `apart` became separate records.
    """
    fields, gone = set(known), set(apart)
    written: Written = {}
    for name in sorted(fields - gone):
        if name not in given:
            if name in made:
                written[name] = [made[name]]
        elif name not in made or not is_same_value(made[name], given[name]):
            written[name] = [made.get(name), given[name]]
    rest = {name: value for name, value in given.items() if name not in fields | gone}
    return {name: value for name, value in (("written", written), ("rest", rest)) if value}


def restore_values(made: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object to export, with the values of the file in unchanged fields."""
    return dict(read_note(note, "rest")) | restore_fields(dict(made), note.get("written"))


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


KEYS = (
    *("id", "content_hash", "title", "description", "design", "acceptance_criteria", "notes", "status"),
    *("priority", "issue_type", "assignee", "estimated_minutes", "created_at", "updated_at", "closed_at"),
    *("close_reason", "external_ref", "labels", "dependencies", "comments", "dgent_id"),
)
PART_KEYS = ("id", "issue_id", "depends_on_id", "type", "author", "text", "created_at", "created_by")


def order_keys(issue: Mapping[str, Any]) -> dict[str, Any]:
    """Return an issue with its keys in the order of beads, so that a change is a small difference."""
    ordered = _order(issue, KEYS)
    for name in ("dependencies", "comments"):
        if isinstance(ordered.get(name), list):
            ordered[name] = [
                _order(each, PART_KEYS) if isinstance(each, dict) else each for each in ordered[name]
            ]
    return ordered


def _order(given: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    known = {name: given[name] for name in keys if name in given}
    return known | {name: given[name] for name in sorted(given.keys() - known.keys())}


FULL_ID = "dgent_id"
"""The key of an issue for the id of its record, where the issue is known by its short id."""


def rename(issue: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an issue with other ids: its own and those in its dependencies and comments."""

    def rename_part(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        ends = {name: part[name] for name in ("issue_id", "depends_on_id") if isinstance(part.get(name), str)}
        return part | {name: names.get(each, each) for name, each in ends.items()}

    renamed = dict(issue)
    if isinstance(issue.get("id"), str):
        renamed["id"] = names.get(issue["id"], issue["id"])
    for name in ("dependencies", "comments"):
        if isinstance(issue.get(name), list):
            renamed[name] = [rename_part(each) for each in issue[name]]
    return renamed


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
    return line


# -- dependencies and comments ---------------------------------------------------------------

DEPENDENCY_FIELDS = ("issue_id", "depends_on_id", "type", "created_at")
COMMENT_FIELDS = ("issue_id", "author", "text", "created_at")


LINK_TYPES = {
    "blocks": "child_of",
    "parent-child": "part_of",
    "related": "related_to",
    "discovered-from": "discovered_from",
    "duplicates": "duplicate_of",
    "supersedes": "supersedes",
}
"""The types of dependencies that are links in the cupboard."""

DEPENDENCY_TYPES = {link_type: name for name, link_type in LINK_TYPES.items()}


def link_id(issue: str, target: str, link_type: str) -> str:
    """Return the id of the link that a dependency becomes."""
    more = () if link_type == "child_of" else (link_type,)
    return derive_id("link", issue, target, *more)


def dependency_id(issue: str, target: str, link_type: str) -> str:
    """Return the id of the metadata that a dependency becomes where it cannot be a link."""
    return derive_id("dependency", issue, target, DEPENDENCY_TYPES[link_type])


def build_dependency(link: LinkRecord, created_at: datetime) -> dict[str, Any]:
    """Return a link as a dependency of its start on its end."""
    return {
        "issue_id": link.from_id,
        "depends_on_id": link.to_id,
        "type": DEPENDENCY_TYPES[link.link_type],
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
