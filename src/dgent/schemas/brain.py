"""Contracts of a brain: crystals of content, and settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dgent.model.schema import Schema


@dataclass(frozen=True)
class BrainCrystal:
    """Something worth keeping: its summary, its content, where it came from and how often it was read."""

    summary: str
    content: str
    content_hash: str = ""
    tags: tuple[str, ...] = ()
    source_type: str = ""
    source_ref: str = ""
    access_count: int = 0
    last_accessed: datetime | None = None
    datum_id: str | None = None


@dataclass(frozen=True)
class BrainSetting:
    """A setting of a brain."""

    key: str
    value: Any
    category: str = "general"


BRAIN: tuple[Schema[Any], ...] = (
    Schema(
        "brain.crystal",
        contract=BrainCrystal,
        indexes=("content_hash",),
        text={"summary": 3, "content": 1},
    ),
    Schema("brain.setting", contract=BrainSetting, indexes=("key", "category")),
)
"""The schemas of a brain."""
