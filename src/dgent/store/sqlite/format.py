"""The storage format of a SQLite store: its tables, its number, and the steps between numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

import apsw
import msgspec

from dgent import clock, ids
from dgent.errors import Corrupt, FormatTooNew
from dgent.store.engine.catalog import AUTHOR, state_of
from dgent.store.upgrade import Step, make_too_old_error
from dgent.system import files
from dgent.system.progress import ProgressReporter

FORMAT = 4
APPLICATION_ID = 0x6467656E  # "dgen"
_ON = re.compile(r"\bon(?!\w)\s*(?:[\"'`\[]?\w+[\"'`\]]?\s*\.\s*)?[\"'`\[]?(\w+)")
_HIDES = re.compile(r"[\"'`\[]|--|/\*")
_COMMENT = re.compile(r"/\*.*?(?:\*/|$)|--[^\n]*", re.DOTALL)
_CODE = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type NOT IN ('table', 'index')"
_INDEXES = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"

# `trail` is 0 in every row of today; it leaves room for whole-memory trails without a format change.
_META = {
    "format": int,
    "floor": int,
    "dk_floor": int,
    "catalog": int,
    "forgot": int,
    "universe_id": str,
    "epoch": bytes,
    "forget_salt": bytes,
}

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE trail (
    trail INTEGER PRIMARY KEY, id TEXT UNIQUE, parent INT, base_seq INT, state INT, ended_seq INT
);
CREATE TABLE name (n INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE);
CREATE TABLE datum (
    dk INTEGER PRIMARY KEY, id NOT NULL, rev INT NOT NULL, seq INT NOT NULL, live INT NOT NULL,
    t INT NOT NULL, at INT NOT NULL, schema INT NOT NULL, sv INT NOT NULL, author INT NOT NULL,
    source INT, parent TEXT, tags NOT NULL, enc INT NOT NULL, fk BLOB, x BLOB, data BLOB,
    content BLOB, trail INT NOT NULL DEFAULT 0, base_rev INT
);
CREATE UNIQUE INDEX datum_id ON datum (id, trail);
CREATE TABLE past (
    dk INT NOT NULL, id TEXT NOT NULL, rev INT NOT NULL, seq INT NOT NULL, live INT NOT NULL,
    t INT NOT NULL, at INT NOT NULL, schema INT NOT NULL, sv INT NOT NULL, author INT NOT NULL,
    source INT, parent TEXT, tags TEXT NOT NULL, enc INT NOT NULL, fk BLOB, x BLOB, data BLOB,
    content BLOB, PRIMARY KEY (dk, rev)
);
CREATE TABLE commits (
    seq INTEGER PRIMARY KEY, at INT NOT NULL, author INT NOT NULL, kind INT NOT NULL, note TEXT,
    of_seq INT, ops BLOB NOT NULL, key BLOB, digest BLOB, cid BLOB, origin BLOB,
    trail INT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX commits_key ON commits (key) WHERE key IS NOT NULL;
CREATE TABLE ix (
    ix INTEGER PRIMARY KEY AUTOINCREMENT, schema INT NOT NULL, iv INT NOT NULL, tag TEXT NOT NULL,
    path TEXT NOT NULL, trail INT NOT NULL DEFAULT 0, UNIQUE (schema, tag, path, iv, trail)
);
CREATE TABLE entry (
    ix INT NOT NULL, key BLOB NOT NULL, t INT NOT NULL, dk INT NOT NULL, tags INT,
    PRIMARY KEY (ix, key, t, dk)
) WITHOUT ROWID;
CREATE TABLE tail (place INTEGER PRIMARY KEY, records INT NOT NULL, body BLOB NOT NULL);
CREATE TABLE page (
    ix INT NOT NULL, word BLOB NOT NULL, first INT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (ix, word, first)
) WITHOUT ROWID;
CREATE TABLE doc (
    ix INT NOT NULL, dk INT NOT NULL, rev INT NOT NULL, size INT NOT NULL, page_rev INT NOT NULL, words BLOB,
    PRIMARY KEY (ix, dk)
) WITHOUT ROWID;
CREATE TABLE vector (
    place INTEGER PRIMARY KEY, ix INT NOT NULL, dk INT NOT NULL, rev INT NOT NULL, digest BLOB NOT NULL,
    body BLOB NOT NULL, UNIQUE (ix, dk)
);
CREATE TABLE schema (schema INTEGER PRIMARY KEY, decl BLOB NOT NULL);
CREATE TABLE lag (schema INT NOT NULL, dk INT NOT NULL, PRIMARY KEY (schema, dk)) WITHOUT ROWID;
CREATE TABLE forgotten (h BLOB PRIMARY KEY, last_rev INT NOT NULL, seq INT NOT NULL) WITHOUT ROWID;
INSERT INTO trail (trail, id) VALUES (0, 'main');
INSERT INTO name (n, text) VALUES (0, '');
"""


_BY_TAG_AND_FIELD = "SELECT ix FROM ix WHERE tag <> '' AND iv <> 0"
_AUTHORS = (
    "SELECT i.ix, e.key FROM ix i CROSS JOIN entry e ON e.ix = i.ix WHERE i.schema = ? AND i.path = ?"
    " GROUP BY i.ix, e.key ORDER BY count(*) DESC, e.key LIMIT 1"
)


def drop_derived_entries(connection: apsw.Connection) -> None:
    """Drop the entries by tag and field together, and those of each schema's most frequent author.

    That one becomes the schema's usual author, as the author of the first record is in newer stores.
    """
    run = connection.execute
    run(f"DELETE FROM entry WHERE ix IN ({_BY_TAG_AND_FIELD})")
    run(f"DELETE FROM ix WHERE ix IN ({_BY_TAG_AND_FIELD})")
    schemas: list[Any] = run("SELECT schema, decl FROM schema").fetchall()
    for schema, raw in schemas:
        authors: list[Any] = run(_AUTHORS, (schema, AUTHOR)).fetchall()
        for ix, key in authors:
            state = msgspec.structs.replace(state_of(raw), usual_author=int.from_bytes(key, "big"))
            run("UPDATE schema SET decl = ? WHERE schema = ?", (msgspec.json.encode(state), schema))
            run("DELETE FROM entry WHERE ix = ? AND key = ?", (ix, key))
    run("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")


def _create_tables(connection: apsw.Connection, *names: str) -> None:
    """Create some of the tables above, as they are there."""
    for name in names:
        connection.execute(_statement(f"CREATE TABLE {name} "))


def _statement(beginning: str) -> str:
    """Return the statement above that begins with a text."""
    return next(each for each in TABLES.split(";") if each.lstrip().startswith(beginning))


def _change_entries(connection: apsw.Connection, _: ProgressReporter) -> None:
    _create_tables(connection, "tail", "page", "doc")
    connection.execute("ALTER TABLE entry ADD COLUMN tags INT")
    drop_derived_entries(connection)


_HEX = "[0-9a-f]"
_IS_UUID = f"typeof(id) = 'text' AND id GLOB '{'-'.join(_HEX * digits for digits in (8, 4, 4, 4, 12))}'"
_NUMBER_TAGS = (
    "INSERT OR IGNORE INTO name (text) SELECT tags FROM datum WHERE typeof(tags) = 'text'"
    " AND length(tags) > 8 AND json_valid(tags) GROUP BY tags HAVING count(*) >= 4"
)
_PACKED = (
    f"SELECT dk, iif({_IS_UUID}, unhex(id, '-'), id), rev, seq, live, t, at, schema, sv, author, source,"
    " parent, coalesce((SELECT n FROM name WHERE text = tags AND n <> 0), tags), enc, fk, x, data, content,"
    " trail, base_rev FROM datum ORDER BY dk"
)
# Entries with a key get bits for all tags of their records, as the indexes by tag have them.
_TAGS_OF_RECORDS = "CREATE TEMP TABLE tags_of (dk INTEGER PRIMARY KEY, bits INT NOT NULL)"
_SUM_TAGS = (
    "INSERT INTO temp.tags_of SELECT dk, sum(DISTINCT 1 << ix % 47) FROM entry"
    " WHERE ix IN (SELECT ix FROM ix WHERE tag <> '' AND iv = 0) GROUP BY dk"
)
_SPREAD_TAGS = (
    "UPDATE entry SET tags = coalesce((SELECT bits FROM temp.tags_of t WHERE t.dk = entry.dk), 0)"
    " WHERE key <> x''"
)


def _pack_rows(connection: apsw.Connection, _: ProgressReporter) -> None:
    run = connection.execute
    run(_NUMBER_TAGS)
    run(_statement("CREATE TABLE datum ").replace("TABLE datum", "TABLE dgent_datum", 1))
    run(f"INSERT INTO dgent_datum {_PACKED}")
    run("DROP TABLE datum")
    run("PRAGMA legacy_alter_table = ON")  # or views of the user that do not work any more would stop it
    run("ALTER TABLE dgent_datum RENAME TO datum")
    run("PRAGMA legacy_alter_table = OFF")
    run(_statement("CREATE UNIQUE INDEX datum_id "))
    for sql in (_TAGS_OF_RECORDS, _SUM_TAGS, _SPREAD_TAGS, "DROP TABLE temp.tags_of"):
        run(sql)
    run("UPDATE meta SET value = value + 1 WHERE name = 'catalog'")


STEPS: tuple[Step, ...] = (
    Step(
        2,
        "add the table of entries that wait to be moved, drop entries that other indexes give",
        _change_entries,
    ),
    Step(3, "add the table of vectors", lambda connection, _: _create_tables(connection, "vector")),
    Step(4, "store ids and tags in fewer bytes, and which tags a record has with its fields", _pack_rows),
)
"""The steps to the formats after the first; functions get the connection and a ProgressReporter.

The last one leaves the texts of tables and indexes as they are above: they are compared before it is stored.
"""


def uri(path: str) -> str:
    """Return the URI under which SQLite opens a file."""
    for sign, escaped in (("%", "%25"), ("?", "%3f"), ("#", "%23")):
        path = path.replace(sign, escaped)
    return f"file:{path}"


def refuse_foreign(path: str) -> None:
    """Refuse a file that is plainly not a store, before SQLite would checkpoint it or change its mode."""
    # The log first: a process that makes a store writes to the file before there is a log.
    log, size = files.size(path + "-wal"), files.size(path)
    if log and not size:
        raise Corrupt(
            f"{path} is empty or missing, and its log is not", hint="put the file back; nothing was changed"
        )
    if not size:
        return
    try:
        # `immutable` reads the file alone: no log, no locks, nothing beside it is made or removed.
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        peek = apsw.Connection(f"{uri(path)}?mode=ro&immutable=1", flags=flags)
        try:
            # In this order: who makes a store sets both at once, maybe between these two lines.
            ((version,),) = peek.execute("PRAGMA schema_version").fetchall()
            ((application,),) = peek.execute("PRAGMA application_id").fetchall()
        finally:
            peek.close()
    except apsw.Error:
        return  # damaged, or in the middle of a checkpoint: opening it reports that
    if application != APPLICATION_ID and (application or version):
        raise _foreign(path)


def check(connection: apsw.Connection, place: str) -> None:
    """Refuse a file that is not a store, or one of a newer format."""
    read_number(connection, place)


def check_current(connection: apsw.Connection, place: str) -> bool:
    """Return whether a file is a store of this format; False if it is empty, FormatTooOld if it is older."""
    number = read_number(connection, place)
    if number is not None and number < FORMAT:
        raise make_too_old_error(place, number, FORMAT)
    return number is not None


def prepare(connection: apsw.Connection, place: str) -> None:
    """Create the tables of an empty file; refuse anything but a store of this format."""
    if check_current(connection, place):
        return
    with write_transaction(connection):
        # Another process may have created it while this one waited.
        if not check_current(connection, place):
            _create(connection)


@contextmanager
def write_transaction(connection: apsw.Connection) -> Iterator[None]:
    """Commit what is done inside; undo it if that raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if not connection.get_autocommit():
            connection.execute("ROLLBACK")
        raise


def check_meta(connection: apsw.Connection, place: str) -> bytes:
    """Return the epoch; refuse a store whose own description is missing or of the wrong kind."""
    rows: Any = connection.execute("SELECT CAST(name AS BLOB), value FROM meta").fetchall()
    found = {bytes(name or b"").decode("utf-8", "replace"): value for name, value in rows}
    for name, kind in _META.items():
        value: Any = found.get(name)
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 2**62):
            raise Corrupt(f"{place} has no valid {name}", hint="restore a backup; it was not changed")
    epoch, salt = found["epoch"], found["forget_salt"]
    if len(epoch) != 8 or not 0 < len(salt) <= 64:
        raise Corrupt(f"{place} has no valid epoch or salt", hint="restore a backup; it was not changed")
    return bytes(epoch)


def _foreign(place: str) -> Corrupt:
    return Corrupt(
        f"{place} is a SQLite file, but not a dgent store", hint="give another path; it was not changed"
    )


def _create(connection: apsw.Connection) -> None:
    connection.execute(TABLES)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    first: dict[str, Any] = {
        "format": FORMAT,
        "universe_id": ids.new_id(),
        "epoch": os.urandom(8),
        "created_at": clock.now_us(),
        "catalog": 1,
        "floor": 0,
        "dk_floor": 0,
        "forgot": 0,
        "forget_salt": os.urandom(16),
    }
    connection.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", list(first.items()))


def read_number(connection: apsw.Connection, place: str) -> int | None:
    """Return the format number of the file; None when it is empty."""
    # In this order: another process may make the store between these two lines.
    objects = _objects(connection)
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application == 0 and not objects:
        return None
    if application != APPLICATION_ID:
        raise _foreign(place)
    check_harmless(connection, place)  # before any table is asked: that may be a view
    try:
        found: Any = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchall()
    except apsw.SQLError:
        found = []
    if not found or type(found[0][0]) is not int:
        raise Corrupt(f"{place} does not say which format it has")
    number: int = found[0][0]
    if number > FORMAT:
        raise FormatTooNew(f"{place} has storage format {number}; this dgent reads up to {FORMAT}")
    if number == FORMAT:
        check_tables(connection, place)  # read again: it may have been made since
    return number


Objects = Mapping[tuple[str, str], str]
"""Tables, indexes, triggers and views by kind and name, with the text that made each."""


@cache
def own_objects() -> Objects:
    """Return what dgent itself makes in a file."""
    with closing(apsw.Connection(":memory:")) as made:
        made.execute(TABLES)
        return _objects(made)


def _objects(connection: apsw.Connection) -> Objects:
    rows: Any = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    # A table that was renamed has its name in quotes.
    plain = {
        (kind, str(name)): str(sql).replace('"', "").split() for kind, name, sql in rows if sql is not None
    }
    return {key: " ".join(words) for key, words in plain.items()}


def check_harmless(connection: apsw.Connection, place: str) -> None:
    """Refuse a file that runs code when dgent reads or writes it.

    It may come from anybody: a trigger can undo what was just written, and a view can go on for ever. Those
    on tables of the user's own are never asked by dgent.
    """
    names = {name for _kind, name in own_objects()}
    rows: Any = connection.execute(_CODE).fetchall()
    for kind, name, table, sql in rows:
        if str(name).lower() in names or (kind == "trigger" and not names.isdisjoint(_tables_of(table, sql))):
            raise _foreign_part(place, kind, str(name))


def _tables_of(table: object, sql: object) -> set[str]:
    """Return the tables that an index or a trigger may be on: what SQLite has noted, and what its text says.

    The text is what counts for SQLite. It is read up to its first bracket or the body; where quotes or
    comments could hide that, all of it is.
    """
    text = str(sql).lower()
    head = re.split(r"\(|\bbegin\b", text, maxsplit=1)[0]
    if not _HIDES.search(head):
        return {str(table).lower(), *_ON.findall(head)}
    return {str(table).lower(), *_ON.findall(text), *_ON.findall(_COMMENT.sub(" ", text))}


def check_tables(connection: apsw.Connection, place: str) -> None:
    """Refuse a store of this format whose tables differ from ours, or that lacks one of our indexes.

    An additional constraint refuses rows that it should keep, and without an index an id can occur twice.
    """
    found, own = _objects(connection), own_objects()
    tables = {name for kind, name in own if kind == "table"}
    for (kind, name), sql in found.items():
        if own.get((kind, name)) != sql and (kind, name) in own:
            raise _foreign_part(place, kind, name)
    rows: Any = connection.execute(_INDEXES).fetchall()
    for name, table, sql in rows:
        if ("index", name) not in own and not tables.isdisjoint(_tables_of(table, sql)):
            raise _foreign_part(place, "index", name)
    missing = sorted(name for kind, name in own if (kind, name) not in found)
    if missing:
        raise Corrupt(f"{place} lacks {', '.join(missing)}", hint="restore a backup; it was not changed")


def _foreign_part(place: str, kind: str, name: str) -> Corrupt:
    hint = f"dgent made no such {kind}: do not use the file, or take it out with another tool"
    return Corrupt(f"{place} has the {kind} {name!r:.80} of somebody else", hint=hint)
