"""Answers of verbs: plain structs whose JSON is the same at every door."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from dgent.model.datum import Datum
from dgent.store.backend import Change, Item, Version
from dgent.verbs.cupboard.answer import Work


class Record(msgspec.Struct, frozen=True):
    """A record as it is stored; `problem` says why it cannot be read, if it cannot.

    `author` is whom the record names. `committed_by` is who stored this version, where that was looked up
    and is still known: a record may name another.
    """

    id: str
    schema: str | None
    version: int | None
    rev: int | None
    seq: int | None
    created_at: datetime
    author: str | None
    source: str | None
    parent: str | None
    tags: list[str]
    data: dict[str, Any]
    content: bytes | None = None
    problem: str | None = None
    committed_by: str | msgspec.UnsetType = msgspec.UNSET


class Records(msgspec.Struct, frozen=True):
    """Records in order; `cursor` continues after the last.

    `partial`: the store is unavailable, so there may be more.
    """

    items: list[Record]
    cursor: str | None = None
    explain: str = ""
    partial: bool = False


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of records; `partial` when the store is unavailable and only local ones were counted."""

    count: int
    partial: bool = False


class Done(msgspec.Struct, frozen=True):
    """The result of a change: its commit, and the records it touched.

    `seq` is None after a dry run, and while the change is `pending` because the store is unavailable.
    """

    seq: int | None
    changed: list[str]
    dry_run: bool = False
    pending: bool = False


class Edition(msgspec.Struct, frozen=True):
    """One version of a record in its history; `record` is None for a deletion."""

    id: str
    rev: int
    seq: int
    at: datetime
    op: Literal["put", "delete"]
    author: str | None
    note: str | None
    record: Record | None


class Editions(msgspec.Struct, frozen=True):
    """The kept versions of a record, newest first."""

    items: list[Edition]


class Touched(msgspec.Struct, frozen=True):
    """One record that a commit changed; `before` is what a deletion removed."""

    op: Literal["put", "delete", "forget"]
    id: str | None
    rev: int
    schema: str | None
    record: Record | None
    before: Record | None = None


class Entry(msgspec.Struct, frozen=True):
    """One commit in the log; without a number when it is `provisional`, because the store is unavailable."""

    seq: int | None
    at: datetime
    author: str
    kind: str
    note: str | None
    of_seq: int | None
    items: list[Touched]
    provisional: bool = False


class WholeCommit(Entry, frozen=True):
    """One commit, drawn with its records whole."""


class Log(msgspec.Struct, frozen=True):
    """Commits; `first_seq` is the oldest that is still kept, and `work` the work in progress."""

    items: list[Entry]
    first_seq: int = 0
    work: Work | None = None


class Difference(msgspec.Struct, frozen=True):
    """One path at which two versions differ; an absent value is left out of the JSON."""

    path: str
    old: Any = msgspec.UNSET
    new: Any = msgspec.UNSET


class Diff(msgspec.Struct, frozen=True):
    """The differences of two versions of a record: path by path, and as text lines."""

    id: str
    old_rev: int
    new_rev: int
    differences: list[Difference]
    unified: list[str]


def record_of(datum: Datum, committed_by: str | None = None) -> Record:
    """Return a datum as doors show it, with its committer if known."""
    return Record(
        datum.id,
        datum.schema,
        datum.schema_version,
        datum.rev,
        datum.seq,
        datum.created_at,
        datum.author,
        datum.source,
        datum.parent_id,
        sorted(datum.tags),
        datum.data,
        datum.content or None,
        datum.problem,
        msgspec.UNSET if committed_by is None else committed_by,
    )


def edition_of(version: Version) -> Edition:
    """Return a version as doors show it."""
    datum = version.datum
    record = None if datum is None else record_of(datum, version.author)
    return Edition(
        version.id,
        version.rev,
        version.seq,
        version.at,
        version.op,
        version.author,
        version.note,
        record,
    )


def entry_of(change: Change) -> Entry:
    """Return a commit as doors show it."""
    items = [_item_of(item, change.author) for item in change.items]
    return Entry(
        change.seq,
        change.at,
        change.author,
        change.kind,
        change.note,
        change.of_seq,
        items,
        change.provisional,
    )


def _item_of(item: Item, author: str) -> Touched:
    record = None if item.datum is None else record_of(_datum(item.datum), author)
    before = None if item.last is None else record_of(_datum(item.last))
    return Touched(item.op, item.id, item.rev, item.schema, record, before)


def _datum(thing: Any) -> Datum:
    found: Datum = thing if isinstance(thing, Datum) else thing.datum
    return found
