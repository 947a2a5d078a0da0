"""The read rule of this room: which block and archive records an agent sees through a universe handle."""

from __future__ import annotations

from typing import Any

from dgent.blocks.access.actor import find_group_ids
from dgent.blocks.kind import CONSTELLATION
from dgent.blocks.record import (
    AUDIT,
    BLOCK,
    ENTRY,
    MEMBER,
    SEEN,
    SHARE,
    agent_id,
)
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe


class BlockScope:
    """The records an agent sees: its own blocks, shared and common ones, and its own archive.

    `blocks` are the ids of those blocks, `recipients` the ids a share may name to be for this agent.
    """

    def __init__(self, agent: str, blocks: frozenset[str], recipients: frozenset[str]) -> None:
        self._agent, self._blocks, self._recipients = agent, blocks, recipients

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        """Check whether a record is visible: by its block, or by the agents it names."""
        said: Any = {} if datum is None else datum.data
        if schema == ENTRY.name:
            return bool(said.get("agent") == self._agent)
        if schema == AUDIT.name:
            return self._agent in (said.get("agent"), said.get("owner"))
        if schema == SHARE.name:
            return said.get("owner") == self._agent or said.get("to") in self._recipients
        if schema == BLOCK.name and said.get("owner") == self._agent:
            return True
        mine = schema != SEEN.name or said.get("agent") == self._agent
        return mine and id.partition("/")[0] in self._blocks


async def find_scope(universe: Universe, principal: Principal) -> BlockScope:
    """Return the current scope of an agent; reads raw records, so that no schema is declared."""
    agent = principal.name
    members = await _find(universe, MEMBER.name, {"agent": agent})
    groups = await find_group_ids(universe, (each.data["group"] for each in members))
    recipients = [agent_id(agent), *groups.values()]
    shares = await _find(universe, SHARE.name, {"to": {"$in": recipients}})
    headers = await _find(universe, BLOCK.name, {"owner": {"$in": [agent, CONSTELLATION]}})
    given = await universe.get_many([each.data["block"] for each in shares], raw=True)
    headers += [header for header in given if header is not None and header.schema == BLOCK.name]
    seen = {header.id for header in headers if header.data.get("active") or header.data.get("owner") == agent}
    return BlockScope(agent, frozenset(seen), frozenset(recipients))


async def _find(universe: Universe, schema: str, where: dict[str, Any]) -> list[Datum]:
    return await universe.query(Query(schema=schema, where=where, limit=None, content=False), raw=True)
