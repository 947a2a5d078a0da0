"""A walk through a graph of things: the trail, its steps, and what was promised and noted on the way.

These are records of a finished walk. Work that can be given up together is a trail of the cupboard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgent.model.ref import Ref
from dgent.model.schema import Schema


@dataclass(frozen=True)
class TrailRecord:
    """A trail: who walked it, and what it is a fork of."""

    name: str
    created_by_id: str = ""
    created_by_archetype: str = ""
    version: int = 1
    forked_from_id: str | None = None
    merged_into_id: str | None = None
    fork_point: int | None = None
    topics: tuple[str, ...] = ()
    content_hash: str = ""
    is_active: bool = True


@dataclass(frozen=True)
class TrailStep:
    """One step of a trail, from a place over an edge to others."""

    trail: Ref[TrailRecord]
    index: int
    source_path: str
    edge: str = ""
    destination_paths: tuple[str, ...] = ()
    reasoning: str = ""
    parent_index: int | None = None
    explorer_id: str = ""
    explorer_archetype: str = ""
    budget_consumed: float = 0.0
    loop_status: str = ""


@dataclass(frozen=True)
class TrailCommitment:
    """A claim that a trail supports, how firmly, and by which evidence."""

    trail: Ref[TrailRecord]
    claim: str
    level: str = "tentative"
    evidence_ids: tuple[str, ...] = ()
    committed_by_id: str = ""


@dataclass(frozen=True)
class TrailAnnotation:
    """A remark on a trail, or on one of its steps."""

    trail: Ref[TrailRecord]
    text: str
    author: str = ""
    step_index: int | None = None


TRAIL: tuple[Schema[Any], ...] = (
    Schema("trail.trail", contract=TrailRecord, indexes=("created_by_id",), text={"name": 2, "topics": 1}),
    Schema("trail.step", contract=TrailStep, text={"reasoning": 1}),
    Schema("trail.commitment", contract=TrailCommitment, text={"claim": 1}),
    Schema("trail.annotation", contract=TrailAnnotation, text={"text": 1}),
)
"""The schemas of a walk."""
