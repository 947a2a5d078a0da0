"""Redactions outlive a restore: what the replaced store has redacted is redacted in the restored one.

They are kept as facts, which block and which version, and not by the ids of the records that held the text:
an older copy of a block holds it in other records, and needs those.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from dgent.blocks.page import unpack
from dgent.blocks.record import (
    PAGE,
    REDACTION,
    ROOM,
    SCHEMAS,
    SNAPSHOT,
    VERSION,
    PageRecord,
    RedactedVersion,
    RedactionRecord,
    SnapshotRecord,
)
from dgent.blocks.redacted_versions import redact_again, redacted_in
from dgent.errors import Corrupt
from dgent.store.sqlite import retire
from dgent.store.sqlite.retire import Held
from dgent.universe.universe import open

Redactions = Mapping[str, tuple[RedactedVersion, ...]]
"""The redacted versions of each block."""

REPLACED = frozenset((VERSION.name, PAGE.name, SNAPSHOT.name))
"""Schemas whose records a redaction erases and replaces by others."""


def redactions_in(connection: Held) -> Redactions:
    """Read what was redacted in a store that one has alone."""
    try:
        found: dict[str, tuple[RedactedVersion, ...]] = {}
        for _, data, _ in retire.live_records(connection, REDACTION.name):
            record = msgspec.json.decode(data, type=RedactionRecord)
            found[record.block] = record.redacted
        for id, data, _ in retire.live_records(connection, SNAPSHOT.name):
            block = id.split("/", 1)[0]
            if msgspec.json.decode(data, type=SnapshotRecord).redactions and block not in found:
                found[block] = _from_pages(connection, block)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"what was redacted cannot be read: {error}") from error
    return {block: redacted for block, redacted in found.items() if redacted}


def _from_pages(connection: Held, block: str) -> tuple[RedactedVersion, ...]:
    """Read it from the pages, for a block that was redacted before there was a record of it."""
    found: list[RedactedVersion] = []
    for _, data, content in retire.live_records(connection, PAGE.name, f"{block}/p/"):
        record = msgspec.json.decode(data, type=PageRecord)
        found += redacted_in(unpack(block, record.first, record.last, content))
    return tuple(found)


async def apply_redactions(path: Path, redactions: Redactions) -> int:
    """Redact in a restored store what the one it replaces has redacted; returns how many versions."""
    if not redactions:
        return 0
    async with open(f"sqlite:///{path}") as universe:
        universe.register(*SCHEMAS)
        room = universe.for_room(ROOM)
        return sum([await redact_again(room, block, each) for block, each in redactions.items()])
