"""The retention rule of a block: how many of its versions are kept; without a rule all are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dgent.blocks.access.actor import Header
from dgent.blocks.history import rewrite
from dgent.blocks.record import BlockRecord
from dgent.errors import DgentError, InputError

if TYPE_CHECKING:
    from dgent.blocks.access.permission import PermissionCheck
    from dgent.blocks.block import Block

RETAIN = "retain"
"""The key in a header's extra fields for the number of versions to keep."""
LEAST = 64  # so that there is something to undo, and not every edit compacts


def check_retain(keep: object) -> int | None:
    """Return a valid number of versions to keep, or None for all."""
    if keep is not None and (type(keep) is not int or keep < LEAST):
        raise InputError(f"expected at least {LEAST} versions to retain, or None for all, got {keep!r}")
    return keep


def get_retain(header: BlockRecord) -> int | None:
    """Return how many versions a block keeps; None for all."""
    keep = header.extra.get(RETAIN)
    return keep if type(keep) is int else None


def set_retain(header: Header, keep: int | None) -> Header:
    """Return a header with another retention rule."""
    extra = {name: each for name, each in header.value.extra.items() if name != RETAIN}
    extra |= {} if keep is None else {RETAIN: keep}
    return header.replace(value=replace(header.value, extra=extra))


async def apply_retain(block: Block, permission: PermissionCheck, number: int) -> None:
    """Compact old versions from time to time; errors are left for later, so that the edit stands."""
    keep = get_retain(block._header.value)
    if keep is None or number <= keep or number % (keep // 2):
        return
    with suppress(DgentError):
        await rewrite.compact(
            block._version_log, number - keep + 1, await block._list_named(), block.owner, permission
        )
