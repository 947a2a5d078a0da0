"""The log of refusals: agent, operation, time and reason. The newest of each agent are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dgent.blocks.errors import PermissionDenied
from dgent.blocks.record import AUDIT, AuditRecord
from dgent.errors import DgentError
from dgent.model.query import Query
from dgent.store.backend import Delete
from dgent.universe.universe import Universe

MAX_REASON = 1000
KEPT = 1000  # refusals of one agent, so that refused calls cannot fill the store
SLACK = 100  # so many more are allowed before the oldest are deleted together


@dataclass(frozen=True)
class Refusal:
    """A refused call: `what` was called, which is an `operation` on the block of an owner."""

    at: datetime
    agent: str
    trust: str
    owner: str
    label: str
    what: str
    operation: str
    verdict: str
    reason: str


async def record_refusal(universe: Universe, record: AuditRecord, error: PermissionDenied) -> None:
    """Store a refusal; an error while storing is added as a note to the refusal's own error."""
    try:
        await universe.remember(record)
        await _trim(universe, record.agent)
    except DgentError as trouble:
        error.add_note(f"this refusal could not be logged: {trouble}")


async def _trim(universe: Universe, agent: str) -> None:
    where = {"agent": agent}
    surplus = await universe.count(Query(schema=AUDIT.name, where=where, limit=None)) - KEPT
    if surplus > SLACK:
        oldest = Query(schema=AUDIT.name, where=where, descending=False, limit=surplus)
        await universe.commit([Delete(each.id) for each in await universe.query(oldest, raw=True)])


async def list_refusals(universe: Universe, agent: str, limit: int) -> list[Refusal]:
    """Return the refusals of an agent and those about its blocks, newest first."""
    where = {"$or": [{"agent": agent}, {"owner": agent}]}
    found = await universe.recall(Query(schema=AUDIT.name, where=where, limit=limit))
    return [
        Refusal(
            each.created_at,
            each.value.agent,
            each.value.trust,
            each.value.owner,
            each.value.label,
            each.value.what,
            each.value.operation,
            each.value.verdict,
            each.value.reason,
        )
        for each in found
    ]
