"""The contract of a room: everything that the layers around it ask, so that none of them knows its records.

Each room answers in one object, `ROOM` in its `room.py`. `model/reserved.py` lists the rooms; a room is
loaded when it is first asked for. What an answer needs is loaded with the answer: completion asks at every
press of a key, and must not load documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from dgent.errors import HistoryGone, Unsupported
from dgent.model import reserved
from dgent.model.crystal import Crystal
from dgent.universe.contract import Contracts

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.backend import Change, Committed, Item, Reverted
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.gate import Principal, Scope
    from dgent.universe.universe import Universe


class Name(NamedTuple):
    """A word that completes what a user typed, and a text to show beside it."""

    word: str
    text: str = ""


class Action(NamedTuple):
    """One thing that a commit did in a room: the author, the operation, and the name of what it changed.

    `owner`, `version` and `message` are empty where things of this kind have none. `text` is what happened in
    words that follow the author: finished ‘Fix crash’. What is `said` is in the log, and undo passes over it.
    """

    kind: str
    id: str
    by: str
    what: str
    name: str
    owner: str = ""
    version: int | None = None
    message: str = ""
    text: str = ""
    said: bool = False

    @property
    def sentence(self) -> str:
        """The event as a user reads it in the log."""
        return f"{self.by} {self.text or f'{self.what} {self.name}'.strip()}"


class Title(NamedTuple):
    """A record that a search found, as a user knows it: kind, the id to get it by, name, and a detail."""

    kind: str
    id: str
    name: str
    detail: str = ""


class Table(NamedTuple):
    """A kind of records of a room as SQL sees it: the fields in `columns` of the schema's records.

    `key` is the column whose value, with the schema's name and a slash before it, is a record's id.
    """

    name: str
    columns: tuple[str, ...]
    schema: str
    key: str


class Describer(Protocol):
    """Describes commits of a room to one agent; keeps what it read for the next commit."""

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to things of the room that the agent may see, in the commit's order."""
        ...


class Keeper(Protocol):
    """Undoes commits of a room so that its rules stay intact."""

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put records back, with everything that depends on them; refused where the rules forbid it."""
        ...


class Room(Protocol):
    """A room, as the layers around it see it. What has a default here need not be in every room."""

    kinds: ClassVar[Sequence[str]] = ()
    """The kinds of things that a user can name, as verbs write them in `complete=`."""

    words: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Names that are the same in every store, by kind."""

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        ...

    @property
    def tables(self) -> Mapping[str, Table]:
        """The kinds of records that SQL sees as tables, by their names there."""
        return {}

    async def insert(
        self, universe: Universe, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False
    ) -> int:
        """Insert rows as SQL gives them into a table, in one commit of the room; return how many.

        Without `replace` a key that is there is a Conflict.
        """
        raise Unsupported(f"nothing can be inserted into {table!r}")

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return the names of stored things of a kind that begin so, as an agent would call them."""
        return []

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes the room's commits to an agent; None sees everything.

        A commit that it does not describe is upkeep, which the log hides and undo passes over.
        """
        ...

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Return how many things of the room a user has: the noun of one, and their number."""
        return ()

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Look for problems in the room's records, and change nothing; only the room knows what they mean."""
        ...

    def merge_rules(self) -> Rules:
        """Return how to merge versions of a record that two copies of a store wrote apart."""
        ...

    def keeper(self, universe: Universe) -> Keeper | None:
        """Return what undoes the room's commits; None where an undo of them is refused."""
        return None

    async def refresh_texts(self, universe: Universe, since: int | None) -> Mapping[str, Datum | None]:
        """Bring records up to date that are only there for searches; `since` is the commit of the last time.

        Returns those that could not be stored. The universe shows everything and knows the room's schemas.
        """
        return {}

    async def find_texts_at(self, universe: Universe, seq: int) -> Mapping[str, Datum | None]:
        """Return records that are only there for searches as they would have been at an earlier commit.

        Those that are stored are up to date; where they are of that moment, they need not be returned.
        """
        return {}

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return what some records of the room are to a user."""
        ...

    async def scope(self, universe: Universe, principal: Principal) -> Scope | None:
        """Return what a principal sees of the room's private schemas now; None for everything.

        The universe is the room's own and shows everything.
        """
        return None


@cache
def load_room(name: str) -> Room:
    """Return a room by its name."""
    found: Room = import_module(reserved.MODULES[name]).ROOM
    return found


def all_rooms() -> Iterable[Room]:
    """Yield the rooms of dgent, each loaded when its turn comes."""
    return map(load_room, reserved.MODULES)


async def names_in_store(universe: Universe) -> list[str]:
    """Return the names of the rooms that have been used in a store."""
    declared = {reserved.OWNERS.get(schema.name) for schema in await universe.schemas(partial=True)}
    return [name for name in reserved.MODULES if name in declared]


def _raw(item: Item) -> Item:
    """Return an item of a change with its records as they are stored; a feed may have made values of them."""
    datum, last = (each.datum if isinstance(each, Crystal) else each for each in (item.datum, item.last))
    return msgspec.structs.replace(item, datum=datum, last=last)


class Describers:
    """Describes commits of every room, or of some, to one agent, or to one who sees everything."""

    def __init__(
        self, universe: Universe, agent: str | None, rooms: Iterable[str] = reserved.MODULES
    ) -> None:
        self.universe, self._agent, self._rooms = universe, agent, tuple(rooms)
        self._describers: dict[str, Describer] = {}

    async def describe(self, change: Change) -> list[Action]:
        """Return what a commit did to things of rooms; empty for upkeep and for records of no room."""
        owners = {reserved.OWNERS.get(item.schema or "") for item in change.items}
        if owners.isdisjoint(self._rooms):
            return []
        change = msgspec.structs.replace(change, items=tuple(map(_raw, change.items)))
        done: list[Action] = []
        for name in self._rooms:
            if name in owners:
                done += await (await self._find(name)).describe(change)
        return done

    async def _find(self, name: str) -> Describer:
        if name not in self._describers:
            room, contracts = load_room(name), Contracts()
            for schema in room.schemas:
                contracts.add(schema)
            # It knows the schemas of the room, and sees what this universe sees.
            own = self.universe._twin(contracts=contracts, _undeclared=[])
            self._describers[name] = await room.describer(own, self._agent)
        return self._describers[name]

    async def is_of_user(self, change: Change) -> bool:
        """Check whether a commit changed something of a user, and not only what dgent keeps for itself."""
        return any(not reserved.is_reserved(item.schema) for item in change.items) or any(
            not each.said for each in await self.describe(change)
        )


async def find_titles(universe: Universe, found: Sequence[Datum]) -> list[Title]:
    """Return what each of some records is to a user: a thing of a room, or just a record."""
    titles = {each.id: Title("record", each.id, "", each.schema or "") for each in found}
    for name in reserved.MODULES:
        own = [each for each in found if reserved.OWNERS.get(each.schema or "") == name]
        if own:
            made = await load_room(name).titles(universe, own)
            titles |= {each.id: title for each, title in zip(own, made, strict=True)}
    return [titles[each.id] for each in found]


# -- pieces for rooms ---------------------------------------------------------------------------


async def read_before(universe: Universe, change: Change, schemas: Iterable[str]) -> Mapping[str, Datum]:
    """Return records of some schemas as they were before a commit changed them, where that is kept."""
    wanted = frozenset(schemas)
    ids = [
        item.id
        for item in change.items
        if item.schema in wanted and item.id is not None and item.op == "put" and item.rev > 1
    ]
    if not ids or not change.seq:
        return {}
    try:
        found = await universe.get_many(ids, as_of=change.seq - 1, raw=True)
    except HistoryGone:
        return {}
    return {each.id: each for each in found if each is not None}


async def find_by_name(
    universe: Universe, schema: str, field: str, start: str, where: Mapping[str, Any] | None = None
) -> list[Datum]:
    """Return the records of a schema whose name, a field of theirs, begins so; in the order of names."""
    wanted = {**(where or {}), **({field: {"$prefix": start}} if start else {})}
    found = await universe.query(schema=schema, where=wanted or None, limit=None, raw=True)
    return sorted(found, key=lambda each: str(each.data.get(field, "")))


async def find_by_id_or_name(
    universe: Universe, schema: str, field: str, start: str, limit: int
) -> list[Name]:
    """Return ids that begin so, each with its name beside it, and names that begin so, with their ids.

    In place of a name that several have, their ids.
    """
    by_id = await universe.query(schema=schema, prefix=start or None, limit=limit, raw=True)
    offered = [Name(each.id, str(each.data.get(field, ""))) for each in by_id]
    if not start:
        return offered
    where = {field: {"$prefix": start}}
    by_name = await universe.query(schema=schema, where=where, limit=limit, raw=True)
    names = Counter(each.data[field] for each in by_name)
    for each in by_name:
        name = each.data[field]
        offered.append(Name(name, each.id) if names[name] == 1 else Name(each.id, name))
    return list(dict.fromkeys(offered))
