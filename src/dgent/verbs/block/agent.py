"""Verbs for the agents of a constellation, and the groups they are in."""

from __future__ import annotations

from typing import Annotated

from dgent.blocks import Agent, Group
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.verbs.block.answer import AgentInfo, GroupInfo
from dgent.verbs.block.library import library_of
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Removed
from dgent.verbs.registry import Ask, Items, NoInput, PastAsk, argument, option, verb

ERRORS = (InputError, NotFound, Conflict, Denied)
Status = Annotated[str | None, option("active, hibernated or archived", short="s")]
GroupName = Annotated[str, argument("the group's name", complete="group")]


class OneAgent(Ask):
    """Input of a verb that takes one agent."""

    name: Annotated[str, argument("the agent's name", complete="agent")]


class CreateAgent(Ask):
    """Input of `agent.create`."""

    name: Annotated[str, argument("its name, which never changes")]
    description: Annotated[str, option("what it is there for", short="d")] = ""


@verb("agent.create", effect="write", errors=ERRORS, makes=True)
async def create(context: Context, ask: CreateAgent) -> AgentInfo:
    """Put an agent on the roster; one that makes a block is on it by that."""
    return _agent(await (await library_of(context)).agents.create(ask.name, description=ask.description))


class ListAgents(PastAsk):
    """Input of `agent.list`."""

    status: Status = None


@verb("agent.list", effect="read", errors=(InputError,))
async def list_(context: Context, ask: ListAgents) -> Items[AgentInfo]:
    """List the agents of the constellation."""
    found = await (await library_of(context, ask.as_of)).agents.list(status=ask.status)
    return Items([_agent(each) for each in found])


@verb("agent.get", effect="read", errors=(InputError, NotFound))
async def get(context: Context, ask: OneAgent) -> AgentInfo:
    """Show an agent."""
    return _agent(await (await library_of(context)).agents.get(ask.name))


class DescribeAgent(OneAgent):
    """Input of `agent.describe`."""

    description: Annotated[str | None, option("what it is there for", short="d")] = None
    status: Status = None


@verb("agent.describe", effect="write", errors=ERRORS)
async def describe(context: Context, ask: DescribeAgent) -> AgentInfo:
    """Change what is said of an agent, or its status."""
    if ask.description is None and ask.status is None:
        raise InputError("there is nothing to change", hint="give --description or --status")
    agents = (await library_of(context)).agents
    return _agent(await agents.describe(ask.name, description=ask.description, status=ask.status))


# -- groups -------------------------------------------------------------------------------------


class CreateGroup(Ask):
    """Input of `group.create`."""

    name: Annotated[str, argument("its name, which never changes")]
    description: Annotated[str, option("what it is there for", short="d")] = ""


@verb("group.create", effect="write", errors=ERRORS, makes=True)
async def create_group(context: Context, ask: CreateGroup) -> GroupInfo:
    """Make a group of agents, without members yet."""
    return _group(await (await library_of(context)).groups.create(ask.name, description=ask.description))


@verb("group.list", effect="read")
async def list_groups(context: Context, ask: NoInput) -> Items[GroupInfo]:
    """List the groups, each with its members."""
    return Items([_group(each) for each in await (await library_of(context)).groups.list()])


class OneGroup(Ask):
    """Input of a verb that takes one group."""

    name: GroupName


@verb("group.get", effect="read", errors=(InputError, NotFound))
async def get_group(context: Context, ask: OneGroup) -> GroupInfo:
    """Show a group and its members."""
    return _group(await (await library_of(context)).groups.get(ask.name))


class Leave(OneGroup):
    """Input of `group.leave`."""

    member: Annotated[str, argument("the agent's name", complete="agent")]


class Join(Leave):
    """Input of `group.join`."""

    role: Annotated[str, option("regular, supervisor, observer or specialist", short="r")] = "regular"
    can: Annotated[tuple[str, ...], option("what it can do; may be given more than once", short="c")] = ()


@verb("group.join", effect="write", errors=ERRORS)
async def join(context: Context, ask: Join) -> GroupInfo:
    """Put an agent into a group, or change what it is there."""
    groups = (await library_of(context)).groups
    return _group(await groups.join(ask.name, ask.member, role=ask.role, capabilities=ask.can))


@verb("group.leave", effect="write", errors=ERRORS)
async def leave(context: Context, ask: Leave) -> GroupInfo:
    """Take an agent out of a group, and with that from what is shared with the group."""
    return _group(await (await library_of(context)).groups.leave(ask.name, ask.member))


@verb("group.delete", effect="write", errors=ERRORS)
async def delete_group(context: Context, ask: OneGroup) -> Removed:
    """Remove a group and what was shared with it; agents and blocks stay."""
    groups = (await library_of(context)).groups
    found = await groups.get(ask.name)
    await groups.delete(ask.name)
    return Removed("group", found.id, "")


def _agent(found: Agent) -> AgentInfo:
    return AgentInfo(found.name, found.description, found.status)


def _group(found: Group) -> GroupInfo:
    return GroupInfo(found.name, found.description, found.members)
