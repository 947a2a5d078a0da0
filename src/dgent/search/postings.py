"""Pages of postings: which records have a word, how often, and how long these records are.

A page holds records in the order of their keys, at most PAGE bytes, in columns that are read without a loop:
the lowest bytes of the keys, counted from the first, then the next ones as far as they are needed, the counts
and the lengths. Its first byte says how many bytes of a key there are.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, islice
from operator import lt
from typing import NamedTuple

from dgent.errors import Corrupt

PAGE = 960  # bytes, so that four rows fit in a page of SQLite and none needs another one
_LANE = 4  # bytes of a key at most, counted from the first one
_SPAN = 1 << 8 * _LANE
_SWAPPED = sys.byteorder == "big"


Changes = dict[int, tuple[int, int] | None]
"""How often each record has a word and its length byte, by record key; None for one that no longer has it."""


class Postings(NamedTuple):
    """Records that have a word: their keys, in order if they are a page, and the count and size of each."""

    keys: list[int]
    counts: bytes
    sizes: bytes

    @property
    def is_ordered(self) -> bool:
        """True if the keys ascend."""
        return all(map(lt, self.keys, islice(self.keys, 1, None)))

    def sort(self) -> Postings:
        """Return the same in the order of their keys."""
        if self.is_ordered:
            return self
        keys, counts, sizes = zip(*sorted(zip(*self, strict=True)), strict=True)
        return Postings(list(keys), bytes(counts), bytes(sizes))

    def slice(self, part: slice) -> Postings:
        """Return some of them."""
        return Postings(self.keys[part], self.counts[part], self.sizes[part])

    def select(self, chosen: Iterable[object]) -> Postings:
        """Return those for which an object is true."""
        chosen = list(chosen)
        return Postings(
            [*compress(self.keys, chosen)],
            bytes(compress(self.counts, chosen)),
            bytes(compress(self.sizes, chosen)),
        )


def pack(page: Postings) -> tuple[int, bytes]:
    """Return the first key of a page, and its bytes."""
    first = page.keys[0]
    offsets = array("I", [key - first for key in page.keys])
    if _SWAPPED:
        offsets.byteswap()
    raw, width = offsets.tobytes(), _width(page.keys[-1] - first)
    columns = (raw[place::_LANE] for place in range(width))
    return first, b"".join((bytes((width,)), *columns, page.counts, page.sizes))


def _width(span: int) -> int:
    return (span.bit_length() + 7) // 8


def unpack(first: int, raw: bytes) -> Postings:
    """Return the page of some bytes."""
    return unpack_all(((first, raw),))


def unpack_all(pages: Iterable[tuple[int, bytes]]) -> Postings:
    """Return what is in some pages, given the first key and the bytes of each."""
    found: list[int] = []
    keys: list[bytes] = []
    counts: list[bytes] = []
    sizes: list[bytes] = []
    for first, raw in pages:
        width = raw[0] if raw else _LANE + 1
        count, rest = divmod(len(raw) - 1, width + 2)
        if rest or not count or width > _LANE or (count > 1 and not width):
            hint = "`dgent doctor --deep --fix` builds it again"
            raise Corrupt("a page of the text index is damaged", hint=hint)
        lanes = bytearray(_LANE * count)
        for place in range(width):
            lanes[place::_LANE] = raw[place * count + 1 : (place + 1) * count + 1]
        if first + int.from_bytes(lanes[-_LANE:], "little") < _SPAN:
            # As one number: this adds to all of them at once.
            together = int.from_bytes(lanes, "little") + first * _repeat(count)
            keys.append(together.to_bytes(len(lanes), "little"))
        else:
            found += _integers(keys)
            found += [first + offset for offset in _integers([lanes])]
            keys = []
        counts.append(raw[-2 * count : -count])
        sizes.append(raw[-count:])
    found += _integers(keys)
    return Postings(found, b"".join(counts), b"".join(sizes))


def _integers(raw: Iterable[bytes | bytearray]) -> list[int]:
    found = array("I")
    found.frombytes(b"".join(raw))
    if _SWAPPED:
        found.byteswap()
    return found.tolist()


@lru_cache(maxsize=PAGE // 4)
def _repeat(count: int) -> int:
    """Return a number that has 1 in each of its groups of 32 bits."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def may_have(first: int, raw: bytes, key: int) -> bool:
    """Return whether a page has a record; quicker than reading the page."""
    offset, width = key - first, raw[0] if raw else 0
    if offset <= 0 or _width(offset) > width:
        return offset == 0
    count = (len(raw) - 1) // (width + 2)
    wanted = offset.to_bytes(width, "little")
    at = raw.find(wanted[0], 1, count + 1)
    while at > 0:
        if raw[at : at + width * count : count] == wanted:
            return True
        at = raw.find(wanted[0], at + 1, count + 1)
    return False


def change(page: Postings | None, changes: Mapping[int, tuple[int, int] | None]) -> list[Postings]:
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
    counts, sizes = zip(*map(found.__getitem__, keys), strict=True)
    made = Postings(keys, bytes(counts), bytes(sizes))
    if keys[-1] in changes or _end_of_page(keys, 0) == len(keys):
        return extend(None, made)
    # New records come at the end, where full pages stay full; one that grows inside is split evenly.
    middle = len(keys) // 2
    return [page for part in (slice(middle), slice(middle, None)) for page in extend(None, made.slice(part))]


def _is_after(changes: Mapping[int, tuple[int, int] | None], last: int) -> bool:
    return min(changes) > last and None not in changes.values()


def _append(page: Postings, changes: Mapping[int, tuple[int, int] | None]) -> list[Postings]:
    """Return a page with newer records, and another one if these do not fit."""
    added = [(key, *posting) for key, posting in sorted(changes.items()) if posting is not None]
    keys, counts, sizes = zip(*added, strict=True)
    return extend(page, Postings(list(keys), bytes(counts), bytes(sizes)))


def extend(page: Postings | None, added: Postings) -> list[Postings]:
    """Return the pages that follow from one page, if there is one, and newer records in order."""
    if page is not None:
        added = Postings(page.keys + added.keys, page.counts + added.counts, page.sizes + added.sizes)
    pages: list[Postings] = []
    start = 0
    while start < len(added.keys):
        end = _end_of_page(added.keys, start)
        pages.append(added.slice(slice(start, end)))
        start = end
    return pages


def _end_of_page(keys: Sequence[int], start: int) -> int:
    """Return where a page ends that begins at a key: the closer the keys are, the more fit in."""
    for width in range(2, _LANE + 1):
        end = min(start + PAGE // (width + 2), len(keys))
        if _width(keys[end - 1] - keys[start]) <= width:
            return end
    return bisect_left(keys, keys[start] + _SPAN)
