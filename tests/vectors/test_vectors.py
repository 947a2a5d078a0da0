"""The caller's own vectors: the same hits in the same order on every engine, whatever waits to be indexed."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import dgent
from dgent import Query
from dgent.errors import InputError, SchemaError
from dgent.model.vector import METRICS, Metric
from dgent.store.engine import vector_cache, vector_fold
from dgent.store.upkeep import upkeep_of
from dgent.universe.vectors import VectorHits
from tests.soak import times
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]

DIM = 12


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds, pages and centres of few vectors, so that all of it happens often."""
    for name, value in {"FOLD_LEAST": 1, "FOLD_RECORDS": 5, "RECODE_PAGES": 1, "CENTRE_AT": (20, 60)}.items():
        monkeypatch.setattr(vector_fold, name, value)
    monkeypatch.setattr(vector_fold, "MANY_TOMBSTONES", 3)
    monkeypatch.setattr(vector_cache, "MANY_CHANGES", 7)


def score(one: Any, other: Any, metric: Metric) -> float:
    left, right = np.asarray(one, "f4").astype("f8"), np.asarray(other, "f4").astype("f8")
    if metric == "l2":
        return -float(np.linalg.norm(left - right))
    product = float(left @ right)
    return product if metric == "dot" else product / float(np.linalg.norm(left) * np.linalg.norm(right))


def nearest(records: dict[str, Any], vector: Any, metric: Metric, k: int) -> list[tuple[str, float]]:
    scores = {id: score(each, vector, metric) for id, each in records.items()}
    return sorted(((id, value) for id, value in scores.items()), key=lambda each: (-each[1], each[0]))[:k]


def assert_hits(found: VectorHits, wanted: list[tuple[str, float]]) -> None:
    assert [hit.id for hit in found] == [id for id, _ in wanted]
    assert [hit.score for hit in found] == pytest.approx([value for _, value in wanted], abs=1e-6, rel=1e-6)


def numbers(choose: random.Random, scale: float = 1.0) -> list[float]:
    return [choose.gauss(0.4, 1) * scale for _ in range(DIM)]


@pytest.mark.parametrize("metric", METRICS)
async def test_every_search_is_right_whatever_waits(
    u: dgent.Universe, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    faces = u.vectors("faces", dim=DIM, metric=metric, indexes=("group",))
    choose = random.Random(METRICS.index(metric))
    records: dict[str, Any] = {}
    groups: dict[str, int] = {}
    for step in range(times(36)):
        what, known = choose.random(), list(records)
        if what < 0.5 or not known:
            id = f"face-{step:04}" if what < 0.42 or not known else choose.choice(known)
            records[id], groups[id] = numbers(choose, choose.choice((1, 1, 3))), step % 4
            await faces.add(records[id], id, {"group": groups[id]}, tags={f"t{step % 3}"})
        elif what < 0.58:
            id = choose.choice(known)
            assert await faces.delete(id)
            del records[id]
        elif what < 0.62:
            await u.forget(id := choose.choice(known))
            del records[id]
        elif what < 0.66:
            id, seq = choose.choice(known), (await u.changes(0, limit=None))[-1].seq
            await faces.delete(id)
            await u.undo(seq + 1)
        elif what < 0.85:
            await u.backend.fill("vector.faces", u.contracts)
        asked = numbers(choose)
        assert_hits(await faces.search(asked, 7), nearest(records, asked, metric, 7))
        few = {id: records[id] for id in records if groups[id] == 1}
        assert_hits(await faces.search(asked, 5, where={"group": 1}), nearest(few, asked, metric, 5))
    while await u.backend.fill("vector.faces", u.contracts):
        pass
    asked = numbers(choose)
    assert_hits(await faces.search(asked, 50), nearest(records, asked, metric, 50))
    assert await faces.count() == len(records)
    if u.backend.name != "memory":
        inspected = await upkeep_of(u.backend).inspect(deep=True)
        assert [each for each in inspected if each.level == "problem"] == []


async def test_a_vector_comes_back_as_it_was(u: dgent.Universe) -> None:
    faces = u.vectors("faces", dim=3, metric="l2")
    id = await faces.add(np.array([0.1, -2.5, 1e-30]), metadata={"who": "ann"}, tags={"new"})
    found = await faces.get(id)
    assert found is not None and found.vector.dtype == np.float32
    assert found.vector.tolist() == np.array([0.1, -2.5, 1e-30], "f4").tolist()
    assert found.metadata == {"who": "ann"} and found.record.tags == {"new"}
    assert await faces.get("nobody") is None
    await u.put(dgent.Datum("note", schema="note", schema_version=1, data={}))
    assert await faces.get("note") is None and not await faces.delete("note")
    assert await u.exists("note")
    (hit,) = await faces.search([0.1, -2.5, 0])
    assert hit.id == id and hit.score == pytest.approx(0, abs=1e-6) and hit.metadata == {"who": "ann"}
    assert await faces.delete(id) and not await faces.delete(id)
    assert await faces.search([1, 2, 3]) == []


async def test_filters_come_before_the_cut(u: dgent.Universe) -> None:
    faces = u.vectors("faces", dim=2, indexes=("group",))
    angles = [n / 500 for n in range(500)]
    await faces.add_many(
        [[math.cos(angle), math.sin(angle)] for angle in angles],
        [f"{n:03}" for n in range(500)],
        [{"group": n % 50, "odd": n % 2} for n in range(500)],
        tags=("all",),
    )
    await u.indexed()
    for filters, wanted in (
        ({"where": {"group": 49}}, ["049", "099", "149"]),
        ({"where": {"odd": 1}}, ["001", "003", "005"]),
        ({"where": {"group": {"$gte": 48}, "odd": 0}}, ["048", "098", "148"]),
        ({"tags": {"all"}}, ["000", "001", "002"]),
        ({"tags": {"none"}}, []),
        ({"author": "somebody"}, []),
        ({"query": Query(prefix="4")}, ["400", "401", "402"]),
    ):
        assert [hit.id for hit in await faces.search([1, 0], 3, **filters)] == wanted, filters


async def test_another_dimension_or_metric_is_refused(u: dgent.Universe) -> None:
    await u.vectors("faces", dim=3).add([1, 2, 3], "one")
    for other in (u.vectors("faces", dim=4), u.vectors("faces", dim=3, metric="dot")):
        with pytest.raises(SchemaError, match=r"vectors of 3 numbers, cosine"):
            await other.search([1, 2, 3, 4][: other.spec.dim])
        with pytest.raises(SchemaError):
            await other.add([1, 2, 3, 4][: other.spec.dim])
    assert [hit.id for hit in await u.vectors("faces", dim=3).search([1, 2, 3])] == ["one"]
    assert await u.count() == 1


@pytest.mark.parametrize("dim", [0, -1, 1.5, "3", None, True, 10**6])
async def test_a_wrong_dimension_is_refused(dim: Any, u: dgent.Universe) -> None:
    with pytest.raises(SchemaError, match="dim"):
        u.vectors("faces", dim=dim)
    with pytest.raises(SchemaError, match="metric"):
        u.vectors("faces", dim=3, metric="euclid")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1, 2], "2 numbers, not 3"),
        ([1, 2, 3, 4], "4 numbers, not 3"),
        ([], "0 numbers"),
        ([1, float("nan"), 3], r"\[1\] is nan"),
        ([1, 2, float("-inf")], r"\[2\] is -inf"),
        ([1e39, 1, 1], r"\[0\] is 1e\+39"),
        ([[1, 2, 3]], "one list"),
        (["1", "2", "3"], "not str"),
        ("abc", "not str"),
        (b"abc", "not bytes"),
        ([1, None, 3], "not NoneType"),
        ([True, False, True], "hold numbers"),
        ([1, [2], 3], "not a list of numbers"),
        ([1j, 0, 0], "not complex"),
        (None, "one list"),
        ({1, 2, 3}, "not set"),
        ([0, 0, 0], "nothing but zeros"),
        ([10**400, 1, 1], "does not fit"),
    ],
)
async def test_hostile_vectors_are_refused(u: dgent.Universe, vector: Any, message: str) -> None:
    faces = u.vectors("faces", dim=3)
    with pytest.raises(InputError, match=message) as refused:
        await faces.add(vector)
    assert refused.value.details["field"] == "vector"
    with pytest.raises(InputError, match=message):
        await faces.search(vector)
    with pytest.raises(InputError) as refused:
        await faces.add_many([[1, 2, 3], vector])
    assert refused.value.details["field"] == "vectors[1]"
    assert await faces.count() == 0


async def test_zeros_and_extremes(u: dgent.Universe) -> None:
    for metric, k in (("dot", 4), ("l2", 4)):
        points = u.vectors(metric, dim=2, metric=metric)  # type: ignore[arg-type]
        await points.add_many(
            [[0, 0], [3e38, 3e38], [1e-40, 0], [-3e38, 1]], ["zero", "huge", "tiny", "left"]
        )
        for waits in (True, False):
            found = await points.search([1e-3, 0], k)
            assert len(found) == 4 and all(math.isfinite(hit.score) for hit in found), waits
            assert found[0].id == ("huge" if metric == "dot" else "tiny")
            await u.backend.fill(f"vector.{metric}", u.contracts)


async def test_k_and_lists_are_checked(u: dgent.Universe) -> None:
    faces = u.vectors("faces", dim=2)
    for k in (0, -1, 1.5, "3", 10**6):
        with pytest.raises(InputError, match="k is"):
            await faces.search([1, 2], k)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 vectors and 1 ids"):
        await faces.add_many([[1, 2], [3, 4]], ["one"])
    with pytest.raises(InputError, match="metadata must be a dict"):
        await faces.add([1, 2], metadata=[1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"holds 'vector\.faces'"):
        await faces.search([1, 2], schema="note")
    assert await faces.add_many([]) == []


async def test_records_that_hold_no_vector_are_passed_over(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    faces = u.vectors("faces", dim=2)
    await faces.add([1, 0], "good")
    contents = {"empty": b"", "short": b"abc", "nan": np.array([np.nan, 1], "f4").tobytes(), "zero": bytes(8)}
    for id, content in contents.items():
        await u.put(dgent.Datum(id, schema="vector.faces", schema_version=1, data={}, content=content))
    for _ in range(2):
        assert [hit.id for hit in await faces.search([1, 1])] == ["good"]
        await u.backend.fill("vector.faces", u.contracts)
    await u.put(dgent.Datum("good", schema="vector.faces", schema_version=1, data={}, content=b"no more"))
    assert await faces.search([1, 1]) == []
    await u.backend.fill("vector.faces", u.contracts)
    assert await faces.search([1, 1]) == []
