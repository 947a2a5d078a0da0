"""The semantic half of Brain, Town and Gardener: contracts of datums, which `u.search` finds.

Each has what its row needs to be made again. A datum and its row have the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dgent.model.schema import Schema


@dataclass(frozen=True)
class BrainContent:
    """The text of a crystal, and where it came from; its tags are those of the datum."""

    content: str
    source_type: str | None = None
    source_ref: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TurnContent:
    """A turn of a conversation; the parent of the datum is the turn before it."""

    conversation_id: str
    turn_number: int
    role: str
    content: str
    sentiment: float | None = None
    emotion: str | None = None


@dataclass(frozen=True)
class IdeaContent:
    """An idea and its stage; the versions of the datum are the history of its growth."""

    content: str
    lifecycle: str = "SEED"
    confidence: float = 0.3
    nurture_count: int = 0
    session_id: str | None = None
    plot_id: str | None = None


CRYSTAL: Schema[BrainContent] = Schema("brain.content", contract=BrainContent, text={"content": 1})
TURN: Schema[TurnContent] = Schema(
    "town.turn",
    contract=TurnContent,
    indexes=("conversation_id",),
    text={"content": 1},
    thread="conversation_id",
)
IDEA: Schema[IdeaContent] = Schema(
    "garden.idea", contract=IdeaContent, indexes=("lifecycle",), text={"content": 1}
)
