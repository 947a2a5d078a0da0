"""Rolling logs: the system writes what happened, the agent reads it.

Every entry is kept. The shape bounds what a prompt shows; a rule of the shape may remove old entries from the
document, and then they are still found in its history.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgent.blocks import errors
from dgent.blocks.access.actor import Actor, BlockPermission, Header
from dgent.blocks.block import Block
from dgent.blocks.document.template import ROLLING_LOG
from dgent.blocks.headers import find_header
from dgent.blocks.history.version import Version

if TYPE_CHECKING:
    from dgent.blocks.library import Library

LABEL = "log"


@dataclass(frozen=True)
class System(Actor):
    """The writer of an agent's logs: it may append where the agent may only read."""

    def own_permission(self, header: Header) -> BlockPermission:
        """Return permission to append, and nothing else."""
        return BlockPermission(header, "append")


async def log(library: Library, op: str, entry: dict[str, Any], label: str) -> Version:
    """Add an entry to a rolling log, which is created if it does not exist."""
    permissions, agent = library._permissions, library.agent
    await permissions.require_trust("append", label, op)
    header = await find_header(permissions.universe, agent, label)
    if header is None:
        with suppress(errors.LabelTaken):  # somebody else may create it at the same moment
            await library.create(label, template=ROLLING_LOG)
        header = await find_header(permissions.universe, agent, label)
    if header is None:
        raise errors.BlockNotFound(f"{agent} has no block {label!r}", label=label)
    if header.value.document != "log":
        raise errors.WrongKind(f"{label!r} is a {header.value.document}, not a log")
    system = System(agent, library.trust)
    block = Block(permissions.with_actor(system), system.own_permission(header))
    return await block._log(op, {key: each for key, each in entry.items() if each is not None}, None, "")
