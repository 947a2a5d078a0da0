"""How far the universe is known to have come, by whatever answer told of it."""

from __future__ import annotations


class Seen:
    """The newest seq that a call of this handle was told of."""

    __slots__ = ("seq",)

    def __init__(self) -> None:
        self.seq = 0

    def told(self, seq: int) -> None:
        """An answer spoke of this seq."""
        if seq > self.seq:
            self.seq = seq
