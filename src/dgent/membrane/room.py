"""The room of the membrane, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dgent.model.query import Query
from dgent.universe.room import Action, Describer, Keeper, Name, Room, Table, Title

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.backend import Change, Committed, Item, Reverted
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.universe import Universe

MAX_NAME = 200
SESSION = "membrane.cli_session"

_NOUNS = {
    "membrane.shape": ("shape", "shape_type"),
    "membrane.dream": ("dream", "content"),
    "membrane.agent_state": ("agent state", "agent_id"),
    "membrane.prompt_checkpoint": ("prompt checkpoint", "name"),
    SESSION: ("session", "name"),
    "membrane.cli_session_event": ("session event", "message"),
    "membrane.cli_session_artifact": ("session artifact", "name"),
    "membrane.self_grow_proposal": ("proposal", "entity"),
    "membrane.self_grow_nursery": ("seedling", "handle"),
    "membrane.self_grow_rollback_token": ("rollback token", "handle"),
}
_UPKEEP = frozenset(
    (
        *("membrane.instance", "membrane.embedding_metadata", SESSION),
        *(f"{SESSION}_{part}" for part in ("event", "agent", "artifact")),
    )
)
"""Records of how programs ran: not work of a user that the log lists and undo takes back."""


class MembraneRoom(Room):
    """Answers for sessions, instances, states of agents and the rest of the membrane."""

    kinds = ("session",)

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.membrane.record import SCHEMAS

        return SCHEMAS

    @property
    def tables(self) -> Mapping[str, Table]:
        """The kinds of records that SQL sees as tables."""
        from dgent.membrane.record import TABLES

        return TABLES

    async def insert(
        self, universe: Universe, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False
    ) -> int:
        """Insert rows as SQL gives them into a table, in one commit."""
        from dgent.membrane.membrane import Membrane

        return await Membrane(universe).insert(table, rows, replace=replace)

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return ids of sessions that begin so, newest first, with their names."""
        found = await universe.query(schema=SESSION, prefix=f"{SESSION}/{start}", limit=limit, raw=True)
        return [Name(each.id.partition("/")[2], _name_of(each.data, "name")) for each in found]

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits of the membrane, which belongs to all agents."""
        return _Describer()

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Count sessions."""
        return [("session", await universe.count(Query(schema=SESSION)))]

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Look for events, agents and artifacts of sessions that are not there, where `deep`."""
        from dgent.store.upkeep import Finding

        missing = await _count_orphans(universe) if deep else 0
        if not missing:
            return [Finding("ok", "membrane", "its records belong together")]
        message = f"{missing} events, agents or artifacts belong to sessions that are not there"
        return [Finding("problem", "membrane", message, "forget them, or restore the sessions")]

    def merge_rules(self) -> Rules:
        """Return the rules: field by field, and of a running program the later version."""
        from dgent.store.engine.merge import Rules

        return Rules({}, internal=frozenset(("membrane.instance", "membrane.embedding_metadata")))

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return records by what names them; of an event the session that it is in."""
        return [_title(each) for each in found]

    def keeper(self, universe: Universe) -> Keeper:
        """Return the undo of the membrane: its records rely on none of each other."""
        return _Keeper(universe)


class _Describer:
    """Describes commits of the membrane; what only says how programs ran is upkeep."""

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to shapes, dreams, states, checkpoints and proposals."""
        return [
            _describe(change, item)
            for item in change.items
            if item.schema in _NOUNS and item.schema not in _UPKEEP and item.id is not None
        ]


def _describe(change: Change, item: Item) -> Action:
    noun, field = _NOUNS[item.schema or ""]
    datum = item.datum if item.op == "put" else item.last
    key = str(item.id).partition("/")[2]
    name = key if datum is None else _name_of(datum.data, field)
    what = "delete" if item.op != "put" else "create" if item.rev == 1 else "change"
    verb = {"delete": "deleted", "create": "added", "change": "changed"}[what]
    text = f"{verb} the {noun} ‘{name}’"
    return Action(noun, key, change.author, what, name, message=change.note or "", text=text)


class _Keeper:
    """Undoes commits of the membrane record by record."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put records back; raises UndoConflict where one changed since, unless forced."""
        from dgent.membrane.membrane import Membrane
        from dgent.universe.history import find_changed, refusal, revert_ops

        room = Membrane(self._universe).universe
        if not force and (changed := await find_changed(room, records)):
            raise refusal(seq, changed)
        if dry_run:
            return None
        ops = revert_ops(room, records)
        return await room.commit(ops, kind="undo", of_seq=seq, note=f"undo of {seq}")


def _title(found: Datum) -> Title:
    noun, field = _NOUNS.get(found.schema or "", ("record", ""))
    key = found.id.partition("/")[2]
    detail = str(found.data.get("session_id") or found.data.get("state") or "")
    return Title(noun, key, _name_of(found.data, field) or key, detail if noun.startswith("session") else "")


def _name_of(data: Mapping[str, Any], field: str) -> str:
    name = data.get(field)
    return " ".join(name.split())[:MAX_NAME] if isinstance(name, str) else ""


async def _count_orphans(universe: Universe) -> int:
    sessions = {
        each.id.partition("/")[2] for each in await universe.query(schema=SESSION, limit=None, raw=True)
    }
    missing = 0
    for part in ("event", "agent", "artifact"):
        wanted = Query(schema=f"{SESSION}_{part}", limit=None)
        async for each in universe.iterate(wanted, raw=True):
            missing += each.data.get("session_id") not in sessions
    return missing


ROOM = MembraneRoom()
