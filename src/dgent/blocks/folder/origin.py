"""What a file was written from, proven: the state that the ledger names must be one that the block has had.

The ledger may have come with the folder, and the store may have been restored from an older backup since:
then version 7 is not the version 7 that the file was written from. States of documents have names that nobody
can guess and that never mean another state. A file whose state the block has never had is treated like one of
unknown origin: it is compared with the block's recent versions, and nothing of it is lost.
"""

from __future__ import annotations

from contextlib import suppress

from dgent.blocks.chain import Chain
from dgent.blocks.document import Document
from dgent.blocks.errors import DocumentCorrupt, VersionNotFound
from dgent.blocks.folder.ledger import Base, Entry
from dgent.blocks.folder.round import Round
from dgent.blocks.record import BLOCK, version_id
from dgent.errors import StorageError
from dgent.model.datum import Datum
from dgent.store.upkeep import forgotten_among

EMPTY = Document().frontiers
"""The state of every document before its first edit: the one name that anybody can guess."""


async def check(round: Round) -> None:
    """Find out which blocks are as their files were written, and forget what the ledger cannot prove."""
    universe, entries = round.library._universe, round.ledger.entries
    epoch: bytes = getattr(universe.backend, "epoch", b"")
    ours = bool(epoch) and round.ledger.store == epoch.hex()
    await _find_current(round, ours)
    rest = [id for id in entries if id not in round.current and entries[id].base.version]
    away = [id for id in rest if id not in round.blocks]
    gone = await forgotten_among(universe.backend, away) if away else frozenset()
    for id in rest:
        entry = entries[id]
        if id in gone or await _is_proven(round, id, entry.base, ours):
            continue
        if id in round.blocks and round.file(entry.file) is None:
            entries[id] = Entry(entry.place, entry.suffix, entry.owner, entry.label)  # it is written again
        else:
            del entries[id]  # its file finds its block by its label, or becomes one
    round.ledger.store = epoch.hex()


async def _find_current(round: Round, ours: bool) -> None:
    """Find out, in one read, which blocks nobody has changed since their files were written.

    The newest version is never folded: while it is there and none comes after it, it is the newest.
    """
    bases = {id: entry.base for id, entry in round.ledger.entries.items() if id in round.blocks}
    known = [id for id, base in bases.items() if ours or base.frontiers != EMPTY]
    ids = [version_id(id, bases[id].version + step) for id in known for step in (0, 1)]
    found: list[Datum | None] = await round.library._universe.get_many(ids, raw=True)
    for id, last, more in zip(known, found[::2], found[1::2], strict=True):
        if last is not None and more is None and last.data.get("frontiers") == bases[id].frontiers:
            round.current.add(id)


async def _is_proven(round: Round, id: str, base: Base, ours: bool) -> bool:
    """Whether a block was in the state a file was written from, or may have been before it was rewritten."""
    try:
        chain = await _chain(round, id)
    except StorageError:
        return id in round.blocks  # it cannot be read, which is told when it is to be written
    if chain is None or base.redactions > chain.redactions:
        return False
    if base.redactions < chain.redactions:
        return True  # what the file says may have been redacted since, so it is never kept aside unasked
    with suppress(DocumentCorrupt):
        if (ours or base.frontiers != EMPTY) and chain.document.knows(base.frontiers):
            return True
    try:
        version = await chain.find(base.version)
    except VersionNotFound:
        return base.version <= chain.number  # it was compacted, and a file of before is only older
    return not version.frontiers


async def _chain(round: Round, id: str) -> Chain | None:
    """The versions of a block that a file was written from, be it deleted by now; None when it is none."""
    if id in round.blocks:
        await round.blocks[id]._document()
        return round.blocks[id]._chain
    universe = round.library._universe
    card = await universe.get(id, raw=True)
    if card is None or card.schema != BLOCK.name:
        return None
    chain = Chain(universe, id)
    await chain.refresh()
    return chain
