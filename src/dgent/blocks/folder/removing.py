"""Files without a block, and blocks without a file: what was deleted on one side and not on the other."""

from __future__ import annotations

from dgent.blocks.folder.ledger import Entry
from dgent.blocks.folder.round import Round
from dgent.errors import Conflict, Denied, NotFound


async def remove(round: Round, id: str, entry: Entry) -> None:
    """Delete the block of a deleted file; one that somebody changed since is written again."""
    block = round.blocks[id]
    if not entry.base.version:
        return  # it was never written
    if _all_gone(round):
        round.tell("refused", entry, "every file is gone: no block is deleted for that", entry.base.version)
        round.reasons[id] = "every file was gone"
        return
    if id not in round.current:
        _keep(round, id, entry)
        return
    if not round.dry_run:
        try:
            await round.library._remove(block, at=entry.base.version)
        except Denied as error:
            round.tell("refused", entry, error.message, entry.base.version)
            round.reasons[id] = "it was deleted, which is not allowed"
            return
        except (Conflict, NotFound):
            _keep(round, id, entry)
            return
        await round.remove(entry)
    round.tell("deleted", entry, "the file was deleted; `restore` brings the block back", entry.base.version)
    del round.ledger.entries[id], round.blocks[id]


def _keep(round: Round, id: str, entry: Entry) -> None:
    round.tell(
        "conflicts", entry, "the file was deleted, and the block has changed since", round.blocks[id].version
    )
    round.reasons[id] = "it has changed since its file was deleted"


def _all_gone(round: Round) -> bool:
    """Whether no file is left of several: that is rather a lost folder than a wish."""
    known = [entry for id, entry in round.ledger.entries.items() if id in round.blocks and entry.base.version]
    return len(known) > 1 and not any(round.file(entry.file) for entry in known)


async def leave(round: Round, id: str, entry: Entry) -> None:
    """Remove the files of a block that is not there any more, unless they were edited since."""
    file = round.file(entry.file)
    if file is not None and file.digest != entry.base.digest:
        why = "the block was deleted, or is not shared any more, and the file was edited: the file stays"
        round.tell("conflicts", entry, why, entry.base.version)
        return
    await round.remove(entry)
    if file is not None:
        round.tell("deleted", entry, "the block was deleted, or is not shared any more", entry.base.version)
    del round.ledger.entries[id]
