"""A graph of what an agent knows: entities with observations, and relations between them."""

from dgent.graph.graph import Graph, Part
from dgent.graph.record import ENTITY, RELATION, Entity, Relation

__all__ = ["ENTITY", "RELATION", "Entity", "Graph", "Part", "Relation"]
