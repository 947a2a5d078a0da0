"""The room of blocks, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.model.query import Query
from dgent.universe.room import Describer, Name, Room, Title, find_by_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.gate import Principal, Scope
    from dgent.universe.universe import Universe

_NAMED_BY = {"block": "label", "agent": "name", "group": "name"}


class BlockRoom(Room):
    """Answers for blocks, agents, groups and archival entries."""

    kinds = tuple(_NAMED_BY)

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.blocks.record import SCHEMAS

        return SCHEMAS

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return the labels of the agent's blocks, or the names of agents or groups, that begin so."""
        field = _NAMED_BY[kind]
        where = {"owner": agent, "active": True} if kind == "block" else None
        found = await find_by_name(universe, f"block.{kind}", field, start, where)
        return [Name(str(each.data.get(field, "")), str(each.data.get("description", ""))) for each in found]

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits to an agent: those of blocks it may see, and of its archive."""
        from dgent.blocks.context.describe import BlockDescriber

        return await BlockDescriber.load(universe, agent)

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Count blocks that are not deleted, and entries of archives."""
        blocks = await universe.count(Query(schema="block.block", where={"active": True}))
        return ("block", blocks), ("archived text", await universe.count(Query(schema="block.entry")))

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Load every block, and with `deep` every version; report those that fail."""
        from dgent.blocks.inspect import inspect

        return await inspect(universe, deep=deep)

    def merge_rules(self) -> Rules:
        """Return the rules for headers, versions, shares and memberships."""
        from dgent.blocks.history.merge import RULES

        return RULES

    async def refresh_texts(self, universe: Universe, since: int | None) -> Mapping[str, Datum | None]:
        """Bring the texts of blocks up to date."""
        if since is None and not await universe.query(schema="block.block", limit=1, raw=True):
            return {}  # nobody needs to load documents
        from dgent.blocks.context.texts import refresh_texts

        return await refresh_texts(universe, since)

    async def find_texts_at(self, universe: Universe, seq: int) -> Mapping[str, Datum | None]:
        """Return the texts of blocks as of an earlier commit."""
        if not await universe.query(schema="block.block", limit=1, raw=True, as_of=seq):
            return {}
        from dgent.blocks.context.texts import find_texts_at

        return await find_texts_at(universe, seq)

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return blocks by label and owner, and entries of the archive by their agent."""
        return [_title(each) for each in found]

    async def scope(self, universe: Universe, principal: Principal) -> Scope:
        """Return what an agent sees: its own blocks, shared and common ones, and its own archive."""
        from dgent.blocks.access.actor import find_scope

        return await find_scope(universe, principal)


def _title(found: Datum) -> Title:
    if found.schema == "block.entry":
        return Title("entry", found.id, "", str(found.data.get("agent", "")))
    label, owner = (str(found.data.get(field, "")) for field in ("label", "owner"))
    return Title("block", found.id.partition("/")[0], label, owner)


ROOM = BlockRoom()
