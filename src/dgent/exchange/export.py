"""Records as lines of JSON: out of any store, and into any store, all of them or none.

The first line says what the file is, the last one how many records there are and the SHA-256 of
every line before it. So a file that was cut, joined or changed is found out before anything is
stored.
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
from dgent.exchange.snapshot import Moment
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import EVERY_ROOM, Put
from dgent.store.upkeep import forgotten_among, upkeep_of
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe
from dgent.universe.write import put_op

ONE_COMMIT = 100_000  # up to so many records, in up to so many bytes, are imported in one commit
ONE_COMMIT_BYTES = 32 * 1024 * 1024  # a commit needs several times as much memory
WRITE_BYTES = 1 << 18

Existing = Literal["refuse", "skip", "replace"]


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote."""

    records: int
    seq: int
    sha256: str
    size_bytes: int


class Imported(msgspec.Struct, frozen=True):
    """What an import came to, or would come to; `seq` is the last commit it made."""

    added: int
    replaced: int
    unchanged: int
    skipped: int
    seq: int | None
    dry_run: bool


# -- export -------------------------------------------------------------------------------


async def export(
    universe: Universe,
    write: Callable[[bytes], object],
    *,
    query: Query | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write every live record, or those that match, as of one moment; `write` gets whole lines.

    A record that changes meanwhile, and keeps no version of that moment, is written as it is now.
    """
    # Content is part of a record, also where a query of other uses leaves it out.
    wanted = Query(limit=None, descending=False) if query is None else query.replace(content=True)
    await universe._ready()
    seq = await universe.seq()
    moment = Moment(universe, seq)
    pace = ProgressReporter(progress, None if progress is None else await moment.size(wanted))
    out = _Out(write)
    out.add(lines.header(await _universe_id(universe), seq))
    records = 0
    async with aclosing(moment.records(wanted)) as found:
        async for datum in found:
            if datum.problem is not None:
                raise Corrupt(datum.problem, hint="leave it out by a query, or restore it from a backup")
            out.add(lines.line_of(datum))
            records += 1
            pace.at(records)
    sha256 = out.digest()
    out.add(lines.footer(records, sha256))
    out.flush()
    pace.end()
    return Exported(records, seq, sha256, out.size)


class _Out:
    """Hands lines on in large pieces, and counts and hashes them."""

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

    `existing` says what happens to records whose id is there with other content: all of it is
    refused, they are skipped, or replaced. Ids that were forgotten here stay forgotten and count as
    skipped. More than 100,000 records or 32 MiB go in several commits; the same import may simply be
    repeated after a crash, since what is stored already counts as unchanged.
    """
    if existing not in ("refuse", "skip", "replace"):
        raise InputError(f"existing is {existing!r}; it is refuse, skip or replace", field="existing")
    await universe.seq()  # a closed handle says so
    with folders.translated(path), _opened(path) as file:
        pace = ProgressReporter(progress, 2 * os.fstat(file.fileno()).st_size)
        checked = await in_thread(lambda stopped: lines.check(file, pace, stopped))
        owned = await _owned(universe)
        _refuse_owned(owned, checked.schemas)
        plan = _Import(universe, file, checked, existing, owned, pace)
        if existing == "refuse":
            await plan.refuse_others()
        done = await plan.run(dry_run)
    pace.end()
    return done


def _opened(path: Path) -> BinaryIO:
    """A plain file, open for reading; anything else is refused, and never waited for."""
    folders.usable(path, "path")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is not a plain file", hint="it is read twice", field="path")
        return open(path, "rb")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", path=str(path)) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field="path") from None


async def _owned(universe: Universe) -> dict[str, str]:
    """The schemas that only a room writes, and which."""
    rooms = {schema.name: schema.owner for schema in await universe.schemas()}
    return {name: room for name, room in rooms.items() if room is not None and room != universe._room}


def _refuse_owned(owned: dict[str, str], schemas: dict[str, int]) -> None:
    named = [f"{name!r} of {owned[name]} in line {line}" for name, line in schemas.items() if name in owned]
    if named:
        raise Denied(
            f"only their rooms write these schemas: {', '.join(named[: lines.NAMED])}",
            hint="leave them out of the export by a query",
        )


class _Import:
    """The second pass over a checked file: what to do about each record, and doing it."""

    def __init__(
        self,
        universe: Universe,
        file: BinaryIO,
        checked: lines.Checked,
        existing: Existing,
        owned: dict[str, str],
        pace: ProgressReporter,
    ) -> None:
        self.universe, self.file, self.checked, self.existing = universe, file, checked, existing
        self.owned, self.pace = owned, pace
        # Records of rooms go into a store that has nothing of these rooms, and no record among a room's ids.
        self._rooms = not checked.schemas.keys().isdisjoint(reserved.OWNERS)
        self._writing = universe.for_room(EVERY_ROOM) if self._rooms else universe
        self.whole = checked.records <= ONE_COMMIT and checked.size <= ONE_COMMIT_BYTES
        self.counts = {"added": 0, "replaced": 0, "unchanged": 0, "skipped": 0}

    async def run(self, dry_run: bool) -> Imported:
        """Commit what is new or replaces something, in one commit if it is not too much."""
        start = await self.universe.seq()
        last: int | None = None
        number = 0
        async for part in self._parts(self.pace):
            ops = await self._ops(part)
            number += 1
            if ops and not dry_run:
                # For a reply that gets lost; another run begins at another seq and makes another key.
                key = f"import/{self.checked.sha256}/{start}/{number}"
                note = f"import {self.checked.sha256[:12]}"
                last = (await self._writing.commit(ops, key=key, note=note)).seq
        return Imported(**self.counts, seq=last, dry_run=dry_run)

    async def refuse_others(self) -> None:
        """Raise before anything is written when an id is there with other content."""
        if self.whole:
            return  # the look before the one commit is enough
        async for part in self._parts(ProgressReporter(None)):
            await self._ops(part)
        self.counts = dict.fromkeys(self.counts, 0)

    async def _parts(self, pace: ProgressReporter) -> AsyncIterator[list[Datum]]:
        parts = lines.parts(self.file, self.checked, self.whole, pace)
        while (part := await in_thread(lambda _: next(parts, None))) is not None:
            yield part

    async def _ops(self, part: list[Datum]) -> list[Put]:
        ops: list[Put] = []
        others: list[str] = []
        for start in range(0, len(part), 500):
            some = [_authored(datum, self.universe.author) for datum in part[start : start + 500]]
            ids = [datum.id for datum in some]
            if self._rooms:
                await self._refuse_among(some)
            stored = await self.universe.get_many(ids, raw=True)
            absent = [id for id, there in zip(ids, stored, strict=True) if there is None]
            gone = await forgotten_among(self.universe.backend, absent) if absent else frozenset()
            for datum, there in zip(some, stored, strict=True):
                what = self._verdict(datum, there, gone)
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
                f"{len(others)} records are there already with other content: {named}",
                hint="say what to do with existing records: skip or replace",
                ids=others[: lines.NAMED],
            )
        return ops

    async def _refuse_among(self, datums: list[Datum]) -> None:
        """Refuse what is of no room and would stand among the ids of one."""
        of_none = [each.id for each in datums if each.schema not in reserved.OWNERS]
        plain = [id for id in of_none if reserved.may_be_of_room(id)]
        roots = {id: id.partition("/")[0] for id in plain}
        wanted = [root for root in dict.fromkeys(roots.values()) if root]
        found = zip(wanted, await self.universe.get_many(wanted, raw=True), strict=True)
        taken = {root for root, datum in found if datum is not None and datum.schema in self.owned}
        for id, root in roots.items():
            if root in taken or root in reserved.ROOTS or id.startswith(reserved.BUILTIN):
                raise Denied(f"{id!r} is among the ids of a room", hint="leave it out of the export", id=id)

    def _verdict(self, datum: Datum, there: Datum | None, gone: frozenset[str]) -> str:
        if there is None:
            return "skipped" if datum.id in gone else "added"
        if _same(datum, there):
            return "unchanged"
        if self.existing == "replace" and there.schema in self.owned:
            room = self.owned[there.schema]
            raise Denied(f"{datum.id!r} belongs to the room {room!r}", hint="skip existing records")
        return {"refuse": "other", "skip": "skipped", "replace": "replaced"}[self.existing]


def _authored(datum: Datum, author: str) -> Datum:
    return datum if datum.author is not None else datum.replace(author=author)


def _same(new: Datum, stored: Datum) -> bool:
    """Whether a put would change nothing: the creation time belongs to the record, and stays."""
    return stored.problem is None and _compared(new) == _compared(stored)


def _compared(datum: Datum) -> tuple[Any, ...]:
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
