"""Scores of records for the words of a search: BM25, with fields by weight.

A record's score is the sum of its words' parts, `idf(total, having) * saturate(count, norm)`. With several
fields a word counts as often as the weight of its field says, and so does the length (the simple form of
BM25F), so that an index stores one count and one length for a word of a record, however many fields it has.

Lengths are stored in one byte: exact below 32 words, then 16 steps to each doubling, within 1 in 32, up to
half a million words; longer texts count as that long.
"""

from __future__ import annotations

import math
from functools import lru_cache

K1 = 0.9  # how soon further occurrences of a word add little
B = 0.4  # how much long texts lose, from 0 to 1

_EXACT = 32
_STEPS = 16


def encode_length(words: int) -> int:
    """Return a length in words as one byte."""
    if words < _EXACT:
        return words
    shift = words.bit_length() - 5
    return min(_STEPS * shift + (words >> shift), 255)


def _decode_length(byte: int) -> int:
    if byte < _EXACT:
        return byte
    shift = byte // _STEPS - 1
    return ((byte % _STEPS + _STEPS) << shift) + (1 << shift >> 1)


LENGTHS = tuple(map(_decode_length, range(256)))
"""The length in words that each byte stands for: the middle of its step."""


@lru_cache(maxsize=64)
def norms(mean: float) -> tuple[float, ...]:
    """Return the norm of each length byte, where records have `mean` words on average."""
    mean = mean or 1.0
    return tuple(K1 * (1 - B + B * length / mean) for length in LENGTHS)


def idf(total: int, having: int) -> float:
    """Return the weight of a word that `having` of `total` records have: the rarer, the higher; above 0.

    Counts of an index may be a little behind each other, so more than all is taken for all.
    """
    having = min(having, total)
    return math.log(1 + (total - having + 0.5) / (having + 0.5))


def saturate(count: int, norm: float) -> float:
    """Return the weight of a word that occurs so often in a record: 0 for never, towards 1 for many times."""
    return count / (count + norm)
