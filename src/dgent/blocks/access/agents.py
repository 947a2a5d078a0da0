"""Agents of the constellation and their groups, found by names that never change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access.permission import AgentPermissions, Judgement, denied_error
from dgent.blocks.kind import CONSTELLATION, ROLES, STATUSES
from dgent.blocks.record import (
    AGENT,
    ARCHIVE_SHARE,
    GROUP,
    MEMBER,
    SHARE,
    AgentRecord,
    GroupRecord,
    MemberRecord,
    agent_id,
    group_id,
    group_ids,
    member_id,
    member_ids,
)
from dgent.errors import Conflict, InputError, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.system.near import ask, find_near
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.blocks.access.actor import Reader

NEAR = 3  # similar names to suggest


@dataclass(frozen=True)
class Agent:
    """An agent: active, hibernated, or archived (then nothing new is shared with it)."""

    id: str
    name: str
    description: str
    status: str


@dataclass(frozen=True)
class Member:
    """An agent in a group, with its role and its capabilities."""

    agent: str
    role: str
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A group and its members, by name."""

    id: str
    name: str
    description: str
    members: tuple[Member, ...]


class Roster:
    """The agents of the constellation, as `library.agents`; an agent that creates a block is added to it."""

    def __init__(self, permissions: AgentPermissions) -> None:
        self._permissions, self._universe = permissions, permissions.universe

    async def create(self, name: str, *, description: str = "", status: str = "active") -> Agent:
        """Add an agent to the roster; raises NameTaken when the name is in use."""
        await self._permissions.require_trust("manage", name)
        record = AgentRecord(
            _check_name(name), _check_description(description), check_choice(status, STATUSES, "status")
        )
        try:
            return _agent(await self._universe.remember(record, id=agent_id(name), expect=0))
        except VersionConflict:
            raise errors.NameTaken(f"an agent {name!r} already exists", name=name) from None

    async def enrol(self, name: str) -> None:
        """Add an agent to the roster unless it is there; raises Conflict when it is archived."""
        await self._permissions.require_trust("manage", name)

        async def work(tx: Transaction) -> None:
            await enrol(tx, name)

        await self._universe.transact(work, note=f"enrol {name}")

    async def get(self, name: str) -> Agent:
        """Return an agent by name; AgentNotFound suggests similar names."""
        return _agent(await find_agent(self._universe, name))

    async def list(self, *, status: str | None = None) -> list[Agent]:
        """Return the agents, sorted by name, all or those of one status."""
        where = None if status is None else {"status": check_choice(status, STATUSES, "status")}
        found = await self._universe.recall(Query(schema=AGENT.name, where=where, limit=None))
        return sorted((_agent(each) for each in found), key=lambda agent: agent.name)

    async def describe(
        self, name: str, *, description: str | None = None, status: str | None = None
    ) -> Agent:
        """Change the description or the status of an agent; only the partner may change other agents."""
        await self._permissions.require_trust("manage", name)
        if name != self._permissions.agent:
            await _require_partner(self._permissions, name, "describe")
        fields: dict[str, Any] = (
            {} if description is None else {"description": _check_description(description)}
        )
        fields |= {} if status is None else {"status": check_choice(status, STATUSES, "status")}

        async def work(tx: Transaction) -> None:
            found = await find_agent(tx, name)
            await tx.store(found.replace(value=replace(found.value, **fields)))

        await self._universe.transact(work, note=f"agent {name}")
        return await self.get(name)


class Groups:
    """The groups of the constellation, as `library.groups`; a share with a group is for its members."""

    def __init__(self, permissions: AgentPermissions) -> None:
        self._permissions, self._universe = permissions, permissions.universe

    async def create(self, name: str, *, description: str = "") -> Group:
        """Create a group without members; raises NameTaken when the name is in use."""
        await self._permissions.require_trust("manage", name)
        record = GroupRecord(_check_name(name), _check_description(description))

        async def work(tx: Transaction) -> None:
            if await _read_group(tx, name) is not None:
                raise errors.NameTaken(f"a group {name!r} already exists", name=name)
            await tx.remember(record, id=group_id(name))

        try:
            await self._universe.transact(work)
        except VersionConflict:
            raise errors.NameTaken(f"a group {name!r} already exists", name=name) from None
        return await self.get(name)

    async def get(self, name: str) -> Group:
        """Return a group with its members."""
        found = await find_group(self._universe, name)
        return _group(found, await _list_members(self._universe, name))

    async def list(self) -> list[Group]:
        """Return the groups, sorted by name."""
        found = await self._universe.recall(Query(schema=GROUP.name, limit=None))
        members = await self._universe.recall(Query(schema=MEMBER.name, limit=None))
        made = [_group(each, [m for m in members if m.value.group == each.value.name]) for each in found]
        return sorted(made, key=lambda group: group.name)

    async def join(
        self, group: str, agent: str, *, role: str = "regular", capabilities: tuple[str, ...] = ()
    ) -> Group:
        """Add an agent to a group, or change its role and capabilities there.

        A member gets everything that is shared with the group, so only the partner or a supervisor of the
        group may add one.
        """
        await self._check_manages(group, "join")
        able = tuple(sorted(ids.check_tags(capabilities, "capabilities")))
        record = MemberRecord(group, agent, check_choice(role, ROLES, "role"), able)

        async def work(tx: Transaction) -> None:
            await find_group(tx, group)
            await find_agent(tx, agent)
            found = await _read_member(tx, group, agent)
            if found is None:
                await tx.remember(record, id=member_id(group, agent))
            else:
                await tx.store(found.replace(value=record))

        await self._universe.transact(work, note=f"{agent} joins {group}")
        return await self.get(group)

    async def leave(self, group: str, agent: str) -> Group:
        """Remove an agent from a group, which ends its access to what is shared with the group."""
        await self._check_manages(group, "leave")
        await find_group(self._universe, group)
        found = await _read_member(self._universe, group, agent)
        if found is None or not await self._universe.delete(found.id, note=f"{agent} leaves {group}"):
            raise errors.AgentNotFound(f"{agent!r} is not in the group {group!r}", name=agent)
        return await self.get(group)

    async def delete(self, name: str) -> None:
        """Delete a group, its memberships and its shares; the agents and the blocks stay."""
        await self._check_manages(name, "delete")

        async def work(tx: Transaction) -> None:
            group = await find_group(tx, name)
            shares = [
                each
                for schema in (SHARE, ARCHIVE_SHARE)
                for each in await tx.recall(Query(schema=schema.name, where={"to": group.id}, limit=None))
            ]
            for each in (*await _list_members(tx, name), *shares, group):
                await tx.delete(each.id)

        await self._universe.transact(work, note=f"delete group {name}")

    async def _check_manages(self, group: str, what: str) -> None:
        """Raise PermissionDenied unless the caller is a supervisor of the group or the partner."""
        await self._permissions.require_trust("manage", group, what)
        me = await _read_member(self._universe, ids.check_name(group, "group"), self._permissions.agent)
        if me is None or me.value.role != "supervisor":
            await _require_partner(self._permissions, group, what)


async def enrol(tx: Transaction, name: str) -> None:
    """Add an agent to the roster unless it is there; raises Conflict when it is archived."""
    found = await tx.get(agent_id(name))
    if found is None:
        await tx.remember(AgentRecord(_check_name(name)), id=agent_id(name))
    elif found.value.status == "archived":
        raise Conflict(f"the agent {name!r} is archived", hint="make it active again first")


async def find_agent(reader: Reader, name: str) -> Crystal[AgentRecord]:
    """Return an agent's record, or raise AgentNotFound with similar names."""
    found = await reader.get(agent_id(ids.check_name(name, "agent")))
    if isinstance(found, Crystal):
        return found
    others = await reader.recall(Query(schema=AGENT.name, limit=None))
    raise _unknown_error("agent", name, [each.value.name for each in others])


async def find_group(reader: Reader, name: str) -> Crystal[GroupRecord]:
    """Return a group's record, or raise AgentNotFound with similar names."""
    found = await _read_group(reader, ids.check_name(name, "group"))
    if found is not None:
        return found
    others = await reader.recall(Query(schema=GROUP.name, limit=None))
    raise _unknown_error("group", name, [each.value.name for each in others])


async def _read_group(reader: Reader, name: str) -> Crystal[GroupRecord] | None:
    for found in await reader.get_many(group_ids(name)):
        if isinstance(found, Crystal) and found.schema_name == GROUP.name and found.value.name == name:
            return found
    return None


async def _read_member(reader: Reader, group: str, agent: str) -> Crystal[MemberRecord] | None:
    for found in await reader.get_many(member_ids(group, agent)):
        if not isinstance(found, Crystal) or found.schema_name != MEMBER.name:
            continue
        if (found.value.group, found.value.agent) == (group, agent):
            return found
    return None


def check_choice(value: str, known: tuple[str, ...], field: str) -> str:
    """Return a value that is one of the known ones, or raise InputError that lists them."""
    if value not in known:
        raise InputError(
            f"{value!r} is not a valid {field}", hint=f"use one of {', '.join(known)}", field=field
        )
    return value


async def _require_partner(permissions: AgentPermissions, name: str, what: str) -> None:
    if permissions.trust != "partner":
        judgement = Judgement("deny", "only the partner may, or a supervisor of the group")
        raise await permissions.record_refusal(
            denied_error(name, what, judgement), judgement, "manage", what, name
        )


async def _list_members(reader: Reader, group: str) -> list[Crystal[MemberRecord]]:
    return await reader.recall(Query(schema=MEMBER.name, where={"group": group}, limit=None))


def _unknown_error(noun: str, name: str, names: list[str]) -> errors.AgentNotFound:
    near = find_near(name, names, NEAR, 0.5)
    hint = ask(map(repr, near)) or f"create it with {noun}s.create"
    return errors.AgentNotFound(f"the {noun} {name!r} does not exist", hint=hint, name=name, near=near)


def _agent(found: Crystal[AgentRecord]) -> Agent:
    return Agent(found.id, found.value.name, found.value.description, found.value.status)


def _group(found: Crystal[GroupRecord], members: list[Crystal[MemberRecord]]) -> Group:
    made = [Member(each.value.agent, each.value.role, each.value.capabilities) for each in members]
    return Group(
        found.id,
        found.value.name,
        found.value.description,
        tuple(sorted(made, key=lambda member: member.agent)),
    )


def _check_name(name: str) -> str:
    if ids.check_name(name, "name") == CONSTELLATION:
        raise InputError(f"{CONSTELLATION} is not the name of an agent or a group", field="name")
    return name


def _check_description(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"expected text for description, got a {type(value).__name__}", field="description")
    return value
