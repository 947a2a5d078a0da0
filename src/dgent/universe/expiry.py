"""Delete expired records in the background, and let records live on that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dgent import clock
from dgent.errors import DgentError, VersionConflict
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import STORED, Backend, Commit, Delete, Put
from dgent.system.threads import on_loop
from dgent.universe.gate import Gate
from dgent.universe.past import Past

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

BATCH = 200  # records that one commit of a sweep deletes
LONGEST_S = 60.0  # between two sweeps
SHORTEST_S = 0.5
GATHER_S = 1.0  # reads are gathered so long before one write lets their records live on
STEP = timedelta(minutes=1)  # a record's time is extended at most once in it, or in a tenth of its lifetime
NOTE = "expired"


async def sweep(universe: Universe, limit: int | None = None) -> int:
    """Delete records that have expired, in small commits; return how many."""
    deleted, backend = 0, universe.backend
    while limit is None or deleted < limit:
        most = BATCH if limit is None else min(BATCH, limit - deleted)
        wanted = Query(expired=True, limit=most, content=False, descending=False)
        found = (await backend.query(wanted, STORED)).items
        done = 0
        for room, some in groupby(sorted(found, key=_room_of), _room_of):
            done += await _delete(universe, list(some), room or universe._room)
        deleted += done
        if not done:
            break
        await asyncio.sleep(0)
    return deleted


def _room_of(datum: Datum) -> str:
    return reserved.OWNERS.get(datum.schema or "", "")


async def _delete(universe: Universe, some: Sequence[Datum], room: str | None) -> int:
    """Delete records that are as they were read; one by one if somebody was faster."""
    ops = [Delete(datum.id, datum.rev) for datum in some]
    try:
        done = await universe.backend.commit(
            Commit(ops, author=universe.author, note=NOTE, room=room), universe.contracts
        )
        return sum(each.changed for each in done.written)
    except VersionConflict:
        if len(some) == 1:
            return 0  # it was put again, or another program swept it
        return sum([await _delete(universe, [each], room) for each in some])


def is_due(datum: Datum, lifetime: timedelta, now: datetime | None = None) -> bool:
    """Return whether a record that lives for a time from now would expire notably later than it does."""
    expires = datum.expires_at
    if expires is None:
        return False
    return (now or clock.from_us(clock.now_us())) + lifetime - expires >= min(STEP, lifetime / 10)


def prolong(universe: Universe, given: Iterable[tuple[Datum, timedelta]]) -> None:
    """Have records live on for a time from now, if that is notably longer; written in the background."""
    universe._expiry.prolong(universe, given)


class ExpiryKeeper:
    """The background work of one open universe for records that expire."""

    def __init__(self) -> None:
        self.every_s = LONGEST_S
        self._sweeping: asyncio.Task[None] | None = None
        self._extending: asyncio.Task[None] | None = None
        self._read: dict[str, tuple[Datum, timedelta]] = {}

    def start(self, universe: Universe, lifetime: timedelta | None = None) -> None:
        """Sweep now and then from now on, more often if records live only for a short time."""
        if lifetime is not None:
            self.every_s = min(self.every_s, max(SHORTEST_S, lifetime.total_seconds() / 4))
        backend = _ungated(universe.backend)
        if self._sweeping is not None or isinstance(backend, Past) or on_loop(self.start, universe):
            return
        whole = universe._twin(backend=backend)
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(whole), name="dgent-sweep")

    async def _sweep(self, universe: Universe) -> None:
        while True:
            await asyncio.sleep(clock.jitter(self.every_s / 2, self.every_s))
            with suppress(DgentError):  # the next sweep finds what this one left
                await sweep(universe)

    def note_reads(self, universe: Universe, records: Iterable[Any]) -> None:
        """Have records live on that were read and whose schema says so; written later, never here."""
        lifetimes = universe.contracts.refreshed
        given = []
        for record in records:
            name = getattr(record, "schema_name", None) or getattr(record, "schema", None)
            lifetime = lifetimes.get(name or "")
            if lifetime is not None:
                given.append((record if isinstance(record, Datum) else record.datum, lifetime))
        self.prolong(universe, given)

    def prolong(self, universe: Universe, given: Iterable[tuple[Datum, timedelta]]) -> None:
        """Have records live on like the function of this name."""
        now = clock.from_us(clock.now_us())
        for datum, lifetime in given:
            if is_due(datum, lifetime, now):
                self._read[datum.id] = datum, lifetime
        if self._read and self._extending is None:
            self._start_extending(universe)

    def _start_extending(self, universe: Universe) -> None:
        backend = _ungated(universe.backend)
        if isinstance(backend, Past) or on_loop(self._start_extending, universe):
            return
        if self._extending is None:
            work = self._extend(backend, universe)
            self._extending = asyncio.get_running_loop().create_task(work, name="dgent-extend")

    async def _extend(self, backend: Backend, universe: Universe) -> None:
        await asyncio.sleep(GATHER_S)
        await self._flush(backend, universe)
        self._extending = None

    async def _flush(self, backend: Backend, universe: Universe) -> None:
        read, self._read = self._read, {}
        now = clock.from_us(clock.now_us())
        given = [datum.replace(expires_at=now + lifetime) for datum, lifetime in list(read.values())]
        if not given:
            return
        # A folder of lines has no other truth than commits; a server is sent no more than those.
        extend: Any = getattr(backend, "extend", None) if getattr(backend, "extends", False) else None
        with suppress(DgentError):  # the next read tries again
            if extend is not None:
                await extend([(datum.id, datum.rev, datum.expires_at) for datum in given])
                return
            for datum in given:
                commit = Commit(
                    (Put(datum, datum.rev),), author=universe.author, room=_room_of(datum) or None
                )
                with suppress(VersionConflict):
                    await backend.commit(commit, universe.contracts)

    async def cancel(self, universe: Universe) -> None:
        """End the background work; what was read last still lives on."""
        for task in (self._sweeping, self._extending):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self._flush(_ungated(universe.backend), universe)


def _ungated(backend: Backend) -> Backend:
    return backend.inner if isinstance(backend, Gate) else backend
