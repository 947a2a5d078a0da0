"""The agent that a library acts for, its permission on each block, and the records that grant it.

A commit that relies on a permission checks that these records are unchanged since they were read. So a
permission that was revoked meanwhile makes the commit fail, and an edit needs no further read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgent.blocks.kind import CONSTELLATION, PERMISSIONS, least_permission
from dgent.blocks.record import (
    ARCHIVE_SHARE,
    AUDIT,
    BLOCK,
    ENTRY,
    GROUP,
    MEMBER,
    SEEN,
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
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Op
from dgent.universe.gate import Principal
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

Reader = Universe | Transaction
Header = Crystal[BlockRecord]
Where = Mapping[str, Any]


@dataclass(frozen=True)
class BlockPermission:
    """The permission of an agent on a block.

    `permission` is for the content, `manages` for the header and the shares: an owner manages its block even
    if it is read_only. `grants` are the share and the membership of the group it is for.
    """

    header: Header
    permission: str
    manages: bool = False
    grants: tuple[Crystal[Any], ...] = ()

    def for_operation(self, operation: str) -> str:
        """Return the permission that applies to an operation."""
        return "admin" if self.manages and operation in ("manage", "erase") else self.permission

    def checks(self) -> list[Op]:
        """Return ops that make a commit fail when one of these records has changed."""
        return [Check(each.id, each.rev or 0) for each in (self.header, *self.grants)]


@dataclass(frozen=True)
class Actor:
    """The agent a library acts for, and its trust."""

    agent: str
    trust: str

    async def find_permission(self, reader: Reader, id: str, owner: str) -> BlockPermission | None:
        """Return the agent's permission on a block now; None when it may not see it or there is none."""
        if self.owns(owner):
            header = await reader.get(id)
            return self.own_permission(header) if is_active(header) else None
        members = await self._memberships(reader)
        groups = await find_group_ids(reader, (each.value.group for each in members))
        recipients = [agent_id(self.agent), *groups.values()]
        header, *shares = await reader.get_many([id, *(share_id(id, to) for to in recipients)])
        if not is_active(header):
            return None
        return _shared_permission(header, [each for each in shares if isinstance(each, Crystal)], members)

    def owns(self, owner: str) -> bool:
        """Check whether the blocks of an owner are the agent's own or belong to all: no share is needed."""
        return owner in (self.agent, CONSTELLATION)

    async def find_permission_by_id(self, reader: Reader, id: str) -> BlockPermission | None:
        """Return the agent's permission on the block with an id; None as in `find_permission`."""
        header = await reader.get(id)
        return await self.find_permission(reader, id, header.value.owner) if is_active(header) else None

    async def find_visible(
        self, reader: Reader, *wanted: Where, limit: int | None = None
    ) -> list[BlockPermission]:
        """Return the agent's permission on every block it may see: its own, common and shared ones.

        `wanted` are filters, of which a block must match one. `limit` bounds own and common blocks only.
        """
        found = await self._find_open(reader, wanted, limit)
        return sorted(found + await self._find_shared(reader, wanted), key=self._order)

    async def find_for_context(
        self, reader: Reader, wanted: Sequence[Where], others: Sequence[Where], limit: int
    ) -> tuple[list[BlockPermission], list[BlockPermission]]:
        """Return the blocks it may see that match one of `wanted`, and some that match one of `others`.

        Of its own and common ones at most the `limit` newest for each of `others`.
        """
        shared = await self._find_shared(reader, (*wanted, *others))
        found = []
        for filters, most in ((wanted, None), (others, limit)):
            mine = [each for each in shared if any(_matches(each.header.value, where) for where in filters)]
            found.append(sorted(await self._find_open(reader, filters, most) + mine, key=self._order))
        return found[0], found[1]

    async def _find_open(
        self, reader: Reader, wanted: Sequence[Where], limit: int | None
    ) -> list[BlockPermission]:
        """Return the permission on blocks of its own and of all."""
        everyone = {"owner": {"$in": [self.agent, CONSTELLATION]}}
        return await self.find_own(reader, *({**everyone, **each} for each in wanted or ({},)), limit=limit)

    async def _find_shared(self, reader: Reader, wanted: Sequence[Where]) -> list[BlockPermission]:
        """Return the permission on blocks that were shared with it, all or those that match a filter."""
        found: list[BlockPermission] = []
        members = await self._memberships(reader)
        shares = await self.find_received(reader, members)
        headers = await reader.get_many(list(dict.fromkeys(each.value.block for each in shares)))
        for header in headers:
            if is_active(header) and (not wanted or any(_matches(header.value, each) for each in wanted)):
                mine = [each for each in shares if each.value.block == header.id]
                block_permission = _shared_permission(header, mine, members)
                found += [] if block_permission is None else [block_permission]
        return found

    async def find_own(
        self, reader: Reader, *wanted: Where, limit: int | None = None
    ) -> list[BlockPermission]:
        """Return the permission on the agent's own blocks, by label; `wanted` as in `find_visible`."""
        found: dict[str, Header] = {}
        for each in wanted or ({},):
            where = {"owner": self.agent, "active": True, **each}
            headers = await reader.recall(Query(schema=BLOCK.name, where=where, limit=limit))
            found |= {header.id: header for header in headers}
        return sorted((self.own_permission(header) for header in found.values()), key=self._order)

    async def find_received(
        self, reader: Reader, members: Iterable[Crystal[MemberRecord]] | None = None
    ) -> list[Crystal[ShareRecord]]:
        """Return the shares for this agent, or for a group that it is in."""
        known = await self._memberships(reader) if members is None else members
        groups = await find_group_ids(reader, (each.value.group for each in known))
        recipients = [agent_id(self.agent), *groups.values()]
        where = {"to": recipients[0] if len(recipients) == 1 else {"$in": recipients}}
        return await reader.recall(Query(schema=SHARE.name, where=where, limit=None))

    async def _memberships(self, reader: Reader) -> list[Crystal[MemberRecord]]:
        return await reader.recall(Query(schema=MEMBER.name, where={"agent": self.agent}, limit=None))

    def own_permission(self, header: Header) -> BlockPermission:
        """Return the permission on a block that the agent owns or that belongs to all."""
        permission = header.value.permission
        if header.value.owner == self.agent:
            # The owner may do everything, except what the permission of its content forbids.
            return BlockPermission(header, "admin" if permission == "read_write" else permission, True)
        # A block that belongs to all is managed by the partner.
        return BlockPermission(header, permission, self.trust == "partner")

    def _order(self, block_permission: BlockPermission) -> tuple[bool, str, str]:
        header = block_permission.header.value
        return header.owner != self.agent, header.owner, header.label


@dataclass(frozen=True)
class System(Actor):
    """The writer of an agent's rolling logs: it may append where the agent may only read."""

    def own_permission(self, header: Header) -> BlockPermission:
        """Return permission to append, and nothing else."""
        return BlockPermission(header, "append")


@dataclass(frozen=True)
class PastActor(Actor):
    """An agent that looks at the past: of what it saw then, it sees what it may see now.

    `now` is the store as it is. An agent's own blocks stay visible there after they were deleted.
    """

    now: Universe

    async def find_permission(self, reader: Reader, id: str, owner: str) -> BlockPermission | None:
        """Return the agent's permission on a block then; None also when it may not see it now."""
        found = await super().find_permission(reader, id, owner)
        return None if found is None or not await self._may_see(found) else found

    async def find_own(
        self, reader: Reader, *wanted: Where, limit: int | None = None
    ) -> list[BlockPermission]:
        """Return the permission on the agent's own blocks then, and on common ones still there."""
        found = await super().find_own(reader, *wanted, limit=limit)
        return [each for each in found if await self._may_see(each)]

    async def _find_shared(self, reader: Reader, wanted: Sequence[Where]) -> list[BlockPermission]:
        found = await super()._find_shared(reader, wanted)
        return [each for each in found if await self._may_see(each)]

    async def _may_see(self, found: BlockPermission) -> bool:
        owner = found.header.value.owner
        if owner == self.agent:
            return True
        return await super().find_permission(self.now, found.header.id, owner) is not None


async def find_group_ids(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """Map names of groups to the ids of their records; where a name has two possible ids, look."""
    places = {name: group_id(name) for name in names}
    odd = [id for name in places for id in group_ids(name)[1:]]
    for found in await reader.get_many(odd, raw=True) if odd else []:
        if found is not None and found.schema == GROUP.name and found.data.get("name") in places:
            places[found.data["name"]] = found.id
    return places


def _shared_permission(
    header: Header, shares: list[Crystal[ShareRecord]], members: list[Crystal[MemberRecord]]
) -> BlockPermission | None:
    """Return the permission that the best of some shares grants; None without any."""
    if not shares:
        return None
    best = max(shares, key=lambda each: PERMISSIONS.index(each.value.permission))
    through = [each for each in members if best.value.to in group_ids(each.value.group)]
    permission = least_permission(header.value.permission, best.value.permission)
    return BlockPermission(header, permission, permission == "admin", (best, *through))


def _matches(header: BlockRecord, where: Where) -> bool:
    """Check whether a header matches a filter: fields equal to a value, `$in` some, or with a `$prefix`."""
    fields = vars(header)
    return all(_fits(fields[name], each) for name, each in where.items())


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    return value in wanted["$in"] if "$in" in wanted else value.startswith(wanted["$prefix"])


def is_active(header: Any) -> bool:
    """Check whether a record is the header of a block that was not deleted."""
    return isinstance(header, Crystal) and header.schema_name == BLOCK.name and header.value.active


# -- what an agent sees of the store ------------------------------------------------------------------


class BlockScope:
    """The records an agent sees: its own blocks, shared and common ones, its archive and shared ones.

    `blocks` are the ids of those blocks, `recipients` the ids a share may name to be for this agent,
    `archives` the agents whose archives it may read.
    """

    def __init__(
        self, agent: str, blocks: frozenset[str], recipients: frozenset[str], archives: frozenset[str]
    ) -> None:
        self._agent, self._blocks = agent, blocks
        self.recipients, self.archives = recipients, archives

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        """Check whether a record is visible: by its block, or by the agents it names."""
        said: Any = {} if datum is None else datum.data
        if schema == ENTRY.name:
            return said.get("agent") in self.archives
        if schema == AUDIT.name:
            return self._agent in (said.get("agent"), said.get("owner"))
        if schema in (SHARE.name, ARCHIVE_SHARE.name):
            return said.get("owner") == self._agent or said.get("to") in self.recipients
        if schema == BLOCK.name and said.get("owner") == self._agent:
            return True
        mine = schema != SEEN.name or said.get("agent") == self._agent
        return mine and id.partition("/")[0] in self._blocks


async def find_scope(universe: Universe, principal: Principal) -> BlockScope:
    """Return the scope of an agent now, also for the past; reads raw records, so no schema is declared."""
    universe, agent = universe.present(), principal.name
    members = await _find_raw(universe, MEMBER.name, {"agent": agent})
    groups = await find_group_ids(universe, (each.data["group"] for each in members))
    recipients = [agent_id(agent), *groups.values()]
    shares = await _find_raw(universe, SHARE.name, {"to": {"$in": recipients}})
    headers = await _find_raw(universe, BLOCK.name, {"owner": {"$in": [agent, CONSTELLATION]}})
    given = await universe.get_many([each.data["block"] for each in shares], raw=True) if shares else []
    headers += [header for header in given if header is not None and header.schema == BLOCK.name]
    seen = {header.id for header in headers if header.data.get("active") or header.data.get("owner") == agent}
    archives = await _find_raw(universe, ARCHIVE_SHARE.name, {"to": {"$in": recipients}})
    readable = frozenset((agent, *(str(each.data.get("owner", "")) for each in archives)))
    return BlockScope(agent, frozenset(seen), frozenset(recipients), readable)


async def _find_raw(universe: Universe, schema: str, where: dict[str, Any]) -> list[Datum]:
    return await universe.query(Query(schema=schema, where=where, limit=None, content=False), raw=True)
