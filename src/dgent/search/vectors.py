"""Vectors in numbers: read, compare, and reduce to sign bits. Only this module and `bits` use numpy.

A stored row is the length of a vector and its direction in half precision. The bits of a vector are the signs
of its difference from the centre of all, after random rotations: vectors in about the same direction differ
in few of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dgent.errors import InputError
from dgent.model.vector import BLOCK, Metric, bit_count, bit_width

Floats: TypeAlias = NDArray[np.float32]

_ROUNDS = 3
_DENSE = 1_024  # up to this dimension, rotations are one matrix


# -- what callers bring -------------------------------------------------------------------


def read_vector(value: Any, dim: int, field: str = "vector") -> Floats:
    """Return a vector of any kind as 32-bit numbers; raises InputError naming the field."""
    if isinstance(value, str | bytes | bytearray | memoryview | dict | set | frozenset):
        raise InputError(f"{field} must be a list of numbers, not {type(value).__name__}", field=field)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{field} is not a list of numbers: {error}", field=field) from None
    if given.ndim != 1:
        raise InputError(f"{field} must be one list of numbers, not {given.ndim} nested", field=field)
    if len(given) != dim:
        raise InputError(f"{field} has {len(given)} numbers, not {dim}", field=field)
    if given.dtype.kind not in "iuf":
        odd = [each for each in given.tolist() if type(each) not in (int, float)]
        if not odd:
            raise InputError(f"{field} holds a number that does not fit into 32 bits", field=field)
        raise InputError(f"{field} must hold numbers, not {type(odd[0]).__name__}", field=field)
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(given, dtype="<f4")
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        wrong = float(given[at])
        hint = "it does not fit into 32 bits" if math.isfinite(wrong) else "leave the record out instead"
        raise InputError(f"{field}[{at}] is {wrong!r}", field=field, hint=hint)
    return made


def check_direction(vector: Floats, metric: Metric, field: str = "vector") -> None:
    """Refuse a vector of zeros where only directions are compared."""
    if metric == "cosine" and not vector.any():
        hint = "cosine compares directions, and zeros have none; use metric='dot' or 'l2'"
        raise InputError(f"{field} holds nothing but zeros", field=field, hint=hint)


def from_bytes(raw: bytes) -> Floats:
    """Return the vector of a content."""
    vector: Floats = np.frombuffer(raw, "<f4")
    return vector


def pack_contents(contents: Sequence[bytes], dim: int, metric: Metric) -> list[bytes | None]:
    """Return the stored rows of vectors from the contents of records; None for those that hold none."""
    fitting = [at for at, content in enumerate(contents) if len(content) == 4 * dim]
    made: list[bytes | None] = [None] * len(contents)
    if fitting:
        vectors: Floats = np.frombuffer(b"".join(contents[at] for at in fitting), "<f4").reshape(-1, dim)
        usable = np.isfinite(vectors).all(axis=1)
        if metric == "cosine":
            usable &= vectors.any(axis=1)
        chosen = np.flatnonzero(usable)
        for at, row in zip(chosen.tolist(), pack_rows(vectors[chosen], metric), strict=True):
            made[fitting[at]] = row
    return made


# -- stored rows --------------------------------------------------------------------------


def pack_rows(vectors: Floats, metric: Metric) -> list[bytes]:
    """Return vectors as they are stored for comparing: the length of each, and its direction."""
    wide = vectors.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    largest[largest == 0] = 1
    wide /= largest  # first, because the squares of very small numbers would be zero
    lengths = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    lengths[lengths == 0] = 1
    made = np.empty(len(vectors), _row_type(vectors.shape[1]))
    made["direction"] = wide / lengths
    made["length"] = 1 if metric == "cosine" else (lengths * largest)[:, 0] * vectors.any(axis=1)
    size, raw = made.dtype.itemsize, made.tobytes()
    return [raw[start : start + size] for start in range(0, len(raw), size)]


def _row_type(dim: int) -> np.dtype[np.void]:
    return np.dtype([("length", "<f8"), ("direction", "<f2", (dim,))])


def unpack_vectors(rows: Sequence[bytes], dim: int) -> Floats:
    """Return stored rows as vectors."""
    found = np.frombuffer(b"".join(rows), _row_type(dim))
    with np.errstate(over="ignore"):
        made: Floats = (found["direction"] * found["length"][:, None]).astype(np.float32)
    return np.nan_to_num(made, copy=False)


def score_rows(rows: Sequence[bytes], vector: Floats, metric: Metric) -> NDArray[np.float64]:
    """Return the scores of stored rows, the best the greatest; the same for a row whatever stands beside it.

    Cosine is the cosine, dot the product; of l2 it is the distance below zero.
    """
    stored = np.frombuffer(b"".join(rows), _row_type(len(vector)))
    lengths, wide = stored["length"], vector.astype(np.float64)
    # Not a matrix product: that adds in another order, depending on how many rows there are.
    products: NDArray[np.float64] = np.vecdot(stored["direction"].astype(np.float64), wide)
    if metric == "cosine":
        found = products / _length(wide)
    elif metric == "dot":
        found = products * lengths
    else:
        squares = lengths**2 - 2 * lengths * products + float(wide @ wide)
        found = -np.sqrt(np.maximum(squares, 0))
    return np.round(found, 9)


def score_exactly(one: Floats, other: Floats, metric: Metric) -> float:
    """Return the score of two vectors in whole precision."""
    left, right = one.astype(np.float64), other.astype(np.float64)
    if metric == "l2":
        return -float(np.sqrt(np.square(left - right).sum()))
    product = float(np.einsum("i,i->", left, right))
    if metric == "dot":
        return product
    return product / (_length(left) * _length(right))


def score_error(score: float, one: Floats, other: Floats, metric: Metric) -> float:
    """Return by how much the score of a stored row may be wrong, because it is in half precision."""
    error = 2.0**-10 / math.sqrt(len(one)) * 2
    if metric == "cosine":
        return error
    error *= _length(one.astype(np.float64)) * _length(other.astype(np.float64))
    if metric == "dot":
        return error
    return min(error / -score if score else math.inf, math.sqrt(2 * error))


def _length(wide: NDArray[np.float64]) -> float:
    largest = float(np.abs(wide).max())
    return largest * float(np.sqrt(np.square(wide / largest).sum())) if largest else 1.0


# -- bits ---------------------------------------------------------------------------------


class Signs(NamedTuple):
    """The bits of vectors, and the distance of each from the centre."""

    bits: NDArray[np.uint8]  # one row for each vector
    radii: Floats


class Coder:
    """Makes the bits of vectors around one centre; the same seed gives the same rotations everywhere."""

    def __init__(self, dim: int, metric: Metric, seed: int, centre: bytes) -> None:
        self.dim, self.metric = dim, metric
        self.centre: Floats = np.frombuffer(centre, "<f4") if centre else np.zeros(dim, np.float32)
        self._seed = seed

    def encode_rows(self, rows: Sequence[bytes]) -> Signs:
        """Return the bits of stored rows."""
        return self._encode(unpack_vectors(rows, self.dim) - self.centre)

    def encode_query(self, vector: Floats) -> Signs:
        """Return the bits of a vector to compare with."""
        if self.metric == "dot":
            return self._encode(vector[None, :])
        if self.metric == "cosine":
            wide = vector.astype(np.float64)
            vector = (wide / _length(wide)).astype(np.float32)
        return self._encode((vector - self.centre)[None, :])

    def _encode(self, offsets: Floats) -> Signs:
        with np.errstate(over="ignore", invalid="ignore"):
            radii = np.sqrt(np.square(offsets, dtype=np.float64).sum(axis=1)).astype(np.float32)
            turned = turn(offsets, self._seed)
        return Signs(np.packbits(turned > 0, axis=1), np.nan_to_num(radii, copy=False))

    def estimate(self, distances: NDArray[np.uint16], radii: Floats, query: Signs) -> Floats:
        """Return about the scores of vectors, from the number of bits in which each differs from a query."""
        count = bit_count(self.dim)
        angles = np.cos(np.arange(count + 1) * (math.pi / count))
        with np.errstate(over="ignore", invalid="ignore"):
            if self.metric == "dot":
                found: Floats = angles.astype(np.float32)[distances]
            else:
                found = (angles * (2 * float(query.radii[0]))).astype(np.float32)[distances]
                found -= radii
            found *= radii
            if not math.isfinite(float(found.sum(dtype=np.float64))):
                np.nan_to_num(found, copy=False, nan=-np.inf)
        return found


class Rotation(NamedTuple):
    """A random rotation: rounds of shuffling, changing signs, and mixing blocks of numbers."""

    orders: list[NDArray[np.int64]]
    signs: list[Floats]
    mix: Floats

    def turn(self, vectors: Floats) -> Floats:
        """Return vectors after the rotation."""
        for order, signs in zip(self.orders, self.signs, strict=True):
            mixed: Any = (vectors[:, order] * signs).reshape(-1, BLOCK) @ self.mix
            vectors = mixed.reshape(len(vectors), -1)
        return vectors


def turn(vectors: Floats, seed: int) -> Floats:
    """Return vectors after each of the rotations, side by side."""
    dim = vectors.shape[1]
    if dim <= _DENSE:
        made: Floats = vectors @ _rotation_matrix(dim, seed)
        return made
    return _turn_in_rounds(vectors, seed)


@cache
def _rotation_matrix(dim: int, seed: int) -> Floats:
    """Return all rotations as one matrix: many times as quick, where it is not too large."""
    return _turn_in_rounds(np.eye(dim, dtype=np.float32), seed)


def _turn_in_rounds(vectors: Floats, seed: int) -> Floats:
    dim = vectors.shape[1]
    padded = np.zeros((len(vectors), bit_width(dim)), np.float32)
    padded[:, :dim] = vectors
    return np.concatenate([each.turn(padded) for each in make_rotations(dim, seed)], axis=1)


@cache
def make_rotations(dim: int, seed: int) -> tuple[Rotation, ...]:
    """Return the rotations that give the bits of vectors of this dimension."""
    width = bit_width(dim)
    random: Any = np.random.RandomState(seed)  # of all generators, only this one never changes its numbers
    made: list[Rotation] = []
    for _ in range(bit_count(dim) // width):
        mix, upper = np.linalg.qr(random.standard_normal((BLOCK, BLOCK)))
        mix *= np.sign(np.diag(upper))  # the other sign is as good a factor: libraries choose either
        orders = [random.permutation(width) for _ in range(_ROUNDS)]
        signs = [random.choice((-1.0, 1.0), width).astype(np.float32) for _ in range(_ROUNDS)]
        made.append(Rotation(orders, signs, mix.astype(np.float32)))
    return tuple(made)


def find_centre(rows: Sequence[bytes], dim: int) -> bytes:
    """Return the centre of stored rows."""
    vectors = unpack_vectors(rows, dim)
    centre: Floats = vectors.mean(axis=0, dtype=np.float64).astype("<f4")
    return centre.tobytes()
