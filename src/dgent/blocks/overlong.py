"""Blocks that are longer than they may be, because a merge kept what two sides wrote; their cards say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dgent.blocks.access import Card
from dgent.blocks.record import BlockRecord

OVER_LIMIT = "over_limit"
"""In a card's extra: how long the document was after the merge, where that was more than its limit."""


def is_over_limit(card: BlockRecord) -> bool:
    """Whether a block is too long; a higher limit ends it, and so does an edit that makes it short enough."""
    size = card.extra.get(OVER_LIMIT)
    return type(size) is int and size > card.limit


def flagged(card: Card, size: int) -> Card:
    """The card of a block that is so long."""
    extra: dict[str, Any] = {**card.value.extra, OVER_LIMIT: size}
    return card.replace(value=replace(card.value, extra=extra))


def unflagged(card: Card) -> Card:
    """The card of a block that is not too long."""
    extra = {name: each for name, each in card.value.extra.items() if name != OVER_LIMIT}
    return card.replace(value=replace(card.value, extra=extra))
