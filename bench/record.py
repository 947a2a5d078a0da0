"""The records all systems store: about 300 bytes of JSON, three tags, one declared field."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from dgent import Datum, Schema, ids

TOPICS = [f"topic-{n}" for n in range(10)]
PLACES = [f"place-{n}" for n in range(20)]
MOODS = [f"mood-{n}" for n in range(8)]
KINDS = [f"kind-{n:02}" for n in range(20)]  # with a topic: 1 record in 200
AUTHOR = "system"

_START = datetime(2024, 1, 1, tzinfo=UTC)
_WORDS = (
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kernel",
)


@dataclasses.dataclass(frozen=True)
class Note:
    """A contract of ten fields, as an agent would have one."""

    title: str
    body: str
    kind: str
    status: str
    agent: str
    session: str
    priority: int
    score: float
    attempts: int
    done: bool


SCHEMA = Schema("bench.note", 1, Note, indexes=("kind",))

Sample = tuple[Note, frozenset[str]]
"""A value and its tags: what a caller hands to `remember`."""


def samples(seed: int) -> Iterator[Sample]:
    """Endless samples, the same for the same seed."""
    choose = random.Random(seed)
    number = 0
    while True:
        number += 1
        note = Note(
            title=f"note {number} about {choose.choice(_WORDS)}",
            body=" ".join(choose.choices(_WORDS, k=16)),
            kind=choose.choice(KINDS),
            status=choose.choice(("open", "held", "closed")),
            agent=f"agent-{choose.randrange(12)}",
            session=f"{choose.getrandbits(64):016x}",
            priority=choose.randrange(10),
            score=round(choose.random(), 4),
            attempts=choose.randrange(5),
            done=choose.random() < 0.5,
        )
        yield note, frozenset((choose.choice(TOPICS), choose.choice(PLACES), choose.choice(MOODS)))


def datums(seed: int, count: int, first: int = 0) -> list[Datum]:
    """That many datums, created a second apart, `first` of them after the start of time."""
    return [
        Datum(
            id=ids.new_id(),
            created_at=_START + timedelta(seconds=first + number),
            data=dataclasses.asdict(note),
            tags=tags,
            author=AUTHOR,
            schema=SCHEMA.name,
            schema_version=SCHEMA.version,
        )
        for number, (note, tags) in enumerate(islice(samples(seed), count))
    ]
