"""Pages of postings: what goes in comes out, whatever the keys are, and none is too large for its row."""

from __future__ import annotations

import random

import pytest

from dgent.errors import Corrupt
from dgent.search.postings import PAGE, Postings, change, extend, may_have, pack, unpack, unpack_all


def make(choose: random.Random, count: int, gap: int, first: int, highest: int) -> Postings:
    keys = [first]
    while len(keys) < count:
        keys.append(keys[-1] + choose.randrange(1, gap + 1))
    facts = [bytes(choose.choices(range(256), k=count)) for _ in range(2)]
    return Postings(keys, bytes(choose.choices(range(1, highest + 1), k=count)), *facts)


@pytest.mark.parametrize("gap", [1, 2, 7, 100, 250, 600, 5_000, 2**20])
@pytest.mark.parametrize("first", [1, 2**31, 2**33])
def test_pages_hold_what_was_put_in(gap: int, first: int) -> None:
    choose = random.Random(gap + first)
    for count in (1, 2, 3, 100, 254, 255, 256, 257, 300, 900):
        for highest in (3, 16):
            postings = make(choose, count, gap, first, highest)
            pages = [pack(page) for page in extend(None, postings)]
            found = unpack_all(pages)
            assert found._replace(keys=[*found.keys]) == postings
            assert all(len(raw) <= PAGE + 2 for _, raw in pages)
            for key in (*choose.sample(postings.keys, min(count, 9)), first - 1, postings.keys[-1] + 1):
                there = any(may_have(page_first, raw, key) for page_first, raw in pages)
                assert there is (key in postings.keys)


def test_close_keys_take_less_room() -> None:
    choose = random.Random(3)
    taken = {gap: _measure(make(choose, 2_000, gap, 1, 3)) for gap in (1, 10, 100, 400)}
    assert taken[1] < 3.6 and taken[10] < 3.6 and taken[100] < 4.0 and taken[400] < 4.6


def _measure(postings: Postings) -> float:
    return sum(len(pack(page)[1]) for page in extend(None, postings)) / len(postings.keys)


def test_pages_of_before_are_read() -> None:
    """Each second byte of a key used to stand by itself."""
    keys, facts = [7, 9, 300, 301], (b"\x01\x02\x03\x0f", b"abcd", b"wxyz")
    raw = b"\x02" + b"\x00\x02\x25\x26" + b"\x00\x00\x01\x01" + b"abcd" + b"wxyz" + b"\x21\xf3"
    assert unpack(7, raw) == Postings(keys, *facts)
    assert may_have(7, raw, 300) and not may_have(7, raw, 299)
    assert change(unpack(7, raw), {300: None})[0].keys == [7, 9, 301]


def test_damaged_pages_are_noticed() -> None:
    _, raw = pack(make(random.Random(5), 200, 9, 1, 3))
    assert raw[0] & 16, "a page whose second bytes are counted"
    for damaged in (b"", raw[:1], raw[:2], raw[:9], raw[:-1], raw + b"\0", raw[:2] + b"\xff" + raw[3:]):
        with pytest.raises(Corrupt):
            unpack(1, damaged)
