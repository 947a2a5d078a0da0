"""The tables of Brain, Town and Gardener, as SQLAlchemy models.

The classes have the names that the ancestor's have: `Crystal` here is a row of `brain_crystals`, and
`dgent.Crystal` the typed value of a universe.
"""

from __future__ import annotations

from dgent.tables.models.brain import BrainSettings, Crystal, Tag
from dgent.tables.models.gardener import GardenIdea, GardenSession, IdeaConnection, Lifecycle, Plot
from dgent.tables.models.model import Base, CausalMixin, TimestampMixin
from dgent.tables.models.town import Citizen, CitizenConversation, CitizenRelationship, ConversationTurn

MODELS: dict[str, type[Base]] = {
    "crystal": Crystal,
    "tag": Tag,
    "brain_settings": BrainSettings,
    "citizen": Citizen,
    "conversation": CitizenConversation,
    "turn": ConversationTurn,
    "relationship": CitizenRelationship,
    "session": GardenSession,
    "plot": Plot,
    "idea": GardenIdea,
    "connection": IdeaConnection,
}
"""The models by the names that paths and verbs have for them: `self.data.table.crystal.get`."""

__all__ = [
    "MODELS",
    "Base",
    "BrainSettings",
    "CausalMixin",
    "Citizen",
    "CitizenConversation",
    "CitizenRelationship",
    "ConversationTurn",
    "Crystal",
    "GardenIdea",
    "GardenSession",
    "IdeaConnection",
    "Lifecycle",
    "Plot",
    "Tag",
    "TimestampMixin",
]
