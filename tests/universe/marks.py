"""The contract these tests share, in its three versions, and records as old programs wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dgent


@dataclass(frozen=True)
class MarkV1:
    action: str
    reasoning: str
    author: str


@dataclass(frozen=True)
class MarkV2:
    action: str
    reasoning: str
    author: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    action: str
    reasoning: str
    author: str
    tags: tuple[str, ...] = ()
    principles: tuple[str, ...] = ()


def add_tags(data: dict[str, Any]) -> dict[str, Any]:
    if data["action"] == "unlucky":
        raise LookupError("no tags for the unlucky")
    return {**data, "tags": ["upgraded"]}


def add_principles(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "principles": [data["action"]]}


MARK_V1 = dgent.Schema("witness.mark", version=1, contract=MarkV1, indexes=("author",))
MARK_V2 = dgent.Schema(
    "witness.mark", version=2, contract=MarkV2, migrations={1: add_tags}, indexes=("author",)
)
MARK = dgent.Schema(
    "witness.mark",
    version=3,
    contract=Mark,
    migrations={1: add_tags, 2: add_principles},
    indexes=("author", "principles.0"),
)


def mark(action: str = "ship", author: str = "scout", **fields: Any) -> Mark:
    return Mark(action, "tests pass", author, **fields)


def old_mark(version: int, action: str = "ship", **fields: Any) -> dgent.Datum:
    """A record as a program of an older (or newer) version stored it."""
    data: dict[str, Any] = {"action": action, "reasoning": "tests pass", "author": "scout"}
    if version >= 2:
        data["tags"] = ["written"]
    if version >= 3:
        data["principles"] = ["written"]
    if version >= 4:
        data["mood"] = "glad"
    return dgent.Datum.create(data, schema="witness.mark", schema_version=version, **fields)
