"""The newest seq that this program has seen, in any answer."""

from __future__ import annotations


class NewestSeen:
    """The newest seq in any answer to this handle."""

    __slots__ = ("seq",)

    def __init__(self) -> None:
        self.seq = 0

    def advance(self, seq: int) -> None:
        """Record a seq from an answer."""
        if seq > self.seq:
            self.seq = seq
