"""Open the SQLite file of another program for an import, without changing anything of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from dgent import clock
from dgent.errors import Conflict, Corrupt, InputError, NotFound
from dgent.exchange import folders
from dgent.exchange.foreign.legacy.source import begins_as_sqlite, open_file
from dgent.exchange.foreign.migration import MigrationTally
from dgent.store.sqlite.foreign import ForeignDatabase, ForeignRow
from dgent.system.progress import ProgressReporter
from dgent.system.threads import in_thread

BATCH = 200  # rows
ATTEMPTS = 5  # to copy a file that is being written
LOGS = ("-wal", "-journal")


@asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[ForeignDatabase]:
    """Open a file for reading: itself where it has no log, else a private copy of both.

    Raises Conflict where a program writes to it meanwhile.
    """
    path = Path(os.path.realpath(folders.check_path(path, "source")))
    if not path.is_file():
        raise NotFound(f"there is no file {path}", path=str(path))
    with folders.translate_errors(path), tempfile.TemporaryDirectory(prefix="dgent-import-") as folder:
        if not await in_thread(lambda _: begins_as_sqlite(path)):
            raise InputError(f"{path} is not a SQLite file", field="source")
        before = _state(path)
        if any(state and state[1] for state in before[1:]):
            copy = await in_thread(lambda _: _copy(path, Path(folder)))
            database = await in_thread(
                lambda _: ForeignDatabase(copy, untouched=False), ForeignDatabase.close
            )
        else:
            copy = ""
            database = await in_thread(
                lambda _: ForeignDatabase(str(path), untouched=True), ForeignDatabase.close
            )
        try:
            yield database
        finally:
            database.close()
        if not copy and _state(path) != before:
            raise _changed(path)


def _state(path: Path) -> list[tuple[int, int, int] | None]:
    """Return what changes when a file or its log is written to."""
    found: list[tuple[int, int, int] | None] = []
    for end in ("", *LOGS):
        try:
            state = os.stat(f"{path}{end}")
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _copy(path: Path, folder: Path) -> str:
    """Copy a file with its logs, all of one moment; return the path of the copy."""
    for attempt in range(ATTEMPTS):
        before, copy = _state(path), folder / f"{attempt}.db"
        for end, state in zip(("", *LOGS), before, strict=True):
            if state is not None:
                source = path.with_name(path.name + end)
                with open_file(source) as file, open(f"{copy}{end}", "xb") as made:
                    while part := file.read(folders.CHUNK):
                        made.write(part)
        if _state(path) == before:
            return str(copy)
        for end in ("", *LOGS):
            Path(f"{copy}{end}").unlink(missing_ok=True)
    raise _changed(path)


def _changed(path: Path) -> Conflict:
    return Conflict(
        f"{path} changed while it was read",
        hint="stop the program that writes to it, and import it again: nothing is imported twice",
    )


async def read_batches(
    database: ForeignDatabase,
    table: str,
    order: Sequence[str],
    tally: MigrationTally,
    pace: ProgressReporter,
    size: int = BATCH,
) -> AsyncIterator[list[ForeignRow]]:
    """Yield the rows of a table some at a time; where it is damaged, the rest is reported."""
    if table not in database.tables:
        return
    rows = database.read(table, order)
    try:
        while True:
            batch: list[ForeignRow] = []
            damage = await in_thread(lambda _, into=batch: _take(rows, into, size))  # type: ignore[misc]
            if batch:
                yield batch
                pace.add(len(batch))
            if damage is not None:
                tally.report(table, 0, f"{damage}; the rows behind are not imported")
            if damage is not None or len(batch) < size:
                return
    finally:
        rows.close()


def _take(rows: Generator[ForeignRow], into: list[ForeignRow], size: int) -> str | None:
    try:
        into.extend(islice(rows, size))
    except Corrupt as error:
        return error.message
    return None


def parse_moment(value: Any) -> datetime | None:
    """Return a moment, or one that was written as text, in UTC without a zone; None if it is not one."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return clock.from_us(clock.to_us(value if value.tzinfo is not None else value.replace(tzinfo=UTC)))
    except (ValueError, OverflowError, InputError):
        return None
