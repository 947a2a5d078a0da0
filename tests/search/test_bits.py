"""Vectors in numbers: rotations keep lengths, bits say how near vectors are, snapshots never change."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dgent.model.vector import METRICS, Metric, bit_count, row_size
from dgent.search import bits, vectors
from dgent.search.bits import Segment, Snapshot, make_segment
from dgent.search.vectors import Coder, find_centre, pack_contents, pack_rows, score_exactly, score_rows

DIMS = (1, 3, 64, 100, 384, 1_100)


def some(count: int, dim: int, seed: int = 1) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal((count, dim)).astype("f4")


def scores_of(held: np.ndarray, query: np.ndarray, metric: Metric) -> np.ndarray:
    if metric == "l2":
        return -np.linalg.norm(held - query, axis=1)
    return held @ query / (1 if metric == "dot" else np.linalg.norm(held, axis=1))


@pytest.mark.parametrize("dim", DIMS)
def test_rotations_keep_lengths_and_angles(dim: int) -> None:
    given = some(20, dim)
    turned = vectors.turn(given, 1)
    count = bit_count(dim)
    assert turned.shape == (20, count) and count >= 256 and count % 64 == 0
    times = count / (-(-dim // 64) * 64)
    assert np.allclose(turned @ turned.T, times * (given @ given.T), atol=1e-2 * dim)
    assert np.allclose(turned, vectors._turn_in_rounds(given, 1), atol=1e-3)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", (64, 384))
def test_bits_find_the_nearest_around_a_centre(metric: Metric, dim: int) -> None:
    choose = np.random.RandomState(5)
    spread = 1 / np.sqrt(np.arange(1, dim + 1))
    held = (choose.standard_normal((3_000, dim)) * spread + 0.3).astype("f4")
    if metric != "cosine":
        held *= choose.uniform(0.5, 2, (3_000, 1)).astype("f4")
    rows = pack_rows(held, metric)
    coder = Coder(dim, metric, 1, find_centre(rows, dim))
    snapshot = Snapshot(1, 1, 0, 3_000, (make_segment(range(3_000), range(3_000), coder.encode_rows(rows)),))
    found = []
    for query in (choose.standard_normal((20, dim)) * spread + 0.3).astype("f4"):
        nearest = set(np.argsort(scores_of(held, query, metric))[-10:].tolist())
        chosen = snapshot.find(coder, coder.encode_query(query), 600)
        assert 600 <= len(chosen.keys) <= 700 and not chosen.whole
        found.append(len(nearest & set(chosen.keys)) / 10)
    assert np.mean(found) > 0.95


@pytest.mark.parametrize("metric", METRICS)
def test_scores_of_rows_are_near_and_do_not_depend_on_their_neighbours(metric: Metric) -> None:
    held, (query,) = some(50, 100), some(1, 100, 9)
    rows = pack_rows(held, metric)
    assert {len(row) for row in rows} == {row_size(100)}
    scores = score_rows(rows, query, metric)
    for row, each, score in zip(rows, held, scores, strict=True):
        assert score_rows([row], query, metric)[0] == score
        exact = score_exactly(each, query, metric)
        assert abs(exact - score) <= vectors.score_error(score, each, query, metric)


def test_contents_that_are_no_vectors() -> None:
    good = np.array([1, 2], "<f4").tobytes()
    bad = [b"", b"short", good * 2, np.array([np.inf, 1], "<f4").tobytes()]
    made = pack_contents([good, *bad, bytes(8), good], 2, "cosine")
    assert [each is not None for each in made] == [True, False, False, False, False, False, True]
    assert pack_contents([bytes(8)], 2, "dot") != [None] and pack_contents([], 2, "dot") == []


def test_a_snapshot_is_what_its_changes_say() -> None:
    choose, coder = random.Random(3), Coder(8, "cosine", 1, b"")
    held: dict[int, tuple[int, np.ndarray]] = {}
    snapshot, slot = Snapshot(1, 0, 0, 0), 0
    for step in range(200):
        gone = choose.sample(sorted(held), min(len(held), choose.randrange(4)))
        new = [
            *choose.sample(gone, len(gone) // 2),
            *range(1_000 + step * 10, 1_000 + step * 10 + choose.randrange(4)),
        ]
        rows = some(len(new), 8, step)
        for key in gone:
            del held[key]
        slots = list(range(slot + 1, slot + 1 + len(new)))
        slot += len(new)
        held.update((key, (number, row)) for key, number, row in zip(new, slots, rows, strict=True))
        added = make_segment(slots, new, coder.encode_rows(pack_rows(rows, "cosine"))) if new else None
        before, count = snapshot, snapshot.count()
        snapshot = snapshot.change(slot, gone, added)
        assert before.count() == count and snapshot.count() == len(held) and snapshot.slot == slot
        assert len(snapshot.segments) <= 12
        found = snapshot.find(coder, coder.encode_query(some(1, 8, step)[0]), 10_000)
        assert found.whole and dict(zip(found.keys, found.slots, strict=True)) == {
            k: s for k, (s, _) in held.items()
        }
        allowed = choose.sample(sorted(held), len(held) // 3)
        found = snapshot.find(coder, coder.encode_query(some(1, 8, step)[0]), 10_000, allowed)
        assert sorted(found.keys) == sorted(allowed)


@pytest.mark.parametrize("kind", ["spread", "equal", "few", "infinite"])
def test_the_best_scores_are_all_found(kind: str) -> None:
    choose = np.random.RandomState(2)
    scores = {
        "spread": choose.standard_normal(5_000),
        "equal": np.zeros(5_000),
        "few": np.where(np.arange(5_000) % 61 == 0, 1.0, choose.standard_normal(5_000) - 9),
        "infinite": np.where(np.arange(5_000) < 4_990, -np.inf, 1.0),
    }[kind].astype("f4")
    parts = [scores[:10], scores[10:3_000], scores[3_000:]]
    best, whole = bits._find_best(parts, 100)
    chosen = np.concatenate([part[at] for part, at in zip(parts, best, strict=True)])
    assert not whole and len(chosen) >= 100 and chosen.min() == np.sort(scores)[-100]


def test_memory_is_less_than_a_tenth_of_the_numbers() -> None:
    columns = np.zeros((12, 1_000), np.uint64)
    numbers, radii = np.zeros(1_000, np.int64), np.zeros(1_000, np.float32)
    snapshot = Snapshot(1, 0, 0, 0, (Segment(columns, numbers, numbers, radii, np.ones(1_000, np.bool_)),))
    assert snapshot.size_bytes() < 0.1 * 1_000 * 384 * 4
