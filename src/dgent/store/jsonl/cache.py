"""The cache's tables about the files of a JSONL store: how far they are read, and unusual lines.

The tables are beside those of the SQLite format, in the same file and the same transactions.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dgent.config.places import machine_key
from dgent.errors import Busy
from dgent.store.engine.row import Row
from dgent.store.jsonl.folder import COMMITS, Format, Stamp, StoreFolder
from dgent.store.sqlite.connection import SAFE_BLOCK
from dgent.store.sqlite.kernel import SQLiteKernel
from dgent.store.sqlite.scan import ID_TEXT
from dgent.system import files

NAME, PROOF = "cache.db", "proof"
SUFFIXES = ("", "-wal", "-shm")
LOOK_S = 3.0  # so long a reader waits for the folder's lock before it uses a private cache
_SHARED_MEMORY = "/dev/shm"
_PRIVATE = "dgent-cache-"


def find_cache(folder: StoreFolder, place: str) -> str | None:
    """Return the path of our cache in a place, created if missing; None if none can be used there."""
    key = machine_key()
    if key is None:
        return None
    try:
        if not os.path.lexists(place):
            files.make_folder(place)
        if os.path.islink(place) or os.statvfs(place).f_frsize < SAFE_BLOCK:
            return None
        ignore = os.path.join(place, ".gitignore")
        if not os.path.lexists(ignore):
            files.make_file(ignore)
            with open(ignore, "w", encoding="ascii") as opened:
                opened.write("*\n")
        return _ensure_proven(folder, place, key)
    except (OSError, Busy):
        return None


def _ensure_proven(folder: StoreFolder, place: str, key: bytes) -> str:
    path = os.path.join(place, NAME)
    if not _is_proven(folder, place, key):
        folder.lock.acquire(LOOK_S)
        try:
            if not _is_proven(folder, place, key):  # another process may have made it meanwhile
                _recreate_cache(folder, place, key)
        finally:
            folder.lock.release()
    return path


def discard_cache(place: str) -> None:
    """Invalidate the cache of a place, so that the next process to open it creates it again."""
    with suppress(OSError):
        os.unlink(os.path.join(place, PROOF))


def _recreate_cache(folder: StoreFolder, place: str, key: bytes) -> None:
    """Replace the cache by an empty one; processes that have the old one open keep using it."""
    path, proof = os.path.join(place, NAME), os.path.join(place, PROOF)
    for name in (proof, *(path + suffix for suffix in SUFFIXES)):
        with suppress(FileNotFoundError):
            os.unlink(name)
    make = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    os.close(os.open(path, make, files.FILE))
    handle = os.open(proof, make, files.FILE)
    try:
        os.write(handle, _compute_proof(handle, path, folder, key))
    finally:
        os.close(handle)


def _is_proven(folder: StoreFolder, place: str, key: bytes) -> bool:
    try:
        handle = os.open(os.path.join(place, PROOF), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        expected = _compute_proof(handle, os.path.join(place, NAME), folder, key)
        return hmac.compare_digest(os.read(handle, 256), expected)
    except OSError:
        return False
    finally:
        os.close(handle)


def _compute_proof(handle: int, path: str, folder: StoreFolder, key: bytes) -> bytes:
    """Return the proof of a cache: a keyed hash of its inode, the proof's own, and the store's id.

    Uses `lstat`: opening and closing the cache's own file would drop SQLite's locks on it.
    """
    parts = (os.fstat(handle).st_ino, files.generation(handle), os.lstat(path).st_ino)
    identity = " ".join([*map(str, parts), folder.format.universe_id])
    return hmac.new(key, identity.encode(), hashlib.sha256).hexdigest().encode()


# -- private caches -----------------------------------------------------------------------


def make_private() -> str:
    """Create a folder for a cache of this process alone, in memory if the system has /dev/shm."""
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    _remove_stale(place)
    return tempfile.mkdtemp(prefix=f"{_PRIVATE}{os.getpid()}-", dir=place)


def remove_private(folder: str) -> None:
    """Remove a private cache."""
    shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(place: str) -> None:
    """Remove private caches that killed processes of this user left."""
    for name in os.listdir(place):
        found = re.fullmatch(_PRIVATE + r"(\d+)-\w+", name)
        path = os.path.join(place, name)
        if found is not None and not files.is_alive(int(found[1])):
            with suppress(OSError):
                if os.lstat(path).st_uid == os.getuid():
                    remove_private(path)


VERSION = 5  # of the tables below and the rows derived from lines; a cache of another version is rebuilt
LINES = 256  # so many wait at most
PIECE = 4096  # so much of the beginning and the end of a file is compared before its tail is trusted

_TABLES = """
CREATE TABLE IF NOT EXISTS j_file (
    file INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INT, mtime INT, inode INT, offset INT,
    lines INT, ended INT, head_size INT, head BLOB, tail_size INT, tail BLOB
);
CREATE TABLE IF NOT EXISTS j_line (
    dk INT NOT NULL, rev INT NOT NULL, sum TEXT NOT NULL, c TEXT NOT NULL, at INT NOT NULL,
    file INT NOT NULL, said INT NOT NULL, after INT NOT NULL, PRIMARY KEY (dk, rev)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS j_mark (c TEXT PRIMARY KEY, seq INT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS j_report (name TEXT NOT NULL, line INT NOT NULL, kind TEXT NOT NULL, text TEXT);
CREATE TABLE IF NOT EXISTS j_pending (c TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (c, name));
CREATE TABLE IF NOT EXISTS j_removed (c TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS j_damaged (c TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS j_whole (h BLOB PRIMARY KEY, rev INT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS j_erased (sum TEXT PRIMARY KEY) WITHOUT ROWID;
DROP TABLE IF EXISTS j_conflict;
CREATE TABLE IF NOT EXISTS j_dispute (
    dk INTEGER PRIMARY KEY, rev INT NOT NULL, sums TEXT NOT NULL, fields TEXT
);
"""
_OWN = tuple(re.findall(r"NOT EXISTS (\w+)", _TABLES))
_DERIVED = ("datum", "past", "commits", "ix", "entry", "tail", "schema", "lag", "forgotten")
_FILE = ("size", "mtime", "inode", "offset", "lines", "ended", "head_size", "head", "tail_size", "tail")
_FILES = f"SELECT name, {', '.join(_FILE)} FROM j_file"
_PUT_FILE = (
    f"INSERT INTO j_file (name, {', '.join(_FILE)}) VALUES (?{', ?' * len(_FILE)})"
    f" ON CONFLICT (name) DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in _FILE)}"
)
_PUT_LINE = "INSERT OR REPLACE INTO j_line VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
FIND_INCOMPLETE = (
    f"SELECT c, name FROM j_pending WHERE name <> '{COMMITS}' AND c NOT IN (SELECT c FROM j_mark)"
    " AND c NOT IN (SELECT cid FROM commits WHERE cid IS NOT NULL)"
)
"""Finds the commits that do not count because lines of them are missing, and the files of the others."""
PURGING = "SELECT 1 FROM meta WHERE name = 'purging'"
_HEADS = (
    f"SELECT l.sum, {ID_TEXT}, l.said, l.after FROM j_line l JOIN j_file f ON f.file = l.file"
    " JOIN datum d ON d.dk = l.dk AND d.rev = l.rev AND d.trail = 0 WHERE f.name = ?"
)
_CONFLICTS = (
    f"SELECT {ID_TEXT} AS spelled, c.rev, c.fields FROM j_dispute c"
    " JOIN datum d ON d.dk = c.dk AND d.rev = c.rev ORDER BY spelled"
)


class FileState(NamedTuple):
    """The state of a file when it was last read, up to `offset`; an incomplete last line is after it."""

    stamp: Stamp
    offset: int = 0
    lines: int = 0
    ended: bool = True
    head_size: int = 0
    head: bytes = b""
    tail_size: int = 0
    tail: bytes = b""

    def extend(self, stamp: Stamp, chunk: bytes, lines: int) -> FileState:
        """Return the state after lines were appended."""
        head_size, head = self.head_size, self.head
        if not head_size:
            head_size = min(PIECE, len(chunk))
            head = hash_piece(chunk[:head_size])
        tail = chunk[-PIECE:]
        # An incomplete line is ended by the newline before `chunk`, and is not read again.
        cut = 0 if self.ended else 1
        return FileState(
            stamp, stamp.size, self.lines + lines + cut, True, head_size, head, len(tail), hash_piece(tail)
        )


EMPTY = FileState(Stamp(0, 0, 0))


def hash_piece(raw: bytes) -> bytes:
    """Return the hash by which a piece of a file is recognized."""
    return hashlib.blake2b(raw, digest_size=16).digest()


class Report(NamedTuple):
    """An unusual line of a file: where it is, its kind, and a description."""

    name: str
    line: int
    kind: str
    text: str


class CachedLine(NamedTuple):
    """A line in the cache; `rev` is its version here, `said` the rev in the line itself."""

    record_key: int
    rev: int
    sum: str
    c: str
    at: int
    file: int
    said: int
    after: int


class Cache:
    """The tables about files, and statements over all tables of the cache; used inside its transactions.

    `enter` is called before each statement, to write rows that wait.
    """

    def __init__(self, store: SQLiteKernel, enter: Callable[[], None]) -> None:
        self._store, self._enter = store, enter
        self._numbers: dict[str, int] = {}
        self._new_lines: list[CachedLine] = []  # written with the rows that wait
        store.connection.execute(_TABLES)

    def flush(self) -> None:
        """Write rows and lines that wait."""
        self._enter()
        if self._new_lines:
            lines, self._new_lines = self._new_lines, []
            self._store._many(_PUT_LINE, lines)

    def drop_waiting(self) -> None:
        """Drop lines that wait, and file numbers: after a rollback they may go to other files."""
        self._new_lines, self._numbers = [], {}

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows that a statement finds."""
        self.flush()
        return self._store._all(sql, *values)

    def _run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.flush()
        self._store._execute(sql, values)

    def _run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.flush()
        self._store._many(sql, rows)

    def hash(self, id: str) -> bytes:
        """Return the salted hash by which a forgotten id is known."""
        return self._store.catalog.hash(id)

    def is_current(self, format: Format) -> bool:
        """Check whether the cache belongs to this store and has this version's tables."""
        meta = dict(self.ask("SELECT name, value FROM meta"))
        return meta.get("jsonl") == VERSION and meta.get("universe_id") == format.universe_id

    def wipe(self, format: Format) -> bytes:
        """Empty all tables and return the new epoch; earlier cursors become invalid."""
        execute, epoch = self._run, os.urandom(8)
        self._numbers = {}
        if self.ask("SELECT 1 FROM datum LIMIT 1"):
            # Free pages still hold the deleted rows, and some of them may have been forgotten since.
            execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('erasing', 1)")
        for table in (*_DERIVED, *_OWN):
            execute(f"DELETE FROM {table}")
        execute("DELETE FROM name WHERE n <> 0")
        execute("DELETE FROM meta WHERE name = 'floor_at'")
        put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"
        values = {
            "jsonl": VERSION,
            "universe_id": format.universe_id,
            "forget_salt": bytes.fromhex(format.salt),
            "epoch": epoch,
            "floor": 0,
            "dk_floor": 0,
            "forgot": 0,
        }
        self._run_many(put, list(values.items()))
        self._store.reload_everywhere()
        return epoch

    def invalidate(self) -> None:
        """Make the next catch-up read all files again."""
        self._run("DELETE FROM meta WHERE name = 'jsonl'")

    def epoch(self) -> bytes:
        """Return the epoch of this cache, which its cursors carry."""
        return bytes(self.ask("SELECT value FROM meta WHERE name = 'epoch'")[0][0])

    # -- files ----------------------------------------------------------------------------

    def files(self) -> dict[str, FileState]:
        """Return the state of every file when it was last read."""
        return {name: FileState(Stamp(*rest[:3]), *rest[3:]) for name, *rest in self.ask(_FILES)}

    def put_file(self, name: str, known: FileState) -> None:
        """Record how far a file is read."""
        self._run(_PUT_FILE, (name, *known.stamp, *known[1:]))

    def drop_file(self, name: str) -> None:
        """Delete the state of a file that was removed."""
        self._numbers.pop(name, None)
        self._run("DELETE FROM j_file WHERE name = ?", (name,))

    def number(self, name: str) -> int:
        """Return the number of a file; assign one to a new file."""
        number = self._numbers.get(name)
        if number is None:
            found = self.ask("SELECT file FROM j_file WHERE name = ?", name)
            if not found:
                self.put_file(name, EMPTY)
                return self.number(name)
            number = self._numbers[name] = found[0][0]
        return number

    # -- lines ----------------------------------------------------------------------------

    def add_lines(self, lines: Iterable[CachedLine]) -> None:
        """Record lines, with the rows that wait."""
        self._new_lines += lines
        if len(self._new_lines) >= LINES:
            self.flush()

    def find_newest_line(self, record_key: int) -> CachedLine | None:
        """Return the line of a record's newest version."""
        found = self.ask("SELECT * FROM j_line WHERE dk = ? ORDER BY rev DESC LIMIT 1", record_key)
        return CachedLine(*found[0]) if found else None

    def lines_of(self, record_key: int) -> dict[str, CachedLine]:
        """Return the lines of a record by their sums."""
        found = self.ask("SELECT * FROM j_line WHERE dk = ?", record_key)
        return {each[2]: CachedLine(*each) for each in found}

    def is_recreated_after(self, record_key: int, rev: int) -> bool:
        """Check whether a record was created again after its id was forgotten at a rev."""
        sql = "SELECT 1 FROM j_line WHERE dk = ? AND after >= ? LIMIT 1"
        return bool(self.ask(sql, record_key, rev))

    def sums(self) -> set[str]:
        """Return the sums of all lines."""
        return {found[0] for found in self.ask("SELECT sum FROM j_line")}

    def heads_in(self, name: str) -> list[tuple[str, str, int, int]]:
        """Return the newest versions that were read from a file: sum of the line, id, rev, and `after`."""
        return self.ask(_HEADS, name)

    def move_line(self, record_key: int, rev: int, name: str) -> None:
        """Record that a line is in another file now."""
        self._run("UPDATE j_line SET file = ? WHERE dk = ? AND rev = ?", (self.number(name), record_key, rev))

    def seal_line(self, row: Row, made: str, c: str) -> None:
        """Record the sum and the commit that a line got when it was sealed."""
        self._run(
            "UPDATE j_line SET sum = ?, c = ? WHERE dk = ? AND rev = ?", (made, c, row.record_key, row.rev)
        )
        self._run("UPDATE commits SET cid = ? WHERE seq = ?", (c, row.seq))

    # -- records --------------------------------------------------------------------------

    def find_id(self, record_key: int) -> str | None:
        """Return the id of a record."""
        found = self.ask(f"SELECT {ID_TEXT} FROM datum d WHERE d.dk = ? AND d.trail = 0", record_key)
        return found[0][0] if found else None

    def has_unindexed(self, schema: int) -> bool:
        """Check whether a schema has records that are in no field index."""
        return bool(self.ask("SELECT 1 FROM lag WHERE schema = ? LIMIT 1", schema))

    def raise_key_floor(self, record_key: int) -> None:
        """Record that keys up to this one were given."""
        self._run("UPDATE meta SET value = max(value, ?) WHERE name = 'dk_floor'", (record_key,))

    # -- forgotten records ----------------------------------------------------------------

    def put_erased(self, forgotten: Iterable[tuple[str, int]], lines: Mapping[str, Sequence[str]]) -> None:
        """Record forgotten ids by hash, with their last revs; where `lines` has a hash, only those lines."""
        self._run_many(
            "INSERT INTO j_whole (h, rev) VALUES (?, ?)"
            " ON CONFLICT (h) DO UPDATE SET rev = max(rev, excluded.rev)",
            [(bytes.fromhex(hashed), rev) for hashed, rev in forgotten if hashed not in lines],
        )
        sums = [(made,) for some in lines.values() for made in some]
        self._run_many("INSERT OR IGNORE INTO j_erased (sum) VALUES (?)", sums)

    def is_erased(self, hashed: bytes, after: int, made: str | None) -> bool:
        """Check whether a line was erased, by its sum, or by the hash of its id and its `after`."""
        sql = "SELECT 1 FROM j_whole WHERE h = ? AND rev > ? UNION ALL SELECT 1 FROM j_erased WHERE sum = ?"
        return bool(self.ask(sql, hashed, after, made))

    def forgotten_revs(self) -> list[tuple[bytes, int]]:
        """Return the hashes of forgotten ids, with their last revs."""
        return self.ask("SELECT h, last_rev FROM forgotten")

    def set_forgotten_revs(self, revs: Iterable[tuple[bytes, int]]) -> None:
        """Replace the forgotten ids; of several revs of one, the highest counts."""
        self._run("DELETE FROM forgotten")
        self._run_many(
            "INSERT INTO forgotten (h, last_rev, seq) VALUES (?, ?, 0)"
            " ON CONFLICT (h) DO UPDATE SET last_rev = max(last_rev, excluded.last_rev)",
            revs,
        )
        self._run("UPDATE meta SET value = 1 WHERE name = 'forgot'")
        self._store.reload_everywhere()

    def is_purging(self) -> bool:
        """Check whether files may have lines of forgotten records."""
        return bool(self.ask(PURGING))

    def start_purge(self) -> None:
        """Record that files have lines of forgotten records."""
        self._run("INSERT OR REPLACE INTO meta (name, value) VALUES ('purging', 1)")

    def end_purge(self) -> None:
        """Record that the lines of forgotten records are removed from all files."""
        self._run("DELETE FROM j_line WHERE dk NOT IN (SELECT dk FROM datum)")
        self._run("DELETE FROM meta WHERE name = 'purging'")

    # -- commits --------------------------------------------------------------------------

    def put_marks(self, marks: Sequence[tuple[str, int]]) -> None:
        """Record commits that have a mark, which is kept longer than their log entry."""
        if marks:
            self._run_many("INSERT OR IGNORE INTO j_mark (c, seq) VALUES (?, ?)", marks)

    def find_mark_seq(self, c: str) -> int | None:
        """Return the seq in this copy of a commit that has a mark."""
        found = self.ask("SELECT seq FROM j_mark WHERE c = ?", c)
        return found[0][0] if found else None

    def seq_of(self, c: str) -> int | None:
        """Return the seq of a commit in this copy; scans the whole log."""
        found = self.ask("SELECT seq FROM commits WHERE cid = ?", c)
        return found[0][0] if found else self.find_mark_seq(c)

    def has_commit(self, c: str) -> bool:
        """Check whether a commit is in the log, or a line of it counts; scans all of both."""
        return self.seq_of(c) is not None or bool(self.ask("SELECT 1 FROM j_line WHERE c = ? LIMIT 1", c))

    def commit_of(self, seq: int) -> str | None:
        """Return the commit that has a seq in this copy."""
        found = self.ask("SELECT cid FROM commits WHERE seq = ?", seq)
        return found[0][0] if found else None

    # -- unusual lines --------------------------------------------------------------------

    def put_report(self, report: Report) -> None:
        """Record an unusual line."""
        self._run("INSERT INTO j_report VALUES (?, ?, ?, ?)", report)

    def clear_reports(self, name: str, from_line: int = 0) -> None:
        """Delete the reports of a file from a line on."""
        self._run("DELETE FROM j_report WHERE name = ? AND line >= ?", (name, from_line))

    def put_pending(self, c: str, names: Iterable[str]) -> None:
        """Record that a commit lacks lines, and the files to read again when more arrive."""
        self._run_many("INSERT OR IGNORE INTO j_pending VALUES (?, ?)", [(c, name) for name in names])

    def pending(self) -> dict[str, set[str]]:
        """Return the files that have lines of incomplete commits, by commit."""
        found: dict[str, set[str]] = {}
        for c, name in self.ask("SELECT c, name FROM j_pending"):
            found.setdefault(c, set()).add(name)
        return found

    def clear_pending(self, names: Iterable[str]) -> None:
        """Delete incomplete commits of files that are read again."""
        self._run_many("DELETE FROM j_pending WHERE name = ?", [(name,) for name in names])

    def incomplete_commits(self) -> set[str]:
        """Return the commits that do not count because lines of them are missing, and others are there."""
        return {c for c, _ in self.ask(FIND_INCOMPLETE)}

    def remove_incomplete(self, commits: Collection[str]) -> None:
        """Record that all lines of incomplete commits are removed now."""
        sql = f"DELETE FROM j_pending WHERE c = ? AND name <> '{COMMITS}'"
        self._run_many(sql, [(c,) for c in commits])
        self.put_removed(commits)

    def put_removed(self, commits: Iterable[str]) -> None:
        """Record commits whose lines were removed while they were incomplete."""
        self._run_many("INSERT OR IGNORE INTO j_removed VALUES (?)", [(c,) for c in commits])

    def removed_commits(self) -> set[str]:
        """Return the commits whose lines were removed while they were incomplete."""
        return {c for (c,) in self.ask("SELECT c FROM j_removed")}

    def put_damaged(self, c: str) -> None:
        """Record a commit that counts although lines of it are missing."""
        self._run("INSERT OR IGNORE INTO j_damaged VALUES (?)", (c,))

    def damaged_commits(self) -> set[str]:
        """Return the commits that count although lines of them are missing."""
        return {c for (c,) in self.ask("SELECT c FROM j_damaged")}

    def commits(self) -> dict[str, int]:
        """Return all commits in the log, with their seqs in this copy."""
        return dict(self.ask("SELECT cid, seq FROM commits WHERE cid IS NOT NULL"))

    def put_conflict(self, record_key: int, rev: int, sums: Sequence[str], fields: Sequence[str]) -> None:
        """Record that a version decides a conflict between two copies, and its fields."""
        sql = "INSERT OR REPLACE INTO j_dispute (dk, rev, sums, fields) VALUES (?, ?, ?, ?)"
        self._run(sql, (record_key, rev, " ".join(sums), "\n".join(fields)))


def list_reports(ask: Any) -> list[Report]:
    """Return the reports of all files, by name and line."""
    found = ask("SELECT name, line, kind, text FROM j_report ORDER BY name, line").fetchall()
    return [Report(*each) for each in found]


class RecordConflict(NamedTuple):
    """A record that two copies changed in the same fields; `rev` is the version that counts now."""

    id: str
    rev: int
    fields: tuple[str, ...]


def list_conflicts(ask: Any) -> list[RecordConflict]:
    """Return the records whose newest version decides a conflict."""
    found = ask(_CONFLICTS).fetchall()
    return [
        RecordConflict(id, rev, tuple((fields or "").split("\n")) if fields else ())
        for id, rev, fields in found
    ]
