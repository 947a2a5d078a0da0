"""The room of files that coding tools changed, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgent.universe.room import Action, Describer, Keeper, Room, Title

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.backend import Change, Item
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.gate import Principal, Scope
    from dgent.universe.universe import Universe

FILE = "code.file"


class CodeRoom(Room):
    """Answers for versions of files."""

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.runtime.code.version import SCHEMAS

        return SCHEMAS

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits of files."""
        return FileDescriber()

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Find nothing: a version stands by itself, and the disk may have gone on."""
        return []

    def merge_rules(self) -> Rules:
        """Return the rule for files: the later version counts as a whole, since texts of two never mix."""
        from dgent.store.engine.merge import MergedRecord, Rules

        def merge(base: Datum | None, left: Datum | None, right: Datum | None) -> MergedRecord:
            return MergedRecord(right if right is not None else left)

        return Rules({FILE: merge}, internal=frozenset((FILE,)))

    def keeper(self, universe: Universe) -> Keeper:
        """Return the undo of files."""
        from dgent.runtime.code.version import FileUndo

        return FileUndo(universe)

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return files by path and root."""
        return [
            Title("file", each.id, str(each.data.get("path", "")), str(each.data.get("root", "")))
            for each in found
        ]

    async def scope(self, universe: Universe, principal: Principal) -> Scope | None:
        """Return that nobody below a partner sees versions: contents may be anything on this machine."""
        return _Nothing()


class _Nothing:
    """The scope of one who sees no file."""

    def sees(self, id: str, schema: str, datum: Datum | None) -> bool:
        """Refuse every record."""
        return False


class FileDescriber:
    """Describes changes that tools made; files as they were found are upkeep."""

    async def describe(self, change: Change) -> list[Action]:
        """Return which files a commit changed."""
        return [
            _describe(change, item)
            for item in change.items
            if item.schema == FILE and item.datum is not None and not item.datum.data.get("found")
        ]


def _describe(change: Change, item: Item) -> Action:
    data = {} if item.datum is None else item.datum.data
    path = str(data.get("path", ""))
    what = "delete" if data.get("text") is None else "change"
    text = f"{'deleted' if what == 'delete' else 'changed'} the file ‘{path}’"
    return Action("file", str(item.id), change.author, what, path, text=text)


ROOM = CodeRoom()
