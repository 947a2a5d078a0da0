"""An agent's standing with a block: what it may do, and the records that say so.

Whoever relies on a standing has the commit check that these records are still as they were read. So what was
allowed a moment ago and is not allowed any more is not done, and an edit needs no further read for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dgent.blocks.access import permission as gate
from dgent.blocks.kind import CONSTELLATION, PERMISSIONS
from dgent.blocks.record import (
    BLOCK,
    GROUP,
    MEMBER,
    SHARE,
    BlockRecord,
    MemberRecord,
    ShareRecord,
    agent_id,
    group_id,
    group_ids,
    share_id,
)
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.backend import Check, Op
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

Reader = Universe | Transaction
Card = Crystal[BlockRecord]
Where = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """What an agent may do with a block.

    `permission` is for its content, `manages` for its card and its shares: its owner manages a block that is
    read_only. `grants` are the share, and the membership of the group it is for.
    """

    card: Card
    permission: str
    manages: bool = False
    grants: tuple[Crystal[Any], ...] = ()

    def for_operation(self, operation: str) -> str:
        """The permission that an operation is judged by."""
        return "admin" if self.manages and operation in ("manage", "erase") else self.permission

    def checks(self) -> list[Op]:
        """Ops that let a commit happen only while this standing is as it is."""
        return [Check(each.id, each.rev or 0) for each in (self.card, *self.grants)]


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    agent: str
    trust: str

    async def standing(self, reader: Reader, id: str, owner: str) -> Standing | None:
        """The standing with one block now; None when it may not see it, or there is none."""
        if owner in (self.agent, CONSTELLATION):
            card = await reader.get(id)
            return self.of_own(card) if _is_there(card) else None
        members = await self._memberships(reader)
        groups = await places_of_groups(reader, (each.value.group for each in members))
        recipients = [agent_id(self.agent), *groups.values()]
        card, *shares = await reader.get_many([id, *(share_id(id, to) for to in recipients)])
        if not _is_there(card):
            return None
        return _of_shared(card, [each for each in shares if isinstance(each, Crystal)], members)

    async def standing_by_id(self, reader: Reader, id: str) -> Standing | None:
        """The standing with the block of an id, whoever owns it; None as in `standing`."""
        card = await reader.get(id)
        return await self.standing(reader, id, card.value.owner) if _is_there(card) else None

    async def visible(self, reader: Reader, *wanted: Where, limit: int | None = None) -> list[Standing]:
        """The standing with the blocks that it may see: its own, those of all, and those it was given.

        With `wanted` only those that fit one of these filters; `limit` is for its own and those of all.
        """
        everyone = {"owner": {"$in": [self.agent, CONSTELLATION]}}
        found = await self.own(reader, *({**everyone, **each} for each in wanted or ({},)), limit=limit)
        members = await self._memberships(reader)
        shares = await self.received(reader, members)
        cards = await reader.get_many(list(dict.fromkeys(each.value.block for each in shares)))
        for card in cards:
            if _is_there(card) and (not wanted or any(_fits(card.value, each) for each in wanted)):
                mine = [each for each in shares if each.value.block == card.id]
                standing = _of_shared(card, mine, members)
                found += [] if standing is None else [standing]
        return sorted(found, key=self._order)

    async def own(self, reader: Reader, *wanted: Where, limit: int | None = None) -> list[Standing]:
        """The standing with its own blocks, by label; with `wanted` those that fit one of these filters."""
        found: dict[str, Card] = {}
        for each in wanted or ({},):
            where = {"owner": self.agent, "active": True, **each}
            cards = await reader.recall(Query(schema=BLOCK.name, where=where, limit=limit))
            found |= {card.id: card for card in cards}
        return sorted((self.of_own(card) for card in found.values()), key=self._order)

    async def received(
        self, reader: Reader, members: Iterable[Crystal[MemberRecord]] | None = None
    ) -> list[Crystal[ShareRecord]]:
        """The shares that are for this agent, or for a group that it is in."""
        known = await self._memberships(reader) if members is None else members
        groups = await places_of_groups(reader, (each.value.group for each in known))
        recipients = [agent_id(self.agent), *groups.values()]
        where = {"to": recipients[0] if len(recipients) == 1 else {"$in": recipients}}
        return await reader.recall(Query(schema=SHARE.name, where=where, limit=None))

    async def _memberships(self, reader: Reader) -> list[Crystal[MemberRecord]]:
        return await reader.recall(Query(schema=MEMBER.name, where={"agent": self.agent}, limit=None))

    def of_own(self, card: Card) -> Standing:
        """The standing with a block of its own, or of all."""
        permission = card.value.permission
        if card.value.owner == self.agent:
            # Its owner may do what nobody said it may not; only a restriction of the content binds it.
            return Standing(card, "admin" if permission == "read_write" else permission, True)
        # What belongs to all has no agent that manages it: whoever speaks for the partner does.
        return Standing(card, permission, self.trust == "partner")

    def _order(self, standing: Standing) -> tuple[bool, str, str]:
        card = standing.card.value
        return card.owner != self.agent, card.owner, card.label


async def places_of_groups(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """The ids of the records of some groups, by name; where a name can have two, the record says which."""
    places = {name: group_id(name) for name in names}
    odd = [id for name in places for id in group_ids(name)[1:]]
    for found in await reader.get_many(odd, raw=True) if odd else []:
        if found is not None and found.schema == GROUP.name and found.data.get("name") in places:
            places[found.data["name"]] = found.id
    return places


def _of_shared(
    card: Card, shares: list[Crystal[ShareRecord]], members: list[Crystal[MemberRecord]]
) -> Standing | None:
    """The standing that the best of some shares gives."""
    if not shares:
        return None
    best = max(shares, key=lambda each: PERMISSIONS.index(each.value.permission))
    through = [each for each in members if best.value.to in group_ids(each.value.group)]
    permission = gate.least(card.value.permission, best.value.permission)
    return Standing(card, permission, permission == "admin", (best, *through))


def _fits(card: BlockRecord, where: Where) -> bool:
    """Whether a filter of fields, each equal to a value or `$in` some, lets a card pass."""
    fields = vars(card)
    return all(
        fields[name] in each["$in"] if isinstance(each, dict) else fields[name] == each
        for name, each in where.items()
    )


def _is_there(card: Any) -> bool:
    return isinstance(card, Crystal) and card.schema_name == BLOCK.name and card.value.active
