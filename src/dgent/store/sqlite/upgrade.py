"""Upgrade the file of a SQLite store to this dgent's storage format, after a backup of it.

The store is held exclusively meanwhile: a process that has it open goes by the old format, and would miss or
spoil what the new one adds.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

import apsw

from dgent import clock
from dgent.errors import Busy, DgentError, NotFound, StorageFull, Unavailable
from dgent.store.sqlite import connection as waiting
from dgent.store.sqlite import format as storage
from dgent.store.sqlite.connection import translate
from dgent.store.sqlite.upkeep import (
    INTERRUPT_STEPS,
    SEQ,
    alone,
    copy_pages,
    looking,
    one,
    stand_alone,
    still,
)
from dgent.store.upgrade import (
    Step,
    Upgrade,
    describe_steps,
    make_step_error,
    steps_between,
)
from dgent.system import files
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped

BACKUP, PARTIAL = ".bak", ".partial"
_FILLED = "SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM datum)"


def plan_upgrade(path: str, backup: bool) -> Upgrade:
    """Return what `upgrade` would do; changes nothing."""
    if not files.size(path):
        raise NotFound(f"there is no store at {path}", hint="give the path of a store")
    storage.refuse_foreign(path)
    with looking(path) as connection:
        if files.size(path + "-wal"):  # the log of a process that was killed stays as it is
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return _plan(connection, path, backup)[0]


def upgrade(path: str, backup: bool, pace: ProgressReporter, stopped: Stopped) -> Upgrade:
    """Upgrade a store that nobody has open; waits for another process that is upgrading it.

    Raises Busy when a process has the store open for longer than 30 s.
    """
    since = time.monotonic()
    while True:
        try:
            with alone(path) as connection:
                return _upgrade(connection, path, backup, pace, stopped)
        except Busy as error:
            found = _peek(path)
            if found is None:
                since = time.monotonic()  # somebody holds it exclusively, most likely to upgrade it
            elif not found.steps:
                return found
            elif time.monotonic() - since > waiting.WAIT_S:
                number = found.from_format
                error.message = f"{error.message} with storage format {number}, so it cannot be upgraded now"
                error.args = (error.message,)
                raise
        if stopped():
            raise Unavailable("the upgrade was stopped")
        time.sleep(clock.jitter(0.005, 0.03))


def list_backups(path: str) -> list[str]:
    """Return the backups that upgrades left beside a store."""
    folder, name = os.path.split(path)
    ours = re.compile(re.escape(name) + r"\.format-\d+(\.\d+)?\.bak")
    with suppress(OSError):
        return [os.path.join(folder, each) for each in sorted(os.listdir(folder)) if ours.fullmatch(each)]
    return []


def remove_backups(path: str) -> None:
    """Remove them: after a forget, they would keep what had to go."""
    for each in list_backups(path):
        with suppress(OSError):
            os.unlink(each)


def _peek(path: str) -> Upgrade | None:
    """Return what is left to upgrade; None while another process holds the store exclusively."""
    try:
        with looking(path) as connection:
            return _plan(connection, path, backup=False)[0]
    except Busy:
        return None


def _plan(connection: apsw.Connection, path: str, backup: bool) -> tuple[Upgrade, list[Step]]:
    found = storage.read_number(connection, path)
    number = storage.FORMAT if found is None else found
    steps = steps_between(storage.STEPS, number, storage.FORMAT, path)
    target = _backup_path(connection, path, number) if steps and backup and _has_rows(connection) else None
    size = files.size(path) + files.size(path + "-wal")
    return Upgrade(path, "sqlite", number, storage.FORMAT, describe_steps(steps), size, target), steps


def _upgrade(
    connection: apsw.Connection, path: str, backup: bool, pace: ProgressReporter, stopped: Stopped
) -> Upgrade:
    # The lock stays with the connection; its log may be checkpointed, since no file is moved here.
    connection.execute("COMMIT")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.execute("PRAGMA synchronous = FULL")
    planned, steps = _plan(connection, path, backup)
    if planned.backup is not None:
        _back_up(connection, path, planned.backup, pace, stopped)
    for step in steps:
        _run_step(connection, path, step, planned.backup, pace, stopped)
    return planned


# -- steps --------------------------------------------------------------------------------


def _run_step(
    connection: apsw.Connection,
    path: str,
    step: Step,
    backup: str | None,
    pace: ProgressReporter,
    stopped: Stopped,
) -> None:
    connection.set_progress_handler(stopped, INTERRUPT_STEPS)
    try:
        with storage.write_transaction(connection):
            if isinstance(step.run, str):
                connection.execute(step.run).fetchall()  # all statements, also those after one with rows
            else:
                step.run(connection, pace)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (step.number,))
            if step.number == storage.FORMAT:
                storage.check_tables(connection, path)
    except (apsw.Error, UnicodeDecodeError) as error:
        raise make_step_error(translate(error, path), step, path, backup) from error
    except Exception as error:
        raise make_step_error(error, step, path, backup) from error
    finally:
        connection.set_progress_handler(None)


# -- the backup ---------------------------------------------------------------------------


def _has_rows(connection: apsw.Connection) -> bool:
    return bool(connection.execute(_FILLED).fetchall()[0][0])


def _backup_path(connection: apsw.Connection, path: str, number: int) -> str:
    """Return the path of the backup: one that is free, or that has an earlier state of this store."""
    target, count = f"{path}.format-{number}{BACKUP}", 1
    while os.path.lexists(target) and not _is_earlier(target, connection):
        count += 1
        target = f"{path}.format-{number}.{count}{BACKUP}"
    return target


def _is_earlier(target: str, connection: apsw.Connection) -> bool:
    """Check whether a file has an earlier state of the same store, which a later one may replace."""
    try:
        with still(target) as older:
            (name, seq), (own_name, own_seq) = _identity(older), _identity(connection)
    except (apsw.Error, IndexError):
        return False
    return name == own_name and seq <= own_seq


def _identity(connection: apsw.Connection) -> tuple[str, int]:
    return one(connection, "SELECT value FROM meta WHERE name = 'universe_id'"), one(connection, SEQ)


def _check_room(connection: apsw.Connection, target: str) -> None:
    """Raise StorageFull where a copy does not fit, before it takes what others need of the disk."""
    needed = one(connection, "PRAGMA page_count") * one(connection, "PRAGMA page_size")
    free = files.free_bytes(target)
    if free is not None and free < needed:
        raise StorageFull(f"{target} needs {needed:,} bytes, and the disk has {free:,} left")


def _back_up(
    connection: apsw.Connection, path: str, target: str, pace: ProgressReporter, stopped: Stopped
) -> None:
    """Copy the store to a file beside it, which has its name only once all of it is on the disk."""
    partial = target + PARTIAL
    try:
        with files.disk_errors(partial):
            with suppress(FileNotFoundError):
                os.unlink(partial)  # of a process that was killed: only the holder of the store makes one
            _check_room(connection, target)
            copy_pages(connection, partial, pace, stopped)
            stand_alone(partial)
            files.sync(partial)
            os.replace(partial, target)
            files.sync(os.path.dirname(target))
    except DgentError as error:
        with suppress(OSError):
            os.unlink(partial)
        error.message = f"the backup of {path} before its upgrade failed: {error.message}"
        error.args = (error.message,)
        way = "free some space, or run" if isinstance(error, StorageFull) else "to make none, run"
        error.hint = f"the store was not changed; {way} `dgent store upgrade --no-backup`"
        raise
