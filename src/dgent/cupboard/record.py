"""Stored records of the cupboard and their schemas; each entity of `tables` has a frozen record here.

`extra` holds the fields of an imported file that have no place in the record, for a later export.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgent.model.ref import Ref
from dgent.model.schema import Schema, Step
from dgent.universe.lease import LeaseRecord

ROOM = "cupboard"
CATALOG_ID = "cupboard/catalog"


@dataclass(frozen=True)
class CrumbRecord:
    """A work item.

    `open_parents` counts the crumbs it waits for. `queue` is its rank among those that can be taken, by
    priority; None when it cannot be taken. Both are derived from states and links and written with them, so
    finding work reads a few index entries, and a claim compares one rev.

    `short_id` is the id for people. `former_ids` are those that it lost to another record, and tags of the
    datum as well. `parts` is the last number that a part of it got.
    """

    name: str
    state: str
    updated_at: datetime
    properties: dict[str, Any] = field(default_factory=dict)
    defer_until: datetime | None = None
    holder: str | None = None
    lease_until: datetime | None = None
    token: int = 0
    open_parents: int = 0
    queue: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    short_id: str = ""
    former_ids: tuple[str, ...] = ()
    parts: int = 0


@dataclass(frozen=True)
class TrailRecord:
    """An exploration. `crumbs` are those it had when it ended, so a permanent crumb leads back here."""

    name: str
    state: str
    updated_at: datetime
    goal: str = ""
    completed_at: datetime | None = None
    reason: str | None = None
    lesson: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    crumbs: tuple[Ref[CrumbRecord], ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    short_id: str = ""
    former_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class PropertyRecord:
    """A property that every crumb, trail or stash has."""

    name: str
    value_type: str
    description: str = ""
    scope: str = "crumb"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CategoryRecord:
    """One of the values of a categorical property."""

    property_id: str
    name: str
    ordinal: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkRecord:
    """An edge of the graph; its type is also the tag of the datum, so either end can be queried by type."""

    link_type: str
    from_id: str
    to_id: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StashRecord:
    """Shared state. Its history is that of the datum; each version names the operation that made it."""

    name: str
    stash_type: str
    updated_at: datetime
    value: Any = None
    version: int = 1
    operation: str = "create"
    changed_by: str | None = None
    history_id: str = ""
    properties: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MetadataRecord:
    """A metadata entry of a crumb: a comment, an attachment, or one of a custom schema."""

    crumb_id: str
    table_name: str
    content: str
    property_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SchemaRecord:
    """A kind of metadata."""

    name: str
    description: str = ""
    content_type: str = "text"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LineRecord:
    """A line of an imported file that no other record can hold; an export writes it unchanged.

    `text` is the line, in base64 if it is `binary`. Nothing uses `place`; stores have it.
    """

    file: str
    text: str
    reason: str
    binary: bool = False
    place: int = 0


@dataclass(frozen=True)
class CatalogRecord:
    """The version of all definitions of properties, categories and metadata schemas.

    A reader of definitions reads this one record: cached definitions are valid while it is unchanged, and a
    commit that relies on them fails if it changes meanwhile. `prefix` is that of new short ids.
    """

    changes: int = 0
    prefix: str = ""


def builtin_id(number: int) -> str:
    """Return the id of a definition that every store has."""
    return f"01941f29-7c00-7000-8000-{number:012x}"  # a UUIDv7 of 2025-01-01


PRIORITY, TYPE, DESCRIPTION, OWNER, LABELS = (builtin_id(number) for number in range(1, 6))

CRUMB_INDEXES = ("state", "queue", "lease_until", "open_parents", "name", "short_id")
# Of the properties only those that every store has: the values of others may be ids of categories.
CRUMB_TEXTS = {
    "name": 3,
    f"properties.{LABELS}": 2,
    f"properties.{DESCRIPTION}": 1,
    f"properties.{OWNER}": 1,
}


def _without(*names: str) -> Step:
    """Return the step to the version before, which had no such fields."""
    return lambda data: {name: value for name, value in data.items() if name not in names}


CRUMB = Schema(
    "cupboard.crumb",
    2,
    CrumbRecord,
    migrations={1: dict},  # version 2 adds short ids
    downgrades={2: _without("short_id", "former_ids", "parts")},
    indexes=CRUMB_INDEXES,
    owner=ROOM,
    text=CRUMB_TEXTS,
)
TRAIL = Schema(
    "cupboard.trail",
    2,
    TrailRecord,
    migrations={1: dict},
    downgrades={2: _without("short_id", "former_ids")},
    indexes=("state", "name", "short_id"),
    owner=ROOM,
    text={"name": 3, "goal": 2, "lesson": 2, "reason": 1},
)
PROPERTY = Schema("cupboard.property", contract=PropertyRecord, indexes=("name",), owner=ROOM)
CATEGORY = Schema("cupboard.category", contract=CategoryRecord, indexes=("property_id",), owner=ROOM)
LINK = Schema("cupboard.link", contract=LinkRecord, indexes=("from_id", "to_id"), owner=ROOM)
STASH = Schema(
    "cupboard.stash",
    contract=StashRecord,
    indexes=("name", "stash_type"),
    owner=ROOM,
    text={"name": 3, "value": 1},
)
METADATA = Schema(
    "cupboard.metadata",
    contract=MetadataRecord,
    indexes=("crumb_id", "table_name"),
    owner=ROOM,
    text={"content": 1},
)
SCHEMA = Schema("cupboard.schema", contract=SchemaRecord, indexes=("name",), owner=ROOM)
LINE = Schema("cupboard.line", contract=LineRecord, indexes=("file",), owner=ROOM)
_LEASE_V1 = ("target_id", "holder", "token", "until")
LEASE = Schema(
    "cupboard.lease",
    2,
    LeaseRecord,
    migrations={1: dict},  # version 2 adds the time since the boot
    downgrades={2: lambda data: {name: data[name] for name in _LEASE_V1}},
    indexes=("target_id",),
    owner=ROOM,
    history="none",
    feed=False,
)
CATALOG = Schema(
    "cupboard.catalog",
    2,
    CatalogRecord,
    migrations={1: dict},  # version 2 adds the prefix of short ids
    downgrades={2: _without("prefix")},
    owner=ROOM,
)

SCHEMAS = (CRUMB, TRAIL, PROPERTY, CATEGORY, LINK, STASH, METADATA, SCHEMA, LINE, LEASE, CATALOG)
