"""The texts of rooms, as a search needs them: declared to the store, and up to date.

A program that searches may know no room, and a store may be older than the texts of a room. So the search
declares them itself. That registers nothing: queries of the program answer as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from dgent.errors import Unavailable
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.search import NONE_OWN, OwnVersions
from dgent.universe.contract import Contracts
from dgent.universe.room import Room, load_room
from dgent.universe.upgrade import IndexBuilds

if TYPE_CHECKING:
    from dgent.universe.universe import Universe


class RoomTexts:
    """The rooms of one open store, as far as its searches are concerned."""

    def __init__(self) -> None:
        self._views: dict[str, Contracts] = {}
        self._declared: set[str] = set()  # rooms whose texts the store knows
        # The commit up to which a room's texts are up to date, and those that could not be stored.
        self._fresh: dict[str, tuple[tuple[bytes, int], OwnVersions]] = {}
        self._steady = False  # nothing was committed between the last two searches

    def steady_seq(self, universe: Universe, schemas: Collection[str] | None) -> int | None:
        """Return the commit that the rooms of a search are up to date with, if that is likely the newest.

        A search of that very moment needs no preparing. None where nothing is known, or is to be prepared.
        """
        return self.common_seq(universe, schemas) if self._steady and universe.degraded is None else None

    def common_seq(self, universe: Universe, schemas: Collection[str] | None) -> int | None:
        """Return the commit that all rooms of a search are up to date with; None if there is no such one."""
        epoch, seqs = getattr(universe.backend, "epoch", b""), set()
        for name in _rooms_of(schemas):
            known, pending = self._fresh.get(name, (None, NONE_OWN))
            seqs.add(None if known is None or pending or known[0] != epoch else known[1])
        return seqs.pop() if len(seqs) == 1 else None

    def note_search(self, before: int | None, seq: int | None) -> None:
        """Take note of the seq that rooms were up to date with before a search, and of the search's own."""
        self._steady = seq is not None and seq == before

    async def prepare(
        self, universe: Universe, builds: IndexBuilds, schemas: Collection[str] | None
    ) -> OwnVersions:
        """Make rooms ready for a search of some schemas, or of all.

        Returns texts that count instead of the stored ones. The universe is one that shows everything.
        """
        rooms = [*_rooms_of(schemas)]
        if not rooms:
            return NONE_OWN
        now = None
        if universe.degraded is None:
            now = getattr(universe.backend, "epoch", b""), await universe.seq()
        found: dict[str, Datum | None] = {}
        for name in rooms:
            if now is None or self._fresh.get(name) != (now, NONE_OWN):
                found |= await self._prepare(universe, builds, name, now)
        return found

    async def find_at(self, universe: Universe, schemas: Collection[str] | None, seq: int) -> OwnVersions:
        """Return texts of rooms as of an earlier commit, once rooms are ready for a search."""
        found: dict[str, Datum | None] = {}
        for name in _rooms_of(schemas):
            room = load_room(name)
            found |= await room.find_texts_at(self._handle(universe, name, room), seq)
        return found

    async def _prepare(
        self, universe: Universe, builds: IndexBuilds, name: str, now: tuple[bytes, int] | None
    ) -> OwnVersions:
        """Make a room ready, as of the newest commit; None if the store is unavailable."""
        room = load_room(name)
        own = self._handle(universe, name, room)
        if now is None or universe.degraded is not None:
            try:
                return await room.refresh_texts(own, None)
            except Unavailable:
                return NONE_OWN  # the local copy lacks parts of what they are made from
        known, pending = self._fresh.get(name, (None, NONE_OWN))
        if name not in self._declared:
            await self._declare(universe, own, builds, room)
            self._declared.add(name)
        # What could not be stored then is looked at again, with everything else.
        since = known[1] if known is not None and known[0] == now[0] and not pending else None
        pending = await room.refresh_texts(own, since)
        self._fresh[name] = now, pending
        return pending

    def _handle(self, universe: Universe, name: str, room: Room) -> Universe:
        """Return the universe for a room, which knows its schemas without declaring them."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = Contracts()
            for schema in room.schemas:
                view.add(schema)
        return universe.for_room(name, partial=True, contracts=view)

    async def _declare(self, universe: Universe, own: Universe, builds: IndexBuilds, room: Room) -> None:
        """Declare the texts of a room, if it was ever used in the store."""
        unknown = [each for each in room.schemas if universe.contracts.by_name(each.name) is None]
        for schema in unknown:
            if await own.query(schema=schema.name, limit=1, raw=True):
                break
        else:
            return
        for schema in unknown:
            if schema.text:
                await builds.declare(universe.backend, schema, own.contracts)

    def view_of(self, schema: str, contracts: Contracts) -> Contracts:
        """Return contracts that know a schema: those of a program, or those of the schema's room."""
        return contracts if contracts.by_name(schema) else self._views.get(_room_of(schema), contracts)


def _room_of(schema: str) -> str:
    return reserved.OWNERS.get(schema, "")


def _rooms_of(schemas: Collection[str] | None) -> Iterable[str]:
    """Return the rooms of some schemas; all of them for None."""
    if schemas is None:
        return reserved.MODULES
    return dict.fromkeys(room for room in map(_room_of, schemas) if room)
