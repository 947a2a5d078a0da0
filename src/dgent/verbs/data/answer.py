"""Answers of the verbs of records: plain structs whose JSON is the same at every door."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dgent.model.datum import Datum
from dgent.universe.origin import read_origin
from dgent.verbs.origin import LowTrust, mark_of


class Record(msgspec.Struct, frozen=True):
    """A record as it is stored; `problem` says why it cannot be read, if it cannot.

    `author` is whom the record names. `committed_by` is who stored this version, where that was looked up
    and is still known: a record may name another. `origin` is the trust of those whose words it was made
    from, where that is less than a partner's.
    """

    id: str
    schema: str | None
    version: int | None
    rev: int | None
    seq: int | None
    created_at: datetime
    updated_at: datetime | None
    author: str | None
    source: str | None
    parent: str | None
    tags: list[str]
    data: dict[str, Any]
    content: bytes | None = None
    problem: str | None = None
    committed_by: str | msgspec.UnsetType = msgspec.UNSET
    origin: LowTrust = msgspec.UNSET


class SearchHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thing that a search found; the best has the score 1. `marks` are the words' places in `snippet`.

    `kind` is record, crumb, trail, lesson, comment, stash, block or entry; a crumb's `detail` is its state,
    a block's its owner. `id` is that of the thing, `record` is what has the words. `origin` is as in a
    record.
    """

    kind: str
    id: str
    name: str
    detail: str
    record: Record
    score: float
    snippet: str
    marks: tuple[tuple[int, int], ...]
    parts: dict[str, float] = {}
    origin: LowTrust = msgspec.UNSET


class SearchHits(msgspec.Struct, frozen=True):
    """Hits, best first; `building` while records wait to be indexed that the search could not look at.

    `legs` are those that have answered, `text` and `meaning`; `note` says why the other has not.
    """

    items: list[SearchHit]
    building: bool = False
    explain: str = ""
    legs: tuple[str, ...] = ("text",)
    note: str = ""


class Records(msgspec.Struct, frozen=True):
    """Records in order; `cursor` continues after the last.

    `partial`: the store is unavailable, so there may be more. `search` has the hits of a search.
    """

    items: list[Record]
    cursor: str | None = None
    explain: str = ""
    partial: bool = False
    search: SearchHits | msgspec.UnsetType = msgspec.UNSET


class RecordCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of records; `partial` when the store is unavailable and only local ones were counted."""

    count: int
    partial: bool = False


class RecordPresence(msgspec.Struct, frozen=True):
    """The answer to whether a record exists."""

    id: str
    exists: bool


class ChangeResult(msgspec.Struct, frozen=True):
    """The result of a change: its commit, and the records it touched.

    `seq` is None after a dry run, and while the change is `pending` because the store is unavailable.
    After an undo, `of_seq` is what was undone and `summary` what came back, in words; `redo` when that was
    an undo itself.
    """

    seq: int | None
    changed: list[str]
    dry_run: bool = False
    pending: bool = False
    summary: list[str] = []
    of_seq: int | None = None
    redo: bool = False


def record_of(datum: Datum, committed_by: str | None = None, origin: str | None = None) -> Record:
    """Return a datum as doors show it, with its committer if known; its origin is what it says itself."""
    return Record(
        datum.id,
        datum.schema,
        datum.schema_version,
        datum.rev,
        datum.seq,
        datum.created_at,
        datum.updated_at,
        datum.author,
        datum.source,
        datum.parent_id,
        sorted(datum.tags),
        datum.data,
        datum.content or None,
        datum.problem,
        msgspec.UNSET if committed_by is None else committed_by,
        mark_of(read_origin(datum) if origin is None else origin),
    )
