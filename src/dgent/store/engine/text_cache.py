"""Postings that searches have read from the pages of words, for the next ones with the same words.

They hold as long as the pages do, which the counts of an index say: every write of pages changes these. Of
each posting seven bytes are kept, and of all at most MOST_POSTINGS, those that were asked for last.
"""

from __future__ import annotations

from typing import NamedTuple

from dgent.search.postings import Postings
from dgent.store.engine.text import TextStats

MOST_POSTINGS = 2_000_000  # 14 MB

Word = tuple[int, bytes]
"""A word of an index."""

Version = tuple[int, int, str, int]
"""The state of the pages of an index: no two states have the same one."""


class _Kept(NamedTuple):
    version: Version
    postings: Postings


def version_of(stats: TextStats) -> Version:
    """Return the state of the pages of an index from its counts."""
    return stats.merged, stats.merging, stats.done, stats.erased


class PageCache:
    """Postings of pages, by index and words.

    Threads may share it: each step is one of a dictionary. What was not asked for while half of the room was
    filled with others goes.
    """

    def __init__(self, most: int = MOST_POSTINGS) -> None:
        self._most = most
        self._recent: dict[Word, _Kept] = {}
        self._older: dict[Word, _Kept] = {}
        self._count = 0  # postings among the recent ones

    def has(self, asked: Word, version: Version) -> bool:
        """Check whether the postings of some words are here."""
        found = self._recent.get(asked) or self._older.get(asked)
        return found is not None and found.version == version

    def get(self, asked: Word, version: Version) -> Postings | None:
        """Return the postings of some words; None if they are not here, or the pages have changed since."""
        found = self._recent.get(asked)
        if found is None:
            found = self._older.get(asked)
            if found is not None and found.version == version:
                self._keep(asked, found)
        return None if found is None or found.version != version else found.postings

    def add(self, asked: Word, version: Version, found: Postings) -> None:
        """Keep the postings of some words, as long as there is room."""
        if len(found.counts) < self._most // 2:
            self._keep(asked, _Kept(version, found))

    def _keep(self, asked: Word, found: _Kept) -> None:
        taken = len(found.postings.counts) + 1
        self._count += taken
        if self._count > self._most // 2:
            self._older, self._recent, self._count = self._recent, {}, taken
        self._recent[asked] = found
