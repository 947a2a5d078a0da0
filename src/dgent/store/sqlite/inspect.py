"""Inspect a SQLite store, and repair what is safe to repair."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from dgent.errors import DgentError
from dgent.store.backend import StoredView
from dgent.store.engine import fold, prune
from dgent.store.engine.catalog import SchemaState
from dgent.store.engine.commit import Ledger
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.damage import find_bad_row
from dgent.store.sqlite.reading import SQLiteReading
from dgent.store.sqlite.upgrade import list_backups
from dgent.store.sqlite.upkeep import looking
from dgent.store.sqlite.verify import Strays, find_strays, mend_strays
from dgent.store.upkeep import Finding, Level
from dgent.system import files
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped, in_thread

if TYPE_CHECKING:
    from dgent.store.sqlite.backend import SQLiteBackend

MIB = 1 << 20
LOG_BYTES = (
    64 * MIB
)  # checkpoints begin at a quarter of this; a log beyond it means that someone hinders them
ROOM_BYTES = 1024 * MIB
NO_ROOM_BYTES = 64 * MIB

Mend = Callable[[], Awaitable[str | None]]
"""Repairs a finding, and returns a report; None when it could not be done now."""


async def inspect(backend: SQLiteBackend, deep: bool, fix: bool, pace: ProgressReporter) -> list[Finding]:
    """Inspect the file, its place and its contents; with `fix`, repair what is safe to repair."""
    backend._require_open()
    path = backend.path
    seen, strays = await in_thread(lambda stopped: _look(path, deep, pace, stopped))
    found: list[Finding] = []
    for finding, mend in [*seen, *await _mendable(backend, strays), *_around(backend)]:
        if mend is not None:
            finding = await _mend(finding, mend) if fix else _replace(finding, fixable=True)
        found.append(finding)
    pace.end()
    return found


async def _mend(finding: Finding, mend: Mend) -> Finding:
    done = await mend()
    if done is None:
        return _replace(finding, message=f"{finding.message}; it could not be mended now", fixable=True)
    return _replace(finding, message=f"{finding.message}: {done}", fixable=True, fixed=True)


def _replace(finding: Finding, **changes: Any) -> Finding:
    return msgspec.structs.replace(finding, **changes)


Seen = list[tuple[Finding, Mend | None]]


# -- what the file says -------------------------------------------------------------------


def _look(path: str, deep: bool, pace: ProgressReporter, stopped: Stopped) -> tuple[Seen, Strays]:
    """Return the results of all reads of one inspection; of one moment, so that they are consistent."""
    strays = Strays()
    with looking(path, stopped) as connection:
        ask: Callable[[str], Any] = connection.execute
        ask("PRAGMA temp_store = FILE")  # what is gathered may be large
        settings = [ask(f"PRAGMA {name}").fetchall()[0][0] for name in ("journal_mode", "page_size")]
        ask("BEGIN")
        meta = dict(ask("SELECT name, value FROM meta").fetchall())
        seen = [_library(), _settings(*settings), _identity(meta), _format(meta)]
        whole = _integrity(connection, deep)
        seen.append(whole)
        if deep and whole.level == "ok":
            strays, more = _strays(connection, pace)
            seen += more
    return [(finding, None) for finding in seen], strays


def _strays(connection: apsw.Connection, pace: ProgressReporter) -> tuple[Strays, list[Finding]]:
    """Return the inconsistencies; a row that dgent never wrote ends the search, and is named."""
    try:
        return find_strays(connection, pace)
    except (DgentError, apsw.Error):
        raise
    except Exception:
        bad = find_bad_row(connection)
        if bad is None:
            raise
        hint = "write the record anew, delete it, or restore a backup; then look again"
        return Strays(), [Finding("problem", "rows", bad, hint)]


def _library() -> Finding:
    return Finding("ok", "sqlite", f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}")


def _settings(mode: str, page_size: int) -> Finding:
    if mode != "wal":
        message = f"the journal mode is {mode!r}, not 'wal': readers and writers hinder each other"
        return Finding("problem", "settings", message, "close every program that uses the store, and open it")
    return Finding("ok", "settings", f"journal mode {mode}, pages of {page_size} bytes")


def _identity(meta: dict[Any, Any]) -> Finding:
    return Finding("ok", "universe", f"its id is {meta.get('universe_id')}")


def _format(meta: dict[Any, Any]) -> Finding:
    number = meta.get("format")
    if number != storage.FORMAT:
        message = f"storage format {number}; this dgent writes {storage.FORMAT}"
        return Finding("warning", "format", message, "open it anew to bring it up to date")
    return Finding("ok", "format", f"storage format {number}, the newest this dgent knows")


def _integrity(connection: apsw.Connection, deep: bool) -> Finding:
    check = "integrity_check" if deep else "quick_check"
    said = [str(row[0]) for row in connection.execute(f"PRAGMA {check}(20)").fetchall()]
    if said == ["ok"]:
        more = "" if deep else "; --deep reads every record"
        return Finding("ok", "integrity", f"SQLite's {check.replace('_', ' ')} found nothing{more}")
    message = f"the file is damaged: {'; '.join(said[:3])}"
    return Finding("problem", "integrity", message, "export what can be read, and restore a backup")


# -- what can be mended -------------------------------------------------------------------


async def _mendable(backend: SQLiteBackend, strays: Strays) -> Seen:
    seen = [*_log(backend), *await _forgetting(backend), *await _indexes(backend)]
    if strays:
        finding = Finding("problem", "entries", strays.describe(), "run it again with fix")
        seen.append((finding, lambda: mend_strays(backend, strays)))
    return seen


def _log(backend: SQLiteBackend) -> Seen:
    size = files.size(backend.path + "-wal")
    sync = "FULL" if backend.durability == "full" else "NORMAL"
    if size <= LOG_BYTES:
        return [(Finding("ok", "log", f"the log has {size:,} bytes; synchronous is {sync} here"), None)]

    async def checkpoint() -> str | None:
        shared = backend._require_open()
        emptied = await in_thread(lambda _: shared.writer.truncate())
        return "checkpointed into the file" if emptied else None

    hint = "a reader that never ends keeps it from being checkpointed"
    return [(Finding("warning", "log", f"the log has {size:,} bytes", hint), checkpoint)]


async def _forgetting(backend: SQLiteBackend) -> Seen:
    shared = backend._require_open()
    ask = "SELECT 1 FROM meta WHERE name = 'erasing'"
    if not await backend._read(lambda _: shared._reader().own._all(ask)):
        return [(Finding("ok", "forgetting", "nothing forgotten is left in the files"), None)]

    async def scrub() -> str | None:
        return "erased now" if await in_thread(lambda _: shared.scrub()) else None

    message = "forgotten bytes may still be in the files"
    return [(Finding("warning", "forgetting", message, "readers or a crash prevented the erasing"), scrub)]


async def _indexes(backend: SQLiteBackend) -> Seen:
    shared = backend._require_open()

    def work(reading: Any) -> list[tuple[SchemaState, int, bool]]:
        reading.refresh()
        return [(state, *_behind(shared._reader().own, state)) for state in reading.states()]

    seen: Seen = []
    for state, unindexed, mixed in await backend._read(work):
        if state.fill is not None or state.stale:
            seen.append(_filling(backend, state, mixed))
        if unindexed:
            message = f"{state.name}: {unindexed:,} records are in no field index; queries read each of them"
            hint = f"upgrade them with a program that knows version {state.index_version}"
            seen.append((Finding("note", "indexes", message, hint), None))
    return seen or [(Finding("ok", "indexes", "every index is complete"), None)]


def _behind(reading: SQLiteReading, state: SchemaState) -> tuple[int, bool]:
    """Return how many records are in no field index, and whether some are not of the index's version."""
    unindexed = reading._all("SELECT count(*) FROM lag WHERE schema = ?", state.number)[0][0]
    if state.fill is None or not state.index_version:
        return unindexed, False
    sql = "SELECT EXISTS (SELECT 1 FROM datum WHERE schema = ? AND sv <> ? AND live = 1 AND trail = 0)"
    return unindexed, bool(reading._all(sql, state.number, state.index_version)[0][0])


def _filling(backend: SQLiteBackend, state: SchemaState, mixed: bool) -> tuple[Finding, Mend | None]:
    waiting = ", ".join(state.building) or "indexes of an older version"
    name = state.name or "records without a schema"
    message = f"{name}: an index is not complete ({waiting}); queries are right, only slower"
    if mixed:
        version = state.index_version
        hint = f"a program that knows version {version} of the schema goes on with it when it is opened"
        return Finding("note", "indexes", message, hint), None

    async def fill() -> str | None:
        view = _Own(state)
        while await backend._write(lambda ledger: _fill(ledger, state, view, backend._folding)):
            pass
        return "completed"

    return Finding("note", "indexes", message), fill


def _fill(ledger: Ledger, state: SchemaState, view: _Own, folding: fold.Prepared) -> bool:
    # Only as long as nobody declared another version meanwhile: this view knows no other.
    now = ledger.kernel.state(state.name)
    return (
        now is not None
        and now.index_version == state.index_version
        and prune.fill_step(ledger, state.name, view, folding)
    )


class _Own(StoredView):
    """Shows records of one schema as they are; right where all of them are of the index's version."""

    def __init__(self, state: SchemaState) -> None:
        self._state = state

    def version(self, schema: str) -> int | None:
        """Return the version of the index."""
        return self._state.index_version if schema == self._state.name else None


# -- around the file ----------------------------------------------------------------------


def _around(backend: SQLiteBackend) -> Seen:
    path = backend.path
    return [*_room(backend), *_permissions(path), *_leftovers(path), *_backups(path)]


def _room(backend: SQLiteBackend) -> Seen:
    there = backend._place()
    place = os.statvfs(there if os.path.isdir(there) else os.path.dirname(there))
    free, size = place.f_bavail * place.f_frsize, backend._size_bytes()
    level: Level = "problem" if free < NO_ROOM_BYTES else "warning" if free < max(ROOM_BYTES, size) else "ok"
    hint = "" if level == "ok" else "free some: forgetting and backups need as much room as the store has"
    message = f"{free // MIB:,} MiB free, the store has {size / MIB:,.1f} MiB"
    return [(Finding(level, "disk", message, hint), None)]


def _permissions(path: str) -> Seen:
    seen: Seen = []
    names = [path + suffix for suffix in ("", "-wal", "-shm") if os.path.exists(path + suffix)]
    open_to_others = [name for name in names if os.stat(name).st_mode & 0o077]

    async def tighten() -> str | None:
        for name in open_to_others:
            os.chmod(name, 0o600)  # by name: opening one of SQLite's files would drop its locks
        return "now only its owner may"

    if open_to_others:
        message = f"{os.path.basename(path)} can be read or written by other users"
        seen.append((Finding("warning", "permissions", message), tighten))
    folder = os.path.dirname(path)
    if os.stat(folder).st_mode & 0o077:
        message = f"the folder {folder} is open to other users"
        seen.append((Finding("note", "permissions", message, f"chmod 700 {folder}"), None))
    return seen or [(Finding("ok", "permissions", "only the owner may read it"), None)]


def _leftovers(path: str) -> Seen:
    folder = os.path.dirname(path)
    names = set(os.listdir(folder))
    logs = [n for n in sorted(names) if n.endswith("-wal") and n.removesuffix("-wal") not in names]
    hint = "put the store back beside it, or remove it"
    return [
        (Finding("warning", "leftovers", f"{name} is a log without a store", hint), None) for name in logs
    ]


def _backups(path: str) -> Seen:
    hint = "remove it when you are sure that you need the store in its old format no more"
    return [
        (Finding("note", "backup", f"{each} is from before an upgrade of the format", hint), None)
        for each in list_backups(path)
    ]
