"""Backup and restore of a constellation: a folder with a copy of every file, and a manifest of their hashes.

A constellation is a folder with `membrane.db`, and maybe `blobs/` and `telemetry.db`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from dgent import clock
from dgent.blocks.history.pack import decode_pack
from dgent.blocks.history.rewrite import list_redacted, redact_again
from dgent.blocks.record import (
    PACK,
    REDACTION,
    ROOM,
    SCHEMAS,
    SNAPSHOT,
    VERSION,
    PackRecord,
    RedactedVersion,
    RedactionRecord,
    SnapshotRecord,
)
from dgent.config.places import BLOBS, DATABASE, TELEMETRY
from dgent.errors import (
    Busy,
    Conflict,
    Corrupt,
    FormatTooNew,
    InputError,
    NoBackendAvailable,
    NotFound,
)
from dgent.exchange import folders
from dgent.exchange.placed import HASH, Storage, fetch_contents, finish_sending, place_of, send_back
from dgent.exchange.telemetry import find_telemetry, send_events
from dgent.store.port.telemetry import Retention
from dgent.store.registry import telemetry_for
from dgent.store.sqlite import upkeep as sqlite
from dgent.store.sqlite.upkeep import Forgotten, Held
from dgent.store.upkeep import Contents, upkeep_of
from dgent.system.files import sync
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import Stopped, in_thread
from dgent.universe.universe import Universe, open

Redactions = Mapping[str, tuple[RedactedVersion, ...]]
"""The redacted versions of each block."""

REPLACED = frozenset((VERSION.name, PACK.name, SNAPSHOT.name))
"""Schemas whose records a redaction erases and replaces by others."""


def read_redactions(connection: Held) -> Redactions:
    """Read the redacted versions of each block from a store that is locked."""
    try:
        found: dict[str, tuple[RedactedVersion, ...]] = {}
        for _, data, _ in sqlite.live_records(connection, REDACTION.name):
            record = msgspec.json.decode(data, type=RedactionRecord)
            found[record.block] = record.redacted
        for id, data, _ in sqlite.live_records(connection, SNAPSHOT.name):
            block = id.split("/", 1)[0]
            if msgspec.json.decode(data, type=SnapshotRecord).redactions and block not in found:
                found[block] = _read_packed_redactions(connection, block)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the redactions cannot be read: {error}") from error
    return {block: redacted for block, redacted in found.items() if redacted}


def _read_packed_redactions(connection: Held, block: str) -> tuple[RedactedVersion, ...]:
    """Read them from the pack records, for a block redacted before redactions had a record."""
    found: list[RedactedVersion] = []
    for _, data, content in sqlite.live_records(connection, PACK.name, f"{block}/p/"):
        record = msgspec.json.decode(data, type=PackRecord)
        found += list_redacted(decode_pack(block, record.first, record.last, content))
    return tuple(found)


async def apply_redactions(path: Path, redactions: Redactions) -> int:
    """Redact in a restored store what the replaced one has redacted; return the number of versions."""
    if not redactions:
        return 0
    async with open(f"sqlite:///{path}") as universe:
        universe.register(*SCHEMAS)
        room = universe.for_room(ROOM)
        return sum([await redact_again(room, block, each) for block, each in redactions.items()])


FORMAT = 1
UPLOADS = "tmp"  # in the folder of blobs
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 256 * 1024 * 1024


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup with its size and hash."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of `manifest.json`; `sum` is the SHA-256 of all of it with an empty `sum`."""

    dgent: str
    format: int
    version: str
    universe: str
    seq: int
    records: int
    created_at: datetime
    files: tuple[BackupFile, ...]
    sum: str = ""
    # Left out when empty, as in every backup made before this field existed.
    damaged: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


def make_manifest(contents: Contents, files: tuple[BackupFile, ...], damaged: tuple[str, ...]) -> Manifest:
    """Return the manifest of a backup."""
    seq, records = contents.seq, contents.records
    made = Manifest("backup", FORMAT, _version(), contents.universe_id, seq, records, clock.now(), files)
    return msgspec.structs.replace(made, damaged=damaged) if damaged else made


def write_manifest(path: Path, made: Manifest) -> None:
    """Write a manifest with its own sum, and wait until it is on the disk."""
    whole = msgspec.structs.replace(made, sum=_sum(made))
    with folders.translate_errors(path):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            folders.write_all(handle, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def _sum(made: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(made, sum=""))).hexdigest()


def _version() -> str:
    try:
        return version("dgent")
    except PackageNotFoundError:
        return "unknown"


def check_backup(source: Path, pace: ProgressReporter, stopped: Stopped, passes: int = 1) -> Manifest:
    """Return the manifest of a backup after checking every byte; raises Corrupt."""
    with folders.translate_errors(source):
        made = _read_manifest(source)
        pace.total = passes * sum(file.size for file in made.files)
        for file in made.files:
            path = source / check_name(file.name)
            if not path.is_file():
                raise Corrupt(f"{file.name} is missing from the backup {source}", hint="take another backup")
            if path.stat().st_size != file.size or folders.hash_file(path, pace, stopped)[1] != file.sha256:
                raise make_damage_error(source, file.name)
    return made


def make_damage_error(source: Path, name: str) -> Corrupt:
    """Return the error for a file that is not as it was written."""
    return Corrupt(f"{name} in the backup {source} is not as it was written", hint="take another backup")


def _read_manifest(source: Path) -> Manifest:
    path = source / MANIFEST
    if not path.is_file():
        raise NotFound(f"{source} is not a backup: it has no {MANIFEST}", hint="give the folder of a backup")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise make_damage_error(source, MANIFEST)
    raw = path.read_bytes()
    try:
        rough: Any = msgspec.json.decode(raw)
        if rough["dgent"] == "backup" and type(rough["format"]) is int and rough["format"] > FORMAT:
            raise FormatTooNew(f"{source} has backup format {rough['format']}; this dgent reads {FORMAT}")
        made = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError):
        raise make_damage_error(source, MANIFEST) from None
    for file in made.files:
        check_name(file.name)
    names = [file.name for file in made.files]
    if made.dgent != "backup" or made.sum != _sum(made) or DATABASE not in names:
        raise make_damage_error(source, MANIFEST)
    return made


def check_name(name: str) -> PurePosixPath:
    """Return a name from a manifest as a path inside the folder; raises Corrupt for any other name."""
    parts = name.split("/")
    odd = any(part in ("", ".", "..") or "\\" in part or "\0" in part or ":" in part for part in parts)
    if odd or not (name in (DATABASE, TELEMETRY) or (parts[0] == BLOBS and len(parts) > 1)):
        raise Corrupt(
            f"the manifest names {name!r}, which is not a file of a backup", hint="do not restore it"
        )
    return PurePosixPath(*parts)


DAMAGED = 20  # damaged records listed
MOVED_S = 0.1  # several times the pause between two tries of a process that waits for a store


class Backup(msgspec.Struct, frozen=True):
    """A backup: its source, its commit, and its content."""

    path: str
    seq: int
    records: int
    size_bytes: int
    created_at: datetime
    universe_id: str
    files: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """The first ids of records and contents of blobs that are damaged; the backup holds them unchanged."""


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore; `kept` is the path of the replaced constellation.

    `forgotten` and `redacted` count the records and block versions that were removed again, because the
    replaced store had forgotten or redacted them since the backup.
    """

    path: str
    seq: int
    records: int
    kept: str | None
    forgotten: int
    redacted: int = 0


# -- backup -------------------------------------------------------------------------------


async def backup(
    universe: Universe, folder: Path | None, target: Path, *, progress: Progress | None = None
) -> Backup:
    """Copy a constellation as of one moment, while others use it, into a new folder.

    `folder` is that of the constellation, for the files beside the database. The copy is checked before it
    gets its name; a backup that fails or is killed leaves nothing under that name.
    """
    await universe.seq()  # raises if the handle is closed
    target = Path(os.path.abspath(folders.check_path(target, "to")))
    with folders.translate_errors(target):
        _check_target(target, folder)
        folders.make_folders(target.parent)
        with folders.build_folder(target.with_name(target.name + folders.PARTIAL)) as new:
            made = await _build(universe, folder, new, progress)
            folders.publish_folder(new, target)
    return _describe(made, target)


async def copy_into(
    universe: Universe, folder: Path | None, new: Path, *, progress: Progress | None = None
) -> None:
    """Copy a constellation as a backup does, into an empty folder that becomes a constellation.

    What the settings place elsewhere is there for the new one as well.
    """
    await _build(universe, folder, new, progress, placed=False)
    (new / MANIFEST).unlink()


async def make_independent(folder: Path) -> None:
    """Make a copied constellation independent: cursors of its source become invalid for it."""
    await _in_thread(lambda _: sqlite.settle_restored(str(folder / DATABASE), None, {}))


async def _build(
    universe: Universe, folder: Path | None, new: Path, progress: Progress | None, placed: bool = True
) -> Manifest:
    """Write all files of a backup into its new folder; `placed` ones that are kept elsewhere, too."""
    upkeep = upkeep_of(universe.backend)
    # The database is read twice: to copy it, and to hash the copy.
    blobs = _find_blobs(universe, folder)
    pace = ProgressReporter(progress, 2 * (await universe.stats()).size_bytes + _blob_bytes(blobs))
    early = await _in_thread(lambda stopped: _copy_blobs(blobs, new, {}, pace, stopped))
    if placed:
        early |= await _fetch_contents(universe, new, early, pace)
    events = await _copy_events(universe, folder, new, placed)
    start = pace.done
    await upkeep.copy_to(str(new / DATABASE), lambda done, _: pace.at(start + done))
    if placed:  # once more, as `_complete` does for those in the folder
        early |= await _fetch_contents(universe, new, early, pace)
    made: Manifest = await _in_thread(
        lambda stopped: _complete(None if events else folder, blobs, new, early, pace, stopped)
    )
    pace.end()
    return made


async def _fetch_contents(
    universe: Universe, new: Path, known: dict[str, BackupFile], pace: ProgressReporter
) -> dict[str, BackupFile]:
    found = await fetch_contents(universe, new, known, pace)
    return {name: BackupFile(name, *each) for name, each in found.items()}


async def _copy_events(universe: Universe, folder: Path | None, new: Path, placed: bool) -> bool:
    """Write telemetry that is not in the folder, in Postgres or beside a file, as a file of the backup.

    Returns whether it did: then it is not that of the folder, if the settings place it elsewhere.
    """
    elsewhere = place_of(universe._life.storage, "telemetry") is not None
    if (elsewhere and not placed) or (
        not elsewhere and folder is not None and (folder / TELEMETRY).is_file()
    ):
        return False
    events = await find_telemetry(universe)
    if events is not None:
        made = telemetry_for(f"sqlite:///{new / TELEMETRY}", Retention(None, None))
        try:
            await send_events(events, made)
        finally:
            await made.close()
        sync(str(new / TELEMETRY))
    return events is not None


def _check_target(target: Path, folder: Path | None) -> None:
    if os.path.lexists(target) and (not target.is_dir() or target.is_symlink() or os.listdir(target)):
        raise Conflict(f"{target} already exists", hint="give a path that does not exist yet")
    if folder is not None and Path(os.path.realpath(folder)) in Path(os.path.realpath(target)).parents:
        raise InputError(
            f"{target} is inside the constellation", hint="keep backups elsewhere, best on another disk"
        )


def _find_blobs(universe: Universe, folder: Path | None) -> Path | None:
    """Return the folder with the contents of blobs; None where they are in no folder, or there are none."""
    found = universe.blob_folder
    path = folder / BLOBS if folder is not None else None if found is None else Path(found)
    return path if path is not None and path.is_dir() else None


def _blob_bytes(blobs: Path | None) -> int:
    return 0 if blobs is None else sum(path.stat().st_size for path in _blob_files(blobs) if path.exists())


def _blob_files(blobs: Path) -> Iterator[Path]:
    """Yield the files of blobs, without those of uploads that have not ended."""
    uploads = blobs / UPLOADS
    return (path for path in folders.walk_files(blobs) if path.parent != uploads)


def _copy_blobs(
    blobs: Path | None, new: Path, known: dict[str, BackupFile], pace: ProgressReporter, stopped: Stopped
) -> dict[str, BackupFile]:
    """Copy the blobs that are not in `known`; return all of them."""
    found = dict(known)
    if blobs is not None:
        for path in _blob_files(blobs):
            name = (BLOBS / path.relative_to(blobs)).as_posix()
            if name not in found:
                try:
                    found[name] = BackupFile(name, *folders.copy_file(path, new / name, pace, stopped))
                except NoBackendAvailable:
                    if path.exists():
                        raise
                    # Deleted meanwhile, so nothing refers to it any more.
    return found


def _complete(
    folder: Path | None,
    blobs: Path | None,
    new: Path,
    early: dict[str, BackupFile],
    pace: ProgressReporter,
    stopped: Stopped,
) -> Manifest:
    """Copy the remaining files and write the manifest."""
    # Blobs are copied before the database, so that none it refers to is deleted first, and once more after
    # it, so that none it refers to is missing.
    files = _copy_blobs(blobs, new, early, pace, stopped)
    hashes = ((name.rpartition("/")[2], file.sha256) for name, file in files.items())
    spoilt = [f"blob:{name}" for name, found in hashes if HASH.fullmatch(name) and name != found]
    if folder is not None and (folder / TELEMETRY).is_file():
        sqlite.copy_database(str(folder / TELEMETRY), str(new / TELEMETRY), ProgressReporter(None), stopped)
        sync(str(new / TELEMETRY))
    for name in (TELEMETRY, DATABASE):
        if (new / name).exists():
            files = {name: BackupFile(name, *folders.hash_file(new / name, pace, stopped)), **files}
    # The copy was checked when it was made; what is left is to read its records.
    contents, damaged = sqlite.read_copy(str(new / DATABASE), DAMAGED, stopped)
    made = make_manifest(contents, tuple(files.values()), (*damaged, *spoilt)[:DAMAGED])
    write_manifest(new / MANIFEST, made)
    folders.sync_folders(new)
    return made


def _describe(made: Manifest, path: Path) -> Backup:
    size = sum(file.size for file in made.files)
    names = tuple(file.name for file in made.files)
    damaged = () if made.damaged is msgspec.UNSET else made.damaged
    return Backup(str(path), made.seq, made.records, size, made.created_at, made.universe, names, damaged)


# -- inspection ---------------------------------------------------------------------------


def inspect_backup(source: Path) -> Backup:
    """Describe a backup after checking every byte of it; raises Corrupt."""
    made = check_backup(folders.check_path(Path(source), "source"), ProgressReporter(None), Stopped())
    return _describe(made, Path(os.path.abspath(source)))


# -- restore ------------------------------------------------------------------------------


async def restore(
    source: Path,
    folder: Path,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    storage: Storage | None = None,
) -> Restored:
    """Put a backup in the place of a constellation, after checking all of it.

    It is unpacked beside the current store and opened once; only then the two are swapped, in one step. The
    old one is kept under another name. Raises Busy, naming the process, while anyone has the store open. What
    the replaced store has forgotten or redacted since the backup is removed from the restored one as well.
    Where `storage` places blobs or telemetry elsewhere, those of the backup are added there.
    """
    source = Path(os.path.abspath(folders.check_path(source, "source")))
    folder = Path(os.path.realpath(folders.check_path(folder, "to")))
    with folders.translate_errors(folder):
        await _in_thread(lambda _: _check_place(folder, replace))
        pace = ProgressReporter(progress)
        made = await _in_thread(lambda stopped: check_backup(source, pace, stopped, passes=2))
        folders.make_folders(folder.parent)
        with folders.build_folder(folder.with_name(folder.name + folders.RESTORING)) as new:
            await _in_thread(lambda stopped: _copy_back(source, new, made, pace, stopped))
            await _verify(new, made)
            # Once before the old store is locked, because it may take long; and once more while it is.
            gone = await _in_thread(lambda _: _read_gone_of_folder(folder, made))
            first = await _remove_again(new, gone)
            sent = await send_back(new, storage or {})
            kept, more, found = await _take_place(new, folder, made, gone, replace)
            await finish_sending(folder, storage or {}, sent, forgotten=any(more))
    pace.end()
    forgotten, redacted = (a + b for a, b in zip(first, more, strict=True))
    return Restored(str(folder), found.seq, found.records, kept, forgotten, redacted)


def check_not_in_use(folder: Path) -> None:
    """Raise Busy, naming the process, if anyone has the constellation in a folder open."""
    for name in (DATABASE, TELEMETRY):
        path = Path(folder) / name
        if not _has_content(path):
            continue
        try:
            with sqlite.alone(str(path)):
                pass
        except Corrupt:
            # Nobody can open it any more, but a process may have had it open when it was damaged.
            if (pid := sqlite.holder(str(path))) is not None:
                raise Busy(f"{path} is in use by process {pid}", pid=pid) from None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the constellation in a folder in order to move or delete it; raises Busy if anyone has it open."""
    check_not_in_use(folder)
    with ExitStack() as held:
        if _has_content(folder / DATABASE):
            with suppress(Corrupt):  # nobody can open it
                sqlite.retire(held.enter_context(sqlite.alone(str(folder / DATABASE))))
        yield


def _check_place(folder: Path, overwrite: bool) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="give the folder of a constellation")
    if os.listdir(folder) and not overwrite:
        raise Conflict(
            f"{folder} already exists", hint="restore elsewhere, or say replace; the old one is then kept"
        )
    check_not_in_use(folder)


def _copy_back(source: Path, new: Path, made: Manifest, pace: ProgressReporter, stopped: Stopped) -> None:
    for file in made.files:
        name = check_name(file.name)
        if folders.copy_file(source / name, new / name, pace, stopped) != (file.size, file.sha256):
            raise make_damage_error(source, file.name)
    folders.sync_folders(new)


async def _verify(new: Path, made: Manifest) -> None:
    """Open the copied store and compare it with the manifest; raises Corrupt."""
    wanted = Contents(made.universe, 0, made.seq, made.records)
    found = await _in_thread(lambda _: sqlite.check_copy(str(new / DATABASE)))
    # The backup that is restored stays: one more of its old format would be too many.
    async with open(f"sqlite:///{new / DATABASE}", upgrade="no-backup") as universe:
        seq = await universe.seq()
    # Rows are counted: the indexes of a damaged store may have more or fewer entries.
    if msgspec.structs.replace(found, format=0) != wanted or seq != made.seq:
        raise Corrupt(f"{DATABASE} holds {found}, but the manifest says {wanted}")


class _Gone(NamedTuple):
    """The forgotten records of a store, by salted hashes of their ids, and its redactions."""

    salt: bytes | None
    forgotten: Forgotten
    redactions: Redactions


_NOTHING_GONE = _Gone(None, {}, {})


def _read_gone_of_folder(folder: Path, made: Manifest) -> _Gone:
    """Read what a restore must not bring back from the current store, if it is of the same universe."""
    path = folder / DATABASE
    if not _has_content(path):
        return _NOTHING_GONE
    try:
        with sqlite.alone(str(path)) as connection:
            return _read_gone(connection, made)
    except Corrupt as error:
        raise Corrupt(
            f"the records that {path} has forgotten since the backup cannot be read: {error.message}",
            hint="rename its folder and restore again; records forgotten since the backup then come back",
        ) from error


def _read_gone(connection: Held, made: Manifest) -> _Gone:
    salt, forgotten = sqlite.forgotten_in(connection, made.universe)
    return _NOTHING_GONE if salt is None else _Gone(salt, forgotten, read_redactions(connection))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


async def _remove_again(new: Path, gone: _Gone) -> tuple[int, int]:
    """Forget and redact in a restored store what the replaced one has; return both counts."""
    path = new / DATABASE
    found: list[tuple[str, str]] = []
    if gone.salt is not None:
        salt = gone.salt
        found = await _in_thread(lambda _: sqlite.forgotten_since(str(path), salt, gone.forgotten))
    found = [(id, schema) for id, schema in found if schema not in REPLACED]
    if found:
        async with open(f"sqlite:///{path}") as universe:
            owners = {schema.name: schema.owner for schema in await universe.schemas()}
            rooms: dict[str | None, list[str]] = {}
            for id, schema in found:
                rooms.setdefault(owners.get(schema), []).append(id)
            for room, ids in rooms.items():
                await (universe if room is None else universe.for_room(room)).forget(*ids)
    redacted = await apply_redactions(path, gone.redactions)
    await _in_thread(lambda _: sqlite.settle_restored(str(path), gone.salt, gone.forgotten))
    return len(found), redacted


async def _take_place(
    new: Path, folder: Path, made: Manifest, known: _Gone, overwrite: bool
) -> tuple[str | None, tuple[int, int], Contents]:
    """Swap the restored folder and the current one while nobody can open either."""
    old, path, more = folder / DATABASE, new / DATABASE, (0, 0)
    with ExitStack() as ahead:
        with ExitStack() as held:
            if _has_content(old):
                connection = await _in_thread(lambda _: held.enter_context(sqlite.alone(str(old))))
                gone = await _in_thread(lambda _: _read_gone(connection, made))
                more = (0, 0) if gone == known else await _remove_again(new, gone)
                await _in_thread(lambda _: sqlite.retire(connection))
            holds = await _in_thread(lambda _: sqlite.check_copy(str(path)))
            if _has_content(old):
                fresh = await _in_thread(lambda _: ahead.enter_context(sqlite.alone(str(path))))
                await _in_thread(lambda _: sqlite.retire(fresh))
            kept = await _in_thread(lambda _: _swap(new, folder, overwrite))
        if kept is not None:
            # A process that waited for the old store notices now that it moved. If the new one were
            # opened before that, the process would take its log for that of the file it has open.
            await asyncio.sleep(MOVED_S)
    return kept, more, holds


def _swap(new: Path, folder: Path, overwrite: bool) -> str | None:
    folders.sync_folders(new)
    if not os.path.lexists(folder) or not os.listdir(folder):
        folders.publish_folder(new, folder)
        return None
    if not overwrite:
        raise Conflict(f"{folder} was created meanwhile", hint="restore elsewhere, or say replace")
    return str(folders.replace_folder(new, folder))


async def _in_thread(work: Callable[[Stopped], Any]) -> Any:
    return await in_thread(work)
