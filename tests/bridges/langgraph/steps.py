"""Checkpoints for tests, made as a graph makes them."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6


def config_for(thread: str = "t", namespace: str = "", id: str | None = None) -> Any:
    """Return a configuration; without an id it means the newest checkpoint."""
    named = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": named if id is None else {**named, "checkpoint_id": id}}


def checkpoint_of(values: dict[str, Any], versions: dict[str, Any], step: int = 0) -> Checkpoint:
    """Return a checkpoint with values and versions of channels."""
    return {
        "v": 2,
        "id": str(uuid6(clock_seq=step)),
        "ts": "2026-01-31T12:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": sorted(values),
    }


async def add_step(
    saver: BaseCheckpointSaver[Any], config: Any, values: dict[str, Any], step: int = 0, **metadata: Any
) -> Any:
    """Store a checkpoint in which all channels are new, and return its configuration."""
    versions = dict.fromkeys(values, step + 1)
    made = checkpoint_of(values, versions, step)
    return await saver.aput(
        config, made, {"source": "loop", "step": step, "parents": {}, **metadata}, versions
    )
