"""What the store holds: the frozen twins of the entities, and their schemas.

`extra` keeps what a file of another program says beyond this, so that it can be written out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgent.model.ref import Ref
from dgent.model.schema import Schema

ROOM = "cupboard"
CATALOG_ID = "cupboard/catalog"


@dataclass(frozen=True)
class CrumbRecord:
    """A work item.

    `open_parents` counts the crumbs it waits for, and `queue` is its place among those that can be taken,
    by priority; None when it cannot. Both follow from states and links, and are written with them: so
    whoever looks for work reads a few index entries, and a claim need only compare one rev.
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


@dataclass(frozen=True)
class TrailRecord:
    """An exploration. `crumbs` are those it had when it ended: kept ones lead back here."""

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
    """An edge of the graph; its type is also the datum's tag, so that both ends are found by type."""

    link_type: str
    from_id: str
    to_id: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StashRecord:
    """Shared state. Its history is the history of the datum: each version tells what made it."""

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
    """An entry beside a crumb: a comment, an attachment, or of a schema of the user's."""

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
    """A line of a file that was imported and that no record can hold; it is written out again as it is.

    `text` is the line, or base64 where `binary` says that it is no text. `place` is its number in a file
    whose lines keep their order.
    """

    file: str
    text: str
    reason: str
    binary: bool = False
    place: int = 0


@dataclass(frozen=True)
class LeaseRecord:
    """A sign of life: how long the holder of a crumb or a lock still wants it. It has no history.

    `until` is by the wall clock of the holder's machine. For programs of the same `boot` it ends when the
    time since the boot is `ends_us`. `lease_s` is its whole length.
    """

    target_id: str
    holder: str
    token: int
    until: datetime
    boot: str = ""
    ends_us: int = 0
    lease_s: float = 0.0


@dataclass(frozen=True)
class CatalogRecord:
    """Changes with every definition of a property, a category or a metadata schema.

    Whoever relies on the definitions reads this one record: what was read of them before is still right
    if it has not changed, and a commit fails if it changes meanwhile.
    """

    changes: int = 0


CRUMB_INDEXES = ("state", "queue", "lease_until", "open_parents", "name")

CRUMB = Schema("cupboard.crumb", contract=CrumbRecord, indexes=CRUMB_INDEXES, owner=ROOM)
TRAIL = Schema("cupboard.trail", contract=TrailRecord, indexes=("state", "name"), owner=ROOM)
PROPERTY = Schema("cupboard.property", contract=PropertyRecord, indexes=("name",), owner=ROOM)
CATEGORY = Schema("cupboard.category", contract=CategoryRecord, indexes=("property_id",), owner=ROOM)
LINK = Schema("cupboard.link", contract=LinkRecord, indexes=("from_id", "to_id"), owner=ROOM)
STASH = Schema("cupboard.stash", contract=StashRecord, indexes=("name", "stash_type"), owner=ROOM)
METADATA = Schema(
    "cupboard.metadata", contract=MetadataRecord, indexes=("crumb_id", "table_name"), owner=ROOM
)
SCHEMA = Schema("cupboard.schema", contract=SchemaRecord, indexes=("name",), owner=ROOM)
LINE = Schema("cupboard.line", contract=LineRecord, indexes=("file",), owner=ROOM)
_LEASE_V1 = ("target_id", "holder", "token", "until")
LEASE = Schema(
    "cupboard.lease",
    2,
    LeaseRecord,
    migrations={1: dict},  # version 2 adds the time since the boot, which older ones do not know
    downgrades={2: lambda data: {name: data[name] for name in _LEASE_V1}},
    indexes=("target_id",),
    owner=ROOM,
    history="none",
    feed=False,
)
CATALOG = Schema("cupboard.catalog", contract=CatalogRecord, owner=ROOM)

SCHEMAS = (CRUMB, TRAIL, PROPERTY, CATEGORY, LINK, STASH, METADATA, SCHEMA, LINE, LEASE, CATALOG)
