"""Sharing: giving other agents a block of one's own, with a permission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dgent import clock
from dgent.blocks.access import agents
from dgent.blocks.access.standing import Caller
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.record import (
    AGENT,
    SHARE,
    BlockRecord,
    ShareRecord,
    group_of,
    share_id,
)
from dgent.errors import Conflict, InputError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe


@dataclass(frozen=True)
class Share:
    """A block that was given to an agent, or to a group: by whom, when, and what for.

    What it allows is the least of this permission and the block's own.
    """

    block: str
    owner: str
    label: str
    agent: str | None
    group: str | None
    permission: str
    by: str
    at: datetime


async def recipient(reader: Universe | Transaction, agent: str | None, group: str | None) -> str:
    """The id of the record of whom something is shared with."""
    if (agent is None) == (group is None):
        raise InputError("a block is shared with an agent or a group", hint="give with_agent= or with_group=")
    if agent is not None:
        return (await agents.known_agent(reader, agent)).id
    assert group is not None
    return (await agents.known_group(reader, group)).id


async def put(
    tx: Transaction,
    card: Crystal[BlockRecord],
    by: str,
    agent: str | None,
    group: str | None,
    permission: str,
) -> None:
    """Share a block, or change the permission of a share."""
    if card.value.owner == CONSTELLATION:
        raise Conflict(f"{card.value.label!r} belongs to all: everyone has it", hint="change its permission")
    if agent == card.value.owner:
        raise InputError(f"{agent!r} owns {card.value.label!r}", field="with_agent")
    to = await recipient(tx, agent, group)
    if agent is not None and (await agents.known_agent(tx, agent)).value.status == "archived":
        raise Conflict(f"the agent {agent!r} is archived", hint="make it active again first")
    record = ShareRecord(card.id, card.value.owner, to, permission, by, clock.now())
    await tx.check(card.id)
    found = await tx.get(share_id(card.id, to))
    if found is None:
        await tx.remember(record, id=share_id(card.id, to), author=by)
    elif found.value.permission != permission:
        await tx.store(found.replace(value=record, author=by))


async def shares(universe: Universe, caller: Caller) -> list[Share]:
    """What an agent has given and what it was given; blocks that are deleted are not among them."""
    query = Query(schema=SHARE.name, where={"owner": caller.agent}, limit=None)
    given = await universe.recall(query)
    received = await caller.received(universe)
    found = {each.id: each for each in (*given, *received)}
    cards = await universe.get_many(list({each.value.block for each in found.values()}))
    active = {card.id: card.value for card in cards if isinstance(card, Crystal) and card.value.active}
    made = [_made(each.value, active[each.value.block]) for each in _there(found.values(), active)]
    return sorted(made, key=lambda each: (each.owner != caller.agent, each.owner, each.label, each.at))


def _there(
    found: Iterable[Crystal[ShareRecord]], active: dict[str, BlockRecord]
) -> list[Crystal[ShareRecord]]:
    return [each for each in found if each.value.block in active]


def _made(share: ShareRecord, card: BlockRecord) -> Share:
    group = group_of(share.to)
    agent = share.to.removeprefix(f"{AGENT.name}/") if group is None else None
    return Share(share.block, card.owner, card.label, agent, group, share.permission, share.by, share.at)
