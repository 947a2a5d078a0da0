"""Shares: a block given to another agent or a group, with a permission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dgent import clock
from dgent.blocks.access import agents
from dgent.blocks.access.actor import Actor, find_scope
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.record import (
    AGENT,
    ARCHIVE_SHARE,
    SHARE,
    ArchiveShareRecord,
    BlockRecord,
    ShareRecord,
    archive_share_id,
    group_of,
    share_id,
)
from dgent.errors import Conflict, InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.gate import Principal
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

READ = "read_only"


@dataclass(frozen=True)
class Share:
    """A share of a block with an agent or a group; one of an archive has no block and no label.

    It allows the least of its own permission and the block's.
    """

    block: str
    owner: str
    label: str
    agent: str | None
    group: str | None
    permission: str
    by: str
    at: datetime


async def find_recipient(reader: Universe | Transaction, agent: str | None, group: str | None) -> str:
    """Return the id of the record of the agent or group that a share is for."""
    if (agent is None) == (group is None):
        raise InputError(
            "expected either an agent or a group to share with", hint="give with_agent= or with_group="
        )
    if agent is not None:
        return (await agents.find_agent(reader, agent)).id
    assert group is not None
    return (await agents.find_group(reader, group)).id


async def put_share(
    tx: Transaction,
    header: Crystal[BlockRecord],
    by: str,
    agent: str | None,
    group: str | None,
    permission: str,
) -> None:
    """Share a block, or change the permission of its share."""
    if header.value.owner == CONSTELLATION:
        raise Conflict(
            f"{header.value.label!r} belongs to all: everyone has it", hint="change its permission"
        )
    if agent == header.value.owner:
        raise InputError(f"{agent!r} owns {header.value.label!r}", field="with_agent")
    to = await _find_active_recipient(tx, agent, group)
    record = ShareRecord(header.id, header.value.owner, to, permission, by, clock.now())
    await tx.check(header.id)
    found = await tx.get(share_id(header.id, to))
    if found is None:
        await tx.remember(record, id=share_id(header.id, to), author=by)
    elif found.value.permission != permission:
        await tx.store(found.replace(value=record, author=by))


async def _find_active_recipient(tx: Transaction, agent: str | None, group: str | None) -> str:
    """Return the id of a recipient that can be given something; raises Conflict for an archived agent."""
    to = await find_recipient(tx, agent, group)
    if agent is not None and (await agents.find_agent(tx, agent)).value.status == "archived":
        raise Conflict(f"the agent {agent!r} is archived", hint="make it active again first")
    return to


async def put_archive_share(tx: Transaction, owner: str, agent: str | None, group: str | None) -> None:
    """Share the archive of an agent; nothing changes if it is shared already."""
    if agent == owner:
        raise InputError(f"{agent!r} owns this archive", field="with_agent")
    to = await _find_active_recipient(tx, agent, group)
    if not await tx.exists(archive_share_id(owner, to)):
        record = ArchiveShareRecord(owner, to, owner, clock.now())
        await tx.remember(record, id=archive_share_id(owner, to), author=owner)


async def list_archive_shares(universe: Universe, actor: Actor) -> list[Share]:
    """Return the shares of archives that an agent gave and received, its own first."""
    scope = await find_scope(universe, Principal(actor.agent, "friend"))
    wanted = {"$or": [{"owner": actor.agent}, {"to": {"$in": sorted(scope.recipients)}}]}
    found = await universe.recall(Query(schema=ARCHIVE_SHARE.name, where=wanted, limit=None))
    made = [
        Share("", each.value.owner, "", *_name_recipient(each.value.to), READ, each.value.by, each.value.at)
        for each in found
    ]
    return sorted(made, key=lambda each: (each.owner != actor.agent, each.owner, each.at))


async def list_shares(universe: Universe, actor: Actor) -> list[Share]:
    """Return the shares an agent gave and received, without those of deleted blocks."""
    query = Query(schema=SHARE.name, where={"owner": actor.agent}, limit=None)
    given = await universe.recall(query)
    received = await actor.find_received(universe)
    found = {each.id: each for each in (*given, *received)}
    headers = await universe.get_many(list({each.value.block for each in found.values()}))
    active = {
        header.id: header.value for header in headers if isinstance(header, Crystal) and header.value.active
    }
    made = [
        _build_share(each.value, active[each.value.block]) for each in _select_active(found.values(), active)
    ]
    return sorted(made, key=lambda each: (each.owner != actor.agent, each.owner, each.label, each.at))


def _select_active(
    found: Iterable[Crystal[ShareRecord]], active: dict[str, BlockRecord]
) -> list[Crystal[ShareRecord]]:
    """Return the shares whose blocks are active."""
    return [each for each in found if each.value.block in active]


def _build_share(share: ShareRecord, header: BlockRecord) -> Share:
    agent, group = _name_recipient(share.to)
    return Share(share.block, header.owner, header.label, agent, group, share.permission, share.by, share.at)


def _name_recipient(to: str) -> tuple[str | None, str | None]:
    """Return the names of the agent and of the group that an id is of; one is None."""
    group = group_of(to)
    return (to.removeprefix(f"{AGENT.name}/") if group is None else None), group
