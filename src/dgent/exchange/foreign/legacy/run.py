"""Import a legacy folder: read each entry, write its records and blobs, verify them, then rename it.

Ids follow from contents and places, and a record about each file is written after all that came from it. So a
run that was interrupted is repeated without harm, and a second run finds that everything is there.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from dgent.config import file
from dgent.config import settings as config
from dgent.config.places import home_folder
from dgent.errors import Corrupt, DgentError, InputError, NotFound, VersionConflict
from dgent.exchange import folders
from dgent.exchange.foreign.legacy import source
from dgent.exchange.foreign.legacy.parse import Item, Origin, Parser
from dgent.exchange.foreign.legacy.source import Left, SourceFile
from dgent.exchange.foreign.legacy.yaml import read_yaml
from dgent.exchange.foreign.report import NAMED, Problem
from dgent.membrane.catalog import Catalog
from dgent.membrane.membrane import Membrane
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.backend import Put
from dgent.store.sqlite.foreign import read_rows
from dgent.system.files import sync
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import in_thread
from dgent.universe.blob import BlobStore, open_blobs
from dgent.universe.universe import Universe

BATCH = 500
ATTEMPTS = 20  # to write a batch, each after another import wrote some of it
MIGRATED = ".migrated"
FILE: Schema[Any] = Schema("legacy.file", indexes=("path", "sha256"))
_PARENTS = ("cli_sessions", "sessions", "self_grow_proposals")

ROWS: dict[str, str] = {
    "history.db": "sessions of the membrane",
    "ghost": "blobs below ghost/",
    "prompt-history": "prompt checkpoints of the membrane",
    "hypnagogia": "states of agents",
    "soul": "states of agents",
    "atelier": "blobs below atelier/",
    "blobs": "blobs",
    "membrane.db": "records of the membrane",
    "config.yaml": "settings of the project",
    "catalog.json": "the catalog of the project",
}
"""Legacy paths and what becomes of them, beside `witness.*`; anything else is read by its format."""

_BLOBS = ("ghost", "atelier", "blobs")
_TEXTS = (".md", ".txt", ".prompt")


class LegacyEntry(msgspec.Struct, frozen=True):
    """An entry of a legacy folder: what it became, and how many of each.

    `left` stays in its place because a part of it cannot be imported; `found` is that of a dry run.
    """

    name: str
    target: str
    state: Literal["migrated", "left", "found", "migrated before"]
    files: int = 0
    records: int = 0
    blobs: int = 0
    unchanged: int = 0
    renamed_to: str | None = None


class LegacyResult(msgspec.Struct, frozen=True):
    """The result of an import of a legacy folder; `problems` has the first of `odd` ones."""

    folder: str
    entries: list[LegacyEntry]
    odd: int
    problems: list[Problem]
    dry_run: bool


def legacy_path(folder: str | Path, name: str) -> Path:
    """Return a path in a legacy folder; warns where it was migrated, because nothing reads it any more."""
    path = Path(folder) / name
    if find_migrated(path) is not None:
        warnings.warn(
            f"{path} was migrated into dgent: what is written there is not read",
            DeprecationWarning,
            stacklevel=2,
        )
    return path


def find_migrated(path: Path) -> Path | None:
    """Return what an entry was renamed to when it was migrated."""
    moved = path.with_name(path.name + MIGRATED)
    return moved if os.path.lexists(moved) else None


async def import_legacy(
    universe: Universe, folder: str | Path, *, dry_run: bool = False, progress: Progress | None = None
) -> LegacyResult:
    """Import the ancestor's folder, such as `~/.kgents`; each entry that is imported whole is renamed.

    Files keep their bytes; nothing outside the folder is read, and no link is followed.
    """
    place = Path(os.path.realpath(folder))
    if not place.is_dir():
        raise NotFound(f"there is no folder {folder}", path=str(folder))
    run = _Run(universe, place, dry_run, progress)
    with folders.translate_errors(place):
        names = sorted(os.listdir(place))
    entries = [await run.take(name) for name in names if not _is_passed(name, names)]
    known = {each.removesuffix(MIGRATED) for each in names if each.endswith(MIGRATED)} - set(names)
    before = [
        LegacyEntry(
            source.text_of(name),
            _target_of(name),
            "migrated before",
            renamed_to=source.text_of(name + MIGRATED),
        )
        for name in sorted(known)
        if not name.endswith(source.BESIDE)
    ]
    return LegacyResult(str(folder), entries + before, run.odd, run.problems, dry_run)


def _is_passed(name: str, names: list[str]) -> bool:
    """Return whether an entry is not an item of its own: already migrated, or a part of a database."""
    if MIGRATED in name:
        return True
    return any(name.endswith(end) and name.removesuffix(end) in names for end in source.BESIDE)


def _target_of(name: str) -> str:
    return "records of the witness" if name.startswith("witness.") else ROWS.get(name, "records or blobs")


def _row_of(name: str) -> str:
    """Return the name of an entry's row as a part of a schema's name."""
    if name.startswith("witness."):
        return "witness"
    return name.partition(".")[0] if name in ROWS else "other"


class _Run:
    """One import of a folder."""

    def __init__(self, universe: Universe, folder: Path, dry_run: bool, progress: Progress | None) -> None:
        universe.register(FILE)
        self._universe, self._membrane = universe, Membrane(universe)
        self._parser = Parser(self._membrane)
        self._blobs: BlobStore | None = None
        self._folder, self._dry_run = folder, dry_run
        self._pace = ProgressReporter(progress, None)
        self._counts: dict[str, int] = {}
        self.odd = 0
        self.problems: list[Problem] = []

    def _report(self, file: str, message: str, line: int = 0) -> None:
        self.odd += 1
        if len(self.problems) < NAMED:
            self.problems.append(Problem(file, line, message))

    # -- one entry ----------------------------------------------------------------------------

    async def take(self, name: str) -> LegacyEntry:
        """Import an entry, and rename it if nothing of it is left."""
        self._counts = dict.fromkeys(("files", "records", "blobs", "unchanged"), 0)
        text, whole = source.text_of(name), True
        row = _row_of(name)
        for found in await in_thread(lambda _: list(source.list_files(self._folder, name))):
            if isinstance(found, Left):
                self._report(found.name, f"{found.reason}; it stays where it is")
                whole = False
            elif not _is_beside(found):
                whole = await self._take_safely(found, row) and whole
        renamed = None
        if whole and not self._dry_run:
            try:
                renamed = await in_thread(lambda _: _rename(self._folder, name))
            except OSError as error:
                self._report(text, f"it is imported, but cannot be renamed: {error.strerror}")
                whole = False
        state: Any = "found" if self._dry_run else "migrated" if whole else "left"
        return LegacyEntry(text, _target_of(name), state, **self._counts, renamed_to=renamed)

    async def _take_safely(self, file: SourceFile, row: str) -> bool:
        try:
            await self._take_file(file, row)
        except (InputError, Corrupt, OSError) as error:
            reason = error.message if isinstance(error, DgentError) else str(error.strerror)
            self._report(file.name, f"{reason}; it stays where it is")
            return False
        return True

    async def _take_file(self, file: SourceFile, row: str) -> None:
        origin = Origin(file, await in_thread(lambda _: source.digest_of(file.path)), row)
        self._counts["files"] += 1
        self._pace.add(file.size)
        done = await self._universe.get(origin.id, raw=True)
        if done is not None and done.data.get("sha256") == origin.sha256:
            self._counts["unchanged"] += 1
            return
        kind, blob = await self._read(origin)
        if self._dry_run:
            return
        data = {
            "path": source.text_of(file.path),
            "sha256": origin.sha256,
            "size_bytes": file.size,
            "kind": kind,
        }
        about = Datum(
            origin.id,
            data=data if blob is None else {**data, "blob": blob},
            schema=FILE.name,
            schema_version=1,
            created_at=file.changed_at,
            source="legacy",
        )
        await self._universe.put(about)

    async def _read(self, origin: Origin) -> tuple[str, str | None]:
        """Import the contents of a file by its format; return that, and the key of a blob."""
        file = origin.file
        try:
            if origin.row not in _BLOBS:
                if await in_thread(lambda _: source.begins_as_sqlite(file.path)):
                    await self._take_database(origin)
                    return "sqlite", None
                kind = _kind_of(origin)
                if kind != "blob":
                    await self._take_text(origin, kind)
                    return kind, None
        except (InputError, Corrupt) as error:
            if "store of dgent" in error.message:
                raise
            self._report(file.name, f"{error.message}; it is kept as a blob")
        return "blob", await self._take_blob(origin)

    # -- texts and rows -----------------------------------------------------------------------

    async def _take_text(self, origin: Origin, kind: str) -> None:
        raw = await in_thread(lambda _: _read_bytes(origin.file))
        if hashlib.sha256(raw).hexdigest() != origin.sha256:
            raise OSError(0, "it changed while it was read")
        items: Iterable[Item]
        if kind == "yaml":
            items = self._take_settings(origin, raw)
        elif kind == "prompt":
            items = self._parser.parse_prompt(origin, raw)
        elif kind == "jsonl":
            items = self._parser.parse_lines(origin, raw)
        else:
            items = self._parser.parse_json(origin, raw)
        found = list(items)
        if origin.row == "catalog" and found and not self._dry_run:
            await in_thread(lambda _: self._fill_catalog(found[0].datum.data))
        await self._put_all(found)

    async def _take_database(self, origin: Origin) -> None:
        """Import the rows of a SQLite file, from a copy of it."""
        with tempfile.TemporaryDirectory(prefix="dgent-legacy-") as folder:
            copy = Path(folder) / "copy.db"
            await in_thread(lambda _: source.copy_database(origin.file.path, copy))
            if await in_thread(lambda _: source.digest_of(copy)) != origin.sha256:
                raise OSError(0, "it changed while it was read")
            rows = read_rows(str(copy), _PARENTS)
            items = (item for row in rows for item in self._parser.parse_row(origin, row))
            try:
                while batch := await in_thread(lambda _: list(islice(items, BATCH))):
                    await self._put_batch(batch)
            finally:
                items.close()
                rows.close()

    async def _put_all(self, items: Iterable[Item]) -> None:
        left: Iterator[Item] = iter(items)
        while batch := list(islice(left, BATCH)):
            await self._put_batch(batch)

    async def _put_batch(self, batch: list[Item]) -> None:
        """Write records in two commits, of the membrane and of no room, and read them again."""
        if self._dry_run:
            self._counts["records"] += len(batch)
            return
        before = self._counts, self.odd, self.problems
        for attempt in range(ATTEMPTS):
            self._counts, self.odd, self.problems = dict(before[0]), before[1], list(before[2])
            datums = {each.id: each for each in await self._settle(batch)}
            new = list(datums.values())
            try:
                await self._commit(new)
                break
            except VersionConflict:  # another import of this folder was faster
                if attempt == ATTEMPTS - 1:
                    raise
        stored = await self._universe.get_many(list(datums), raw=True)
        for wanted, found in zip(new, stored, strict=True):
            if found is None or found.data != wanted.data or found.content != wanted.content:
                raise Corrupt(f"{wanted.id!r} was not stored as it was written")
        self._counts["records"] += len(new)

    async def _commit(self, new: list[Datum]) -> None:
        for owned in (True, False):
            ops = [Put(each, 0) for each in new if (each.schema in reserved.OWNERS) == owned]
            if ops:
                universe = self._membrane.universe if owned else self._universe
                await universe.commit(ops, note="import of a legacy folder")

    async def _settle(self, batch: list[Item]) -> list[Datum]:
        """Return the records of a batch that are not there yet, each under an id that is free."""
        wanted = {
            id for each in batch for id in (each.datum.id, each.spare, each.plain and each.plain.id) if id
        }
        parents = {id for each in batch for id in _parents_of(each.datum)}
        ids = list(wanted | parents)
        stored = dict(zip(ids, await self._universe.get_many(ids, raw=True), strict=True))
        there = {id for id, found in stored.items() if found is not None}
        made: dict[str, Datum] = {}
        for item in batch:
            datum: Datum | None = item.datum
            if not there.issuperset(_parents_of(item.datum)):
                datum = item.plain  # its session or proposal is not there
            elif _differs(stored.get(item.datum.id), item.datum) or item.datum.id in made:
                # Another record has its id, and stays.
                datum = item.plain if item.spare is None else item.datum.replace(id=item.spare)
                self._report(item.datum.id, "a record with this id is here already, and stays")
            if datum is None or stored.get(datum.id) is not None or datum.id in made:
                self._counts["unchanged"] += 1
            else:
                made[datum.id] = datum
                there.add(datum.id)
        return list(made.values())

    # -- blobs --------------------------------------------------------------------------------

    async def _take_blob(self, origin: Origin) -> str | None:
        """Store a file as a blob, and read it again; return its key."""
        self._counts["blobs"] += 1
        if self._dry_run:
            return None
        if self._blobs is None:
            self._blobs = open_blobs(self._universe)
        name = origin.file.name
        key = name if origin.row in _BLOBS else f"legacy/{name}"
        known = await self._blobs.info(key)
        if known is not None and known.sha256 != origin.sha256:
            key = f"{key}.{origin.sha256[:16]}"
        if known is None or known.sha256 != origin.sha256:
            kind = mimetypes.guess_type(name)[0]
            with await in_thread(lambda _: source.open_file(origin.file.path)) as file:
                parts = iter(lambda: file.read(source.CHUNK), b"")
                known = await self._blobs.put(key, parts, kind)
        digest = hashlib.sha256()
        async with self._blobs.open(key) as reader:
            async for part in reader:
                digest.update(part)
        if digest.hexdigest() != origin.sha256 or known.sha256 != origin.sha256:
            raise Corrupt(f"the blob {key!r} was not stored as it was read")
        return key

    # -- the project --------------------------------------------------------------------------

    @property
    def _project(self) -> Path | None:
        """The project whose `.kgents` this is; None for the one of the user's home."""
        if self._folder.name != ".kgents" or self._folder.parent == home_folder(None):
            return None
        return self._folder.parent

    def _take_settings(self, origin: Origin, raw: bytes) -> list[Item]:
        """Return the record of a settings file, after setting what dgent has under the same name."""
        try:
            value = read_yaml(raw.decode())
        except UnicodeDecodeError:
            raise InputError("it is not UTF-8 text") from None
        data = value if isinstance(value, dict) else {"value": value}
        if origin.row == "config" and self._project is not None and not self._dry_run:
            for name, entry in data.items():
                self._set(origin, self._project, name, entry)
        return [Item(origin.make("1", data))]

    def _set(self, origin: Origin, project: Path, name: str, entry: Any) -> None:
        text = str(entry).lower() if isinstance(entry, bool) else entry
        path = project / ".dgent" / "config.toml"
        try:
            if name not in config.KEYS or not isinstance(text, str):
                raise InputError(f"{name!r} is not a setting of dgent; it is in a record")
            if name not in file.table(path):
                config.write_setting(path, name, text, project=project)
        except DgentError as error:
            self._report(origin.file.name, error.message)

    def _fill_catalog(self, data: dict[str, Any]) -> None:
        """Register the agents of a catalog in the project, unless they are there."""
        if self._project is None:
            return
        catalog = Catalog(self._project)
        known = {each.name for each in catalog.list()}
        for name, agent in _agents_of(data):
            if name in known:
                continue
            try:
                capabilities = agent.get("capabilities")
                catalog.register(
                    name,
                    str(agent.get("genus") or "agent"),
                    str(agent.get("entry") or ""),
                    [str(each) for each in capabilities] if isinstance(capabilities, list) else (),
                )
            except DgentError as error:
                self._report("catalog.json", error.message)


def _agents_of(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the agents of a catalog, which may be a map or a list."""
    agents = data.get("agents", data)
    if isinstance(agents, dict):
        yield from ((name, each) for name, each in agents.items() if isinstance(each, dict))
    elif isinstance(agents, list):
        for each in agents:
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                yield each["name"], each


def _parents_of(datum: Datum) -> list[str]:
    """Return the ids of the session or proposal that a record of the membrane belongs to."""
    if datum.schema not in reserved.OWNERS:
        return []
    links = {"session_id": "membrane.cli_session", "proposal_id": "membrane.self_grow_proposal"}
    return [f"{schema}/{datum.data[field]}" for field, schema in links.items() if field in datum.data]


def _differs(stored: Datum | None, wanted: Datum) -> bool:
    return stored is not None and (stored.data != wanted.data or stored.content != wanted.content)


def _kind_of(origin: Origin) -> str:
    """Return the format of a file that is not a database, by its name."""
    suffix = origin.file.path.suffix.lower()
    if origin.file.size > source.MAX_TEXT_BYTES:
        return "blob"
    if origin.row == "prompt-history" and suffix in _TEXTS:
        return "prompt"
    kinds = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".yaml": "yaml", ".yml": "yaml"}
    return kinds.get(suffix, "blob")


def _is_beside(file: SourceFile) -> bool:
    """Return whether a file is a part of a database beside it."""
    return any(
        file.path.name.endswith(end) and os.path.lexists(str(file.path).removesuffix(end))
        for end in source.BESIDE
    )


def _read_bytes(file: SourceFile) -> bytes:
    with source.open_file(file.path) as opened:
        return opened.read(source.MAX_TEXT_BYTES + 1)


def _rename(folder: Path, name: str) -> str:
    """Rename an entry, with the parts of a database, so that nobody takes it for current; return its name."""
    number = 1
    while True:
        end = MIGRATED if number == 1 else f"{MIGRATED}-{number}"
        if not os.path.lexists(folder / (name + end)):
            break
        number += 1
    for part in source.BESIDE:
        if os.path.lexists(folder / (name + part)):
            os.rename(folder / (name + part), folder / (name + part + end))
    os.rename(folder / name, folder / (name + end))
    sync(str(folder))
    return source.text_of(name + end)
