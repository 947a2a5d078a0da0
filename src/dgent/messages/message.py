"""A message and a batch as callers see them, and what they give to add one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dgent.errors import InputError
from dgent.messages.part import Content, Part, check_content, decode
from dgent.messages.record import MESSAGE, ROLES, BatchRecord, MessageRecord
from dgent.model.crystal import Crystal
from dgent.store.backend import Put
from dgent.universe.gate import TRUSTS


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
    interrupted.
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
        return check_content(self.content)


def check_trust(trust: object) -> str:
    """Return a trust; raises InputError for what is none."""
    if not isinstance(trust, str) or trust not in TRUSTS:
        raise InputError(
            f"{trust!r:.60} is not a valid trust", hint=f"use one of {', '.join(TRUSTS)}", field="trust"
        )
    return trust


def build_message(found: Crystal[MessageRecord], archived: bool = False) -> Message:
    """Build a Message from its record."""
    value = found.value
    number = ".".join(str(int(part)) for part in found.id.partition("/")[2].split("."))
    return Message(
        id=found.id,
        agent=value.agent,
        batch=value.batch,
        number=number,
        role=value.role,
        text=value.text,
        parts=decode(value.text, value.parts),
        trust=value.trust,
        origin=value.origin,
        by=value.by,
        tokens=value.tokens,
        usage=value.usage,
        at=found.created_at,
        edited_at=found.datum.updated_at if (found.rev or 1) > 1 else None,
        seq=found.datum.seq,
        archived=archived,
    )


def build_added(op: Put, seq: int | None) -> Message:
    """Build a Message from the op that added it; it has no seq before its transaction is over."""
    datum = op.datum.replace(rev=1, seq=seq)
    return build_message(Crystal.from_datum(datum, MESSAGE))


def build_batch(id: str, value: BatchRecord, started_at: datetime) -> BatchInfo:
    """Build a BatchInfo from its record."""
    return BatchInfo(
        id=id,
        agent=value.agent,
        type=value.type,
        state=value.state,
        trust=value.trust,
        origin=value.origin,
        session=value.session,
        cause=value.cause,
        saw=value.saw,
        count=value.count,
        tokens=value.tokens,
        usage=value.usage,
        started_at=started_at,
        ended_at=value.ended_at,
        reason=value.reason,
        dropped=tuple(value.dropped or ()),
    )
