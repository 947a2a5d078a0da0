"""The graph: create, find and delete its entities, observations and relations.

Every change is a transaction: of two processes that change the same entity at once, the slower one reads
again and adds to what the other one wrote.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from dgent.errors import Conflict, NotFound
from dgent.graph.record import ENTITY, RELATION, SCHEMAS, Entity, Relation, entity_id, relation_id
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.universe.transaction import Transaction
from dgent.universe.universe import Universe

ATTEMPTS = 200  # each of them means that somebody else committed
CHUNK = 64  # names in one query: as many as an index looks up by their values
MAX_READS = 1_000_000  # as many as a commit has: a call may name or touch that many records
_NAMED, _NAME = 3, 40  # names in the note of a commit, and characters of one

R = TypeVar("R")


class Part(NamedTuple):
    """Some entities and relations, each in the order of their creation."""

    entities: list[Entity]
    relations: list[Relation]


class Graph:
    """The graph of a universe: `Graph(u)`."""

    def __init__(self, universe: Universe) -> None:
        universe.register(ENTITY, RELATION)
        self._universe = universe

    # -- changes ------------------------------------------------------------------------------

    async def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Create entities; return those whose names were not there yet."""
        wanted: dict[str, Entity] = {}
        for entity in entities:
            wanted.setdefault(entity_id(entity.name), entity)
        return await self._create(wanted, _note("create", (each.name for each in wanted.values())))

    async def create_relations(self, relations: Sequence[Relation]) -> list[Relation]:
        """Create relations; return those that were not there yet. Their ends need not exist."""
        wanted = {relation_id(each): each for each in relations}
        return await self._create(wanted, _note("relate", map(_describe, wanted.values())))

    async def _create(self, wanted: Mapping[str, R], note: str) -> list[R]:
        async def work(tx: Transaction) -> list[R]:
            stored = await tx.get_many(list(wanted), raw=True)
            for found in stored:
                if found is not None and found.schema not in SCHEMAS:
                    raise Conflict(f"{found.id!r} is a record that is not of the graph", id=found.id)
            new = [id for id, found in zip(wanted, stored, strict=True) if found is None]
            for id in new:
                await tx.remember(wanted[id], id=id)
            return [wanted[id] for id in new]

        return await self._change(work, note)

    async def add_observations(self, added: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        """Add observations to entities; return the new ones of each. Raises NotFound for an unknown name."""

        async def work(tx: Transaction) -> list[list[str]]:
            out = []
            for name, contents in added:
                crystal = await _get(tx, name)
                if crystal is None:
                    raise NotFound(f"Entity with name {name} not found", name=name)
                known = crystal.value.observations
                new = [each for each in dict.fromkeys(contents) if each not in set(known)]
                if new:
                    await tx.update(crystal, observations=(*known, *new))
                out.append(new)
            return out

        return await self._change(work, _note("observe", (name for name, _ in added)))

    async def delete_observations(self, deleted: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Delete observations of entities, where they are there."""

        async def work(tx: Transaction) -> None:
            for name, contents in deleted:
                crystal = await _get(tx, name)
                gone = set(contents)
                if crystal is not None and not gone.isdisjoint(crystal.value.observations):
                    left = tuple(each for each in crystal.value.observations if each not in gone)
                    await tx.update(crystal, observations=left)

        await self._change(work, _note("delete observations of", (name for name, _ in deleted)))

    async def delete_entities(self, names: Sequence[str]) -> None:
        """Delete entities that are there, and all relations from or to these names."""
        wanted = list(dict.fromkeys(names))

        async def work(tx: Transaction) -> None:
            doomed = await _list_live(tx, [entity_id(name) for name in wanted])
            for query in _around(wanted):
                doomed += [each.id for each in await tx.query(query)]
            for id in dict.fromkeys(doomed):
                await tx.delete(id)

        await self._change(work, _note("delete", wanted))

    async def delete_relations(self, relations: Sequence[Relation]) -> None:
        """Delete relations that are there."""
        wanted = {relation_id(each): each for each in relations}

        async def work(tx: Transaction) -> None:
            for id in await _list_live(tx, list(wanted)):
                await tx.delete(id)

        await self._change(work, _note("unrelate", map(_describe, wanted.values())))

    async def _change(self, work: Callable[[Transaction], Awaitable[R]], note: str) -> R:
        async def run(tx: Transaction) -> R:
            tx.reads = MAX_READS
            return await work(tx)

        return await self._universe.transact(run, attempts=ATTEMPTS, note=note)

    # -- reads --------------------------------------------------------------------------------

    async def read(self, seq: int | None = None) -> Part:
        """Return all of it, as of one commit."""
        seq = await self._universe.seq() if seq is None else seq
        return Part(await self._all(ENTITY, seq), await self._all(RELATION, seq))

    async def search(self, text: str) -> Part:
        """Return entities with this text in name, type or an observation, whatever its case."""
        seq, wanted = await self._universe.seq(), text.lower()
        entities: list[Entity] = await self._all(ENTITY, seq)
        found = [
            each
            for each in entities
            if any(wanted in part.lower() for part in (each.name, each.entity_type, *each.observations))
        ]
        return Part(found, await self._relations_of([each.name for each in found], seq))

    async def open(self, names: Sequence[str]) -> Part:
        """Return the entities of these names, as far as there are any."""
        seq = await self._universe.seq()
        ids = dict.fromkeys(map(entity_id, names))
        found = await self._universe.get_many(list(ids), as_of=seq)
        entities = _sort(
            each for each in found if isinstance(each, Crystal) and isinstance(each.value, Entity)
        )
        return Part(entities, await self._relations_of([each.name for each in entities], seq))

    async def _all(self, schema: Schema[R], seq: int) -> list[R]:
        query = Query(schema=schema.name, descending=False, limit=None)
        return [each.value for each in await self._universe.recall(query, as_of=seq)]

    async def _relations_of(self, names: Sequence[str], seq: int) -> list[Relation]:
        """Return the relations with at least one end among the names."""
        if len(names) > CHUNK:
            ends = set(names)
            relations: list[Relation] = await self._all(RELATION, seq)
            return [each for each in relations if each.source in ends or each.target in ends]
        found: dict[str, Crystal[Relation]] = {}
        for query in _around(names):
            found |= {each.id: each for each in await self._universe.recall(query, as_of=seq)}
        return _sort(found.values())


async def _get(tx: Transaction, name: str) -> Crystal[Entity] | None:
    (found,) = await tx.get_many([entity_id(name)])
    return found if isinstance(found, Crystal) and isinstance(found.value, Entity) else None


async def _list_live(tx: Transaction, ids: Sequence[str]) -> list[str]:
    found = await tx.get_many(ids, raw=True)
    return [each.id for each in found if each is not None and each.schema in SCHEMAS]


def _around(names: Sequence[str]) -> Iterable[Query]:
    """Return queries for the relations with an end among the names."""
    for start in range(0, len(names), CHUNK):
        for end in ("source", "target"):
            where = {end: {"$in": list(names[start : start + CHUNK])}}
            yield Query(schema=RELATION.name, where=where, descending=False, limit=None)


def _sort(found: Iterable[Crystal[R]]) -> list[R]:
    return [each.value for each in sorted(found, key=lambda each: each.datum.created_at)]


def _describe(relation: Relation) -> str:
    return f"{relation.source} {relation.relation_type} {relation.target}"


def _note(what: str, names: Iterable[str]) -> str:
    """Return the note of a commit: what was done to which names, of which the first few are enough."""
    known = ["".join(filter(str.isprintable, name))[:_NAME] for name in names]
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"{what} {', '.join(known[:_NAMED])}{more}"
