"""The cupboard against the same work by hand: plain tables, no history, no rules."""

from bench.cupboard.rows import cupboard

__all__ = ["cupboard"]
