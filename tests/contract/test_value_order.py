"""One order for all values: 10,000 random pairs stand alike in Python, in memory and in SQLite."""

from __future__ import annotations

import random
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pytest

from dgent.model.query import Query
from dgent.store.backend import Declaration
from dgent.testing.contract import STORED, find_ids, put, typed_record
from tests.contract.columns import READING, Column
from tests.soak import times

PAIRS = 10_000
SIZE = times(300)

_RANKS = {type(None): 1, bool: 2, int: 3, float: 3, str: 4, list: 5, dict: 6}


def compare(a: Any, b: Any) -> int:
    """Which of two values comes first, said without any key: kinds in order, then Python's own order."""
    kinds = _RANKS[type(a)], _RANKS[type(b)]
    if kinds[0] != kinds[1]:
        return -1 if kinds[0] < kinds[1] else 1
    if a is None or isinstance(a, list | dict):
        return 0
    return (a > b) - (a < b)


def _number(rng: random.Random) -> int | float:
    near = rng.choice([0, 1, 2**31, 2**53, 2**62, -(2**53), -(2**63) + 3, 10**15])
    return rng.choice(
        [
            lambda: max(-(2**63), min(2**63 - 1, near + rng.randint(-3, 3))),
            lambda: float(near) + rng.choice([0.0, 0.5, -0.25]),
            lambda: rng.uniform(-1e3, 1e3),
            lambda: rng.uniform(-1, 1) * 10.0 ** rng.randint(-320, 300),
            lambda: rng.getrandbits(63) - 2**62,
            lambda: rng.choice([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308]),
        ]
    )()


def _text(rng: random.Random) -> str:
    letters = [
        "a",
        "b",
        "A",
        "\0",
        "\x7f",
        "\u00e9",
        "\u07ff",
        "\u0800",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
    ]
    stem = rng.choice(["", "x" * 118, "x" * 119, "x" * 130, "\u00e9" * 59, "\u00e9" * 60])
    return stem + "".join(rng.choices(letters, k=rng.randint(0, 4)))


def value(rng: random.Random) -> Any:
    """A value of any kind; many are near each other, where an order breaks."""
    simple = [None, True, False, [], [1], {}, {"a": 1}]
    return rng.choices([rng.choice(simple), _number(rng), _text(rng)], weights=[1, 5, 4])[0]


@pytest.mark.parametrize("column", READING, ids=lambda column: column.name)
async def test_pairs_stand_alike(column: Column, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    values = [value(rng) for _ in range(SIZE)]
    store = column.make(tmp_path)
    await store.open()
    await store.declare(Declaration("note", 1, indexes=("v",)))
    await put(store, *(typed_record(f"r{n:04}", data={"v": each}) for n, each in enumerate(values)))
    ids = await find_ids(store, Query(schema="note", order_by="v", descending=False, limit=None))
    places = {int(id[1:]): place for place, id in enumerate(ids)}
    assert len(places) == SIZE
    for _ in range(PAIRS):
        a, b = rng.sample(range(SIZE), 2)
        # Equal values stand in the order of their commits.
        wanted = compare(values[a], values[b]) or (a > b) - (a < b)
        assert (places[a] > places[b]) - (places[a] < places[b]) == wanted, (seed, values[a], values[b])
    by_python = sorted(range(SIZE), key=cmp_to_key(lambda a, b: compare(values[a], values[b])))
    assert ids == [f"r{n:04}" for n in by_python]
    for operand in rng.sample([v for v in values if type(v) in (bool, int, float, str)], 25):
        await _check_comparisons(store, values, operand)
    await store.close()


async def _check_comparisons(store: Any, values: list[Any], operand: Any) -> None:
    """What the operators find is what the same comparison says."""
    signs = {"$lt": (-1,), "$lte": (-1, 0), "$gt": (1,), "$gte": (0, 1), "$eq": (0,)}
    like = [n for n, each in enumerate(values) if _RANKS.get(type(each)) == _RANKS[type(operand)]]
    for op, allowed in signs.items():
        wanted = {f"r{n:04}" for n in like if compare(values[n], operand) in allowed}
        query = Query(schema="note", where={"v": {op: operand}}, limit=None)
        assert set(await find_ids(store, query)) == wanted, (op, operand)
        assert await store.count(query, STORED) == len(wanted)
