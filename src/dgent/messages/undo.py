"""Undo of messages: records are put back together, and no message is left without its batch."""

from __future__ import annotations

from dgent.errors import UndoConflict
from dgent.messages.record import BATCH, MESSAGE, ROOM, SCHEMAS, SUMMARY
from dgent.store.backend import Committed, Reverted
from dgent.universe.history import find_changed, refusal, revert_ops
from dgent.universe.universe import Universe


class MessageUndo:
    """Undoes commits of messages."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe.for_room(ROOM)
        self._universe.register(*SCHEMAS)

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put records back as they were before a commit.

        Refused where one changed since, unless forced, and where later messages would lose their batch.
        """
        if not force and (changed := await find_changed(self._universe, records)):
            raise refusal(seq, changed)
        going = {record.id for record in records if record.before is None}
        for id in going:
            if "/" in id:
                continue
            left = await self._universe.query(schema=MESSAGE.name, where={"batch": id}, limit=None, raw=True)
            if any(each.id not in going for each in left):
                raise UndoConflict(
                    f"commit {seq} began the batch {id!r}, which has messages of later commits",
                    hint="undo those first, or delete the batch",
                )
        await self._check_chain(seq, records)
        if dry_run:
            return None
        for record in records:
            if record.before is not None and record.before.schema == MESSAGE.name:
                await self._require_batch(seq, str(record.before.data.get("batch")), records)
        ops = revert_ops(self._universe, records)
        return await self._universe.commit(ops, kind="undo", of_seq=seq, note=f"undo of {seq}")

    async def _check_chain(self, seq: int, records: list[Reverted]) -> None:
        """Refuse where an archive would go or come back under one that is newer."""
        changed = {record.id: record for record in records}
        found = await self._universe.get_many([record.id for record in records], raw=True)
        now = [each for each in found if each is not None and each.schema == SUMMARY.name]
        then = [
            each.before for each in records if each.before is not None and each.before.schema == SUMMARY.name
        ]
        for each in (*now, *then):
            where = {"agent": each.data["agent"]}
            for other in await self._universe.query(schema=SUMMARY.name, where=where, limit=None, raw=True):
                first, chain = each.data["chain"] or "", other.data["chain"]
                if chain is not None and chain >= first and other.id not in changed:
                    raise UndoConflict(
                        f"commit {seq} changed an archive, and a newer one stands on what is there now",
                        hint=f"restore {other.id} first",
                    )

    async def _require_batch(self, seq: int, batch: str, records: list[Reverted]) -> None:
        back = any(record.id == batch and record.before is not None for record in records)
        found = None if back else await self._universe.get(batch, raw=True)
        if not back and (found is None or found.schema != BATCH.name):
            raise UndoConflict(f"commit {seq} changed messages of the batch {batch!r}, which is gone")
