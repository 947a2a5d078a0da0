"""The one estimate of tokens, for everything that has to fit into a context."""

from __future__ import annotations


def estimate(text: str) -> int:
    """Estimate the tokens of a text: four bytes each, which fits most languages."""
    return (len(text.encode()) + 3) // 4
