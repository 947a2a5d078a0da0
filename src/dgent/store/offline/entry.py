"""A commit as the outbox keeps it: everything that is needed to do it later, in one record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from dgent import clock, codec
from dgent.model.datum import Datum
from dgent.store.backend import Check, Commit, Delete, Expect, Op, Put, Shaped
from dgent.store.engine.commit import Prepared

ENTRY = "dgent.outbox"
CONFLICT = "dgent.conflict"
SHOWN = 100  # of a conflict, so many of its records are shown
SHOWN_BYTES = 1 << 16


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One op. `after` is the key of the pending commit whose version of the record it builds on."""

    op: Literal["put", "delete", "check"]
    id: str
    expect: Expect = None
    after: str | None = None
    t: int = 0
    schema: str | None = None
    version: int | None = None
    author: str | None = None
    source: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()
    data: bytes = b""
    content: bytes = b""
    extra: bytes | None = None
    indexed: bytes | None = None
    indexed_version: int = 0

    def datum(self) -> Datum:
        """The record that a put stores."""
        return Datum(
            self.id,
            clock.from_us(self.t),
            codec.decode(self.data),
            self.content,
            frozenset(self.tags),
            self.author,
            self.source,
            self.parent,
            self.schema,
            self.version,
            extra=None if self.extra is None else codec.decode(self.extra),
        )

    def done_with(self, expect: Expect) -> Op:
        """The op, expecting what the store has now."""
        if self.op == "check":
            return Check(self.id, expect)
        if self.op == "delete":
            return Delete(self.id, expect)
        shaped = None if self.indexed is None else Shaped(self.indexed_version, codec.decode(self.indexed))
        return Put(self.datum(), expect, shaped)


class Entry(msgspec.Struct, frozen=True):
    """One pending commit, with the key under which it happens once."""

    key: str
    author: str
    note: str | None
    room: str | None
    at: int
    digest: bytes
    steps: tuple[Step, ...]
    seq: int = 0  # its place in the outbox; set when it is read back

    @property
    def name(self) -> str:
        """The id of its record in the outbox: one key, one record."""
        return name_of(self.key)

    @property
    def ids(self) -> list[str]:
        """The records that it is about."""
        return [step.id for step in self.steps]

    def record(self) -> Datum:
        """Its record in the outbox. The ids are data, so that people and `forget` can find them."""
        data = {"key": self.key, "ids": self.ids, "author": self.author, "note": self.note}
        raw = msgspec.msgpack.encode(self)
        return Datum(self.name, clock.from_us(self.at), data, raw, author="system", schema=ENTRY)


def entry_of(datum: Datum) -> Entry:
    """The pending commit in a record of the outbox."""
    found = msgspec.msgpack.decode(datum.content, type=Entry)
    return msgspec.structs.replace(found, seq=datum.seq or 0)


def name_of(key: str) -> str:
    """The id of the record for a key."""
    return hashlib.blake2b(key.encode(), digest_size=20).hexdigest()


def entry_for(prepared: Prepared, key: str, after: Sequence[str | None]) -> Entry:
    """A commit that was checked, as an entry; `after` goes with its ops."""
    commit = prepared.commit
    steps = tuple(_step(op, key_before) for op, key_before in zip(commit.ops, after, strict=True))
    assert prepared.digest is not None, "what goes to the outbox has a key"
    return Entry(key, commit.author, commit.note, commit.room, clock.now_us(), prepared.digest, steps)


def _step(op: Op, after: str | None) -> Step:
    if isinstance(op, Check):
        return Step("check", op.id, op.expect, after)
    if isinstance(op, Delete):
        return Step("delete", op.id, op.expect, after)
    datum = op.datum.check(op.plain)
    return Step(
        "put",
        datum.id,
        op.expect,
        after,
        clock.to_us(datum.created_at),
        datum.schema,
        datum.schema_version,
        datum.author,
        datum.source,
        datum.parent_id,
        tuple(sorted(datum.tags)),
        codec.encode(datum.data),
        datum.content,
        None if datum.extra is None else codec.encode(datum.extra),
        None if op.indexed is None else codec.encode(codec.plain(op.indexed.data)),
        0 if op.indexed is None else op.indexed.version,
    )


def commit_of(entry: Entry, expects: Sequence[Expect]) -> Commit:
    """The commit to send, each op expecting what the store has now."""
    ops = [step.done_with(expect) for step, expect in zip(entry.steps, expects, strict=True)]
    return Commit(ops, entry.key, None, entry.author, entry.note, "data", None, entry.room)


def shown(step: Step) -> dict[str, Any]:
    """One op for people to read; what is large is in the entry only."""
    told: dict[str, Any] = {"op": step.op, "id": step.id, "expect": step.expect}
    if step.op == "put":
        told["schema"] = step.schema
        if len(step.data) <= SHOWN_BYTES:
            told["data"] = codec.decode(step.data)
    return told


def shown_datum(datum: Datum | None) -> dict[str, Any] | None:
    """What the store has, for people to read; what is large is in the store."""
    if datum is None:
        return None
    told = {"id": datum.id, "rev": datum.rev, "schema": datum.schema}
    small = len(codec.encode(codec.plain(datum.data))) <= SHOWN_BYTES
    return told | ({"data": datum.data} if small else {})
