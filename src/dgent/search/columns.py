"""Postings read and joined in columns, for programs that have numpy loaded: as in `join`, but quicker."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dgent.search.join import SoughtWord

_SPAN = 1 << 32
_SECOND = np.uint32(256)  # of the second byte of a key
_LANE = 8  # bytes of a signature that numpy reads as one number

Keys = NDArray[np.integer[Any]]


def add_up_keys(
    firsts: Sequence[int], records: Sequence[int], low: bytes, high: Sequence[bytes], times: Sequence[bytes]
) -> bytes:
    """Return the keys of pages, as `postings.add_up_keys` does."""
    keys = np.array(firsts, "<u4").repeat(records)
    keys += _read_bytes(low)
    keys += _read_bytes(b"".join(high)).repeat(_read_bytes(b"".join(times))) * _SECOND
    return keys.tobytes()


def count_each(column: bytes) -> bytes:
    """Return how often each value is in a column, from 0 to the highest one; none more than 255 times."""
    return np.bincount(_read_bytes(column)).astype(np.uint8).tobytes()


def find_levels(words: Sequence[SoughtWord], most: int) -> list[list[int]]:
    """Return the records with two of the words and so on, as `join.find_levels` does."""
    every = _merge([_read_keys(some.keys) for word in words for some in word.found])
    levels: list[list[int]] = []
    for _ in range(most):
        every = _find_repeated(every)
        levels.append(every.tolist())
    return levels


def find_common(words: Iterable[SoughtWord]) -> list[int]:
    """Return the records that have all of some words with their neighbours."""
    common: Keys | None = None
    for word in words:
        near = np.uint8(word.near)
        fitting = _merge(
            [_read_keys(each.keys)[_read_bytes(each.near) & near == near] for each in word.found]
        )
        common = fitting if common is None else _find_repeated(_merge((common, fitting)))
    return [] if common is None else common.tolist()


def complete(record_keys: Collection[int], words: Collection[SoughtWord]) -> dict[int, int]:
    """Return the signatures of those of some records that have one of the words."""
    in_order = sorted(record_keys)
    if not in_order:
        return {}
    wanted = np.array(in_order, np.uint32 if in_order[-1] < _SPAN else np.int64)
    signatures = np.zeros((max(_LANE, 2 + max(word.place for word in words)), len(in_order)), np.uint8)
    for word in words:
        for some in word.found:
            keys = _read_keys(some.keys)
            at = keys.searchsorted(wanted)
            here = keys.take(at, mode="clip") == wanted
            signatures[0] |= _read_bytes(some.sizes).take(at, mode="clip") * here
            signatures[word.place + 1] |= _read_bytes(some.counts).take(at, mode="clip") * here
    found = zip(in_order, _read_numbers(np.ascontiguousarray(signatures.T)), strict=True)
    return {key: signature for key, signature in found if signature}


def _read_numbers(rows: NDArray[np.uint8]) -> list[int]:
    """Return each row as one number, the lowest byte first."""
    width = rows.shape[1]
    if width == _LANE:
        return rows.view("<u8").ravel().tolist()
    raw = rows.tobytes()
    return [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]


def _merge(columns: Sequence[Keys]) -> Keys:
    """Return keys, given in order in each of some columns, in one that is in order."""
    if len(columns) == 1:
        return columns[0]
    merged: Keys = np.concatenate(columns) if columns else np.zeros(0, np.uint32)
    merged.sort(kind="stable")  # it takes what is in order already as it is
    return merged


def _find_repeated(keys: Keys) -> Keys:
    """Return each key that follows itself; one that is there n times, n - 1 times."""
    repeated: Keys = keys[1:][keys[1:] == keys[:-1]]
    return repeated


def _read_keys(keys: Sequence[int]) -> Keys:
    if isinstance(keys, array) and keys.itemsize == np.uint32().itemsize:
        return np.frombuffer(keys, np.uint32)
    return np.array(keys, np.int64)


def _read_bytes(column: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(column, np.uint8)
