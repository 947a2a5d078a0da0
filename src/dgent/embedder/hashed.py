"""An embedder without a model, for tests: texts that share words and parts of words are near each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from zlib import crc32

from dgent.errors import InputError
from dgent.search.words import find_words

_PART = 3  # characters of a part of a word
_SHARED = 3.0  # what all vectors have in common, in proportion to what they have not


class HashedEmbedder:
    """Counts words and their parts in `dim` places that a checksum picks. It knows no meaning.

    All its vectors are near each other: that texts look alike is weak evidence, and cosines are to say so.
    """

    def __init__(self, dim: int = 1_024) -> None:
        if type(dim) is not int or not 2 <= dim <= 4_096:
            raise InputError(f"dim is {dim!r}", hint="a whole number from 2 to 4096", field="dim")
        self.dim = dim
        self.name = f"hashed-{dim}"

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return one vector of length 1 for each text."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        counts = [0.0] * self.dim
        for feature, weight in _features(text):
            number = crc32(feature.encode(errors="replace"))
            counts[1 + number % (self.dim - 1)] += weight if number & 1 << 31 else -weight
        size = sqrt(sum(count * count for count in counts)) or 1.0
        counts = [count / size for count in counts]
        counts[0] = _SHARED
        size = sqrt(sum(count * count for count in counts))
        return [count / size for count in counts]


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in find_words(text):
        yield word.term, 1.0
        whole = f"<{word.form}>"
        parts = len(whole) - _PART + 1
        for at in range(parts):
            yield whole[at : at + _PART], 1.0 / sqrt(parts)
