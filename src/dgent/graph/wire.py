"""The JSON of entities and relations as the reference memory server has it, in its file and its tools."""

from __future__ import annotations

import msgspec

from dgent.graph.record import Entity, Relation


class EntityJSON(msgspec.Struct, frozen=True, rename="camel"):
    """An entity."""

    name: str
    entity_type: str
    observations: tuple[str, ...]

    def record(self) -> Entity:
        """Return it as it is stored."""
        return Entity(self.name, self.entity_type, self.observations)


_ENDS = {"source": "from", "target": "to", "relation_type": "relationType"}


class RelationJSON(msgspec.Struct, frozen=True, rename=_ENDS):
    """A relation."""

    source: str
    target: str
    relation_type: str

    def record(self) -> Relation:
        """Return it as it is stored."""
        return Relation(self.source, self.target, self.relation_type)


def entity_json(entity: Entity) -> dict[str, object]:
    """Return the JSON of an entity."""
    return {
        "name": entity.name,
        "entityType": entity.entity_type,
        "observations": list(entity.observations),
    }


def relation_json(relation: Relation) -> dict[str, object]:
    """Return the JSON of a relation."""
    return {"from": relation.source, "to": relation.target, "relationType": relation.relation_type}
