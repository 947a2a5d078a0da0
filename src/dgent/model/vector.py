"""The declaration of a schema's vectors: how many numbers each has, and how two are compared."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from dgent.errors import SchemaError

Metric: TypeAlias = Literal["cosine", "dot", "l2"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MAX_DIM = 8_192
BLOCK = 64  # bits come in words of so many
_LEAST_BITS = 256
LENGTH_BYTES = 8


class VectorSpec(msgspec.Struct, frozen=True):
    """The vectors of a schema: their dimension, and the metric that compares them.

    Without a model they are the contents of the records, as 32-bit numbers. A `model` makes them from the
    texts at `fields`.
    """

    dim: int
    metric: Metric = "cosine"
    model: str = ""
    fields: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a description, as in `512 numbers, cosine`."""
        made = f", made by {self.model!r} from {', '.join(self.fields)}" if self.model else ""
        return f"{self.dim} numbers, {self.metric}{made}"


def check_spec(dim: Any, metric: Any) -> VectorSpec:
    """Return the declaration of vectors that callers bring themselves."""
    if type(dim) is not int or not 1 <= dim <= MAX_DIM:
        raise SchemaError(
            f"dim is {dim!r}", hint=f"how many numbers a vector has, from 1 to {MAX_DIM}", field="dim"
        )
    if metric not in METRICS:
        raise SchemaError(f"metric is {metric!r}", hint=f"one of {', '.join(METRICS)}", field="metric")
    return VectorSpec(dim, metric)


def bit_width(dim: int) -> int:
    """Return a dimension filled up to whole words of bits."""
    return -(-dim // BLOCK) * BLOCK


def bit_count(dim: int) -> int:
    """Return how many bits stand for a vector: two for each number, or more if that is few."""
    return bit_width(dim) * max(2, -(-_LEAST_BITS // bit_width(dim)))


def row_size(dim: int) -> int:
    """Return how many bytes a stored row has: a length, and a direction in half precision."""
    return LENGTH_BYTES + 2 * dim
