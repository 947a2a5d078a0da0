"""Pages of postings: which records have a word, how often, and how long these records are.

A page holds at most PAGE records in the order of their keys, in three columns that are read without a loop.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dgent.errors import Corrupt

PAGE = 160
_WIDTH = 6  # bytes of a record: 4 of its key, counted from the first, its count and its size
_SPAN = 1 << 32
_SWAPPED = sys.byteorder == "big"


Changes = dict[int, tuple[int, int] | None]
"""How often each record has a word and its length byte, by record key; None for one that no longer has it."""


class WordPage(NamedTuple):
    """Some of the records that have a word: keys in order, and the count and size of each."""

    keys: list[int]
    counts: bytes
    sizes: bytes


def pack(page: WordPage) -> tuple[int, bytes]:
    """Return the first key of a page, and its bytes."""
    first = page.keys[0]
    offsets = array("I", [key - first for key in page.keys])
    if _SWAPPED:
        offsets.byteswap()
    return first, b"".join((offsets.tobytes(), page.counts, page.sizes))


def unpack(first: int, raw: bytes) -> WordPage:
    """Return the page of some bytes."""
    count, rest = divmod(len(raw), _WIDTH)
    if rest or not count:
        raise Corrupt(
            "a page of the text index is damaged", hint="`dgent doctor --deep --fix` builds it again"
        )
    offsets = array("I")
    offsets.frombytes(raw[: 4 * count])
    if _SWAPPED:
        offsets.byteswap()
    return WordPage([first + offset for offset in offsets], raw[4 * count : 5 * count], raw[5 * count :])


def may_have(first: int, raw: bytes, key: int) -> bool:
    """Return whether a page may have a record; quicker than reading the page."""
    offset = key - first
    return 0 <= offset < _SPAN and offset.to_bytes(4, "little") in raw[: len(raw) // _WIDTH * 4]


def change(page: WordPage | None, changes: Mapping[int, tuple[int, int] | None]) -> list[WordPage]:
    """Return the pages that follow from one page and changes of records in it; None removes a record."""
    if page is not None and _is_after(changes, page.keys[-1]):
        return _append(page, changes)
    found: dict[int, tuple[int, int]] = (
        {} if page is None else dict(zip(page.keys, zip(page.counts, page.sizes, strict=True), strict=True))
    )
    for key, posting in changes.items():
        if posting is None:
            found.pop(key, None)
        else:
            found[key] = posting
    keys = sorted(found)
    if not keys:
        return []
    # New records come at the end, where full pages stay full; one that grows inside is split evenly.
    parts = 1 if keys[-1] in changes else -(-len(keys) // PAGE)
    return list(_split(keys, found, PAGE if parts == 1 else -(-len(keys) // parts)))


def _is_after(changes: Mapping[int, tuple[int, int] | None], last: int) -> bool:
    return min(changes) > last and None not in changes.values()


def _append(page: WordPage, changes: Mapping[int, tuple[int, int] | None]) -> list[WordPage]:
    """Return a page with newer records, and another one if these do not fit."""
    added = [(key, posting) for key, posting in sorted(changes.items()) if posting is not None]
    room = PAGE - len(page.keys) if added[-1][0] - page.keys[0] < _SPAN else 0
    here = WordPage(
        page.keys + [key for key, _ in added[:room]],
        page.counts + bytes(posting[0] for _, posting in added[:room]),
        page.sizes + bytes(posting[1] for _, posting in added[:room]),
    )
    rest = dict(added[room:])
    return [here, *(_split(list(rest), rest, PAGE) if rest else ())]


def _split(keys: list[int], found: Mapping[int, tuple[int, int]], size: int) -> Iterable[WordPage]:
    start = 0
    while start < len(keys):
        end = min(start + size, len(keys), bisect_left(keys, keys[start] + _SPAN))
        some = keys[start:end]
        yield WordPage(some, bytes(found[key][0] for key in some), bytes(found[key][1] for key in some))
        start = end
