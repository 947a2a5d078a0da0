"""The contracts that the tests of dgent.sync keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgent import Schema


@dataclass(frozen=True)
class Mark:
    """Something an agent noticed."""

    what: str
    n: int = 0


@dataclass(frozen=True)
class OldNote:
    """A note as the first version had it."""

    text: str


@dataclass(frozen=True)
class Note:
    """A note as the second version has it."""

    text: str
    words: int


def _count(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "words": len(data["text"].split())}


MARK = Schema("mark", contract=Mark)
OLD_NOTE = Schema("note", contract=OldNote)
NOTE = Schema("note", contract=Note, version=2, migrations={1: _count})
