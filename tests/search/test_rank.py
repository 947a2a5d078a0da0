"""Ranking finds the same records with the same scores as adding up all postings, whatever it leaves out."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial

import numpy
import pytest

from dgent.errors import Corrupt
from dgent.search import join, rank
from dgent.search.postings import Posting, Postings, change, may_have, pack, unpack, unpack_all
from dgent.search.rank import Ranking
from dgent.search.score import idf, norms, saturate
from tests.soak import times

Found = dict[str, list[Postings]]


def draw(choose: random.Random) -> Found:
    """Postings of some words; few lengths and counts, so that many records have the same score."""
    records = choose.choice((5, 40, 400))
    first = choose.choice((1, 1 << 33, (1 << 32) - 100))
    sizes = {key: choose.choice((3, 3, 9, 70, 200)) for key in range(first, first + records)}
    found: Found = {}
    for number in range(choose.choice((1, 2, 3, 5, 9))):
        share = choose.choice((0.0, 0.01, 0.1, 0.5, 0.9, 1.0))
        most = choose.choice((1, 1, 2, 3, 30, 255))
        near = choose.choice((1, 3, 255))
        having = {key: choose.randint(1, most) for key in sizes if choose.random() < share}
        apart = {key: choose.randrange(3) if number % 2 else 0 for key in having}
        is_narrow = first + records < 1 << 32
        make: Callable[[list[int]], Sequence[int]] = choose.choice(
            (list, partial(array, "Q"), partial(array, "I" if is_narrow else "Q"))
        )
        found[f"w{number}"] = [
            Postings(
                keys := make([key for key in having if apart[key] == part]),
                bytes(having[key] for key in keys),
                bytes(sizes[key] for key in keys),
                bytes(choose.randrange(near + 1) for _ in keys),
            )
            for part in range(3)
        ]
    return found


def add_up(
    found: Found, total: int, norm: tuple[float, ...], required: dict[str, int]
) -> list[tuple[float, int]]:
    """Return all records with their scores, by the book."""
    scores: dict[int, float] = {}
    having: dict[str, dict[int, int]] = {
        name: {key: near for some in places for key, near in zip(some.keys, some.near, strict=True)}
        for name, places in found.items()
    }
    for name, places in found.items():
        rarity = idf(total, len(having[name]))
        for some in places:
            for key, count, size, _ in zip(*some, strict=True):
                scores[key] = scores.get(key, 0.0) + rarity * saturate(count, norm[size])
    left = (
        each
        for each in scores.items()
        if all(having[name].get(each[0], -1 ^ near) & near == near for name, near in required.items())
        and all(each[0] in having[name] for name in required)
    )
    return sorted(((score, key) for key, score in left), reverse=True)


@pytest.fixture(params=["numpy", "plain"])
def joined_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have postings joined by numpy, or as in a program that has not loaded it."""
    monkeypatch.setitem(sys.modules, "numpy", numpy if request.param == "numpy" else None)
    return str(request.param)


@pytest.mark.usefixtures("joined_by")
@pytest.mark.parametrize("seed", range(times(20)))
def test_the_best_are_those_of_adding_up_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    monkeypatch.setattr(rank, "_RARE", choose.choice((1, 4, 16)))
    monkeypatch.setattr(rank, "_FEW_RECORDS", choose.choice((5, 200)))
    monkeypatch.setattr(join, "_SPARSE", choose.choice((0, 1, 8)))
    for _ in range(10):
        found = draw(choose)
        some = [name for name in found if choose.random() < 0.2] if choose.random() < 0.3 else []
        required = {name: choose.choice((0, 1, 2)) for name in some}
        norm = norms(choose.choice((1.0, 20.0, 300.0)))
        ranking = Ranking(found, 1000, norm, required)
        expected = add_up(found, 1000, norm, required)
        some_keys = {key for _, key in add_up(found, 1000, norm, {}) if choose.random() < 0.5}
        among = [(each.score, each.record_key) for each in ranking.rank_among(some_keys)]
        by_word = add_up(found, 1000, norm, dict.fromkeys(required, 0))
        assert among == [each for each in by_word if each[1] in some_keys]
        for few in (1, 2, 10, 64, 1000):
            best = ranking.find_best(few)
            assert [(each.score, each.record_key) for each in best] == expected[:few]
            for each in best:
                score = 0.0
                for part in ranking.parts(each.signature).values():
                    score += part
                assert score == each.score


@pytest.mark.usefixtures("joined_by")
def test_many_records_of_the_same_score_come_newest_first() -> None:
    same = Postings(list(range(1, 20_001)), b"\1" * 20_000, b"\5" * 20_000, bytes(20_000))
    best = Ranking({"a": [same], "b": [same]}, 20_000, norms(5.0)).find_best(3)
    assert [each.record_key for each in best] == [20_000, 19_999, 19_998]
    assert len({each.score for each in best}) == 1


@pytest.mark.usefixtures("joined_by")
@pytest.mark.parametrize("first", [0, 7, (1 << 32) - 50, (1 << 32) - 1, 1 << 32, 1 << 50])
def test_pages_are_read_in_one_go(first: int) -> None:
    pages = [
        Postings(
            [at + place * 3 for place in range(count)], bytes((uses,)) * count, b"\7" * count, b"\5" * count
        )
        for at, count, uses in ((first, 1, 1), (first + 5, 41, 15), (first + 200, 160, 16))
    ]
    packed = [pack(page) for page in pages]
    assert [unpack(*each) for each in packed] == pages
    together = unpack_all(packed)
    assert [*together.keys] == [key for page in pages for key in page.keys]
    assert together.counts == b"\1" + b"\17" * 41 + b"\20" * 160
    assert (together.sizes, together.near) == (b"\7" * 202, b"\5" * 202)
    assert [*map(len, unpack_all([]))] == [0, 0, 0, 0]
    for page, (at, raw) in zip(pages, packed, strict=True):
        around = range(first - 3, first + 700)
        assert [key for key in around if may_have(at, raw, key)] == page.keys
    for wrong in (b"", b"\0", b"\0\1\1\1\1", b"\5" * 8, b"\4" + b"\0" * 6, b"\15" * 9, b"\x0a" + b"\0" * 6):
        with pytest.raises(Corrupt):
            unpack_all([*packed, (first, wrong)])


@pytest.mark.usefixtures("joined_by")
@pytest.mark.parametrize("step", [1, 300, 90_000, 1 << 25])
def test_pages_are_changed_as_a_map_is(step: int) -> None:
    choose = random.Random(step)
    expected: dict[int, Posting] = {}
    pages: dict[int, bytes] = {}
    last = 0
    for _ in range(times(60)):
        changes: dict[int, Posting | None] = {}
        most = choose.choice((3, 15, 255))
        for _ in range(choose.choice((1, 5, 300))):
            if expected and choose.random() < 0.3:
                key = choose.choice(list(expected))
                changes[key] = choose.choice((None, (3, 9, 7)))
            else:
                last += choose.randint(1, step)
                changes[last] = choose.randint(1, most), choose.randint(0, 255), choose.randint(0, 255)
        for at in [*sorted(pages)] or [0]:
            later = min((other for other in pages if other > at), default=1 << 60)
            here = {
                key: each
                for key, each in sorted(changes.items())
                if (at <= key or at == min(pages, default=0)) and key < later
            }
            if here:
                made = change(unpack(at, pages[at]) if at in pages else None, here)
                pages.pop(at, None)
                pages |= dict(map(pack, made))
                assert all(len(raw) <= 961 for raw in pages.values())
        for key, posting in changes.items():
            expected.pop(key, None)
            if posting is not None:
                expected[key] = posting
        found = unpack_all(sorted(pages.items()))
        assert found.to_changes() == expected
        assert found.is_ordered
