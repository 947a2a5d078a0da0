"""Embedders that tests can look into and steer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dgent.embedder import HashedEmbedder


class Watched:
    """An embedder that records each text, and fails, waits or answers nonsense as it is told."""

    def __init__(self, dim: int = 64, name: str = "watched") -> None:
        self._inner = HashedEmbedder(dim)
        self.name, self.dim = name, dim
        self.texts: list[str] = []
        self.calls = 0
        self.error: BaseException | None = None
        self.refused: set[str] = set()
        self.answer: object = None
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()

    def embed(self, texts: Sequence[str], /) -> object:
        self.calls += 1
        self.entered.set()
        self.go.wait(30)
        if self.error is not None:
            raise self.error
        if self.refused & set(texts):
            raise ValueError(f"not these: {self.refused & set(texts)}")
        if self.answer is not None:
            return self.answer
        self.texts += [text for text in texts if text != "dgent"]
        return self._inner.embed(texts)
