"""Backups of a constellation: a folder with a copy of every file, and a manifest that proves them.

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
from dgent.config.settings import DATABASE
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
from dgent.store.sqlite import replace
from dgent.store.sqlite import replace as retire
from dgent.store.sqlite import upkeep as sqlite
from dgent.store.sqlite.replace import Forgotten, Held
from dgent.store.upkeep import Contents, upkeep_of
from dgent.system.files import sync
from dgent.system.progress import Pace, Progress
from dgent.system.threads import Stopped, in_thread
from dgent.universe.universe import Universe, open

Redactions = Mapping[str, tuple[RedactedVersion, ...]]
"""The redacted versions of each block."""

REPLACED = frozenset((VERSION.name, PACK.name, SNAPSHOT.name))
"""Schemas whose records a redaction erases and replaces by others."""


def redactions_in(connection: Held) -> Redactions:
    """Read what was redacted in a store that one has alone."""
    try:
        found: dict[str, tuple[RedactedVersion, ...]] = {}
        for _, data, _ in replace.live_records(connection, REDACTION.name):
            record = msgspec.json.decode(data, type=RedactionRecord)
            found[record.block] = record.redacted
        for id, data, _ in replace.live_records(connection, SNAPSHOT.name):
            block = id.split("/", 1)[0]
            if msgspec.json.decode(data, type=SnapshotRecord).redactions and block not in found:
                found[block] = _from_pages(connection, block)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"what was redacted cannot be read: {error}") from error
    return {block: redacted for block, redacted in found.items() if redacted}


def _from_pages(connection: Held, block: str) -> tuple[RedactedVersion, ...]:
    """Read it from the pages, for a block that was redacted before there was a record of it."""
    found: list[RedactedVersion] = []
    for _, data, content in replace.live_records(connection, PACK.name, f"{block}/p/"):
        record = msgspec.json.decode(data, type=PackRecord)
        found += list_redacted(decode_pack(block, record.first, record.last, content))
    return tuple(found)


async def apply_redactions(path: Path, redactions: Redactions) -> int:
    """Redact in a restored store what the one it replaces has redacted; returns how many versions."""
    if not redactions:
        return 0
    async with open(f"sqlite:///{path}") as universe:
        universe.register(*SCHEMAS)
        room = universe.for_room(ROOM)
        return sum([await redact_again(room, block, each) for block, each in redactions.items()])


FORMAT = 1
TELEMETRY, BLOBS, MANIFEST = "telemetry.db", "blobs", "manifest.json"
MAX_MANIFEST_BYTES = 256 * 1024 * 1024


class File(msgspec.Struct, frozen=True):
    """A file as it was written."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What `manifest.json` says; `sum` is the SHA-256 of all of it with an empty `sum`."""

    dgent: str
    format: int
    version: str
    universe: str
    seq: int
    records: int
    created_at: datetime
    files: tuple[File, ...]
    sum: str = ""
    # Left out where there are none, as in every backup before this was written down.
    damaged: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


def manifest_of(contents: Contents, files: tuple[File, ...], damaged: tuple[str, ...]) -> Manifest:
    """What is to be written down of a backup."""
    seq, records = contents.seq, contents.records
    made = Manifest("backup", FORMAT, _version(), contents.universe_id, seq, records, clock.now(), files)
    return msgspec.structs.replace(made, damaged=damaged) if damaged else made


def write(path: Path, made: Manifest) -> None:
    """Write it down, sealed with its own sum, and wait until it is on the disk."""
    whole = msgspec.structs.replace(made, sum=_sum(made))
    with folders.translated(path):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            folders.write(handle, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
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


def checked(source: Path, pace: Pace, stopped: Stopped, passes: int = 1) -> Manifest:
    """The manifest of a backup whose every byte is what was written."""
    with folders.translated(source):
        made = _read_manifest(source)
        pace.total = passes * sum(file.size for file in made.files)
        for file in made.files:
            path = source / safe(file.name)
            if not path.is_file():
                raise Corrupt(f"{file.name} is missing from the backup {source}", hint="take another backup")
            if path.stat().st_size != file.size or folders.digest(path, pace, stopped)[1] != file.sha256:
                raise damaged(source, file.name)
    return made


def damaged(source: Path, name: str) -> Corrupt:
    """The error for a file that is not what was written."""
    return Corrupt(f"{name} in the backup {source} is not what was written", hint="take another backup")


def _read_manifest(source: Path) -> Manifest:
    path = source / MANIFEST
    if not path.is_file():
        raise NotFound(f"{source} is not a backup: it has no {MANIFEST}", hint="give the folder of a backup")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise damaged(source, MANIFEST)
    raw = path.read_bytes()
    try:
        rough: Any = msgspec.json.decode(raw)
        if rough["dgent"] == "backup" and type(rough["format"]) is int and rough["format"] > FORMAT:
            raise FormatTooNew(f"{source} has backup format {rough['format']}; this dgent reads {FORMAT}")
        made = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError):
        raise damaged(source, MANIFEST) from None
    for file in made.files:
        safe(file.name)
    names = [file.name for file in made.files]
    if made.dgent != "backup" or made.sum != _sum(made) or DATABASE not in names:
        raise damaged(source, MANIFEST)
    return made


def safe(name: str) -> PurePosixPath:
    """A name from a manifest as a path that cannot leave the folder."""
    parts = name.split("/")
    odd = any(part in ("", ".", "..") or "\\" in part or "\0" in part or ":" in part for part in parts)
    if odd or not (name in (DATABASE, TELEMETRY) or (parts[0] == BLOBS and len(parts) > 1)):
        raise Corrupt(f"the manifest names {name!r}, which no backup holds", hint="do not restore it")
    return PurePosixPath(*parts)


DAMAGED = 20  # so many damaged records are named
MOVED_S = 0.1  # many times what a process that waits for a store pauses between two tries


class Backup(msgspec.Struct, frozen=True):
    """A backup: of what, as of when, and what it holds."""

    path: str
    seq: int
    records: int
    size_bytes: int
    created_at: datetime
    universe_id: str
    files: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """The first ids of records that could not be read when it was made; it holds them as they are."""


class Restored(msgspec.Struct, frozen=True):
    """What a restore came to; `kept` is where the replaced constellation is now.

    So many records that the replaced store has forgotten since the backup were `forgotten` again, and so
    many versions of blocks `redacted` again.
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

    `folder` is the constellation's, for what lies beside the database. The copy is checked before it
    gets its name; a backup that fails or is killed leaves nothing under that name.
    """
    await universe.seq()  # a closed handle says so
    target = Path(os.path.abspath(folders.usable(target, "to")))
    with folders.translated(target):
        _check_target(target, folder)
        folders.make_folders(target.parent)
        with folders.unfinished(target.with_name(target.name + folders.PARTIAL)) as new:
            made = await _make(universe, folder, new, progress)
            folders.put(new, target)
    return _described(made, target)


async def copy_into(
    universe: Universe, folder: Path | None, new: Path, *, progress: Progress | None = None
) -> None:
    """Copy a constellation as a backup does, into an empty folder that shall be one itself."""
    await _make(universe, folder, new, progress)
    (new / MANIFEST).unlink()


async def make_its_own(folder: Path) -> None:
    """Make a copied constellation a store of its own: cursors of the one it was copied from do not fit it."""
    await _in_thread(lambda _: retire.settle_restored(str(folder / DATABASE), None, {}))


async def _make(universe: Universe, folder: Path | None, new: Path, progress: Progress | None) -> Manifest:
    """Fill the new folder of a backup."""
    upkeep = upkeep_of(universe.backend)
    # The database is read twice: to copy it, and to hash the copy.
    pace = Pace(progress, 2 * (await universe.stats()).size_bytes + _blob_bytes(folder))
    early = await _in_thread(lambda stopped: _copy_blobs(folder, new, {}, pace, stopped))
    start = pace.done
    await upkeep.copy_to(str(new / DATABASE), lambda done, _: pace.at(start + done))
    made: Manifest = await _in_thread(lambda stopped: _complete(folder, new, early, pace, stopped))
    pace.end()
    return made


def _check_target(target: Path, folder: Path | None) -> None:
    if os.path.lexists(target) and (not target.is_dir() or target.is_symlink() or os.listdir(target)):
        raise Conflict(f"{target} exists already", hint="give a path where nothing is yet")
    if folder is not None and Path(os.path.realpath(folder)) in Path(os.path.realpath(target)).parents:
        raise InputError(
            f"{target} is inside the constellation", hint="keep backups elsewhere, best on another disk"
        )


def _blob_bytes(folder: Path | None) -> int:
    if folder is None or not (folder / BLOBS).is_dir():
        return 0
    return sum(path.stat().st_size for path in folders.plain_files(folder / BLOBS) if path.exists())


def _copy_blobs(
    folder: Path | None, new: Path, known: dict[str, File], pace: Pace, stopped: Stopped
) -> dict[str, File]:
    """The blobs that are not copied yet."""
    found = dict(known)
    if folder is not None and (folder / BLOBS).is_dir():
        for path in folders.plain_files(folder / BLOBS):
            name = path.relative_to(folder).as_posix()
            if name not in found:
                try:
                    found[name] = File(name, *folders.copy(path, new / name, pace, stopped))
                except NoBackendAvailable:
                    if path.exists():
                        raise
                    # Removed meanwhile, so nothing refers to it any more.
    return found


def _complete(
    folder: Path | None, new: Path, early: dict[str, File], pace: Pace, stopped: Stopped
) -> Manifest:
    """Copy the rest, and write down what the backup holds."""
    # Blobs came before the database, so that none it names can have been removed since, and come
    # once more after it, so that none it names can be missing.
    files = _copy_blobs(folder, new, early, pace, stopped)
    if folder is not None and (folder / TELEMETRY).is_file():
        sqlite.copy_database(str(folder / TELEMETRY), str(new / TELEMETRY), Pace(None), stopped)
        sync(str(new / TELEMETRY))
    for name in (TELEMETRY, DATABASE):
        if (new / name).exists():
            files = {name: File(name, *folders.digest(new / name, pace, stopped)), **files}
    # The copy was checked when it was made; what is left is to read its records.
    contents, damaged = sqlite.read_copy(str(new / DATABASE), DAMAGED, stopped)
    made = manifest_of(contents, tuple(files.values()), damaged)
    write(new / MANIFEST, made)
    folders.sync_folders(new)
    return made


def _described(made: Manifest, path: Path) -> Backup:
    size = sum(file.size for file in made.files)
    names = tuple(file.name for file in made.files)
    damaged = () if made.damaged is msgspec.UNSET else made.damaged
    return Backup(str(path), made.seq, made.records, size, made.created_at, made.universe, names, damaged)


# -- looking at a backup ------------------------------------------------------------------


def inspect_backup(source: Path) -> Backup:
    """What a backup holds, after every byte of it was checked; Corrupt when anything is not as it was."""
    made = checked(folders.usable(Path(source), "source"), Pace(None), Stopped())
    return _described(made, Path(os.path.abspath(source)))


# -- restore ------------------------------------------------------------------------------


async def restore(
    source: Path, folder: Path, *, replace: bool = False, progress: Progress | None = None
) -> Restored:
    """Put a backup in the place of a constellation, after checking all of it.

    It is built beside the place and opened once; only then the two trade places, in one step. What
    was there is kept under another name. Never over a store that anyone has open: Busy names who.
    What the replaced store has forgotten or redacted since the backup goes from the restored one too.
    """
    source = Path(os.path.abspath(folders.usable(source, "source")))
    folder = Path(os.path.realpath(folders.usable(folder, "to")))
    with folders.translated(folder):
        await _in_thread(lambda _: _check_place(folder, replace))
        pace = Pace(progress)
        made = await _in_thread(lambda stopped: checked(source, pace, stopped, passes=2))
        folders.make_folders(folder.parent)
        with folders.unfinished(folder.with_name(folder.name + folders.RESTORING)) as new:
            await _in_thread(lambda stopped: _copy_back(source, new, made, pace, stopped))
            await _prove(new, made)
            # Once before the old store is held, because it may take long; and once more for good.
            gone = await _in_thread(lambda _: _gone_from(folder, made))
            first = await _remove_again(new, gone)
            kept, more, found = await _take_place(new, folder, made, gone, replace)
    pace.end()
    forgotten, redacted = (a + b for a, b in zip(first, more, strict=True))
    return Restored(str(folder), found.seq, found.records, kept, forgotten, redacted)


def refuse_live(folder: Path) -> None:
    """Raise Busy, naming the process, when anyone has the constellation in a folder open."""
    for name in (DATABASE, TELEMETRY):
        path = Path(folder) / name
        if not _holds_something(path):
            continue
        try:
            with retire.alone(str(path)):
                pass
        except Corrupt:
            # Nobody can open it any more, but somebody may have had it open when it was damaged.
            if (pid := retire.holder(str(path))) is not None:
                raise Busy(f"{path} is in use by process {pid}", pid=pid) from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep everybody out of the constellation in a folder, to take it away; Busy when anyone has it open."""
    refuse_live(folder)
    with ExitStack() as held:
        if _holds_something(folder / DATABASE):
            with suppress(Corrupt):  # nobody can open it
                retire.retire(held.enter_context(retire.alone(str(folder / DATABASE))))
        yield


def _check_place(folder: Path, replace: bool) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="give the folder of a constellation")
    if os.listdir(folder) and not replace:
        raise Conflict(
            f"{folder} exists already", hint="restore elsewhere, or say replace; the old one is then kept"
        )
    refuse_live(folder)


def _copy_back(source: Path, new: Path, made: Manifest, pace: Pace, stopped: Stopped) -> None:
    for file in made.files:
        name = safe(file.name)
        if folders.copy(source / name, new / name, pace, stopped) != (file.size, file.sha256):
            raise damaged(source, file.name)
    folders.sync_folders(new)


async def _prove(new: Path, made: Manifest) -> None:
    """Open what was copied, as its user will."""
    wanted = Contents(made.universe, 0, made.seq, made.records)
    found = await _in_thread(lambda _: sqlite.check_copy(str(new / DATABASE)))
    async with open(f"sqlite:///{new / DATABASE}") as universe:
        seq = await universe.seq()
    # Rows are what counts: the indexes of a store that was damaged may tell of more or fewer.
    if msgspec.structs.replace(found, format=0) != wanted or seq != made.seq:
        raise Corrupt(f"{DATABASE} holds {found}, and the manifest says {wanted}")


class _Gone(NamedTuple):
    """What a store has forgotten, by salted hashes of ids, and what was redacted in it."""

    salt: bytes | None
    forgotten: Forgotten
    redactions: Redactions


_NOTHING_GONE = _Gone(None, {}, {})


def _gone_from(folder: Path, made: Manifest) -> _Gone:
    """Read what must not come back from the store that is there, if it is of the same universe."""
    path = folder / DATABASE
    if not _holds_something(path):
        return _NOTHING_GONE
    try:
        with retire.alone(str(path)) as connection:
            return _gone_in(connection, made)
    except Corrupt as error:
        raise Corrupt(
            f"what {path} has forgotten since the backup cannot be read: {error.message}",
            hint="rename its folder and restore again; what was forgotten since the backup comes back then",
        ) from error


def _gone_in(connection: Held, made: Manifest) -> _Gone:
    salt, forgotten = retire.forgotten_in(connection, made.universe)
    return _NOTHING_GONE if salt is None else _Gone(salt, forgotten, redactions_in(connection))


def _holds_something(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


async def _remove_again(new: Path, gone: _Gone) -> tuple[int, int]:
    """Remove from a restored store what is gone from the one it replaces: records, and redacted versions."""
    path = new / DATABASE
    found: list[tuple[str, str]] = []
    if gone.salt is not None:
        salt = gone.salt
        found = await _in_thread(lambda _: retire.forgotten_since(str(path), salt, gone.forgotten))
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
    await _in_thread(lambda _: retire.settle_restored(str(path), gone.salt, gone.forgotten))
    return len(found), redacted


async def _take_place(
    new: Path, folder: Path, made: Manifest, known: _Gone, replace: bool
) -> tuple[str | None, tuple[int, int], Contents]:
    """Let the restored folder and what is at its place trade places, while nobody can open either."""
    old, path, more = folder / DATABASE, new / DATABASE, (0, 0)
    with ExitStack() as ahead:
        with ExitStack() as held:
            if _holds_something(old):
                connection = await _in_thread(lambda _: held.enter_context(retire.alone(str(old))))
                gone = await _in_thread(lambda _: _gone_in(connection, made))
                more = (0, 0) if gone == known else await _remove_again(new, gone)
                await _in_thread(lambda _: retire.retire(connection))
            holds = await _in_thread(lambda _: sqlite.check_copy(str(path)))
            if _holds_something(old):
                fresh = await _in_thread(lambda _: ahead.enter_context(retire.alone(str(path))))
                await _in_thread(lambda _: retire.retire(fresh))
            kept = await _in_thread(lambda _: _swap(new, folder, replace))
        if kept is not None:
            # Whoever waited for the old store finds out now that it moved. Were the new one opened
            # before that, he would take its log for that of the file he has.
            await asyncio.sleep(MOVED_S)
    return kept, more, holds


def _swap(new: Path, folder: Path, replace: bool) -> str | None:
    folders.sync_folders(new)
    if not os.path.lexists(folder) or not os.listdir(folder):
        folders.put(new, folder)
        return None
    if not replace:
        raise Conflict(f"{folder} came to be meanwhile", hint="restore elsewhere, or say replace")
    return str(folders.put_instead(new, folder))


async def _in_thread(work: Callable[[Stopped], Any]) -> Any:
    return await in_thread(work)
