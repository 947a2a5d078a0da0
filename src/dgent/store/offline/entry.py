"""A pending commit in the outbox: everything needed to replay it, in one record."""

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
SHOWN = 100  # so many records of a conflict are shown
SHOWN_BYTES = 1 << 16


class PendingOp(msgspec.Struct, frozen=True, omit_defaults=True):
    """One op of a pending commit. `after` is the key of the pending commit whose version it builds on."""

    op: Literal["put", "delete", "check"]
    id: str
    expect: Expect = None
    after: str | None = None
    created_at: int = msgspec.field(default=0, name="t")
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
        """Return the record that a put stores."""
        return Datum(
            self.id,
            clock.from_us(self.created_at),
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

    def to_op(self, expect: Expect) -> Op:
        """Return the op to send, with the version to expect in the store."""
        if self.op == "check":
            return Check(self.id, expect)
        if self.op == "delete":
            return Delete(self.id, expect)
        shaped = None if self.indexed is None else Shaped(self.indexed_version, codec.decode(self.indexed))
        return Put(self.datum(), expect, shaped)


class OutboxEntry(msgspec.Struct, frozen=True):
    """One pending commit, with the key that makes it happen only once."""

    key: str
    author: str
    note: str | None
    room: str | None
    at: int
    digest: bytes
    steps: tuple[PendingOp, ...]
    seq: int = 0  # its place in the outbox; set when it is read back

    @property
    def name(self) -> str:
        """The id of its record in the outbox, derived from its key."""
        return name_of(self.key)

    @property
    def ids(self) -> list[str]:
        """The ids of its records, one for each op."""
        return [step.id for step in self.steps]

    def record(self) -> Datum:
        """Return its record in the outbox; the ids are in the data, so that people and `forget` find them."""
        data = {"key": self.key, "ids": self.ids, "author": self.author, "note": self.note}
        raw = msgspec.msgpack.encode(self)
        return Datum(self.name, clock.from_us(self.at), data, raw, author="system", schema=ENTRY)


def read_entry(datum: Datum) -> OutboxEntry:
    """Return the pending commit in a record of the outbox."""
    found = msgspec.msgpack.decode(datum.content, type=OutboxEntry)
    return msgspec.structs.replace(found, seq=datum.seq or 0)


def name_of(key: str) -> str:
    """Return the id of the outbox record for a key."""
    return hashlib.blake2b(key.encode(), digest_size=20).hexdigest()


def make_entry(prepared: Prepared, key: str, after: Sequence[str | None]) -> OutboxEntry:
    """Make an entry of a prepared commit; `after` has one item for each op."""
    commit = prepared.commit
    steps = tuple(
        _pending_op(op, key_before, commit.author) for op, key_before in zip(commit.ops, after, strict=True)
    )
    assert prepared.digest is not None, "what goes to the outbox has a key"
    return OutboxEntry(key, commit.author, commit.note, commit.room, clock.now_us(), prepared.digest, steps)


def _pending_op(op: Op, after: str | None, author: str) -> PendingOp:
    if isinstance(op, Check):
        return PendingOp("check", op.id, op.expect, after)
    if isinstance(op, Delete):
        return PendingOp("delete", op.id, op.expect, after)
    datum = op.datum.check(op.plain)
    return PendingOp(
        "put",
        datum.id,
        op.expect,
        after,
        clock.to_us(datum.created_at),
        datum.schema,
        datum.schema_version,
        datum.author or author,
        datum.source,
        datum.parent_id,
        tuple(sorted(datum.tags)),
        codec.encode(datum.data),
        datum.content,
        None if datum.extra is None else codec.encode(datum.extra),
        None if op.indexed is None else codec.encode(codec.plain(op.indexed.data)),
        0 if op.indexed is None else op.indexed.version,
    )


def commit_of(entry: OutboxEntry, expects: Sequence[Expect]) -> Commit:
    """Return the commit to send, with the version that each op expects in the store."""
    ops = [step.to_op(expect) for step, expect in zip(entry.steps, expects, strict=True)]
    return Commit(ops, entry.key, None, entry.author, entry.note, "data", None, entry.room)


def show_op(step: PendingOp) -> dict[str, Any]:
    """Describe an op for people; large data is left out."""
    fields: dict[str, Any] = {"op": step.op, "id": step.id, "expect": step.expect}
    if step.op == "put":
        fields["schema"] = step.schema
        if len(step.data) <= SHOWN_BYTES:
            fields["data"] = codec.decode(step.data)
    return fields


def show_datum(datum: Datum | None) -> dict[str, Any] | None:
    """Describe a record of the store for people; large data is left out."""
    if datum is None:
        return None
    fields = {"id": datum.id, "rev": datum.rev, "schema": datum.schema}
    small = len(codec.encode(codec.plain(datum.data))) <= SHOWN_BYTES
    return fields | ({"data": datum.data} if small else {})
