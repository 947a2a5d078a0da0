"""Claim one particular crumb for an agent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from dgent.cupboard import errors
from dgent.cupboard.backoff import clean_note
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import FINISHED
from dgent.cupboard.lease import check_lease, has_expired, lease_id
from dgent.cupboard.record import CrumbRecord
from dgent.cupboard.tables.crumb import Crumb
from dgent.errors import Conflict
from dgent.universe.lease import make_lease

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard


async def take_one(
    cupboard: Cupboard, given: Crumb | str, agent: str, lease_s: float | None, force: bool
) -> Crumb:
    """Claim a crumb that is not finished; an agent that holds it already keeps its claim.

    Raises NotLockHolder where another agent holds it, and Conflict where it waits for others, unless forced.
    """
    if not isinstance(agent, str) or not agent:
        raise errors.InvalidHolder(f"expected the name of an agent, got {agent!r}", field="agent")
    length = None if lease_s is None else check_lease(lease_s)
    id = await cupboard._find_id(given, cupboard.crumbs)

    async def work(changeset: Changeset) -> bool:
        """Claim it; False when it waits for others, which only the store can explain."""
        crumb = await changeset.get(CrumbRecord, id, "crumb")
        if crumb.state in FINISHED:
            raise errors.InvalidTransition(
                f"{crumb.name!r} is {crumb.state}, so it cannot be taken", hint="reopen it first", id=id
            )
        if crumb.state == "taken":
            held = not await has_expired(changeset, id, crumb.token, crumb.lease_until)
            if held and crumb.holder == agent and length is None:
                return True
            if held and crumb.holder not in (None, agent) and not force:
                raise errors.NotLockHolder(
                    f"{crumb.name!r} is taken by {crumb.holder!r}, not by {agent!r}",
                    id=id,
                    holder=crumb.holder,
                )
        if crumb.open_parents and not force:
            return False
        _claim(changeset, id, crumb, agent, length)
        return True

    taken, changeset = await cupboard._change(work, clean_note(f"{agent} takes {id}"))
    if not taken:
        why = await cupboard.explain(id)
        raise Conflict(
            f"{why.crumb.name!r} cannot be taken now: {'; '.join(why.reasons)}",
            hint="force overrides it",
            id=id,
        )
    made = Crumb()
    cupboard.crumbs._write_back(made, id, changeset)
    assert made._memory is not None
    made._memory = made._memory._replace(taken_by=agent)
    return made


def _claim(changeset: Changeset, id: str, crumb: CrumbRecord, agent: str, length: timedelta | None) -> None:
    token = crumb.token + 1
    claimed = replace(
        crumb,
        state="taken",
        holder=agent,
        token=token,
        lease_until=None if length is None else changeset.now + length,
        updated_at=max(changeset.now, crumb.updated_at),
    )
    changeset.put_crumb(id, claimed)
    if length is not None:
        changeset.put(lease_id(id), make_lease(id, agent, token, length))
