"""The records of the graph, and their ids, which follow from the names."""

from __future__ import annotations

import msgspec

from dgent import codec, ids
from dgent.model.schema import Schema


class Entity(msgspec.Struct, frozen=True):
    """Something that an agent knows of, with what was observed about it."""

    name: str
    entity_type: str
    observations: tuple[str, ...] = ()


class Relation(msgspec.Struct, frozen=True):
    """A directed relation between two entities, given by their names."""

    source: str
    target: str
    relation_type: str


ENTITY = Schema("graph.entity", contract=Entity, text={"name": 4, "entity_type": 2, "observations": 1})
RELATION = Schema(
    "graph.relation",
    contract=Relation,
    indexes=("source", "target"),
    text={"source": 1, "relation_type": 1, "target": 1},
)

SCHEMAS = frozenset((ENTITY.name, RELATION.name))


def entity_id(name: str) -> str:
    """Return the id of an entity, the same in every process."""
    return _derive_id(ENTITY.name, name)


def relation_id(relation: Relation) -> str:
    """Return the id of a relation, the same in every process."""
    return _derive_id(RELATION.name, relation.source, relation.relation_type, relation.target)


def _derive_id(root: str, *parts: str) -> str:
    """Return a readable id, or a digest of it where it cannot be stored; different parts, different ids."""
    made = ids.compose(root, *parts)
    if "\0" not in made and len(made) <= ids.MAX_ID_BYTES and len(_encode(made)) <= ids.MAX_ID_BYTES:
        return made
    # Below a root of its own, where no name can lead.
    return f"{root}.digest/{codec.blake2b(_encode(made), size=32).hexdigest()}"


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # half a pair is refused when the record is checked
