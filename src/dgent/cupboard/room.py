"""The room of the cupboard, as the layers around it see it (`universe/room.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dgent.model.query import Query
from dgent.universe.room import (
    Describer,
    Keeper,
    Name,
    Room,
    Title,
    find_by_id_or_name,
    find_by_name,
)

if TYPE_CHECKING:
    from dgent.model.datum import Datum
    from dgent.model.schema import Schema
    from dgent.store.engine.merge import Rules
    from dgent.store.upkeep import Finding
    from dgent.universe.universe import Universe

NAMED = 5  # findings listed in the text
HINT = "see `dgent cupboard audit`; with --repair it puts right what can be"
MAX_NAME = 200


class CupboardRoom(Room):
    """Answers for crumbs, trails, stashes and properties."""

    kinds = ("crumb", "trail", "stash", "property", "table")
    words: ClassVar[Mapping[str, Sequence[str]]] = {
        "table": ("crumbs", "trails", "links", "properties", "categories", "stashes", "metadata", "schemas")
    }

    @property
    def schemas(self) -> tuple[Schema[Any], ...]:
        """The schemas of the room's records."""
        from dgent.cupboard.record import SCHEMAS

        return SCHEMAS

    async def find_names(
        self, universe: Universe, kind: str, start: str, agent: str, limit: int
    ) -> list[Name]:
        """Return ids and names of crumbs, trails or stashes, or names of properties, that begin so."""
        if kind != "property":
            return await find_by_id_or_name(universe, f"cupboard.{kind}", "name", start, limit)
        found = await find_by_name(universe, "cupboard.property", "name", "")
        known = [each.data for each in found]
        if not known:  # a store without a cupboard has the built-in ones
            from dgent.cupboard.builtin import PROPERTIES

            known = [vars(each) for each in PROPERTIES.values()]
        names = [Name(str(each.get("name", "")), str(each.get("description", ""))) for each in known]
        return [each for each in names if each.word.startswith(start)]

    async def describer(self, universe: Universe, agent: str | None) -> Describer:
        """Return what describes commits of the cupboard, which belongs to all agents."""
        from dgent.cupboard.describe import CupboardDescriber

        return CupboardDescriber(universe)

    async def count_things(self, universe: Universe) -> Sequence[tuple[str, int]]:
        """Count crumbs, trails and stashes."""
        nouns = ("crumb", "trail", "stash")
        return [(noun, await universe.count(Query(schema=f"cupboard.{noun}"))) for noun in nouns]

    async def inspect(self, universe: Universe, *, deep: bool = False) -> list[Finding]:
        """Audit the cupboard; `deep` adds nothing here."""
        from dgent.cupboard.cupboard import Cupboard
        from dgent.store.upkeep import Finding

        found = (await Cupboard(universe).audit()).findings
        if not found:
            return [Finding("ok", "cupboard", "everything is as its rules say")]
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        texts = "; ".join(each.text for each in found[:NAMED])
        count = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
        message = f"{count} not as its rules say: {texts}{more}"
        return [Finding("problem", "cupboard", message, HINT)]

    def merge_rules(self) -> Rules:
        """Return the rules for crumbs, trails, stashes, leases and the catalog."""
        from dgent.cupboard.merge import RULES

        return RULES

    async def titles(self, universe: Universe, found: Sequence[Datum]) -> list[Title]:
        """Return crumbs, trails and stashes by name and state; of a comment the crumb that it is about."""
        crumbs = [str(each.data.get("crumb_id")) for each in found if each.schema == "cupboard.metadata"]
        named = zip(crumbs, await universe.get_many(crumbs, raw=True), strict=True) if crumbs else ()
        names = {id: name_of(crumb.data) for id, crumb in named if crumb is not None}
        return [_title(each, names) for each in found]

    def keeper(self, universe: Universe) -> Keeper:
        """Return the undo of a cupboard on this universe, which reads and writes as its handle does."""
        from dgent.cupboard.cupboard import Cupboard
        from dgent.cupboard.undo import CupboardUndo

        return CupboardUndo(Cupboard(universe))


ROOM = CupboardRoom()


def _title(found: Datum, crumbs: Mapping[str, str]) -> Title:
    data, kind = found.data, (found.schema or "").removeprefix("cupboard.")
    if kind == "metadata":
        about = str(data.get("crumb_id"))
        kind = "comment" if data.get("table_name") == "comments" else str(data.get("table_name"))
        return Title(kind, about, crumbs.get(about, about), "of a crumb")
    if kind == "stash":
        return Title(kind, found.id, name_of(data), str(data.get("stash_type", "")))
    if kind == "trail" and data.get("lesson"):
        kind = "lesson"
    return Title(kind, found.id, name_of(data), str(data.get("state", "")))


def name_of(data: Mapping[str, Any]) -> str:
    name = data.get("name")
    return " ".join(name.split())[:MAX_NAME] if isinstance(name, str) else ""
