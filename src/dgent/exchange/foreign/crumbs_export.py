"""Export a cupboard as a folder of the original crumbs program."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from dgent.cupboard.builtin import METADATA_SCHEMAS
from dgent.cupboard.cupboard import Cupboard
from dgent.cupboard.definition import Definition, Definitions
from dgent.cupboard.record import (
    CATEGORY,
    CRUMB,
    LINE,
    LINK,
    METADATA,
    PROPERTY,
    SCHEMA,
    STASH,
    TRAIL,
    StashRecord,
)
from dgent.errors import Conflict
from dgent.exchange import folders
from dgent.exchange.foreign import files
from dgent.exchange.foreign.definitions import encode_value, find_exported_id
from dgent.exchange.foreign.fields import (
    DEFINITIONS,
    FILES,
    NOTE,
    encode_fields,
    encode_unknown,
)
from dgent.exchange.foreign.incoming import line_bytes, load_records
from dgent.exchange.foreign.origin import read_note
from dgent.exchange.foreign.report import ExportResult
from dgent.exchange.foreign.stash_history import read_history_extra
from dgent.model.crystal import Crystal
from dgent.model.schema import Schema
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.universe import Universe

ORIGINAL = tuple(name for name in FILES if name != "schemas")

Lines = list[dict[str, Any]]


async def export_folder(
    cupboard: Cupboard, path: Path, *, replace: bool = False, progress: Progress | None = None
) -> ExportResult:
    """Write everything as of one commit; each file replaces an older one atomically.

    A folder with such files that are not empty is refused unless `replace`.
    """
    universe = await cupboard._ready()
    await in_thread(lambda _: _check(path, replace))
    seq = await universe.seq()
    out = _FolderExport(cupboard, universe, seq, ProgressReporter(progress))
    wanted = {name: [files.encode_line(line) for line in lines] async for name, lines in out.lines()}
    kept: dict[str, list[bytes]] = {}
    for found in await out.all(LINE):
        kept.setdefault(found.value.file, []).append(line_bytes(found.value))
    for name, lines in wanted.items():
        # Kept lines stand where the line of a record with the same id takes precedence over them.
        wanted[name] = lines + kept.get(name, []) if name in DEFINITIONS else kept.get(name, []) + lines
    if not wanted["schemas"] and not (path / "schemas.jsonl").exists():
        del wanted["schemas"]  # the original has no such file
    size = await in_thread(lambda _: _write(path, wanted))
    out.pace.end()
    return ExportResult(str(path), {name: len(lines) for name, lines in wanted.items()}, seq, size)


def _check(path: Path, replace: bool) -> None:
    folders.check_path(path, "path")
    with folders.translate_errors(path):
        full = [name for name in FILES if _has_content(path / f"{name}.jsonl")]
    if full and not replace:
        raise Conflict(
            f"{path} already has a cupboard, in {full[0]}.jsonl",
            hint="name another folder, or say that it may be replaced",
            path=str(path),
        )


def _has_content(path: Path) -> bool:
    return os.path.lexists(path) and (not path.is_file() or path.stat().st_size > 0)


def _write(path: Path, wanted: dict[str, list[bytes]]) -> int:
    folders.make_folders(path)
    return sum(files.write_lines(path / f"{name}.jsonl", lines) for name, lines in wanted.items())


class _FolderExport:
    """One export of a cupboard as lines."""

    def __init__(self, cupboard: Cupboard, universe: Universe, seq: int, pace: ProgressReporter) -> None:
        self.cupboard, self.universe, self.seq, self.pace = cupboard, universe, seq, pace
        self.names: dict[str, str] = {}  # definitions that are written under other ids
        self.definitions = Definitions({}, {})

    async def all(self, schema: Schema[Any]) -> list[Crystal[Any]]:
        """Return all records of a schema."""
        return await load_records(self.universe, schema, self.seq, self.pace)

    async def lines(self) -> AsyncIterator[tuple[str, Lines]]:
        """Yield the lines of each file."""
        properties, categories = await self.all(PROPERTY), await self.all(CATEGORY)
        self.definitions = Definitions(
            {each.id: each.value for each in properties}, {each.id: each.value for each in categories}
        )
        self.names = {each.id: find_exported_id(each.value, each.id) for each in (*properties, *categories)}
        yield "properties", [self._definition("properties", "property_id", each) for each in properties]
        yield "categories", [self._definition("categories", "category_id", each) for each in categories]
        crumbs = await self.all(CRUMB)
        yield "crumbs", [self._line("crumbs", "crumb_id", each, properties={}) for each in crumbs]
        yield "crumb_properties", [line for each in crumbs for line in self._values(each)]
        yield "trails", [self._trail(each) for each in await self.all(TRAIL)]
        yield "links", [self._line("links", "link_id", each) for each in await self.all(LINK)]
        yield "metadata", [self._metadata(each) for each in await self.all(METADATA)]
        yield "schemas", self._schemas(await self.all(SCHEMA))
        stashes = await self.all(STASH)
        yield "stashes", [self._stash(each) for each in stashes]
        yield "stash_history", [line for each in stashes async for line in self._history(each)]

    def _line(self, file: str, id: str, found: Crystal[Any], **fields: Any) -> dict[str, Any]:
        own = {**vars(found.value), id: found.id, "created_at": found.created_at, **fields}
        return encode_fields(file, own, found.value.extra)

    def _definition(self, file: str, id: str, found: Crystal[Any]) -> dict[str, Any]:
        fields = {id: self.names[found.id]}
        if file == "categories":
            owner = found.value.property_id
            fields["property_id"] = self.names.get(owner, owner)
        return self._line(file, id, found, **fields)

    def _schemas(self, found: list[Crystal[Any]]) -> Lines:
        return [
            self._line("schemas", "schema_name", each, schema_name=each.value.name)
            for each in found
            if each.id not in METADATA_SCHEMAS
        ]

    def _trail(self, found: Crystal[Any]) -> dict[str, Any]:
        trail = found.value
        return self._line(
            "trails",
            "trail_id",
            found,
            crumbs=[ref.id for ref in trail.crumbs],
            properties=self._map("trail", trail.properties),
        )

    def _map(self, scope: str, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a trail or stash for its own line; the original has no file for them."""
        return {
            self.names[definition.id]: encode_value(definition, value, self.names)
            for definition, value in self._iterate_values(scope, stored)
        }

    def _iterate_values(self, scope: str, stored: dict[str, Any]) -> Iterator[tuple[Definition, Any]]:
        for definition in self.definitions.of(scope):
            yield definition, stored.get(definition.id, definition.default())

    def _values(self, found: Crystal[Any]) -> Iterable[dict[str, Any]]:
        beside = read_note(found.value.extra, NOTE).get("values", {})
        for definition, value in self._iterate_values("crumb", found.value.properties):
            yield {
                "crumb_id": found.id,
                "property_id": self.names[definition.id],
                "value_type": definition.value_type,
                "value": encode_value(definition, value, self.names),
            } | encode_unknown("crumb_properties", beside.get(definition.id, {}))

    def _metadata(self, found: Crystal[Any]) -> dict[str, Any]:
        owner = found.value.property_id
        return self._line("metadata", "metadata_id", found, property_id=self.names.get(owner, owner))

    def _stash(self, found: Crystal[Any]) -> dict[str, Any]:
        stash: StashRecord = found.value
        fields: dict[str, Any] = {"properties": self._map("stash", stash.properties), "changed_by": None}
        if not stash.history_id:  # else the last line of its history has it
            fields |= {"changed_by": stash.changed_by, "last_operation": stash.operation}
        return self._line("stashes", "stash_id", found, **fields)

    async def _history(self, found: Crystal[Any]) -> AsyncIterator[dict[str, Any]]:
        for version in await self.cupboard.stashes.records(found.id):
            if version.history_id and version.version <= found.value.version:
                fields = {**vars(version), "stash_id": found.id, "created_at": version.updated_at}
                yield encode_fields("stash_history", fields, read_history_extra(version))
