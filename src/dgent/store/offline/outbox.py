"""The outbox: commits that wait for a store that cannot be reached, in a separate SQLite store.

It is opened with the universe, even while the store can be reached, so that it cannot fail to open when it is
needed. Programs on one machine may share one; only one of them replays at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dgent import clock
from dgent.errors import (
    Conflict,
    HistoryGone,
    KeyReused,
    NoBackendAvailable,
    NotFound,
    Unavailable,
    VersionConflict,
)
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    STORED,
    Backend,
    Change,
    Commit,
    Committed,
    Declaration,
    Delete,
    Item,
    Keep,
    Op,
    Put,
)
from dgent.store.offline.entry import (
    CONFLICT,
    ENTRY,
    SHOWN,
    OutboxEntry,
    name_of,
    read_entry,
    show_datum,
    show_op,
)
from dgent.system import files

PART = "dgent.outbox.part"
HOME = "dgent.outbox.home"
PART_BYTES = 8 << 20  # a commit may be larger than one record
LOCK_S = 0.05  # how often to check whether another program has finished replaying
_BATCH = 500


class OutboxOwner(msgspec.Struct, frozen=True):
    """The store that the outbox belongs to; `epoch` is set once that store was seen with records."""

    place: str
    epoch: str = ""


class SendAttempt(msgspec.Struct, frozen=True):
    """The commits that were being sent, and since when; some of them may have arrived."""

    at: int = 0
    names: tuple[str, ...] = ()


class Clash(msgspec.Struct, frozen=True):
    """A commit that the store refused, with the reason and the records of the store."""

    entry: OutboxEntry
    code: str
    reason: str
    theirs: tuple[Datum | None, ...]


class Outbox:
    """The pending commits and the refused ones, as of the last `refresh`."""

    def __init__(self, backend: Backend, path: str) -> None:
        self.backend, self.path = backend, path
        self.pending: dict[str, OutboxEntry] = {}
        self.clashes: dict[str, Datum] = {}
        self.generation = 0  # counts up whenever `pending` loses something
        self._seen = -1
        self._looking = asyncio.Lock()  # two at once could restore what one of them saw removed

    # -- lifecycle ------------------------------------------------------------------------

    async def open(self, place: str) -> None:
        """Open the outbox of the store at a place; refused when it holds commits for another one."""
        if not await self.backend.is_available():
            raise NoBackendAvailable(
                f"the outbox cannot be opened at {self.path}",
                hint="check that its folder exists and that you may write to it",
            )
        await self.backend.open()
        try:
            for name in (ENTRY, PART, HOME, CONFLICT):
                await self.backend.declare(Declaration(name, 1, history="none", feed=name != PART))
            await self.refresh()
            await self._claim(place)
        except BaseException:
            await self.backend.close()
            raise

    async def close(self) -> None:
        """Close the outbox; pending commits stay in it."""
        await self.backend.close()

    async def _claim(self, place: str) -> None:
        home = await self.read_owner()
        if home is not None and home.place != place:
            if self.pending or self.clashes:
                raise Conflict(
                    f"the outbox {self.path} belongs to {home.place}, and holds commits for it",
                    hint="use another outbox file for this store",
                )
            home = None
        if home is None:
            await self.write_owner(OutboxOwner(place))

    async def read_owner(self) -> OutboxOwner | None:
        """Return the store that the outbox belongs to; None if it is new."""
        found = await self.backend.get(HOME)
        return None if found is None else msgspec.convert(found.data, OutboxOwner)

    async def write_owner(self, home: OutboxOwner) -> None:
        """Record the store that the outbox belongs to."""
        await self._commit([Put(_note(HOME, home))])

    # -- reading --------------------------------------------------------------------------

    def entries(self) -> list[OutboxEntry]:
        """Return the pending commits in the order of their seq in the outbox, not of the clock."""
        return sorted(self.pending.values(), key=lambda entry: entry.seq)

    async def refresh(self) -> None:
        """Read what this and other programs wrote to the outbox since the last call."""
        async with self._looking:
            await self._read_changes()

    async def _read_changes(self) -> None:
        newest = await self.backend.last_seq()
        if newest == self._seen:
            return
        try:
            while self._seen >= 0 and (changes := await self.backend.changes(self._seen, _BATCH)):
                for change in changes:
                    await self._apply_change(change)
                    self._seen = change.seq or 0
        except HistoryGone:
            self._seen = -1
        if self._seen < 0:
            await self._load()
        # Commits that the feed does not show count too.
        self._seen = max(self._seen, newest)

    async def _load(self) -> None:
        newest = await self.backend.last_seq()
        found = (await self.backend.query(Query(schema=ENTRY, limit=None), STORED)).items
        self.pending = {datum.id: await self._read_entry(datum) for datum in found}
        clashes = (await self.backend.query(Query(schema=CONFLICT, limit=None), STORED)).items
        self.clashes = {datum.id: datum for datum in clashes}
        self.generation += 1
        self._seen = newest

    async def _apply_change(self, change: Change) -> None:
        for item in change.items:
            if item.op == "forget":
                await self._load()
            elif item.schema == ENTRY:
                await self._apply_entry(item)
            elif item.schema == CONFLICT and item.id is not None:
                self.clashes.pop(item.id, None)
                if item.datum is not None:
                    self.clashes[item.id] = item.datum

    async def _apply_entry(self, item: Item) -> None:
        assert item.id is not None
        if item.op == "put" and item.datum is not None and item.id not in self.pending:
            self.pending[item.id] = await self._read_entry(item.datum)
        elif item.op == "delete" and self.pending.pop(item.id, None) is not None:
            self.generation += 1

    async def _read_entry(self, datum: Datum) -> OutboxEntry:
        parts = int(datum.data.get("parts", 0))
        if parts:
            rest = await self.backend.get_many([f"{datum.id}/{n}" for n in range(parts)])
            content = b"".join(part.content for part in rest if part is not None)
            datum = datum.replace(content=datum.content + content)
        return read_entry(datum)

    # -- writing --------------------------------------------------------------------------

    async def append(self, entry: OutboxEntry) -> tuple[OutboxEntry, bool]:
        """Add a commit and return it with False; if its key is pending already, that entry with True."""
        try:
            done = await self._commit([Put(each, 0) for each in _split(entry.record())])
        except VersionConflict:
            await self.refresh()
            earlier = self.pending.get(entry.name)
            if earlier is None:  # another program has replayed it meanwhile
                return await self.append(entry)
            if earlier.digest != entry.digest:
                raise KeyReused("the key was used before, for a different commit that is pending") from None
            return earlier, True
        async with self._looking:
            if done.seq == self._seen + 1:  # nobody else wrote, so nothing else needs to be read
                self._seen += 1
                self.pending[entry.name] = msgspec.structs.replace(entry, seq=done.seq)
        await self.refresh()
        return self.pending.get(entry.name, entry), False

    async def settle(self, done: Sequence[OutboxEntry], clashes: Sequence[Clash]) -> None:
        """Remove the commits that are done, and store the refused ones as conflicts, in one commit."""
        gone = [*done, *(clash.entry for clash in clashes)]
        ops: list[Op] = [Delete(name) for entry in gone for name in await self._record_ids(entry.name)]
        ops += [Put(each) for clash in clashes for each in _split(_clash_record(clash))]
        if ops:
            await self._commit(ops)
            await self.refresh()

    async def _record_ids(self, name: str) -> list[str]:
        """Return the record ids of an entry or a conflict: its own and those of its parts."""
        found = await self.backend.get(name)
        parts = 0 if found is None else int(found.data.get("parts", 0))
        return [name, *(f"{name}/{n}" for n in range(parts))]

    async def read_attempt(self) -> SendAttempt:
        """Return the last recorded attempt to send commits."""
        found = await self.backend.get(f"{HOME}:trying")
        return SendAttempt() if found is None else msgspec.convert(found.data, SendAttempt)

    async def write_attempt(self, entries: Sequence[OutboxEntry]) -> None:
        """Record the commits that are about to be sent."""
        names = tuple(entry.name for entry in entries)
        await self._commit([Put(_note(f"{HOME}:trying", SendAttempt(clock.now_us(), names)))])

    async def discard(self, name: str) -> None:
        """Delete a conflict permanently, by the beginning of its id."""
        await self.refresh()
        like = [id for id in self.clashes if id.startswith(name)]
        if len(like) != 1:
            raise NotFound(
                f"conflict {name!r} {'is not unique' if like else 'does not exist'}",
                hint="`dgent outbox list` shows conflicts and their ids",
            )
        await self.backend.forget(await self._record_ids(like[0]), "system", None)
        await self.refresh()

    async def forget(self, ids: Sequence[str]) -> None:
        """Erase every trace of some records from the outbox's file."""
        about = [name for name, datum in self.clashes.items() if set(datum.data.get("ids", ())) & set(ids)]
        names = [each for name in about for each in await self._record_ids(name)]
        # There must be at least one record to forget: only forgetting clears free pages, which may still
        # hold replayed commits.
        await self._commit([Put(_note(f"{HOME}:wiped", SendAttempt()))])
        await self.backend.forget([*names, f"{HOME}:wiped"], "system", None)
        await self.refresh()

    async def tidy(self) -> None:
        """Remove the history of replayed commits."""
        await self.backend.compact(Keep(versions=0))

    async def _commit(self, ops: Sequence[Op]) -> Committed:
        return await self.backend.commit(Commit(ops), STORED)

    # -- the replay lock ------------------------------------------------------------------

    @asynccontextmanager
    async def exclusive_replay(self) -> AsyncIterator[None]:
        """Hold the lock for replaying; the system releases it if the program is killed."""
        try:
            handle = os.open(self.path + ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise Unavailable(f"{self.path}.lock cannot be opened: {error.strerror}") from None
        try:
            # On systems without such locks, the keys still prevent that a commit happens twice.
            while not files.try_lock(handle):
                await asyncio.sleep(LOCK_S)
            yield
        finally:
            os.close(handle)


def _note(id: str, value: Any) -> Datum:
    return Datum(id, data=msgspec.to_builtins(value), schema=HOME, schema_version=1, author="system")


def _split(record: Datum) -> list[Datum]:
    """Split a record with large content into itself and records with the rest of the content."""
    content = record.content
    rest = [content[start : start + PART_BYTES] for start in range(PART_BYTES, len(content), PART_BYTES)]
    data = {**record.data, "parts": len(rest)}
    parts = [
        Datum(f"{record.id}/{n}", content=piece, schema=PART, schema_version=1)
        for n, piece in enumerate(rest)
    ]
    return [record.replace(content=content[:PART_BYTES], data=data, schema_version=1), *parts]


def _clash_record(clash: Clash) -> Datum:
    """Return the record of a conflict: both sides for people, and the whole commit in the content."""
    entry = clash.entry
    data: dict[str, Any] = {
        "key": entry.key,
        "ids": entry.ids,
        "author": entry.author,
        "note": entry.note,
        "made_at": clock.text(clock.from_us(entry.at)),
        "code": clash.code,
        "reason": clash.reason,
        "ours": [show_op(step) for step in entry.steps[:SHOWN]],
        "theirs": [show_datum(datum) for datum in clash.theirs[:SHOWN]],
    }
    content = msgspec.msgpack.encode(entry)
    return Datum(
        name_of(f"conflict of {entry.key}"), data=data, content=content, schema=CONFLICT, author="system"
    )
