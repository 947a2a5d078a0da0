"""Contracts that dgent ships: marks of a witness, crystals of a brain, trails of a walk.

Nothing registers them by itself. `u.register(*schemas.WITNESS)` does, or one of them alone.
"""

from __future__ import annotations

from dgent.model.schema import Schema
from dgent.schemas.brain import BRAIN, BrainCrystal, BrainSetting
from dgent.schemas.trail import TRAIL, TrailAnnotation, TrailCommitment, TrailRecord, TrailStep
from dgent.schemas.witness import (
    WITNESS,
    WITNESS_MARK_SCHEMA,
    WitnessAction,
    WitnessEscalation,
    WitnessMarkV1,
    WitnessMarkV2,
    WitnessMarkV3,
    WitnessThought,
    WitnessTrust,
)

SHIPPED: tuple[Schema[object], ...] = (*WITNESS, *BRAIN, *TRAIL)
"""All of them."""

__all__ = [
    "BRAIN",
    "SHIPPED",
    "TRAIL",
    "WITNESS",
    "WITNESS_MARK_SCHEMA",
    "BrainCrystal",
    "BrainSetting",
    "TrailAnnotation",
    "TrailCommitment",
    "TrailRecord",
    "TrailStep",
    "WitnessAction",
    "WitnessEscalation",
    "WitnessMarkV1",
    "WitnessMarkV2",
    "WitnessMarkV3",
    "WitnessThought",
    "WitnessTrust",
]
