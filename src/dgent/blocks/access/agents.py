"""The constellation: its agents, and the groups they are in. Names lead to them, and never change."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dgent import ids
from dgent.blocks import errors
from dgent.blocks.access import permission
from dgent.blocks.kind import CONSTELLATION, ROLES, STATUSES
from dgent.blocks.record import (
    AGENT,
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
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.blocks.access.standing import Reader
    from dgent.blocks.library import Library

NEAR = 3  # names that are offered for one that is not known


@dataclass(frozen=True)
class Agent:
    """An agent: active, hibernated, or archived (then nothing new is shared with it)."""

    id: str
    name: str
    description: str
    status: str


@dataclass(frozen=True)
class Member:
    """An agent in a group: a regular, supervisor, observer or specialist, and what it can do."""

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
    """The agents of the constellation, as `library.agents`. An agent that makes a block is on it."""

    def __init__(self, library: Library) -> None:
        self._library, self._universe = library, library._universe

    async def create(self, name: str, *, description: str = "", status: str = "active") -> Agent:
        """Put an agent on the roster; its name must be free."""
        await self._library._may("manage", name)
        record = AgentRecord(_name(name), _text(description), one_of(status, STATUSES, "status"))
        try:
            return _agent(await self._universe.remember(record, id=agent_id(name), expect=0))
        except VersionConflict:
            raise errors.NameTaken(f"there is an agent {name!r} already", name=name) from None

    async def get(self, name: str) -> Agent:
        """An agent by its name; AgentNotFound offers the names that are near."""
        return _agent(await known_agent(self._universe, name))

    async def list(self, *, status: str | None = None) -> list[Agent]:
        """The agents, by name."""
        where = None if status is None else {"status": one_of(status, STATUSES, "status")}
        found = await self._universe.recall(Query(schema=AGENT.name, where=where, limit=None))
        return sorted((_agent(each) for each in found), key=lambda agent: agent.name)

    async def describe(
        self, name: str, *, description: str | None = None, status: str | None = None
    ) -> Agent:
        """Change what is said of an agent, or its status. Of others only who speaks for the partner may."""
        await self._library._may("manage", name)
        if name != self._library.agent:
            await _speaks_for_the_partner(self._library, name, "describe")
        fields: dict[str, Any] = {} if description is None else {"description": _text(description)}
        fields |= {} if status is None else {"status": one_of(status, STATUSES, "status")}

        async def work(tx: Transaction) -> None:
            found = await known_agent(tx, name)
            await tx.store(found.replace(value=replace(found.value, **fields)))

        await self._universe.transact(work, note=f"agent {name}")
        return await self.get(name)


class Groups:
    """The groups of the constellation, as `library.groups`. What is shared with one is for its members."""

    def __init__(self, library: Library) -> None:
        self._library, self._universe = library, library._universe

    async def create(self, name: str, *, description: str = "") -> Group:
        """Make a group, without members yet."""
        await self._library._may("manage", name)
        record = GroupRecord(_name(name), _text(description))

        async def work(tx: Transaction) -> None:
            if await _found_group(tx, name) is not None:
                raise errors.NameTaken(f"there is a group {name!r} already", name=name)
            await tx.remember(record, id=group_id(name))

        try:
            await self._universe.transact(work)
        except VersionConflict:
            raise errors.NameTaken(f"there is a group {name!r} already", name=name) from None
        return await self.get(name)

    async def get(self, name: str) -> Group:
        """A group with its members."""
        found = await known_group(self._universe, name)
        return _group(found, await _members(self._universe, name))

    async def list(self) -> list[Group]:
        """The groups, by name."""
        found = await self._universe.recall(Query(schema=GROUP.name, limit=None))
        members = await self._universe.recall(Query(schema=MEMBER.name, limit=None))
        made = [_group(each, [m for m in members if m.value.group == each.value.name]) for each in found]
        return sorted(made, key=lambda group: group.name)

    async def join(
        self, group: str, agent: str, *, role: str = "regular", capabilities: tuple[str, ...] = ()
    ) -> Group:
        """Put an agent into a group, or change what it is there.

        Who is in a group has what is shared with it. So only who speaks for the partner may, or one of the
        group's supervisors.
        """
        await self._may(group, "join")
        able = tuple(sorted(ids.check_tags(capabilities, "capabilities")))
        record = MemberRecord(group, agent, one_of(role, ROLES, "role"), able)

        async def work(tx: Transaction) -> None:
            await known_group(tx, group)
            await known_agent(tx, agent)
            found = await _found_member(tx, group, agent)
            if found is None:
                await tx.remember(record, id=member_id(group, agent))
            else:
                await tx.store(found.replace(value=record))

        await self._universe.transact(work, note=f"{agent} joins {group}")
        return await self.get(group)

    async def leave(self, group: str, agent: str) -> Group:
        """Take an agent out of a group, and with that from what is shared with the group."""
        await self._may(group, "leave")
        await known_group(self._universe, group)
        found = await _found_member(self._universe, group, agent)
        if found is None or not await self._universe.delete(found.id, note=f"{agent} leaves {group}"):
            raise errors.AgentNotFound(f"{agent!r} is not in the group {group!r}", name=agent)
        return await self.get(group)

    async def delete(self, name: str) -> None:
        """Remove a group, its memberships, and what was shared with it: the agents and blocks stay."""
        await self._may(name, "delete")

        async def work(tx: Transaction) -> None:
            group = await known_group(tx, name)
            shares = await tx.recall(Query(schema=SHARE.name, where={"to": group.id}, limit=None))
            for each in (*await _members(tx, name), *shares, group):
                await tx.delete(each.id)

        await self._universe.transact(work, note=f"delete group {name}")

    async def _may(self, group: str, what: str) -> None:
        """Whether the caller may say who is in a group."""
        await self._library._may("manage", group, what)
        me = await _found_member(self._universe, ids.check_name(group, "group"), self._library.agent)
        if me is None or me.value.role != "supervisor":
            await _speaks_for_the_partner(self._library, group, what)


async def enrol(tx: Transaction, name: str) -> None:
    """Put an agent on the roster if it is not there."""
    found = await tx.get(agent_id(name))
    if found is None:
        await tx.remember(AgentRecord(_name(name)), id=agent_id(name))
    elif found.value.status == "archived":
        raise Conflict(f"the agent {name!r} is archived", hint="make it active again first")


async def known_agent(reader: Reader, name: str) -> Crystal[AgentRecord]:
    """An agent's record, or AgentNotFound with the names that are near."""
    found = await reader.get(agent_id(ids.check_name(name, "agent")))
    if isinstance(found, Crystal):
        return found
    others = await reader.recall(Query(schema=AGENT.name, limit=None))
    raise _unknown("agent", name, [each.value.name for each in others])


async def known_group(reader: Reader, name: str) -> Crystal[GroupRecord]:
    """A group's record, or AgentNotFound with the names that are near."""
    found = await _found_group(reader, ids.check_name(name, "group"))
    if found is not None:
        return found
    others = await reader.recall(Query(schema=GROUP.name, limit=None))
    raise _unknown("group", name, [each.value.name for each in others])


async def _found_group(reader: Reader, name: str) -> Crystal[GroupRecord] | None:
    for found in await reader.get_many(group_ids(name)):
        if isinstance(found, Crystal) and found.schema_name == GROUP.name and found.value.name == name:
            return found
    return None


async def _found_member(reader: Reader, group: str, agent: str) -> Crystal[MemberRecord] | None:
    for found in await reader.get_many(member_ids(group, agent)):
        if not isinstance(found, Crystal) or found.schema_name != MEMBER.name:
            continue
        if (found.value.group, found.value.agent) == (group, agent):
            return found
    return None


def one_of(value: str, known: tuple[str, ...], field: str) -> str:
    """A word out of some, or an InputError that names them."""
    if value not in known:
        raise InputError(f"{value!r} is no {field}", hint=f"use one of {', '.join(known)}", field=field)
    return value


async def _speaks_for_the_partner(library: Library, name: str, what: str) -> None:
    if library.trust != "partner":
        judgement = permission.Judgement("deny", "only the partner may, or a supervisor of the group")
        raise await library._refused(
            permission.denied(name, what, judgement), judgement, "manage", what, name
        )


async def _members(reader: Reader, group: str) -> list[Crystal[MemberRecord]]:
    return await reader.recall(Query(schema=MEMBER.name, where={"group": group}, limit=None))


def _unknown(noun: str, name: str, names: list[str]) -> errors.AgentNotFound:
    folded = {each.casefold(): each for each in names}
    near = [folded[each] for each in difflib.get_close_matches(name.casefold(), folded, NEAR, 0.5)]
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"make it with {noun}s.create"
    return errors.AgentNotFound(f"there is no {noun} {name!r}", hint=hint, name=name, near=near)


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


def _name(name: str) -> str:
    if ids.check_name(name, "name") == CONSTELLATION:
        raise InputError(f"{CONSTELLATION} is not the name of an agent or a group", field="name")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"a description is text, not a {type(value).__name__}", field="description")
    return value
