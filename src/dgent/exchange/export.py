"""Export and import of records as lines of JSON, for any store; an import is all or nothing.

The first line identifies the file. The last line has the number of records and the SHA-256 of every line
before it, so that a file that was cut, joined or changed is refused before anything is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from dgent import codec
from dgent.errors import Conflict, Corrupt, Denied, InputError, NotFound, Unsupported
from dgent.exchange import folders, lines
from dgent.exchange.snapshot import Snapshot
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import EVERY_ROOM, Put
from dgent.store.upkeep import forgotten_among, upkeep_of
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.gate import Gate
from dgent.universe.universe import Universe
from dgent.universe.write import put_op

ONE_COMMIT = 100_000  # records, and bytes, that are imported in one commit
ONE_COMMIT_BYTES = 32 * 1024 * 1024  # a commit needs several times as much memory
WRITE_BYTES = 1 << 18

Existing = Literal["refuse", "skip", "replace"]


class Exported(msgspec.Struct, frozen=True):
    """The result of an export."""

    records: int
    seq: int
    sha256: str
    size_bytes: int


class Imported(msgspec.Struct, frozen=True):
    """The result of an import, or of a dry run; `seq` is the last commit it made."""

    added: int
    replaced: int
    unchanged: int
    skipped: int
    seq: int | None
    dry_run: bool


LEFT_OUT = reserved.UNSHARED | {"blob.key"}
"""Schemas that lines do not hold: what stays in its store, and keys of blobs, whose contents are no lines."""


# -- export -------------------------------------------------------------------------------


async def export(
    universe: Universe,
    write: Callable[[bytes], object],
    *,
    query: Query | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write every live record, or those that match, as of one commit; `write` gets whole lines.

    A record without history that changes meanwhile is written as it is then.
    """
    # Content is part of a record, even if the query leaves it out.
    wanted = Query(limit=None, descending=False) if query is None else query.replace(content=True)
    await universe._ready()
    seq = await universe.seq()
    moment = Snapshot(universe, seq)
    pace = ProgressReporter(progress, None if progress is None else await moment.size(wanted))
    out = _LineWriter(write)
    out.add(lines.encode_header(await _universe_id(universe), seq))
    records = 0
    async with aclosing(moment.records(wanted)) as found:
        async for datum in found:
            if datum.schema in LEFT_OUT:
                continue
            if datum.problem is not None:
                raise Corrupt(datum.problem, hint="leave it out by a query, or restore it from a backup")
            out.add(lines.encode_record(datum))
            records += 1
            pace.at(records)
    sha256 = out.digest()
    out.add(lines.encode_footer(records, sha256))
    out.flush()
    pace.end()
    return Exported(records, seq, sha256, out.size)


class _LineWriter:
    """A writer of lines that buffers, counts and hashes them."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.size = 0
        self._write = write
        self._hash = hashlib.sha256()
        self._waiting = bytearray()

    def add(self, line: bytes) -> None:
        self._waiting += line
        self._waiting += b"\n"
        if len(self._waiting) >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        piece = bytes(self._waiting)
        self._waiting.clear()
        self._hash.update(piece)
        self.size += len(piece)
        self._write(piece)

    def digest(self) -> str:
        self.flush()
        return self._hash.hexdigest()


async def _universe_id(universe: Universe) -> str | None:
    try:
        return await upkeep_of(universe.backend).universe_id()
    except Unsupported:
        return None


# -- import -------------------------------------------------------------------------------


async def import_(
    universe: Universe,
    path: Path,
    *,
    existing: Existing = "refuse",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Store the records of a file; a file that is damaged anywhere stores nothing.

    `existing` decides about records whose id exists with other content: the import is refused, or they are
    skipped or replaced. Ids that were forgotten here stay forgotten and count as skipped. More than 100,000
    records or 32 MiB are imported in several commits; after a crash the same import can be repeated, since
    stored records count as unchanged.
    """
    if existing not in ("refuse", "skip", "replace"):
        raise InputError(
            f"expected refuse, skip or replace for 'existing', got {existing!r}", field="existing"
        )
    await universe.seq()  # raises if the handle is closed
    with folders.translate_errors(path), _open_plain_file(path) as file:
        pace = ProgressReporter(progress, 2 * os.fstat(file.fileno()).st_size)
        checked = await in_thread(lambda stopped: lines.check_file(file, pace, stopped))
        owned = await _find_owned_schemas(universe)
        _check_not_owned(owned, checked.schemas)
        _check_principal(universe, checked)
        plan = _Import(universe, file, checked, existing, owned, pace)
        if existing == "refuse":
            await plan.refuse_others()
        done = await plan.run(dry_run)
    pace.end()
    return done


def _open_plain_file(path: Path) -> BinaryIO:
    """Open a plain file for reading; anything else, such as a pipe, is refused without waiting."""
    folders.check_path(path, "path")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is not a plain file", hint="it is read twice", field="path")
        return open(path, "rb")
    except FileNotFoundError:
        raise NotFound(f"the file {path} does not exist", path=str(path)) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field="path") from None


async def _find_owned_schemas(universe: Universe) -> dict[str, str]:
    """Return the schemas that only another room may write, with that room."""
    rooms = {schema.name: schema.owner for schema in await universe.schemas()}
    return {name: room for name, room in rooms.items() if room is not None and room != universe._room}


def _check_not_owned(owned: dict[str, str], schemas: dict[str, int]) -> None:
    named = [f"{name!r} of {owned[name]} in line {line}" for name, line in schemas.items() if name in owned]
    if named:
        raise Denied(
            f"only their rooms write these schemas: {', '.join(named[: lines.NAMED])}",
            hint="leave them out of the export by a query",
        )
    kept = [f"{name!r} in line {line}" for name, line in schemas.items() if name in reserved.UNSHARED]
    if kept:
        raise Denied(f"records of these schemas stay in their store: {', '.join(kept)}", hint=lines.NOTHING)


def _check_principal(universe: Universe, checked: lines.CheckedFile) -> None:
    """Refuse what only a partner imports: records in another's name, and those that say who may see what."""
    if not isinstance(universe.backend, Gate):
        return
    who = universe.backend.principal
    names = [f"as {name!r} in line {line}" for name, line in checked.authors.items() if name != who.name]
    for name, line in checked.schemas.items():
        if reserved.OWNERS.get(name) in reserved.PRIVATE or reserved.is_own("", name):
            names.append(f"records of {name!r} in line {line}")
    if names:
        raise Denied(
            f"{who.name} is {who.trust} and may not write {', '.join(names[: lines.NAMED])}",
            hint="let a partner import it",
            principal=who.name,
        )


class _Import:
    """The second pass over a checked file, which classifies each record and writes it."""

    def __init__(
        self,
        universe: Universe,
        file: BinaryIO,
        checked: lines.CheckedFile,
        existing: Existing,
        owned: dict[str, str],
        pace: ProgressReporter,
    ) -> None:
        self.universe, self.file, self.checked, self.existing = universe, file, checked, existing
        self.owned, self.pace = owned, pace
        # Records of rooms are imported only into a store without these rooms, and never among a room's ids.
        self._rooms = not checked.schemas.keys().isdisjoint(reserved.OWNERS)
        self._writing = universe.for_room(EVERY_ROOM) if self._rooms else universe
        self.whole = checked.records <= ONE_COMMIT and checked.size <= ONE_COMMIT_BYTES
        self.counts = {"added": 0, "replaced": 0, "unchanged": 0, "skipped": 0}

    async def run(self, dry_run: bool) -> Imported:
        """Write the new and replaced records, in one commit if they fit."""
        start = await self.universe.seq()
        last: int | None = None
        number = 0
        async for part in self._parts(self.pace):
            ops = await self._ops(part)
            number += 1
            if ops and not dry_run:
                # The key covers a lost reply; another run starts at another seq and makes another key.
                key = f"import/{self.checked.sha256}/{start}/{number}"
                note = f"import {self.checked.sha256[:12]}"
                last = (await self._writing.commit(ops, key=key, note=note)).seq
        return Imported(**self.counts, seq=last, dry_run=dry_run)

    async def refuse_others(self) -> None:
        """Raise Conflict before anything is written if an id exists with other content."""
        if self.whole:
            return  # the check before the single commit is enough
        async for part in self._parts(ProgressReporter(None)):
            await self._ops(part)
        self.counts = dict.fromkeys(self.counts, 0)

    async def _parts(self, pace: ProgressReporter) -> AsyncIterator[list[Datum]]:
        parts = lines.read_parts(self.file, self.checked, self.whole, pace)
        while (part := await in_thread(lambda _: next(parts, None))) is not None:
            yield part

    async def _ops(self, part: list[Datum]) -> list[Put]:
        ops: list[Put] = []
        others: list[str] = []
        for start in range(0, len(part), 500):
            some = [_with_author(datum, self.universe.author) for datum in part[start : start + 500]]
            ids = [datum.id for datum in some]
            if self._rooms:
                await self._refuse_among(some)
            stored = await self.universe.get_many(ids, raw=True)
            absent = [id for id, there in zip(ids, stored, strict=True) if there is None]
            gone = await forgotten_among(self.universe.backend, absent) if absent else frozenset()
            for datum, there in zip(some, stored, strict=True):
                what = self._classify(datum, there, gone)
                if what == "other":
                    others.append(datum.id)
                    continue
                self.counts[what] += 1
                if what in ("added", "replaced"):
                    expect = 0 if there is None else there.rev
                    ops.append(put_op(self.universe.contracts, datum, expect))
            await asyncio.sleep(0)
        if others:
            named = ", ".join(repr(id) for id in others[: lines.NAMED])
            raise Conflict(
                f"{len(others)} records already exist with other content: {named}",
                hint="say what to do with existing records: skip or replace",
                ids=others[: lines.NAMED],
            )
        return ops

    async def _refuse_among(self, datums: list[Datum]) -> None:
        """Refuse records of no room whose ids are among those of a room; raises Denied."""
        of_none = [each.id for each in datums if each.schema not in reserved.OWNERS]
        plain = [id for id in of_none if reserved.may_be_of_room(id)]
        roots = {id: id.partition("/")[0] for id in plain}
        wanted = [root for root in dict.fromkeys(roots.values()) if root]
        found = zip(wanted, await self.universe.get_many(wanted, raw=True), strict=True)
        taken = {root for root, datum in found if datum is not None and datum.schema in self.owned}
        for id, root in roots.items():
            if root in taken or root in reserved.ROOTS or id.startswith(reserved.BUILTIN):
                raise Denied(f"{id!r} is among the ids of a room", hint="leave it out of the export", id=id)

    def _classify(self, datum: Datum, there: Datum | None, gone: frozenset[str]) -> str:
        if there is None:
            return "skipped" if datum.id in gone else "added"
        if _is_same(datum, there):
            return "unchanged"
        if self.existing == "replace" and there.schema in self.owned:
            room = self.owned[there.schema]
            raise Denied(f"{datum.id!r} belongs to the room {room!r}", hint="skip existing records")
        return {"refuse": "other", "skip": "skipped", "replace": "replaced"}[self.existing]


def _with_author(datum: Datum, author: str) -> Datum:
    return datum if datum.author is not None else datum.replace(author=author)


def _is_same(new: Datum, stored: Datum) -> bool:
    """Check whether a put would change nothing; the creation time of the stored record stays."""
    return stored.problem is None and _make_comparison_key(new) == _make_comparison_key(stored)


def _make_comparison_key(datum: Datum) -> tuple[Any, ...]:
    return (
        datum.schema,
        datum.schema_version,
        datum.tags,
        datum.author,
        datum.source,
        datum.parent_id,
        datum.content,
        codec.canonical(datum.data),
        codec.canonical(datum.extra or {}),
    )
