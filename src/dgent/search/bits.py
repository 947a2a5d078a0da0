"""The bits of all vectors of an index in memory, column by column, and the search for the nearest.

Everything here is immutable: a change makes another value that shares most of its arrays. So any number of
threads may search while another one brings them up to date.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgent.model.vector import bit_count
from dgent.search.vectors import Coder, Floats, Signs

_CHUNK = 32_768  # so many vectors are compared at once, column by column, close to the processor
_SUMMED = 3  # so many columns of 64 bits can be counted in a byte
_STEP = 61  # every so many scores show about how good the best are
_SPARSE = 4  # bits are compared one by one if only one vector in so many may be in the answer
_ENTRY = [("slot", "<i8"), ("key", "<i8"), ("radius", "<f4")]


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """The bits of some vectors in columns, with the slot and the record of each."""

    columns: NDArray[np.uint64]  # 64 bits of every vector after another
    slots: NDArray[np.int64]
    keys: NDArray[np.int64]
    radii: Floats
    alive: NDArray[np.bool_] | None  # None: all

    def __len__(self) -> int:
        return len(self.slots)

    def without(self, gone: NDArray[np.int64]) -> Segment:
        """Return the segment without some records."""
        dead = np.isin(self.keys, gone)
        if not dead.any():
            return self
        alive = ~dead if self.alive is None else self.alive & ~dead
        return replace(self, alive=alive)

    def count(self) -> int:
        """Return how many vectors are alive."""
        return len(self) if self.alive is None else int(np.count_nonzero(self.alive))

    def compact(self) -> Segment:
        """Return the segment with nothing but what is alive."""
        if self.alive is None:
            return self
        kept = np.flatnonzero(self.alive)
        columns = np.ascontiguousarray(self.columns[:, kept])
        return Segment(columns, self.slots[kept], self.keys[kept], self.radii[kept], None)


def make_segment(slots: Sequence[int], keys: Sequence[int], signs: Signs) -> Segment:
    """Return a segment of some vectors."""
    return Segment(
        _columns(signs.bits), np.array(slots, np.int64), np.array(keys, np.int64), signs.radii, None
    )


def _columns(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(np.ascontiguousarray(bits).view("<u8").T.astype(np.uint64))


def pack_entries(slots: Sequence[int], keys: Sequence[int], signs: Signs) -> list[bytes]:
    """Return the entries of vectors in a stored page of bits."""
    made = np.empty(len(slots), _entry_type(signs.bits.shape[1]))
    made["slot"], made["key"], made["radius"], made["bits"] = slots, keys, signs.radii, signs.bits
    size, raw = made.dtype.itemsize, made.tobytes()
    return [raw[start : start + size] for start in range(0, len(raw), size)]


class SegmentBuilder:
    """Builds a segment of many stored entries in the memory that it takes in the end."""

    def __init__(self, count: int, dim: int) -> None:
        self._bit_bytes = bit_count(dim) // 8
        self._made = Segment(
            np.empty((self._bit_bytes // 8, count), np.uint64),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count, np.float32),
            None,
        )
        self._count = 0

    def add(self, pages: Sequence[bytes]) -> None:
        """Add the entries of some pages; ValueError when these are cut off, or more than were announced."""
        found = np.frombuffer(b"".join(pages), _entry_type(self._bit_bytes))
        start, end = self._count, self._count + len(found)
        made = self._made
        slots, keys, radii, columns = made.slots, made.keys, made.radii, made.columns
        slots[start:end], keys[start:end], radii[start:end] = found["slot"], found["key"], found["radius"]
        columns[:, start:end] = np.ascontiguousarray(found["bits"]).view("<u8").T
        self._count = end

    def finish(self) -> Segment:
        """Return the segment of all entries."""
        made, count = self._made, self._count
        return Segment(
            made.columns[:, :count], made.slots[:count], made.keys[:count], made.radii[:count], None
        )


def _entry_type(bit_bytes: int) -> np.dtype[np.void]:
    return np.dtype([*_ENTRY, ("bits", "u1", (bit_bytes,))])


def join(segments: Sequence[Segment]) -> Segment:
    """Return some segments as one."""
    parts = [each.compact() for each in segments]
    if len(parts) == 1:
        return parts[0]
    return Segment(
        np.concatenate([each.columns for each in parts], axis=1),
        np.concatenate([each.slots for each in parts]),
        np.concatenate([each.keys for each in parts]),
        np.concatenate([each.radii for each in parts]),
        None,
    )


class Candidates(NamedTuple):
    """Vectors that may be among the nearest, in any order; `whole` if these are all there are."""

    slots: list[int]
    keys: list[int]
    whole: bool


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """The bits of an index as of one moment: its last slot, and the segments, the largest first."""

    token: int
    generation: int
    erased: int
    slot: int
    segments: tuple[Segment, ...] = ()

    def count(self) -> int:
        """Return how many vectors there are."""
        return sum(each.count() for each in self.segments)

    def size_bytes(self) -> int:
        """Return how much memory the arrays take."""
        return sum(
            each.columns.nbytes
            + each.slots.nbytes
            + each.keys.nbytes
            + each.radii.nbytes
            + (0 if each.alive is None else each.alive.nbytes)
            for each in self.segments
        )

    def change(self, slot: int, gone: Collection[int], added: Segment | None) -> Snapshot:
        """Return the snapshot as of a later slot, without some records and with others."""
        keys = np.fromiter(gone, np.int64, len(gone))
        kept = [each.without(keys) for each in self.segments] if len(gone) else list(self.segments)
        kept = [each.compact() if each.count() < len(each) * 3 // 4 else each for each in kept]
        if added is not None and len(added):
            kept.append(added)
        # Like sizes are joined, so that there are few segments and each is copied seldom.
        while len(kept) > 1 and len(kept[-2]) <= 2 * len(kept[-1]):
            kept[-2:] = [join(kept[-2:])]
        return replace(self, slot=slot, segments=tuple(each for each in kept if len(each)))

    def find(self, coder: Coder, query: Signs, most: int, allowed: Sequence[int] | None = None) -> Candidates:
        """Return the vectors whose bits are nearest to a query's, of those that are allowed."""
        asked = _columns(query.bits)[:, 0]
        some = None if allowed is None else np.array(allowed, np.int64)
        scores: list[Floats] = []
        places: list[NDArray[np.int64] | None] = []
        for segment in self.segments:
            chosen = None if some is None else np.flatnonzero(_are_among(segment.keys, some))
            if chosen is not None and len(chosen) * _SPARSE < len(segment):
                distances = _count_differences(segment.columns[:, chosen], asked)
                found = coder.estimate(distances, segment.radii[chosen], query)
            else:
                distances = _count_differences(segment.columns, asked)
                found = coder.estimate(distances, segment.radii, query)
                found = found if chosen is None else found[chosen]
            if segment.alive is not None:
                found[~(segment.alive if chosen is None else segment.alive[chosen])] = -np.inf
            scores.append(found)
            places.append(chosen)
        best, whole = _find_best(scores, most)
        slots: list[int] = []
        keys: list[int] = []
        for segment, chosen, at in zip(self.segments, places, best, strict=True):
            at = at if chosen is None else chosen[at]
            at = at if segment.alive is None else at[segment.alive[at]]
            slots += segment.slots[at].tolist()
            keys += segment.keys[at].tolist()
        return Candidates(slots, keys, whole)


def _are_among(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys are wanted; by a table where keys are dense, which they mostly are."""
    top = int(keys.max(initial=0))
    if top > 16 * len(keys) + 1_000_000:
        return np.isin(keys, wanted)
    table = np.zeros(top + 1, np.bool_)
    table[wanted[(wanted >= 0) & (wanted <= top)]] = True
    return table[keys]


def _count_differences(columns: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return in how many bits each vector differs from one."""
    width, count = columns.shape
    total = np.zeros(count, np.uint16)
    size = min(_CHUNK, count)
    words, ones, sums = np.empty(size, np.uint64), np.empty(size, np.uint8), np.empty(size, np.uint8)
    for start in range(0, count, _CHUNK):
        end = min(start + _CHUNK, count)
        word, one, few = words[: end - start], ones[: end - start], sums[: end - start]
        for first in range(0, width, _SUMMED):
            few.fill(0)
            for column in range(first, min(first + _SUMMED, width)):
                np.bitwise_xor(columns[column, start:end], asked[column], out=word)
                np.bitwise_count(word, out=one)
                np.add(few, one, out=few)
            total[start:end] += few
    return total


def _find_best(scores: Sequence[Floats], most: int) -> tuple[list[NDArray[np.int64]], bool]:
    """Return the places of the best scores in each list, and whether these are all."""
    total = sum(map(len, scores))
    if total <= most:
        return [np.arange(len(each)) for each in scores], True
    sample = np.concatenate([each[::_STEP] for each in scores])
    beyond = min(len(sample) - 1, int(most * 1.5 / _STEP) + 16)
    least = np.partition(sample, len(sample) - 1 - beyond)[len(sample) - 1 - beyond]
    places = [np.flatnonzero(each >= least) for each in scores]
    found = np.concatenate([each[at] for each, at in zip(scores, places, strict=True)])
    if len(found) < most:  # the sample was not typical
        places = [np.arange(len(each)) for each in scores]
        found = np.concatenate(scores)
    bar = np.partition(found, len(found) - most)[len(found) - most]
    return [at[each[at] >= bar] for each, at in zip(scores, places, strict=True)], False
