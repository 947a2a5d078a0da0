"""One run of an import: decide about each record and each line."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from dgent.cupboard.builtin import BORN
from dgent.cupboard.change import Changeset
from dgent.cupboard.record import LINE, CrumbRecord, LineRecord, LinkRecord, MetadataRecord, TrailRecord
from dgent.exchange.foreign.files import SourceLine
from dgent.exchange.foreign.report import Existing, ImportTally
from dgent.model.query import Query
from dgent.store.upkeep import deleted_among, forgotten_among

NOTE = "import of "
"""The beginning of the note of an import: what an import deleted is restored when the file has it again."""

Verdict = Literal["added", "changed", "unchanged", "skipped", "kept"]


class ImportRun:
    """An import into one changeset, which decides about records one by one."""

    def __init__(self, changeset: Changeset, existing: Existing, titles: Mapping[str, str]) -> None:
        self.changeset, self.existing = changeset, existing
        self._titles = titles  # names of the files in reports
        self.tally = ImportTally()
        self.forgotten: frozenset[str] = frozenset()
        self._deleted: dict[str, datetime] = {}  # deleted here, and when
        self._added: set[str] = set()
        self._kept: dict[str, LineRecord] = {}
        self._imported: dict[str, set[bytes]] = {}

    async def load(self, wanted: Iterable[str]) -> None:
        """Load the stored records of the ids in the file together."""
        some = list(dict.fromkeys(wanted))
        await self.changeset.load(some)
        absent = [id for id in some if self.changeset.record(id) is None]
        backend = self.changeset.tx._universe.backend
        self.forgotten |= await forgotten_among(backend, absent) if absent else frozenset()
        self._deleted |= await deleted_among(backend, absent, NOTE) if absent else {}

    def import_record(
        self,
        file: str,
        line: SourceLine,
        id: str,
        record: Any,
        created_at: datetime,
        *,
        stated: bool = True,
        changed_at: datetime | None = None,
    ) -> Verdict:
        """Put a record into the changeset, unless the stored one stays; return what was done.

        `stated`: the time of its last change is from the file, not a guess; `changed_at` is that time for a
        record without one. A record that was deleted here stays deleted, unless the file changed it since.
        """
        old = self.changeset.record(id)
        if id not in self.forgotten and (
            id in self.changeset.foreign or (old is not None and type(old) is not type(record))
        ):
            self.keep_line(file, line, f"{id!r} is the id of another kind of record")
            return "kept"
        if id not in self.forgotten:
            self.mark_imported(file, line)
        verdict: Verdict = "skipped"
        gone = id in self.forgotten or self.stays_deleted(id, record, stated, changed_at)
        if old is None and not gone:
            self.changeset.put(id, record, created_at=created_at)
            self._added.add(id)
            verdict = "added"
        elif old is not None:
            record = _fill_unstated(record, old, stated)
            if record == old:
                verdict = "unchanged"
            elif self.existing == "replace" or (self.existing == "newer" and _is_newer(record, old)):
                self.changeset.put(id, record)
                verdict = "changed"
        self.tally.count(verdict)
        return verdict

    def stays_deleted(
        self, id: str, record: Any, stated: bool = True, changed_at: datetime | None = None
    ) -> bool:
        """Check whether a record was deleted here and the file's is not newer.

        A record that was deleted with the one it belongs to is restored with it.
        """
        at = self._deleted.get(id)
        if at is None or self.existing == "replace":
            return False
        if any(end in self._added and self._deleted.get(end) == at for end in _owners(record)):
            return False
        changed_at = getattr(record, "updated_at", changed_at) or at
        return self.existing == "skip" or not stated or changed_at <= at

    def unite(self, id: str, other: str, owners: tuple[str, ...]) -> None:
        """Judge two records as forms of one, of which at most one is stored: `id` is to be imported."""
        at = self._deleted.get(other)
        if self.changeset.record(other) is not None:
            self._deleted.pop(id, None)
        elif at is not None and at not in map(self._deleted.get, owners):
            self._deleted[id] = max(at, self._deleted.get(id, at))

    def mark_imported(self, file: str, line: SourceLine) -> None:
        """Record that a line was imported."""
        self._imported.setdefault(file, set()).add(line.raw)

    def report(self, file: str, line: SourceLine, message: str) -> None:
        """Report a problem of a line."""
        self.tally.report(self._titles[file], line.number, message)

    # -- lines that no record can hold ------------------------------------------------------

    def keep_line(self, file: str, line: SourceLine, reason: str) -> None:
        """Report a line that cannot be imported, and keep it unchanged."""
        self.report(file, line, f"{reason}; the line is kept as it is")
        self.tally.count("kept")
        digest = hashlib.sha256(file.encode() + b"\0" + line.raw).hexdigest()[:32]
        number = 0
        while (id := f"cupboard/line/{digest}/{number}") in self._kept:
            number += 1
        self._kept[id] = _make_line_record(file, line.raw, reason)

    async def settle_lines(self, files: Iterable[str]) -> None:
        """Put kept lines into the changeset, and delete those that could be imported this time."""
        where = {"file": {"$in": sorted(files)}}
        found = await self.changeset.tx.recall(Query(schema=LINE.name, where=where, limit=None))
        there = {each.id: each for each in found}
        for each in found:
            self.changeset.add_loaded(each)
            if each.id not in self._kept and line_bytes(each.value) in self._imported.get(
                each.value.file, ()
            ):
                self.changeset.drop(each.id)
        await self.load(self._kept)
        for id, record in self._kept.items():
            if id not in there and id not in self.forgotten:
                # A fixed time, so that two stores that keep the same line have equal records.
                self.changeset.put(id, record, created_at=BORN)


def note_of(path: Path) -> str:
    """Return the note of the commit that imports a file or a folder."""
    return f"{NOTE}{path.name}"[:200]


def _owners(record: Any) -> tuple[str, ...]:
    """Return the ids of the records with which a record is deleted."""
    if isinstance(record, LinkRecord):
        return record.from_id, record.to_id
    return (record.crumb_id,) if isinstance(record, MetadataRecord) else ()


def _fill_unstated(record: Any, old: Any, stated: bool) -> Any:
    """Return a record of a file with fields that the file does not have taken from the stored one."""
    if isinstance(record, CrumbRecord):
        fields: dict[str, Any] = {"open_parents": old.open_parents, "queue": old.queue, "parts": old.parts}
        if record.token < old.token:
            fields["token"] = old.token
            if record.state == old.state:
                fields |= {"holder": old.holder, "lease_until": old.lease_until}
        record = replace(record, **fields)
    if isinstance(record, CrumbRecord | TrailRecord):
        record = replace(record, short_id=old.short_id, former_ids=old.former_ids)
    if isinstance(record, TrailRecord) and not record.crumbs:
        record = replace(record, crumbs=old.crumbs)
    if not stated and hasattr(record, "updated_at"):
        record = replace(record, updated_at=old.updated_at)
    return record


def _is_newer(record: Any, old: Any) -> bool:
    return hasattr(record, "updated_at") and record.updated_at > old.updated_at


def _make_line_record(file: str, raw: bytes, reason: str) -> LineRecord:
    try:
        text, binary = raw.decode(), False
    except UnicodeDecodeError:
        text, binary = base64.b64encode(raw).decode(), True
    return LineRecord(file, text, reason, binary)


def line_bytes(record: LineRecord) -> bytes:
    """Return a kept line as it was read."""
    return base64.b64decode(record.text) if record.binary else record.text.encode()


def group_newest_first(
    rows: Iterable[Any], key: Callable[[Any], Any], age: Callable[[Any], Any]
) -> dict[Any, list[Any]]:
    """Group rows by key, newest first, and of equal age the last first."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    for same in found.values():
        if len(same) > 1:
            same.reverse()
            same.sort(key=age, reverse=True)
    return found
