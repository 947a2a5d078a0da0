"""Erasing what redactions replaced, and recording what was redacted.

A redaction deletes the records that held the text and puts others in their place, under ids that were never
used before. The same commit lists the ids to erase. Erasing takes only what is deleted, looks at that again
in its own commit, and may be done late, twice or by somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dgent.blocks.chain import Chain
from dgent.blocks.record import (
    ErasureRecord,
    RedactedVersion,
    RedactionRecord,
    erasure_id,
    redaction_id,
)
from dgent.blocks.version import Version
from dgent.errors import VersionConflict
from dgent.model.crystal import Crystal
from dgent.store.backend import Op
from dgent.universe.universe import Universe


async def list_to_erase(chain: Chain, ids: Iterable[str]) -> Op:
    """Make the op that lists ids to erase, with those still to be erased from before."""
    found = await chain._universe.get(erasure_id(chain._block))
    before = found.value.ids if isinstance(found, Crystal) else ()
    record = ErasureRecord(chain._block, tuple(dict.fromkeys((*before, *ids))))
    rev = found.rev or 0 if isinstance(found, Crystal) else 0
    return chain.put(record, erasure_id(chain._block), b"", rev)


async def erase(universe: Universe, block: str) -> bool:
    """Erase what is listed for it; True when the bytes are gone from the disk."""
    found = await universe.get(erasure_id(block))
    if not isinstance(found, Crystal):
        return True
    gone = await universe.forget(*found.value.ids, only_deleted=True)
    if gone.erased:
        with suppress(VersionConflict):  # another redaction listed more, and erases that itself
            await universe.delete(found.id, expect=found.rev)
    return gone.erased


def record_redaction(chain: Chain, versions: Iterable[Version], cleared: bool, fresh: str) -> Op:
    """Make the op that records which versions were redacted, and where the snapshot is now."""
    made = (RedactedVersion(each.number, each.at, cleared) for each in versions)
    known = chain.redaction
    before = () if known is None else known.value.redacted
    record = RedactionRecord(chain._block, fresh, join_redacted(before, made))
    rev = 0 if known is None else known.rev or 0
    return chain.put(record, redaction_id(chain._block), b"", rev)


def join_redacted(
    before: Iterable[RedactedVersion], more: Iterable[RedactedVersion]
) -> tuple[RedactedVersion, ...]:
    """Join two lists of redacted versions, each version once."""
    found = {(each.version, each.at): each for each in before}
    for each in more:
        known = found.get((each.version, each.at))
        if known is None or not known.cleared:
            found[each.version, each.at] = each
    return tuple(sorted(found.values(), key=lambda each: (each.version, each.at)))
