"""The outbox: commits that wait for a store that cannot be reached, in a SQLite store of their own.

It is opened with the universe, also while the store is there: an outbox that cannot be opened when it
is needed would be none. Programs on one machine may share one; only one of them replays at a time.
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
from dgent.store.offline.entry import CONFLICT, ENTRY, SHOWN, Entry, entry_of, name_of, shown, shown_datum
from dgent.system import files

PART = "dgent.outbox.part"
HOME = "dgent.outbox.home"
PART_BYTES = 8 << 20  # a commit may be larger than one record
LOCK_S = 0.05  # how often to look whether another program has finished replaying
_BATCH = 500


class Home(msgspec.Struct, frozen=True):
    """Which store the outbox belongs to; `epoch` once that store was seen with something in it."""

    place: str
    epoch: str = ""


class Trying(msgspec.Struct, frozen=True):
    """The commits that were being sent, and since when: some of them may have arrived."""

    at: int = 0
    names: tuple[str, ...] = ()


class Clash(msgspec.Struct, frozen=True):
    """A commit that the store refused, with why, and what the store has in its place."""

    entry: Entry
    code: str
    reason: str
    theirs: tuple[Datum | None, ...]


class Outbox:
    """The pending commits in order, and those that conflicted, as of the last `refresh`."""

    def __init__(self, backend: Backend, path: str) -> None:
        self.backend, self.path = backend, path
        self.pending: dict[str, Entry] = {}
        self.clashes: dict[str, Datum] = {}
        self.turn = 0  # counts up whenever `pending` loses something
        self._seen = -1
        self._looking = asyncio.Lock()  # two at once could bring back what one of them saw go

    # -- lifecycle ------------------------------------------------------------------------

    async def open(self, place: str) -> None:
        """Open the outbox of the store at a place; refused when it holds commits for another one."""
        if not await self.backend.is_available():
            raise NoBackendAvailable(
                f"the outbox cannot be opened at {self.path}", hint="does the folder exist, and is it yours?"
            )
        await self.backend.open()
        try:
            for name in (ENTRY, PART, HOME, CONFLICT):
                await self.backend.declare(Declaration(name, 1, history="none", feed=name != PART))
            await self.refresh()
            await self._belong(place)
        except BaseException:
            await self.backend.close()
            raise

    async def close(self) -> None:
        """Let go of it; what is pending stays."""
        await self.backend.close()

    async def _belong(self, place: str) -> None:
        home = await self.home()
        if home is not None and home.place != place:
            if self.pending or self.clashes:
                raise Conflict(
                    f"the outbox {self.path} belongs to {home.place}, and holds commits for it",
                    hint="give this store an outbox of its own",
                )
            home = None
        if home is None:
            await self.settle_in(Home(place))

    async def home(self) -> Home | None:
        """Which store it belongs to."""
        found = await self.backend.get(HOME)
        return None if found is None else msgspec.convert(found.data, Home)

    async def settle_in(self, home: Home) -> None:
        """Write down which store it belongs to."""
        await self._commit([Put(_note(HOME, home))])

    # -- what is in it --------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """The pending commits in the order in which they were made, whatever the clock said."""
        return sorted(self.pending.values(), key=lambda entry: entry.seq)

    async def refresh(self) -> None:
        """See what this and other programs wrote to it meanwhile."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        newest = await self.backend.last_seq()
        if newest == self._seen:
            return
        try:
            while self._seen >= 0 and (changes := await self.backend.changes(self._seen, _BATCH)):
                for change in changes:
                    await self._take(change)
                    self._seen = change.seq or 0
        except HistoryGone:
            self._seen = -1
        if self._seen < 0:
            await self._load()
        # Commits without anything for the feed count too.
        self._seen = max(self._seen, newest)

    async def _load(self) -> None:
        newest = await self.backend.last_seq()
        found = (await self.backend.query(Query(schema=ENTRY, limit=None), STORED)).items
        self.pending = {datum.id: await self._entry(datum) for datum in found}
        clashes = (await self.backend.query(Query(schema=CONFLICT, limit=None), STORED)).items
        self.clashes = {datum.id: datum for datum in clashes}
        self.turn += 1
        self._seen = newest

    async def _take(self, change: Change) -> None:
        for item in change.items:
            if item.op == "forget":
                await self._load()
            elif item.schema == ENTRY:
                await self._take_entry(item)
            elif item.schema == CONFLICT and item.id is not None:
                self.clashes.pop(item.id, None)
                if item.datum is not None:
                    self.clashes[item.id] = item.datum

    async def _take_entry(self, item: Item) -> None:
        assert item.id is not None
        if item.op == "put" and item.datum is not None and item.id not in self.pending:
            self.pending[item.id] = await self._entry(item.datum)
        elif item.op == "delete" and self.pending.pop(item.id, None) is not None:
            self.turn += 1

    async def _entry(self, datum: Datum) -> Entry:
        parts = int(datum.data.get("parts", 0))
        if parts:
            rest = await self.backend.get_many([f"{datum.id}/{n}" for n in range(parts)])
            content = b"".join(part.content for part in rest if part is not None)
            datum = datum.replace(content=datum.content + content)
        return entry_of(datum)

    # -- changing it ----------------------------------------------------------------------

    async def append(self, entry: Entry) -> tuple[Entry, bool]:
        """Keep a commit for later; the one that is there, and True, when its key was used before."""
        try:
            done = await self._commit([Put(each, 0) for each in _split(entry.record())])
        except VersionConflict:
            await self.refresh()
            earlier = self.pending.get(entry.name)
            if earlier is None:  # replayed by another program at this very moment
                return await self.append(entry)
            if earlier.digest != entry.digest:
                raise KeyReused("the key was used before, for other work that is pending") from None
            return earlier, True
        async with self._looking:
            if done.seq == self._seen + 1:  # nobody else wrote, so there is nothing else to see
                self._seen += 1
                self.pending[entry.name] = msgspec.structs.replace(entry, seq=done.seq)
        await self.refresh()
        return self.pending.get(entry.name, entry), False

    async def settle(self, done: Sequence[Entry], clashes: Sequence[Clash]) -> None:
        """Take out what the store has now, and set aside what it refused, in one commit."""
        gone = [*done, *(clash.entry for clash in clashes)]
        ops: list[Op] = [Delete(name) for entry in gone for name in await self._names(entry.name)]
        ops += [Put(each) for clash in clashes for each in _split(_clash_record(clash))]
        if ops:
            await self._commit(ops)
            await self.refresh()

    async def _names(self, name: str) -> list[str]:
        """The records of an entry or a conflict: itself and its parts."""
        found = await self.backend.get(name)
        parts = 0 if found is None else int(found.data.get("parts", 0))
        return [name, *(f"{name}/{n}" for n in range(parts))]

    async def trying(self) -> Trying:
        """What was being sent when it was last written down."""
        found = await self.backend.get(f"{HOME}:trying")
        return Trying() if found is None else msgspec.convert(found.data, Trying)

    async def try_now(self, entries: Sequence[Entry]) -> None:
        """Write down what is going to be sent."""
        names = tuple(entry.name for entry in entries)
        await self._commit([Put(_note(f"{HOME}:trying", Trying(clock.now_us(), names)))])

    async def discard(self, name: str) -> None:
        """Let go of a conflict for good, bytes and all."""
        await self.refresh()
        like = [id for id in self.clashes if id.startswith(name)]
        if len(like) != 1:
            raise NotFound(f"there is no conflict {name!r}", hint="`dgent outbox list` shows them")
        await self.backend.forget(await self._names(like[0]), "system", None)
        await self.refresh()

    async def forget(self, ids: Sequence[str]) -> None:
        """Leave no byte about some records in the outbox's file."""
        about = [name for name, datum in self.clashes.items() if set(datum.data.get("ids", ())) & set(ids)]
        names = [each for name in about for each in await self._names(name)]
        # One more, so that there is one: what was replayed may still be in pages that are free, and to
        # forget anything clears those.
        await self._commit([Put(_note(f"{HOME}:wiped", Trying()))])
        await self.backend.forget([*names, f"{HOME}:wiped"], "system", None)
        await self.refresh()

    async def tidy(self) -> None:
        """Let go of the traces of what was replayed."""
        await self.backend.compact(Keep(versions=0))

    async def _commit(self, ops: Sequence[Op]) -> Committed:
        return await self.backend.commit(Commit(ops), STORED)

    # -- one at a time --------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be the only program that replays; the system ends the hold of one that was killed."""
        try:
            handle = os.open(self.path + ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise Unavailable(f"{self.path}.lock cannot be opened: {error.strerror}") from None
        try:
            # Where there are no such locks, the keys alone see to it that nothing happens twice.
            while not files.try_lock(handle):
                await asyncio.sleep(LOCK_S)
            yield
        finally:
            os.close(handle)


def _note(id: str, value: Any) -> Datum:
    return Datum(id, data=msgspec.to_builtins(value), schema=HOME, schema_version=1, author="system")


def _split(record: Datum) -> list[Datum]:
    """A record whose content may be larger than one can be: itself, and the rest of its content."""
    content = record.content
    rest = [content[start : start + PART_BYTES] for start in range(PART_BYTES, len(content), PART_BYTES)]
    data = {**record.data, "parts": len(rest)}
    parts = [
        Datum(f"{record.id}/{n}", content=piece, schema=PART, schema_version=1)
        for n, piece in enumerate(rest)
    ]
    return [record.replace(content=content[:PART_BYTES], data=data, schema_version=1), *parts]


def _clash_record(clash: Clash) -> Datum:
    """Both versions, for people to read; the whole commit is in the content."""
    entry = clash.entry
    data: dict[str, Any] = {
        "key": entry.key,
        "ids": entry.ids,
        "author": entry.author,
        "note": entry.note,
        "made_at": clock.text(clock.from_us(entry.at)),
        "code": clash.code,
        "reason": clash.reason,
        "ours": [shown(step) for step in entry.steps[:SHOWN]],
        "theirs": [shown_datum(datum) for datum in clash.theirs[:SHOWN]],
    }
    content = msgspec.msgpack.encode(entry)
    return Datum(
        name_of(f"conflict of {entry.key}"), data=data, content=content, schema=CONFLICT, author="system"
    )
