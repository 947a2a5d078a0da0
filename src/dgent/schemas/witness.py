"""Contracts of a witness: marks, and the trust, thoughts, actions and escalations around them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dgent.model.schema import Schema


@dataclass(frozen=True)
class WitnessMarkV1:
    """A mark as version 1 had it; only old records are so."""

    action: str
    reasoning: str
    author: str


@dataclass(frozen=True)
class WitnessMarkV2:
    """A mark as version 2 had it: with tags."""

    action: str
    reasoning: str
    author: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class WitnessMarkV3:
    """A mark: what was done, why, by whom, and on which principles."""

    action: str
    reasoning: str
    author: str
    tags: tuple[str, ...] = ()
    principles: tuple[str, ...] = ()


WITNESS_MARK_SCHEMA: Schema[WitnessMarkV3] = Schema(
    "witness.mark",
    version=3,
    contract=WitnessMarkV3,
    migrations={
        1: lambda data: {**data, "tags": ()},
        2: lambda data: {**data, "principles": ()},
    },
    text={"action": 3, "reasoning": 1},
)


@dataclass(frozen=True)
class WitnessTrust:
    """The trust in a person in a repository, and the counts it rests on."""

    git_email_hash: str
    repository_path: str = ""
    trust_level: int = 0
    observation_count: int = 0
    successful_operations: int = 0
    confirmed_suggestions: int = 0
    total_suggestions: int = 0
    last_active: datetime | None = None


@dataclass(frozen=True)
class WitnessThought:
    """A thought that is worth a note."""

    content: str
    source: str = ""
    tags: tuple[str, ...] = ()
    repository_path: str = ""


@dataclass(frozen=True)
class WitnessAction:
    """Something an agent did, what came of it, and how to take it back."""

    action: str
    target: str = ""
    success: bool = True
    message: str = ""
    reversible: bool = True
    inverse_action: str = ""
    git_stash_ref: str = ""
    checkpoint_path: str = ""
    repository_path: str = ""


@dataclass(frozen=True)
class WitnessEscalation:
    """A change of trust from one level to another, with the counts it rests on."""

    from_level: int
    to_level: int
    reason: str = ""
    observation_count: int = 0
    successful_operations: int = 0
    confirmed_suggestions: int = 0
    total_suggestions: int = 0
    acceptance_rate: float = 0.0


WITNESS: tuple[Schema[Any], ...] = (
    WITNESS_MARK_SCHEMA,
    Schema("witness.trust", contract=WitnessTrust, indexes=("git_email_hash", "repository_path")),
    Schema("witness.thought", contract=WitnessThought, text={"content": 1}),
    Schema("witness.action", contract=WitnessAction, text={"action": 2, "message": 1}),
    Schema("witness.escalation", contract=WitnessEscalation),
)
"""The schemas of a witness."""
