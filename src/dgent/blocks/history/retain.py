"""How many of a block's versions are kept; without a rule all of them are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dgent.blocks.access.standing import Card
from dgent.blocks.history import rewrite
from dgent.blocks.record import BlockRecord
from dgent.errors import DgentError, InputError

if TYPE_CHECKING:
    from dgent.blocks.access.permission import Permit
    from dgent.blocks.block import Block

RETAIN = "retain"
"""In a card's extra: how many versions are kept."""
LEAST = 64  # so that there is something to undo, and not every edit compacts


def check_retain(keep: object) -> int | None:
    """A number of versions, or None for all of them."""
    if keep is not None and (type(keep) is not int or keep < LEAST):
        raise InputError(f"a block retains at least {LEAST} versions, or all with None: not {keep!r}")
    return keep


def retained(card: BlockRecord) -> int | None:
    """How many versions a block keeps; None for all."""
    keep = card.extra.get(RETAIN)
    return keep if type(keep) is int else None


def retaining(card: Card, keep: int | None) -> Card:
    """The card of a block with another rule."""
    extra = {name: each for name, each in card.value.extra.items() if name != RETAIN}
    extra |= {} if keep is None else {RETAIN: keep}
    return card.replace(value=replace(card.value, extra=extra))


async def tidy(block: Block, permit: Permit, number: int) -> None:
    """Apply a block's rule, now and then; what is not done now is done later, and the edit stands."""
    keep = retained(block._card.value)
    if keep is None or number <= keep or number % (keep // 2):
        return
    with suppress(DgentError):
        await rewrite.compact(block._chain, number - keep + 1, await block._named(), block.owner, permit)
