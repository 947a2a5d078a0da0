"""A message and a batch as callers see them, and what they give to add one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from dgent.errors import InputError
from dgent.messages.part import Content, Part, check_content, decode
from dgent.messages.record import ROLES, BatchRecord, MessageRecord
from dgent.model.crystal import Crystal
from dgent.store.backend import Put
from dgent.universe.origin import check_trust

S = TypeVar("S", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message.

    `trust` and `origin` say how far what it came from is trusted, and where that was. `number` is its place
    in the batch: 3, or 3.1 for the result of the first call of message 3. `seq` is the commit of this
    version, `archived` whether a compression put it away.
    """

    id: str
    agent: str
    batch: str
    number: str
    role: str
    text: str
    parts: tuple[Part, ...]
    trust: str
    origin: str
    by: str
    tokens: int
    usage: Any
    at: datetime
    edited_at: datetime | None
    seq: int | None
    archived: bool = False


class BatchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One request/response cycle, as it is stored.

    `saw` is the commit that its history ends at. `dropped` are the calls that got no result before it was
    interrupted, `started` those that began to run.
    """

    id: str
    agent: str
    type: str
    state: str
    trust: str
    origin: str
    session: str
    cause: str
    saw: int
    count: int
    tokens: int
    usage: Any
    started_at: datetime
    ended_at: datetime | None
    reason: str
    dropped: tuple[str, ...]
    started: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """A message to add. Without a trust it has that of its batch; `by` is who said it."""

    role: str
    content: Content
    trust: str | None = None
    origin: str = ""
    by: str = ""
    usage: Any = None

    def check(self) -> tuple[Part, ...]:
        """Return the parts; raises InputError for a role, a trust or a content that cannot be."""
        if self.role not in ROLES:
            raise InputError(
                f"{self.role!r:.60} is not a valid role", hint=f"use one of {', '.join(ROLES)}", field="role"
            )
        if self.trust is not None:
            check_trust(self.trust)
        check_words(self.origin, "origin")
        check_words(self.by, "by")
        return check_content(self.content)


def check_words(value: object, field: str) -> str:
    """Return a text; raises InputError for anything else."""
    if not isinstance(value, str):
        raise InputError(f"{field} must be a text, not {type(value).__name__}", field=field)
    return value


def build_message(found: Crystal[MessageRecord], archived: bool = False) -> Message:
    """Build a Message from its record."""
    value, edited_at = found.value, found.datum.updated_at if (found.rev or 1) > 1 else None
    parts = decode(value.text, value.parts)
    return _build(found.id, value, parts, found.created_at, edited_at, found.datum.seq, archived)


def _build(
    id: str,
    value: MessageRecord,
    parts: tuple[Part, ...],
    at: datetime,
    edited_at: datetime | None,
    seq: int | None,
    archived: bool = False,
) -> Message:
    number = ".".join(str(int(part)) for part in id.partition("/")[2].split("."))
    return Message(
        id=id,
        agent=value.agent,
        batch=value.batch,
        number=number,
        role=value.role,
        text=value.text,
        parts=parts,
        trust=value.trust,
        origin=value.origin,
        by=value.by,
        tokens=value.tokens,
        usage=value.usage,
        at=at,
        edited_at=edited_at,
        seq=seq,
        archived=archived,
    )


class Added(NamedTuple):
    """A message that is about to be added: the op, its record and its parts."""

    op: Put
    record: MessageRecord
    parts: tuple[Part, ...]

    def build(self, seq: int | None) -> Message:
        """Build the Message; it has no seq before its transaction is over."""
        return _build(self.op.id, self.record, self.parts, self.op.datum.created_at, None, seq)


def copy_fields(kind: type[S], value: Any, **given: Any) -> S:
    """Return a struct with the fields of a record that have the same names, and the given ones."""
    same = {name: getattr(value, name) for name in kind.__struct_fields__ if name not in given}
    return kind(**same, **given)


def build_batch(id: str, value: BatchRecord, started_at: datetime) -> BatchInfo:
    """Build a BatchInfo from its record."""
    return copy_fields(
        BatchInfo,
        value,
        id=id,
        started_at=started_at,
        dropped=tuple(value.dropped or ()),
        started=tuple(value.started or ()),
    )
