"""Join the ranking of a search by words with that of a search by meaning.

A leg that is sure of nothing must not push aside one that is, and ranks do not say how sure a leg is. By
meaning, a record's part is its cosine, which is on one scale for all searches. By words, it is its share of
the best score, times the share by which the best one stands out from the candidate at place CANDIDATES: where
all have about the same words, these decide about nothing. A record that one leg did not find is taken to be
as good there as the last one that it did find; while records wait for their vectors, one that only words find
is taken to be as near as those that both find are on average, since it may just be new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

CANDIDATES = 50


class JoinedScore(NamedTuple):
    """The score of a record in a joint ranking, and what words and meaning add to it."""

    score: float
    words: float
    meaning: float


def join_legs(
    words: Mapping[str, float], meaning: Mapping[str, float], limit: int, complete: bool = True
) -> dict[str, JoinedScore]:
    """Return the joint scores of the records of two legs, each given by id with its scores, best first.

    `limit` is how many records a leg was asked for: one with fewer has no others. `complete` says that every
    record has its vector.
    """
    scores = list(words.values())
    best, factor, last = scores[0] if scores else 0.0, 0.0, 0.0
    if best > 0:
        floor = scores[CANDIDATES - 1] if len(scores) >= CANDIDATES else 0.0
        factor = (1 - floor / best) / best
        last = scores[-1] if len(scores) >= limit else 0.0
    furthest = min(meaning.values(), default=0.0)
    both = [score for id, score in meaning.items() if id in words]
    usual = furthest if complete or not both else sum(both) / len(both)
    found: dict[str, JoinedScore] = {}
    for id in dict.fromkeys((*words, *meaning)):
        one, other = words.get(id, last) * factor, meaning.get(id, usual)
        # Rounded: the last bits of a sum must not decide which of two equal records is first.
        found[id] = JoinedScore(round(one + other, 9), one, other)
    return found
