"""Reading a folder of the original program into a cupboard.

Everything of it arrives in one commit, or nothing does; only earlier versions of stashes are commits of their
own before it. A second import of the same folder changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dgent.cupboard import batch
from dgent.cupboard.builtin import METADATA_SCHEMAS, schema_id
from dgent.cupboard.change import Draft
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.definition import Definitions
from dgent.cupboard.errors import PropertyNotFound
from dgent.cupboard.record import CrumbRecord, LinkRecord, MetadataRecord, SchemaRecord, TrailRecord
from dgent.cupboard.tables.metadata import is_schema_name
from dgent.errors import InputError, NotFound
from dgent.exchange.folders import translated, usable
from dgent.exchange.foreign import files, links, stash_history
from dgent.exchange.foreign.definitions import Naming, Unfit, define, value_of
from dgent.exchange.foreign.fields import DEFINITIONS, FILES, NOTE, Row, row_of, times
from dgent.exchange.foreign.incoming import Incoming, later
from dgent.exchange.foreign.origin import extra_of
from dgent.exchange.foreign.report import Existing, TakenIn, Tally
from dgent.exchange.foreign.stash_history import Life, Lived
from dgent.model.ref import Ref
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread


class Folder(msgspec.Struct):
    """A folder as it was read: rows that were understood, and lines that were not."""

    rows: dict[str, list[Row]]
    changed_at: dict[str, datetime]
    bad: list[tuple[str, files.Line, str]]
    twice: list[tuple[str, files.Line, str]]


async def import_folder(
    cupboard: Cupboard,
    path: Path,
    *,
    existing: Existing = "newer",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TakenIn:
    """Take in a folder of `crumbs.jsonl` and its kin; what is odd in it is reported, and nothing is lost.

    `existing` says what happens to what is there already with other content: the newer one wins, it stays,
    or the folder's takes its place.
    """
    pace = ProgressReporter(progress)
    folder = await in_thread(lambda stopped: read_folder(path, pace, stopped))
    plan = _Plan(folder, existing)
    await plan.compare(cupboard)
    note = f"import of {path.name}"[:200]
    seq: int | None = None
    if any(each.behind and len(each.life.versions) > 1 for each in plan.lived):
        # To find out first what of it can be held here.
        await batch.change(cupboard, plan.run, note, dry_run=True)
        if not dry_run:
            seq = await stash_history.replay(cupboard, plan.usable, lambda: pace.add(0))
    tally, last = await batch.change(cupboard, plan.run, note, dry_run=dry_run)
    pace.end()
    return tally.done(last or seq, dry_run)


# -- reading ------------------------------------------------------------------------------


def read_folder(path: Path, pace: ProgressReporter, stopped: Stopped) -> Folder:
    """The files of a folder, or only one of them, each line as a row or with what is wrong with it."""
    usable(path, "path")
    with translated(path):
        there = _files(path)
        pace.total = sum(each.stat().st_size for each in there.values())
    folder = Folder({name: [] for name in FILES}, {}, [], [])
    for name, each in there.items():
        read = files.read(each, pace, stopped)
        folder.changed_at[name] = read.changed_at
        rows = []
        for line in read.lines:
            try:
                if line.given is None:
                    raise InputError(line.wrong)
                rows.append(row_of(name, line))
            except InputError as error:
                folder.bad.append((name, line, error.message))
        # Which of two values counts cannot be told before it is known whether they are values at all.
        folder.rows[name] = rows if name == "crumb_properties" else list(_once(folder, name, rows))
    return folder


def _files(path: Path) -> dict[str, Path]:
    if path.is_file() and path.suffix == ".jsonl" and path.stem in FILES:
        return {path.stem: path}
    if not path.exists():
        raise NotFound(f"there is no folder {path}", path=str(path))
    there = {name: path / f"{name}.jsonl" for name in FILES if (path / f"{name}.jsonl").exists()}
    if not there:
        known = ", ".join(f"{name}.jsonl" for name in FILES)
        raise InputError(f"{path} has none of the files of a cupboard", hint=f"they are called {known}")
    return there


def _once(folder: Folder, file: str, rows: list[Row]) -> Iterator[Row]:
    """The rows without those that another one of the same id takes the place of."""

    def key(row: Row) -> Any:
        return next(iter(row.fields.values()))

    def age(row: Row) -> Any:
        return -row.line.number if file in DEFINITIONS else row.fields.get("updated_at", 0)

    for winner, *others in later(rows, key, age).values():
        yield winner
        for other in others:
            if other.line.given != winner.line.given:
                folder.twice.append(
                    (file, other.line, f"line {winner.line.number} has the same id, and counts instead")
                )


# -- taking in ----------------------------------------------------------------------------


class _Plan:
    """What to do with a folder; worked out anew whenever somebody else was faster."""

    def __init__(self, folder: Folder, existing: Existing) -> None:
        self.folder, self.existing = folder, existing
        self.rows, self.changed_at = folder.rows, folder.changed_at
        self.lives, self.orphans = stash_history.lives(folder.rows, folder.changed_at)
        self.lived: list[Lived] = []
        self.usable: list[Lived] = []

    async def compare(self, cupboard: Cupboard) -> None:
        """Find out how much of the stashes' histories is there already."""
        self.lived = [await stash_history.compared(cupboard, life, self.existing) for life in self.lives]

    async def run(self, draft: Draft) -> Tally:
        """Put everything into a draft."""
        incoming = Incoming(draft, self.existing, {name: f"{name}.jsonl" for name in FILES})
        for file, line, reason in self.folder.bad:
            incoming.keep(file, line, reason)
        for file, line, message in self.folder.twice:
            incoming.tell(file, line, message)
        await incoming.load(self._ids())
        naming = await define(incoming, self.rows, self.changed_at.get("properties", draft.now))
        self._take_crumbs(incoming, naming)
        for row in self.rows["trails"]:
            self._take_trail(incoming, naming, row)
        self._take_stashes(incoming, naming)
        self._take_links(incoming)
        await links.judge(incoming, self.rows["links"])
        self._take_schemas(incoming)
        for row in self.rows["metadata"]:
            self._take_metadata(incoming, naming, row)
        await incoming.settle_lines(FILES)
        return incoming.tally

    def _ids(self) -> Iterator[str]:
        for file in ("properties", "categories", "crumbs", "trails", "links", "metadata", "stashes"):
            for row in self.rows[file]:
                yield next(iter(row.fields.values()))
                for name in ("from_id", "to_id", "crumb_id"):
                    if name in row.fields:
                        yield row.fields[name]
        for file, name in (("metadata", "table_name"), ("schemas", "schema_name")):
            for row in self.rows[file]:
                if is_schema_name(row.fields[name]):
                    yield schema_id(row.fields[name])

    def _take_crumbs(self, incoming: Incoming, naming: Naming) -> None:
        values, beside = self._values(incoming, naming)
        for row in self.rows["crumbs"]:
            given, when = row.fields, times(row, self.changed_at[row.file])
            id = given["crumb_id"]
            mine = self._properties(incoming, naming, row, "crumb", values.get(id, {}))
            record = CrumbRecord(
                given["name"],
                given["state"],
                when.updated_at,
                mine,
                given["defer_until"],
                given["holder"],
                given["lease_until"],
                max(0, given["token"]),
                extra=row.extra(values=beside.get(id, {})),
            )
            incoming.take(row.file, row.line, id, record, when.created_at, told=when.told)

    def _values(
        self, incoming: Incoming, naming: Naming
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """The values of crumbs by their ids; and what their lines say beside."""
        definitions = incoming.draft.definitions
        values: dict[str, dict[str, Any]] = {row.fields["crumb_id"]: {} for row in self.rows["crumbs"]}
        beside: dict[str, dict[str, Any]] = {}
        for row in self.rows["crumb_properties"]:
            crumb, wanted = row.fields["crumb_id"], row.fields["property_id"]
            if crumb not in values:
                incoming.keep(row.file, row.line, f"there is no crumb {crumb!r} in this folder")
                continue
            try:
                defined = definitions.find("crumb", naming.here.get(wanted, wanted))
                value = value_of(defined, row.fields["value"], naming)
            except (*Unfit, PropertyNotFound) as error:
                incoming.keep(row.file, row.line, error.message)
                continue
            if values[crumb].get(defined.id, value) != value:
                incoming.tell(row.file, row.line, f"{defined.name} is there twice; this one counts")
            values[crumb][defined.id] = value
            incoming.took(row.file, row.line)
            if row.unknown:
                beside.setdefault(crumb, {})[defined.id] = extra_of(row.unknown, NOTE, {})
        return values, beside

    def _properties(
        self, incoming: Incoming, naming: Naming, row: Row, scope: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        """A value for every property: those given, those of the row's own map, or the defaults."""
        definitions: Definitions = incoming.draft.definitions
        values: dict[str, Any] = {}
        for key, value in row.fields["properties"].items():
            try:
                defined = definitions.find(scope, naming.here.get(key, key))
                values[defined.id] = value_of(defined, value, naming)
            except (*Unfit, PropertyNotFound) as error:
                row.unknown.setdefault("properties", {})[key] = value
                incoming.tell(row.file, row.line, error.message)
        return definitions.stored(scope, values | given)

    def _take_trail(self, incoming: Incoming, naming: Naming, row: Row) -> None:
        given, when = row.fields, times(row, self.changed_at[row.file])
        properties = self._properties(incoming, naming, row, "trail", {})
        record = TrailRecord(
            given["name"],
            given["state"],
            when.updated_at,
            given["goal"],
            given["completed_at"],
            given["reason"],
            given["lesson"],
            properties,
            tuple(Ref(id) for id in given["crumbs"]),
            extra=row.extra(),
        )
        incoming.take(row.file, row.line, given["trail_id"], record, when.created_at, told=when.told)

    def _take_links(self, incoming: Incoming) -> None:
        for row in self.rows["links"]:
            given = row.fields
            record = LinkRecord(given["link_type"], given["from_id"], given["to_id"], extra=row.extra())
            when = times(row, self.changed_at[row.file])
            incoming.take(row.file, row.line, given["link_id"], record, when.created_at)

    def _take_stashes(self, incoming: Incoming, naming: Naming) -> None:
        names = Counter(life.row.fields["name"] for life in self.lives)
        scoped = {row.fields["from_id"] for row in self.rows["links"]}
        self.usable = []
        for lived in self.lived:
            row = lived.life.row
            if names[row.fields["name"]] > 1 and lived.id not in scoped:
                incoming.tell(row.file, row.line, f"another stash is called {row.fields['name']!r} as well")
            self._take_stash(incoming, naming, lived)
        for row in self.orphans:
            incoming.keep(row.file, row.line, f"there is no stash {row.fields['stash_id']!r} in this folder")

    def _take_stash(self, incoming: Incoming, naming: Naming, lived: Lived) -> None:
        life: Life = lived.life
        row, draft = life.row, incoming.draft
        for entry, reason in life.odd:
            incoming.keep(entry.file, entry.line, reason)
        properties = self._properties(incoming, naming, row, "stash", {})
        odd = {"properties": row.unknown["properties"]} if "properties" in row.unknown else {}
        life.versions[:] = [
            replace(each, properties=properties, extra={**each.extra, **odd}) for each in life.versions
        ]
        last = life.versions[-1]
        free = lived.id not in draft.foreign | incoming.forgotten
        free = free and not incoming.stays_deleted(lived.id, last)
        if lived.behind and free and type(draft.record(lived.id)) in (type(None), type(last)):
            incoming.took(row.file, row.line)
            draft.put(lived.id, last, created_at=life.when.created_at)
            incoming.tally.count("changed" if lived.known else "added")
            self.usable.append(lived)
        else:
            incoming.take(row.file, row.line, lived.id, last, life.when.created_at)

    def _take_schemas(self, incoming: Incoming) -> None:
        for row in self.rows["schemas"]:
            name, content_type = row.fields["schema_name"], row.fields["content_type"]
            id = schema_id(name)
            record = SchemaRecord(name, row.fields["description"], content_type, extra=row.extra())
            if id not in METADATA_SCHEMAS:
                when = times(row, self.changed_at[row.file])
                incoming.take(row.file, row.line, id, record, when.created_at)

    def _take_metadata(self, incoming: Incoming, naming: Naming, row: Row) -> None:
        given, when = row.fields, times(row, self.changed_at[row.file])
        content = given["content"]
        if not isinstance(content, str):
            content = msgspec.json.encode(content, order="sorted").decode()
            row.written["content"] = [content, given["content"]]
        property_id = given["property_id"]
        property_id = naming.here.get(property_id, property_id)
        if property_id is not None and property_id not in naming.properties:
            incoming.tell(row.file, row.line, f"there is no property {property_id!r}")
        if not isinstance(incoming.draft.record(given["crumb_id"]), CrumbRecord):
            incoming.tell(row.file, row.line, f"there is no crumb {given['crumb_id']!r} for this entry")
        if not content:
            incoming.tell(row.file, row.line, "the entry has no content")
        self._register(incoming, row, when.created_at)
        record = MetadataRecord(
            given["crumb_id"], given["table_name"], content, property_id, extra=row.extra()
        )
        incoming.take(row.file, row.line, given["metadata_id"], record, when.created_at)

    def _register(self, incoming: Incoming, row: Row, moment: datetime) -> None:
        """Make a kind of metadata known that entries are of; the original has no list of them."""
        name = row.fields["table_name"]
        if not is_schema_name(name):
            incoming.tell(row.file, row.line, f"{name!r} is no name of a kind of metadata")
        elif schema_id(name) not in METADATA_SCHEMAS and incoming.draft.record(schema_id(name)) is None:
            incoming.draft.put(schema_id(name), SchemaRecord(name), created_at=moment)
