"""Everything a contract may hold makes the round trip, and is found by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest

import dgent


class Mood(Enum):
    GLAD = "glad"
    SAD = "sad"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Thing:
    when: datetime
    mood: Mood = Mood.GLAD
    who: UUID | None = None
    raw: bytes = b"\x00\xff"
    points: tuple[Point, ...] = ()
    pair: tuple[int, str] = (1, "one")
    names: frozenset[str] = frozenset()
    state: Literal["open", "done"] = "open"
    maybe: Point | None = None
    table: dict[str, Point] = field(default_factory=dict)
    anything: Any = None


THING = dgent.Schema("test.thing", contract=Thing, indexes=("when", "mood", "maybe.x"))
WHEN = datetime(2024, 6, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _registered(u: dgent.Universe) -> None:
    u.register(THING)


async def test_round_trip(u: dgent.Universe) -> None:
    value = Thing(
        when=WHEN.astimezone(timezone(timedelta(hours=5, minutes=30))),
        mood=Mood.SAD,
        points=(Point(1), Point(2, -0.5)),
        names=frozenset({"b", "a"}),
        state="done",
        maybe=Point(-(2**63), 1e300),
        table={"é.\x00$": Point(0)},
        anything={"deep": [1, None, {"x": True}]},
    )
    kept = await u.remember(value)
    read = (await u.get(kept.id)).value
    assert read == value == kept.value
    assert read.when.utcoffset() == timedelta(0)
    stored = await u.store(kept.replace(value=read))
    assert stored.rev == 1, "the same value has the same bytes"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"mood": Mood.SAD}, [1, 3]),
        ({"mood": "glad"}, [0, 2]),
        ({"when": {"$gte": WHEN + timedelta(days=2)}}, [2, 3]),
        ({"when": WHEN}, [0]),
        ({"who": UUID(int=2)}, [2]),
        ({"maybe": None}, [0, 1]),
        ({"maybe.x": {"$gt": 2}}, [3]),
        ({"maybe.x": {"$exists": True}}, [2, 3]),
        ({"names": {"$contains": "n1"}}, [1]),
        ({"points.0.x": 3}, [3]),
        ({"pair.1": {"$prefix": "p"}, "$not": {"mood": "sad"}}, [0, 2]),
        ({("table", "a.b", "x"): 2}, [2]),
    ],
    ids=str,
)
async def test_found_by(u: dgent.Universe, where: dict[Any, Any], found: list[int]) -> None:
    for n in range(4):
        await u.remember(
            Thing(
                WHEN + timedelta(days=n),
                list(Mood)[n % 2],
                UUID(int=n),
                points=(Point(n),),
                pair=(n, f"p{n}"),
                names=frozenset({f"n{n}"}),
                maybe=Point(n) if n >= 2 else None,
                table={"a.b": Point(n)},
            )
        )
    query = dgent.Query(schema="test.thing", where=where, order_by="when", descending=False)
    assert [c.value.pair[0] for c in await u.query(query)] == found
    assert await u.count(query) == len(found)
