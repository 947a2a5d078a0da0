"""Rolling logs: the system writes what happened, the agent reads it.

Every entry is kept. What a prompt shows of them is bounded by the shape; a rule of the shape may take old
entries out of the document, and then they are still found in its history.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.blocks import errors
from dgent.blocks.access.standing import Caller, Card, Standing
from dgent.blocks.block import Block
from dgent.blocks.document.template import ROLLING_LOG
from dgent.blocks.history.version import Version

if TYPE_CHECKING:
    from dgent.blocks.library import Library

LABEL = "log"


@dataclass(frozen=True)
class System(Caller):
    """Whoever keeps an agent's logs: it may append where the agent may only read."""

    def of_own(self, card: Card) -> Standing:
        """Leave to append, and to nothing else."""
        return Standing(card, "append")


async def log(library: Library, op: str, entry: dict[str, Any], label: str) -> Version:
    """Add an entry to a rolling log, which is made when there is none."""
    await library._may("append", label, op)
    card = await library._find(library._universe, library.agent, label)
    if card is None:
        with suppress(errors.LabelTaken):  # somebody else may make it at the same moment
            await library.create(label, template=ROLLING_LOG)
        card = await library._find(library._universe, library.agent, label)
    if card is None:
        raise errors.BlockNotFound(f"{library.agent} has no block {label!r}", label=label)
    if card.value.document != "log":
        raise errors.WrongKind(f"{label!r} is a {card.value.document}, not a log")
    system = copy.copy(library)
    system._caller = System(library.agent, library.trust)
    block = Block(system, system._caller.of_own(card))
    return await block._log(op, {key: each for key, each in entry.items() if each is not None}, None, "")
