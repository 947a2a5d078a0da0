"""Answers of the verbs of the cupboard: its entities as plain structs, with names instead of ids.

Nothing here loads the cupboard itself, so that other verbs can speak of it at no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from dgent.cupboard.definition import Definition
    from dgent.cupboard.queue import Readiness as Judged
    from dgent.cupboard.tables import crumb, link, metadata, stash, trail
    from dgent.cupboard.tables import property as properties


class Crumb(msgspec.Struct, frozen=True, kw_only=True):
    """A work item; its properties by name, and categories by theirs."""

    id: str
    name: str
    state: str
    properties: dict[str, Any]
    created_at: datetime | None
    updated_at: datetime | None
    defer_until: datetime | None = None
    holder: str | None = None
    lease_until: datetime | None = None
    token: int = 0
    seq: int | None = None
    short_id: str = ""
    open_parents: int = 0

    @property
    def handle(self) -> str:
        """The id for people."""
        return self.short_id or self.id


class Queued(Crumb, frozen=True, kw_only=True):
    """A work item, whether it can be taken now, and why."""

    ready: bool = True
    reasons: list[str] = []
    waits_for: list[str] = []


class Neighbour(msgspec.Struct, frozen=True):
    """A crumb or trail linked to the requested one."""

    id: str
    name: str
    state: str
    short_id: str = ""
    open_parents: int = 0

    @property
    def handle(self) -> str:
        """The id for people."""
        return self.short_id or self.id


class Added(msgspec.Struct, frozen=True):
    """Work items that were added, in their order."""

    items: list[Crumb]


class Finished(Crumb, frozen=True, kw_only=True):
    """A work item whose state was changed, and the others that were changed with it."""

    others: list[Crumb] = []


class Duplicates(msgspec.Struct, frozen=True):
    """Groups of unfinished work items with nearly the same names."""

    groups: list[list[Crumb]]


class Dropped(Finished, frozen=True, kw_only=True):
    """A work item that was given up, and the unfinished ones that wait for it until somebody decides."""

    waiting: list[Neighbour] = []


class Queue(msgspec.Struct, frozen=True):
    """Work items in the order in which they are taken; `explain` says why there are none."""

    items: list[Queued]
    explain: str = ""


class MetadataEntry(msgspec.Struct, frozen=True):
    """A comment or another entry beside a work item."""

    id: str
    crumb: str
    schema: str
    content: str
    property: str | None
    created_at: datetime | None
    author: str = ""
    crumb_short_id: str = ""


class SchemaInfo(msgspec.Struct, frozen=True):
    """A kind of metadata."""

    name: str
    description: str
    content_type: str


class WholeCrumb(Queued, frozen=True, kw_only=True):
    """A work item with its links and metadata; `origin` is the completed trail that it came from."""

    trail: Neighbour | None = None
    origin: Neighbour | None = None
    parents: list[Neighbour] = []
    children: list[Neighbour] = []
    part_of: list[Neighbour] = []
    parts: list[Neighbour] = []
    related: list[Neighbour] = []
    discovered_from: list[Neighbour] = []
    led_to: list[Neighbour] = []
    duplicate_of: list[Neighbour] = []
    duplicates: list[Neighbour] = []
    supersedes: list[Neighbour] = []
    superseded_by: list[Neighbour] = []
    metadata: list[MetadataEntry] = []


class CrumbVersion(msgspec.Struct, frozen=True):
    """One version of a work item; `crumb` is None for a deletion."""

    rev: int
    seq: int
    at: datetime
    author: str | None
    note: str | None
    crumb: Crumb | None


class Column(msgspec.Struct, frozen=True):
    """The work items in one state; `count` is how many there are, also of those left out."""

    state: str
    count: int
    crumbs: list[Crumb]


class Board(msgspec.Struct, frozen=True):
    """Work items by state."""

    columns: list[Column]


class TrailInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An exploration: what it is for, and how it ended."""

    id: str
    name: str
    goal: str
    state: str
    properties: dict[str, Any]
    created_at: datetime | None
    updated_at: datetime | None
    completed_at: datetime | None = None
    reason: str | None = None
    lesson: str | None = None
    seq: int | None = None
    short_id: str = ""

    @property
    def handle(self) -> str:
        """The id for people."""
        return self.short_id or self.id


class TrailCrumb(Crumb, frozen=True, kw_only=True):
    """A work item of a trail; `parents` are the ids of those it comes after."""

    parents: list[str] = []


class StashInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Shared state; `trail` is the one it is scoped to."""

    id: str
    name: str
    type: str
    value: Any
    version: int
    properties: dict[str, Any]
    created_at: datetime | None
    updated_at: datetime | None
    operation: str = ""
    changed_by: str | None = None
    trail: str | None = None


class Lessons(msgspec.Struct, frozen=True):
    """Trails that were given up, with what was learned from them."""

    items: list[TrailInfo]


class WholeTrail(TrailInfo, frozen=True, kw_only=True):
    """An exploration with its work items and stashes; `kept` are those that outlived it."""

    branches_from: Neighbour | None = None
    crumbs: list[TrailCrumb] = []
    kept: list[TrailCrumb] = []
    removed: int = 0
    stashes: list[StashInfo] = []


class TrailEnd(msgspec.Struct, frozen=True):
    """The end of a trail, and the crumbs it had; undoing the commit `seq` brings all of it back.

    `freed` are crumbs elsewhere that no longer wait, because what they waited for was removed.
    """

    trail: TrailInfo
    crumbs: list[str]
    freed: list[str]
    seq: int | None


class StashVersion(msgspec.Struct, frozen=True):
    """One version of a stash: its value after an operation."""

    version: int
    operation: str
    value: Any
    changed_by: str | None
    at: datetime


class Held(msgspec.Struct, frozen=True):
    """The holder of a lock or a work item, until when, and the fencing token."""

    id: str
    holder: str
    token: int | None
    until: datetime | None


class LinkInfo(msgspec.Struct, frozen=True):
    """An edge between crumbs, trails and stashes."""

    id: str
    type: str
    from_id: str
    to_id: str
    created_at: datetime | None
    from_name: str = ""
    to_name: str = ""


class CategoryInfo(msgspec.Struct, frozen=True):
    """A value of a categorical property."""

    id: str
    name: str
    ordinal: int


class CategoryList(msgspec.Struct, frozen=True):
    """The values of a categorical property, lowest ordinal first."""

    property: str
    items: list[CategoryInfo]


class PropertyInfo(msgspec.Struct, frozen=True):
    """A field that every crumb, trail or stash has a value for."""

    id: str
    name: str
    type: str
    scope: str
    description: str
    default: Any
    categories: list[str]


class Value(msgspec.Struct, frozen=True):
    """The value that something has for a property."""

    id: str
    property: str
    value: Any


class Removed(msgspec.Struct, frozen=True):
    """A removed entity; undoing the newest commit brings it back."""

    table: str
    id: str
    name: str


class Work(msgspec.Struct, frozen=True):
    """The work in progress in the cupboard: active trails and the first ready crumbs."""

    trails: list[Neighbour]
    ready: list[Crumb]
    more: bool = False


# -- from the entities of the cupboard --------------------------------------------------------


def _copy_fields(answer: type[msgspec.Struct], found: crumb.Crumb | trail.Trail) -> dict[str, Any]:
    """Return the fields of an answer, each from the field of the entity that has its name."""
    fields = {name: getattr(found, name) for name in answer.__struct_fields__}
    fields["properties"] = found.readable()
    return fields


def crumb_fields(found: crumb.Crumb) -> dict[str, Any]:
    """Return the fields that every answer about a crumb has."""
    return _copy_fields(Crumb, found)


def crumb_of(found: crumb.Crumb) -> Crumb:
    """Return a crumb as doors show it."""
    return Crumb(**crumb_fields(found))


def describe_queued(found: Judged) -> Queued:
    """Return a crumb with the reasons why it can or cannot be taken."""
    fields = crumb_fields(found.crumb) | {"lease_until": found.lease_until or found.crumb.lease_until}
    return Queued(**fields, ready=found.ready, reasons=list(found.reasons), waits_for=list(found.waits_for))


def trail_fields(found: trail.Trail) -> dict[str, Any]:
    """Return the fields that every answer about a trail has."""
    return _copy_fields(TrailInfo, found)


def trail_of(found: trail.Trail) -> TrailInfo:
    """Return a trail as doors show it."""
    return TrailInfo(**trail_fields(found))


def neighbour_of(found: crumb.Crumb | trail.Trail) -> Neighbour:
    """Return a crumb or a trail in short."""
    waits = getattr(found, "open_parents", 0)
    return Neighbour(found.id, found.name, found.state, found.short_id, waits)


def stash_of(found: stash.Stash, trail: str | None = None) -> StashInfo:
    """Return a stash as doors show it."""
    return StashInfo(
        id=found.id,
        name=found.name,
        type=found.stash_type,
        value=found.value,
        version=found.version,
        properties=found.readable(),
        created_at=found.created_at,
        updated_at=found.updated_at,
        operation=found.last_operation,
        changed_by=found.changed_by,
        trail=trail,
    )


def link_of(found: link.Link, names: Mapping[str, str]) -> LinkInfo:
    """Return a link as doors show it; `names` has the names of its ends by id."""
    ends = names.get(found.from_id, ""), names.get(found.to_id, "")
    return LinkInfo(found.id, found.link_type, found.from_id, found.to_id, found.created_at, *ends)


def property_of(found: properties.Property, defined: Definition) -> PropertyInfo:
    """Return a property as doors show it."""
    return PropertyInfo(
        found.id,
        found.name,
        found.value_type,
        found.scope,
        found.description,
        defined.default(),
        [choice.name for choice in defined.options],
    )


def entry_of(found: metadata.Metadata, property: str | None, short_id: str) -> MetadataEntry:
    """Return a metadata entry as doors show it, with the name of its property and its crumb's short id."""
    about = (found.table_name, found.content, property, found.created_at, found.author)
    return MetadataEntry(found.id, found.crumb_id, *about, short_id)
