"""Pages of postings: which records have a word, how often, how long they are, and what stands beside it.

A page holds records in the order of their keys, at most PAGE bytes, in columns that are read without a loop:
the lowest bytes of the keys, counted from the first, then the next ones as far as they are needed, the
lengths, the neighbours and the counts. Its first byte says how many bytes of a key there are. Counts take
half a byte each, or one byte if one of them is above 15, which the first byte says, too. Where keys take two
bytes and are close together, the second ones are stored as how many there are of each: their number less
one, then a byte for each from 0 on.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, islice
from operator import lt, mul
from typing import NamedTuple

from dgent.errors import Corrupt
from dgent.search.loaded import find_columns

PAGE = 960  # bytes, so that four rows fit in a page of SQLite and none needs another one
_LANE = 4  # bytes of a key at most, counted from the first one
_SPAN = 1 << 8 * _LANE
_SWAPPED = sys.byteorder == "big"
_WIDE = 8  # in the first byte: counts take a byte each
_STEPS = 16  # in the first byte: the second bytes of keys are counted
_MOST_STEPPED = 255  # records of such a page, so that none of these counts is above a byte
_USUAL = frozenset((b"\2", bytes((2 | _STEPS,))))  # first bytes of most pages
_HALF = 15  # the highest count that takes half a byte
_LOW = bytes(value & _HALF for value in range(256))
_HIGH = bytes(value >> 4 for value in range(256))
_RAISED = bytes((value << 4) & 255 for value in range(256))
_SMALL = bytes(range(_HALF + 1))
_RISING = bytes(range(256))
_SINGLE = [bytes((value,)) for value in range(256)]

Posting = tuple[int, int, int]
"""The count of a word in a record, its length byte, and the neighbours of the word."""

Changes = dict[int, Posting | None]
"""The part of a word in each record, by record key; None for one that no longer has it."""


class Postings(NamedTuple):
    """Records that have a word: their keys, in order if they are a page, and the facts of each.

    `near` has the neighbours of the word in each record, as `words.find_near` says.
    """

    keys: Sequence[int]
    counts: bytes
    sizes: bytes
    near: bytes

    @property
    def is_ordered(self) -> bool:
        """True if the keys ascend."""
        return all(map(lt, self.keys, islice(self.keys, 1, None)))

    def sort(self) -> Postings:
        """Return the same in the order of their keys."""
        return self if self.is_ordered else make_postings(sorted(zip(*self, strict=True)))

    def slice(self, part: slice) -> Postings:
        """Return some of them."""
        return Postings(self.keys[part], self.counts[part], self.sizes[part], self.near[part])

    def select(self, chosen: Iterable[object]) -> Postings:
        """Return those for which an object is true."""
        chosen = list(chosen)
        return Postings(
            [*compress(self.keys, chosen)],
            bytes(compress(self.counts, chosen)),
            bytes(compress(self.sizes, chosen)),
            bytes(compress(self.near, chosen)),
        )

    def to_changes(self) -> Changes:
        """Return the same as changes that add them."""
        return dict(zip(self.keys, zip(self.counts, self.sizes, self.near, strict=True), strict=True))


NONE = Postings([], b"", b"", b"")


def make_postings(found: Iterable[tuple[int, int, int, int]]) -> Postings:
    """Return postings of keys, counts, length bytes and neighbours."""
    columns = [*zip(*found, strict=True)]
    if not columns:
        return NONE
    keys, counts, sizes, near = columns
    return Postings(list(keys), bytes(counts), bytes(sizes), bytes(near))


def join_postings(some: Sequence[Postings]) -> Postings:
    """Return several postings as one, in their order."""
    if len(some) == 1:
        return some[0]
    keys: array[int] | list[int] = []
    if all(isinstance(each.keys, array) and each.keys.itemsize == _LANE for each in some):
        keys = array("I")
    for each in some:
        keys.extend(each.keys)
    return Postings(
        keys,
        b"".join([each.counts for each in some]),
        b"".join([each.sizes for each in some]),
        b"".join([each.near for each in some]),
    )


def pack(page: Postings) -> tuple[int, bytes]:
    """Return the first key of a page, and its bytes."""
    first = page.keys[0]
    raw, width = _count_from(first, page.keys), _width(page.keys[-1] - first)
    columns = [raw[place::_LANE] for place in range(width)]
    wide = _is_wide(page.counts)
    counts = page.counts if wide else _narrow(page.counts)
    head = width | wide
    if width == 2 and columns[1][-1] + 2 < len(columns[1]) <= _MOST_STEPPED:
        head |= _STEPS
        last = columns[1][-1]
        columns = [_SINGLE[last], _count_each(columns[1], last), columns[0]]
    return first, b"".join((bytes((head,)), *columns, page.sizes, page.near, counts))


def _count_each(column: bytes, last: int) -> bytes:
    """Return how often each value is in a column, from 0 to the last one."""
    if columns := find_columns():
        counted: bytes = columns.count_each(column)
        return counted
    return bytes(map(column.count, range(last + 1)))


def _count_from(first: int, keys: Sequence[int]) -> bytes:
    """Return the keys of a page, counted from the first one, in four bytes each."""
    if isinstance(keys, array) and keys.itemsize == _LANE and not _SWAPPED:
        # As one number: this counts all of them at once.
        together = int.from_bytes(keys.tobytes(), "little") - first * _repeat(len(keys))
        return together.to_bytes(_LANE * len(keys), "little")
    offsets = array("I", [key - first for key in keys])
    if _SWAPPED:
        offsets.byteswap()
    return offsets.tobytes()


def _width(span: int) -> int:
    return (span.bit_length() + 7) // 8


def _is_wide(counts: bytes) -> int:
    return _WIDE if counts.translate(None, _SMALL) else 0


def _narrow(counts: bytes) -> bytes:
    """Return counts in half a byte each."""
    if len(counts) == 1:
        return counts
    low, high = counts[::2], counts[1::2].translate(_RAISED)
    # As one number: this joins all of them at once.
    both = int.from_bytes(low, "little") | int.from_bytes(high, "little")
    return both.to_bytes(len(low), "little")


def _widen(halves: bytes, count: int) -> bytes:
    counts = bytearray(2 * len(halves))
    counts[::2] = halves.translate(_LOW)
    counts[1::2] = halves.translate(_HIGH)
    return bytes(counts[:count])


def _measure(raw: bytes) -> tuple[int, int, int, int]:
    """Return how many bytes of each key follow in columns, how many records, and where the columns begin.

    The last one says whether counts are whole bytes.
    """
    head = raw[0] if raw else _LANE + 1
    width, wide, start = head & ~(_WIDE | _STEPS), head & _WIDE, 1
    if head & _STEPS:
        start = raw[1] + 3 if len(raw) > 1 and width == 2 else len(raw) + 1
        width = 1
    body = len(raw) - start
    count = body // (width + 3) if wide else 2 * body // (2 * width + 5)
    taken = count * (width + 3) if wide else count * (width + 2) + (count + 1) // 2
    if (
        taken != body
        or count < 1
        or width > _LANE
        or (count > 1 and not width)
        or (start > 1 and sum(raw[2:start]) != count)
    ):
        hint = "`dgent doctor --deep --fix` builds it again"
        raise Corrupt("a page of the text index is damaged", hint=hint)
    return width, count, start, wide


def _read_lanes(raw: bytes, width: int, count: int, start: int) -> bytearray:
    """Return the keys of a page, counted from the first one, in four bytes each."""
    lanes = bytearray(_LANE * count)
    for place in range(width):
        lanes[place::_LANE] = raw[start + place * count : start + (place + 1) * count]
    if start > 1:
        lanes[1::_LANE] = b"".join(map(mul, _SINGLE, raw[2:start]))
    return lanes


def unpack(first: int, raw: bytes) -> Postings:
    """Return the page of some bytes."""
    found = unpack_all(((first, raw),))
    return found._replace(keys=[*found.keys])


def unpack_all(pages: Iterable[tuple[int, bytes]]) -> Postings:
    """Return what is in some pages, given the first key and the bytes of each; the keys are in an array."""
    pages = [*pages]
    if all(raw[:1] in _USUAL and first < _SPAN >> 1 for first, raw in pages):
        return _unpack_usual(pages)
    return _unpack_each(pages)


def _unpack_usual(pages: Iterable[tuple[int, bytes]]) -> Postings:
    """Return what is in pages whose keys take two bytes, and their counts half a byte, column by column."""
    columns: tuple[list[bytes], ...] = [], [], [], [], [], []
    low, high, times, sizes, near, halves = columns  # `times`: of how many records each second byte is
    firsts: list[int] = []
    records: list[int] = []
    parts: list[slice] = []
    end = 0
    for first, raw in pages:
        _, count, start, _ = _measure(raw)
        at = start + count
        low.append(raw[start:at])
        if start > 1:
            high.append(_RISING[: start - 2])
            times.append(raw[2:start])
        else:
            high.append(raw[at : at + count])
            times.append(b"\1" * count)
            at += count
        firsts.append(first)
        records.append(count)
        sizes.append(raw[at : at + count])
        near.append(raw[at + count : at + 2 * count])
        halves.append(raw[at + 2 * count :])
        parts.append(slice(end, end + count))
        end += count + count % 2
    counts = _widen(b"".join(halves), end)
    add_up = add_up_keys if (found := find_columns()) is None else found.add_up_keys
    keys = add_up(firsts, records, b"".join(low), high, times)
    return Postings(
        _integers((keys,)), b"".join(map(counts.__getitem__, parts)), b"".join(sizes), b"".join(near)
    )


def add_up_keys(
    firsts: Sequence[int], records: Sequence[int], low: bytes, high: Sequence[bytes], times: Sequence[bytes]
) -> bytes:
    """Return the keys of pages, four bytes each, given the first one and the number of records of each page.

    `low` has the lowest bytes of all keys, `high` the next ones in each page, each as often as `times` says:
    one for each record, or all from 0 on.
    """
    added = b"".join(
        [first.to_bytes(_LANE, "little") * count for first, count in zip(firsts, records, strict=True)]
    )
    lanes = bytearray(len(added))
    lanes[::_LANE] = low
    lanes[1::_LANE] = b"".join(
        [
            values if len(values) == count else b"".join(map(mul, _SINGLE, each))
            for values, each, count in zip(high, times, records, strict=True)
        ]
    )
    # As one number: this adds to all of them at once.
    together = int.from_bytes(lanes, "little") + int.from_bytes(added, "little")
    return together.to_bytes(len(added), "little")


def _unpack_each(pages: Iterable[tuple[int, bytes]]) -> Postings:
    """Return what is in pages of any form, one after the other."""
    found: array[int] | None = None  # of eight bytes each, if there are keys that need them
    keys: list[bytes] = []
    counts: list[bytes] = []
    sizes: list[bytes] = []
    near: list[bytes] = []
    for first, raw in pages:
        width, count, start, wide = _measure(raw)
        lanes = _read_lanes(raw, width, count, start)
        if first + int.from_bytes(lanes[-_LANE:], "little") < _SPAN:
            # As one number: this adds to all of them at once.
            together = int.from_bytes(lanes, "little") + first * _repeat(count)
            keys.append(together.to_bytes(len(lanes), "little"))
        else:
            found = found or array("Q")
            found.extend(_integers(keys).tolist())
            found.extend(first + offset for offset in _integers([lanes]))
            keys = []
        at = start + width * count
        sizes.append(raw[at : at + count])
        near.append(raw[at + count : at + 2 * count])
        counts.append(raw[at + 2 * count :] if wide else _widen(raw[at + 2 * count :], count))
    if found is None:
        found = _integers(keys)
    else:
        found.extend(_integers(keys).tolist())
    return Postings(found, b"".join(counts), b"".join(sizes), b"".join(near))


def _integers(raw: Iterable[bytes | bytearray]) -> array[int]:
    found = array("I")
    found.frombytes(b"".join(raw))
    if _SWAPPED:
        found.byteswap()
    return found


@lru_cache(maxsize=PAGE // 3)
def _repeat(count: int) -> int:
    """Return a number that has 1 in each of its groups of 32 bits."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def may_have(first: int, raw: bytes, key: int) -> bool:
    """Return whether a page has a record; quicker than reading the page."""
    width, count, start, _ = _measure(raw)
    offset = key - first
    if start > 1:
        lanes = _read_lanes(raw, width, count, start)
        return 0 <= offset < _SPAN and offset in _integers((lanes,))
    if offset <= 0 or _width(offset) > width:
        return offset == 0
    wanted = offset.to_bytes(width, "little")
    at = raw.find(wanted[0], 1, count + 1)
    while at > 0:
        if raw[at : at + width * count : count] == wanted:
            return True
        at = raw.find(wanted[0], at + 1, count + 1)
    return False


def change(page: Postings | None, changes: Mapping[int, Posting | None]) -> list[Postings]:
    """Return the pages that follow from one page and changes of records in it; None removes a record."""
    if page is not None and _is_after(changes, page.keys[-1]):
        return extend(page, _to_postings(changes))
    found: Changes = {} if page is None else page.to_changes()
    found |= changes
    made = _to_postings(found)
    keys = made.keys
    if not keys:
        return []
    if keys[-1] in changes or _end_of_page(made, 0) == len(keys):
        return extend(None, made)
    # New records come at the end, where full pages stay full; one that grows inside is split evenly.
    middle = len(keys) // 2
    return [page for part in (slice(middle), slice(middle, None)) for page in extend(None, made.slice(part))]


def _is_after(changes: Mapping[int, Posting | None], last: int) -> bool:
    return min(changes) > last and None not in changes.values()


def _to_postings(changes: Mapping[int, Posting | None]) -> Postings:
    """Return the postings that changes add, in the order of their keys."""
    return make_postings((key, *each) for key, each in sorted(changes.items()) if each is not None)


def extend(page: Postings | None, added: Postings) -> list[Postings]:
    """Return the pages that follow from one page, if there is one, and newer records in order."""
    if page is not None:
        added = join_postings((page, added))
    pages: list[Postings] = []
    start = 0
    while start < len(added.keys):
        end = _end_of_page(added, start)
        pages.append(added if start == 0 and end == len(added.keys) else added.slice(slice(start, end)))
        start = end
    return pages


def _end_of_page(found: Postings, start: int) -> int:
    """Return where a page ends that begins at a place: the closer the keys are, the more fit in."""
    keys = found.keys
    end = min(start + _MOST_STEPPED, len(keys))
    steps = (keys[end - 1] - keys[start] >> 8) + 2
    room = PAGE - steps
    fit = room // 4 if _is_wide(found.counts[start:end]) else 2 * room // 7
    if steps <= 257 and fit > 2 * PAGE // 9:
        return min(start + fit, end)
    for width in range(2, _LANE + 1):
        end = min(start + 2 * PAGE // (2 * width + 5), len(keys))
        if _is_wide(found.counts[start:end]):
            end = min(start + PAGE // (width + 3), len(keys))
        if _width(keys[end - 1] - keys[start]) <= width:
            return end
    return bisect_left(keys, keys[start] + _SPAN, start)
