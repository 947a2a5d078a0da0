"""Records of a conversation lend each other their words.

An answer seldom repeats the words of its question, so a record is also scored by what stands around it: to
its own score is added, for each word of the search, the best part that the word has in the record or within
REACH records of the same thread. Only the CANDIDATES best by their own words and their neighbours need to be
looked at; more did not change recall in what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

REACH = 2
CANDIDATES = 50


def neighbours(place: int, count: int) -> range:
    """Return the places that lend words to a place, itself too, in a thread of `count` records."""
    return range(max(0, place - REACH), min(count, place + REACH + 1))


def best_parts(records: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return each word's best part among records, given the parts of each."""
    best: dict[str, float] = {}
    for parts in records:
        for word, part in parts.items():
            if part > best.get(word, 0.0):
                best[word] = part
    return best


def score_in_thread(own: Mapping[str, float], window: Iterable[Mapping[str, float]]) -> float:
    """Return a record's score from the parts of its words, and those of all records in its window."""
    return sum(own.values()) + sum(best_parts(window).values())
