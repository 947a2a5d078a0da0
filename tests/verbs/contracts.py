"""Schemas for a verb that is told where they are."""

from __future__ import annotations

from dataclasses import dataclass

import dgent


@dataclass(frozen=True)
class Note:
    n: int
    title: str = ""


NOTE = dgent.Schema("note", version=2, contract=Note, migrations={1: lambda data: {**data, "title": "old"}})
