"""The room of blobs, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgent.model.query import Query
from dgent.universe.room import Action, Describer, Keeper, Name, Room, Title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.backend import Change, Committed, Item, Reverted
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.universe import Universe

KEYS = "blob.key"


class BlobRoom(Room):
    """Answers for keys of blobs, and for contents that wait to be collected."""

    kinds = ("blob",)

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.universe.blob import SCHEMAS

        return SCHEMAS

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return the keys that begin so, with the types of their contents."""
        where = {"key": {"$prefix": start}} if start else None
        found = await universe.query(
            schema=KEYS, where=where, order_by="key", descending=False, limit=limit, raw=True
        )
        return [Name(str(each.data.get("key")), str(each.data.get("content_type", ""))) for each in found]

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits of blobs, which belong to all agents."""
        return BlobDescriber()

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Count the keys."""
        return (("blob", await universe.count(Query(schema=KEYS))),)

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Look for contents that are missing, and with `deep` for damaged ones."""
        from dgent.universe.blob_check import inspect

        return await inspect(universe, deep=deep)

    def merge_rules(self) -> Rules:
        """Return the rule for keys: of two contents the later one counts, and the key is disputed."""
        from dgent.store.engine.merge import MergedRecord, Rules, merge_records, says_the_same

        def merge(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
            # Hash, size and type describe one content: fields of two never mix.
            if left is None or right is None or says_the_same(left, right):
                return merge_records(base, left, right)
            if base is not None and says_the_same(base, right):
                return MergedRecord(left)
            changed = base is None or not says_the_same(base, left)
            return MergedRecord(right, ("content",) if changed else ())

        return Rules({KEYS: merge}, internal=frozenset(("blob.content", "blob.orphan")))

    def keeper(self, universe: Universe) -> Keeper:
        """Return the undo of keys."""
        return BlobUndo(universe)

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return blobs by key and type."""
        return [
            Title("blob", each.id, str(each.data.get("key", "")), str(each.data.get("content_type", "")))
            for each in found
        ]


class BlobDescriber:
    """Describes commits of blobs by their keys."""

    async def describe(self, change: Change) -> list[Action]:
        """Return which blobs a commit stored or deleted."""
        items = [item for item in change.items if item.schema == KEYS and item.id is not None]
        return [self._describe(change, item) for item in items]

    def _describe(self, change: Change, item: Item) -> Action:
        datum = item.datum if item.op == "put" else item.last
        name = "" if datum is None else str(datum.data.get("key", ""))
        what = "delete" if item.op != "put" else "create" if item.rev == 1 else "change"
        words = {"create": "stored", "change": "replaced", "delete": "deleted"}[what]
        text = f"{words} the blob ‘{name}’" if name else f"{words} a blob"
        return Action("blob", str(item.id), change.author, what, name, text=text)


class BlobUndo:
    """Undoes commits of blobs; refused where the content of then was collected."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put keys back as they were before a commit."""
        from dgent.errors import UndoConflict
        from dgent.universe.blob import hashes_in, open_blobs
        from dgent.universe.history import find_changed, refusal, revert_ops

        if not force and (changed := await find_changed(self._universe, records)):
            raise refusal(seq, changed)
        blobs = open_blobs(self._universe)
        for record in records:
            for sha256 in () if record.before is None else hashes_in(record.before.data):
                if await blobs.contents.size(sha256) is None:
                    raise UndoConflict(
                        f"commit {seq} cannot be undone: a content that it replaced was collected",
                        hint="store the blob again",
                    )
        if dry_run:
            return None
        room = self._universe.for_room("blobs")
        ops = revert_ops(room, records)
        return await room.commit(ops, kind="undo", of_seq=seq, note=f"undo of {seq}")


ROOM = BlobRoom()
