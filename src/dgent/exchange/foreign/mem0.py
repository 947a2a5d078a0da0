"""Import memories of mem0: its history.db with all versions, and memories that were exported as JSON.

The versions of a memory become those of its record, one after another; the record says in each how it came
to be. A run that was interrupted continues with the first version that is not here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dgent import codec, ids
from dgent.errors import InputError, NotFound, VersionConflict
from dgent.exchange import folders
from dgent.exchange.foreign.database import open_database, parse_moment, read_batches
from dgent.exchange.foreign.legacy.source import begins_as_sqlite
from dgent.exchange.foreign.migration import (
    DIFFERENT,
    FORGOTTEN,
    Migration,
    MigrationTally,
    find_forgotten,
    is_same_data,
    read_json_file,
)
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.backend import Delete, Op, Put
from dgent.store.sqlite.foreign import ForeignDatabase, ForeignRow
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe

MEMORY: Schema[Any] = Schema("mem0.memory", indexes=("user_id", "agent_id", "run_id"), text={"text": 1})
MESSAGE: Schema[Any] = Schema("mem0.message", indexes=("session_scope",), text={"content": 1})
NOTE = "import from mem0"
EVENTS = ("ADD", "UPDATE", "DELETE")
COLUMNS = {"memory_id", "old_memory", "new_memory", "event"}
TEXTS = ("memory", "text", "data")
BATCH = 200
QDRANT = "storage.sqlite"


class Memory(NamedTuple):
    """A memory: its versions, oldest first, None for a deletion; and the rows that each comes from."""

    id: str
    created_at: datetime | None
    versions: list[dict[str, Any] | None]
    rows: list[list[tuple[str, int]]]

    def add(self, data: dict[str, Any] | None, place: tuple[str, int]) -> None:
        """Add a version, unless it says the same as the last one; fields of both are kept."""
        last = self.versions[-1] if self.versions else None
        if last is not None and data is not None and last["text"] == data["text"]:
            self.versions[-1] = {**last, **data}
            self.rows[-1].append(place)
        else:
            self.versions.append(data)
            self.rows.append([place])


async def import_mem0(
    universe: Universe, path: Path, *, dry_run: bool = False, progress: Progress | None = None
) -> Migration:
    """Import a history.db, a JSON file, or the ones in a folder, all of which stay as they are."""
    folders.check_path(path, "source")
    universe.register(MEMORY, MESSAGE)
    run = _Import(universe, dry_run, ProgressReporter(progress, None))
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.is_file() and each.suffix in (".db", ".json"))
        for each in sorted(path.rglob(QDRANT)):
            place = str(each.relative_to(path))
            run.tally.report(place, 0, "a local folder of qdrant has pickled points: use memory.get_all()")
        if not found:
            raise InputError(f"{path} has no history.db and no JSON file", field="source")
    elif path.is_file():
        found = [path]
    else:
        raise NotFound(f"there is no file {path}", path=str(path))
    databases = [each for each in found if await in_thread(lambda _, at=each: begins_as_sqlite(at))]  # type: ignore[misc]
    for each in databases:
        async with open_database(each) as database:
            await run.read_database(each.name, database)
    for each in found:
        if each not in databases:
            run.read_export(each.name, await read_json_file(each))
    await run.put_all()
    run.pace.end()
    return run.tally.done(str(path), dry_run)


class _Import:
    def __init__(self, universe: Universe, dry_run: bool, pace: ProgressReporter) -> None:
        self._universe, self._dry_run, self.pace = universe, dry_run, pace
        self.tally = MigrationTally()
        self._memories: dict[str, Memory] = {}
        self._messages: list[tuple[ForeignRow, Datum]] = []

    # -- reading ------------------------------------------------------------------------------

    async def read_database(self, name: str, database: ForeignDatabase) -> None:
        """Read the versions and the messages of a history.db."""
        if not set(database.tables.get("history", ())) >= COLUMNS:
            raise InputError(f"{name} has no table of mem0's history", field="source")
        order = ("created_at", "updated_at", "id")
        async for rows in read_batches(database, "history", order, self.tally, self.pace):
            for row in rows:
                self._read_version(row)
        async for rows in read_batches(database, "messages", ("created_at",), self.tally, self.pace):
            for row in rows:
                self._read_message(row)

    def _read_version(self, row: ForeignRow) -> None:
        values = row.values
        id, event, text = values.get("memory_id"), values.get("event"), values.get("new_memory")
        deleted = event == "DELETE" or values.get("is_deleted") == 1
        if not isinstance(id, str) or not id:
            self.tally.leave("memories", row.table, row.number, "its memory_id is not a text")
        elif event not in EVENTS or not (deleted or isinstance(text, str)):
            self.tally.leave("memories", row.table, row.number, f"{event!r:.40} has no text ({id:.60})")
        else:
            kept = {key: values.get(key) for key in ("actor_id", "role", "created_at", "updated_at")}
            data = None if deleted else _clean({"text": text, "memory_id": id, **kept})
            made = self._memories.setdefault(id, Memory(id, parse_moment(values.get("created_at")), [], []))
            if data is None and not (made.versions and made.versions[-1]):
                self.tally.leave("memories", row.table, row.number, f"it was deleted before ({id:.60})")
            else:
                made.add(data, (row.table, row.number))

    def _read_message(self, row: ForeignRow) -> None:
        data = _clean({key: value for key, value in row.values.items() if key != "id"})
        id = record_id("mem0-message", str(row.values.get("id")))
        made = parse_moment(row.values.get("created_at"))
        datum = Datum(id, made, data, schema=MESSAGE.name, schema_version=MESSAGE.version)
        if isinstance(row.values.get("content"), str):
            self._messages.append((row, datum))
        else:
            self.tally.leave("messages", row.table, row.number, "its content is not a text")

    def read_export(self, name: str, given: Any) -> None:
        """Read memories that `get_all` returned; one that has versions gets its fields."""
        if isinstance(given, dict):
            given = next((given[key] for key in ("results", "memories") if key in given), [given])
        for number, each in enumerate(given if isinstance(given, list) else [given], 1):
            id = each.get("id") if isinstance(each, dict) else None
            texts = [each[key] for key in TEXTS if isinstance(each.get(key), str)] if id else []
            if not isinstance(id, str) or not texts:
                self.tally.leave("memories", name, number, "it has no id or no text")
                continue
            rest = {key: value for key, value in each.items() if key not in (*TEXTS, "id")}
            data = _clean({"text": texts[0], "memory_id": id, **rest})
            made = self._memories.setdefault(id, Memory(id, parse_moment(rest.get("created_at")), [], []))
            made.add(data, (name, number))

    # -- writing ------------------------------------------------------------------------------

    async def put_all(self) -> None:
        """Write the memories, some at a time, and the messages."""
        memories = [each for each in self._memories.values() if each.versions]
        for at in range(0, len(memories), BATCH):
            await self._put_memories(memories[at : at + BATCH])
        for at in range(0, len(self._messages), BATCH):
            await self._put_messages(self._messages[at : at + BATCH])

    async def _put_memories(self, memories: Sequence[Memory]) -> None:
        """Write the versions that are missing: the next one of each memory in a commit."""
        named = {record_id("mem0", each.id): each for each in memories}
        gone = await find_forgotten(self._universe, list(named))
        starts: dict[str, int] = {}
        for id, memory in named.items():
            reason = FORGOTTEN if id in gone else None
            stored = [] if reason else (await self._universe.history(id))[::-1]
            known = [None if each.datum is None else each.datum.data for each in stored]
            shared = min(len(known), len(memory.versions))
            if not is_same_data(known[:shared], memory.versions[:shared]):
                reason = DIFFERENT
            try:
                for data in memory.versions:
                    self._make(id, memory, data or {}).check()
            except InputError as error:
                reason = error.message
            if reason is not None:
                for place, row in chain.from_iterable(memory.rows):
                    self.tally.leave("memories", place, row, f"{reason} ({memory.id:.60})")
                continue
            starts[id] = shared
            if shared:
                self.tally.count("memories", "already_there", sum(map(len, memory.rows[:shared])))
        for number in range(max((len(named[id].versions) for id in starts), default=0)):
            due = [id for id in starts if starts[id] <= number < len(named[id].versions)]
            await self._put_round({id: named[id] for id in due}, number)

    async def _put_round(self, due: dict[str, Memory], number: int) -> None:
        if not due:
            return
        ops: list[Op] = []
        for id, memory in due.items():
            data = memory.versions[number]
            ops.append(Delete(id) if data is None else Put(self._make(id, memory, data)))
        if not self._dry_run:
            await self._universe.commit(ops, note=NOTE)
            stored = await self._universe.get_many(list(due), raw=True)
            for memory, found in zip(due.values(), stored, strict=True):
                wanted = memory.versions[number]
                if not is_same_data(None if found is None else found.data, wanted):
                    raise VersionConflict(f"the memory {memory.id!r} is changed by others meanwhile")
        self.tally.count("memories", "written", sum(len(each.rows[number]) for each in due.values()))
        self.pace.add(len(due))

    def _make(self, id: str, memory: Memory, data: dict[str, Any]) -> Datum:
        tags = [data[key] for key in ("user_id", "agent_id", "run_id") if isinstance(data.get(key), str)]
        return Datum(
            id,
            memory.created_at,
            data,
            tags=frozenset(tag for tag in tags if tag),
            schema=MEMORY.name,
            schema_version=MEMORY.version,
        )

    async def _put_messages(self, messages: Sequence[tuple[ForeignRow, Datum]]) -> None:
        names = [datum.id for _, datum in messages]
        gone = await find_forgotten(self._universe, names)
        there = await self._universe.get_many(names, raw=True)
        new = [
            datum
            for (_, datum), found in zip(messages, there, strict=True)
            if found is None and datum.id not in gone
        ]
        if new and not self._dry_run:
            await self._universe.commit([Put(datum, 0) for datum in new], note=NOTE)
        for (row, datum), found in zip(messages, there, strict=True):
            if datum.id in gone:
                self.tally.leave("messages", row.table, row.number, FORGOTTEN)
            else:
                self.tally.count("messages", "written" if found is None else "already_there")


def _clean(data: dict[str, Any]) -> dict[str, Any]:
    """Return fields without those that have no value; bytes and the like as text."""
    return {
        key: value if _is_json(value) else repr(value)[:200]
        for key, value in data.items()
        if value is not None
    }


def _is_json(value: Any) -> bool:
    try:
        codec.plain([value])
    except InputError:
        return False
    return True


def record_id(kind: str, name: str) -> str:
    """Return the id of the record of something with a name: readable, or by its digest."""
    fits = name.isprintable() and name.isascii() and 0 < len(name) <= 200
    if fits:
        return ids.compose(kind, ids.escape(name))
    return ids.compose(kind, f"~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}")
