"""The tables of a universe on Postgres, and the steps between their formats, each done by one process."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec

from dgent import clock, ids
from dgent.errors import Corrupt, FormatTooNew, InputError, Unsupported
from dgent.store.engine.catalog import AUTHOR, state_of
from dgent.store.read_only import make_missing_error
from dgent.store.upgrade import Step, make_too_old_error

FORMAT = 3
MAX_NAME = 48
DAY_US = 24 * 3600 * 1_000_000
FRESH = -(2**62)
"""The base of new keys before the store has assigned them: `FRESH + 1` is the first of a proposal."""

STALE = "DG001"
"""SQLSTATE raised by `dgent_commit` when the store left the state that a proposal was made for."""

DONE = "DG002"
"""SQLSTATE raised when the same group was committed before, and only its answer was lost."""


_DROP_BY_TAG_AND_FIELD = """
DELETE FROM {u}.entry WHERE ix IN (SELECT ix FROM {u}.ix WHERE tag <> '' AND iv <> 0);
DELETE FROM {u}.ix WHERE tag <> '' AND iv <> 0;
"""
_AUTHORS = """
SELECT DISTINCT ON (s.schema) s.schema, s.decl, e.ix, e.key
FROM {u}.schema s JOIN {u}.ix i ON i.schema = s.schema JOIN {u}.entry e ON e.ix = i.ix
WHERE i.path = $1 GROUP BY s.schema, s.decl, e.ix, e.key ORDER BY s.schema, count(*) DESC, e.key
"""


async def drop_derived_entries(connection: Any, u: str) -> None:
    """Drop the entries by tag and field together, and those of each schema's most frequent author.

    That one becomes the schema's usual author, as the author of the first record is in newer universes.
    It runs in the caller's transaction; `u` is the quoted name of the schema that holds the tables.
    """
    await connection.execute(_DROP_BY_TAG_AND_FIELD.replace("{u}", u))
    for schema, raw, ix, key in await connection.fetch(_AUTHORS.replace("{u}", u), AUTHOR):
        state = msgspec.structs.replace(state_of(raw), usual_author=int.from_bytes(key, "big"))
        sql = f"UPDATE {u}.schema SET decl = $1 WHERE schema = $2"
        await connection.execute(sql, msgspec.json.encode(state), schema)
        await connection.execute(f"DELETE FROM {u}.entry WHERE ix = $1 AND key = $2", ix, key)
    await connection.execute(functions(u))


async def _create_tables(connection: Any, u: str, *names: str) -> None:
    """Create some of the tables below, as they are there."""
    wanted = tuple(f"CREATE TABLE {{u}}.{name} " for name in names)
    for statement in TABLES.split(";"):
        if statement.lstrip().startswith(wanted):
            await connection.execute(statement.format(u=u))


async def _change_entries(connection: Any, u: str) -> None:
    await _create_tables(connection, u, "page", "doc")
    await drop_derived_entries(connection, u)


async def _add_vectors(connection: Any, u: str) -> None:
    await _create_tables(connection, u, "vector")


STEPS: tuple[Step, ...] = (
    Step(2, "add the tables of text indexes, drop entries that other indexes give", _change_entries),
    Step(3, "add the table of vectors", _add_vectors),
)
"""The steps to the formats after the first: SQL with `{u}` for the schema, or an async function.

A function gets the connection and the quoted name of the schema.
"""

_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)

_ROW = """
    dk bigint NOT NULL, id text COLLATE "C" NOT NULL, rev int NOT NULL, seq bigint NOT NULL,
    live smallint NOT NULL, t bigint NOT NULL, at bigint NOT NULL, schema int NOT NULL, sv int NOT NULL,
    author int NOT NULL, source int, parent text COLLATE "C", tags text COLLATE "C" NOT NULL,
    enc smallint NOT NULL, fk bytea, x bytea, data bytea, content bytea, trail int NOT NULL DEFAULT 0,"""

TABLES = f"""
CREATE TABLE {{u}}.meta (name text COLLATE "C" PRIMARY KEY, number bigint, bytes bytea);
CREATE TABLE {{u}}.clock (
    one smallint PRIMARY KEY CHECK (one = 0), seq bigint NOT NULL, at bigint NOT NULL, dk bigint NOT NULL,
    catalog bigint NOT NULL, lag boolean NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE {{u}}.name (
    n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE {{u}}.datum ({_ROW}
    base_rev int, PRIMARY KEY (id, trail)
) WITH (fillfactor = 85);
CREATE INDEX datum_dk ON {{u}}.datum (dk);
CREATE TABLE {{u}}.past ({_ROW}
    PRIMARY KEY (id, trail, rev)
);
CREATE INDEX past_dk ON {{u}}.past (dk, rev);
CREATE TABLE {{u}}.entry (
    ix int NOT NULL, key bytea NOT NULL, t bigint NOT NULL, dk bigint NOT NULL, id text COLLATE "C" NOT NULL,
    PRIMARY KEY (ix, key, t, dk, id)
);
CREATE TABLE {{u}}.commits (
    seq bigint PRIMARY KEY, at bigint NOT NULL, author int NOT NULL, kind smallint NOT NULL,
    note text COLLATE "C", of_seq bigint, ops bytea NOT NULL, key bytea, digest bytea, dk bigint NOT NULL,
    cid bytea, origin bytea, trail int NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX commits_key ON {{u}}.commits (key) WHERE key IS NOT NULL;
CREATE TABLE {{u}}.once (
    writer bytea PRIMARY KEY, n bigint NOT NULL, seq bigint NOT NULL, dk bigint NOT NULL, at bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE {{u}}.ix (
    ix int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schema int NOT NULL, iv int NOT NULL,
    tag text COLLATE "C" NOT NULL, path text COLLATE "C" NOT NULL, trail int NOT NULL DEFAULT 0,
    UNIQUE (schema, tag, path, iv, trail)
);
CREATE TABLE {{u}}.page (
    ix int NOT NULL, word bytea NOT NULL, first bigint NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (ix, word, first)
);
CREATE TABLE {{u}}.doc (
    ix int NOT NULL, dk bigint NOT NULL, rev int NOT NULL, size bigint NOT NULL,
    page_rev int NOT NULL, words bytea,
    PRIMARY KEY (ix, dk)
);
CREATE TABLE {{u}}.vector (
    ix int NOT NULL, slot bigint NOT NULL, dk bigint NOT NULL, rev int NOT NULL, digest bytea NOT NULL,
    body bytea NOT NULL, PRIMARY KEY (ix, slot), UNIQUE (ix, dk)
);
CREATE TABLE {{u}}.schema (schema int PRIMARY KEY, decl bytea NOT NULL);
CREATE TABLE {{u}}.lag (
    schema int NOT NULL, dk bigint NOT NULL, id text COLLATE "C" NOT NULL, PRIMARY KEY (schema, dk)
);
CREATE TABLE {{u}}.forgotten (h bytea PRIMARY KEY, last_rev int NOT NULL, seq bigint NOT NULL);
CREATE TABLE {{u}}.trail (
    trail int PRIMARY KEY, id text COLLATE "C" UNIQUE, parent int, base_seq bigint, state int,
    ended_seq bigint
);
"""

# The entries of a record, as they are sent: the numbers of their indexes and their keys, as texts of lists.
STANDING = """
CREATE TYPE {u}.standing AS (dk bigint, t bigint, id text COLLATE "C", streams text, keys text);
"""

# The writes of nearly every commit. Keys below zero count from FRESH and get the store's own numbers here.
_INSERTS = {
    "rows": """INSERT INTO {u}.datum (dk, id, rev, seq, live, t, at, schema, sv, author, source, parent, tags,
            enc, fk, x, data, content)
        SELECT CASE WHEN r.dk < 0 THEN r.dk + shift ELSE r.dk END, r.id, r.rev, r.seq + ahead, r.live, r.t,
            coalesce(at_, r.at), r.schema, r.sv, r.author, r.source, r.parent, r.tags, r.enc, r.fk, r.x,
            r.data, r.content
        FROM unnest(fresh) r""",
    "entries": """INSERT INTO {u}.entry (ix, key, t, dk, id)
        SELECT unnest(r.streams::int[]), unnest(r.keys::bytea[]), r.t,
            CASE WHEN r.dk < 0 THEN r.dk + shift ELSE r.dk END, r.id
        FROM unnest(added) r""",
    "log": """INSERT INTO {u}.commits (seq, at, author, kind, note, of_seq, ops, key, digest, dk)
        SELECT r.seq + ahead, coalesce(at_, r.at), r.author, r.kind, r.note, r.of_seq, r.ops, r.key,
            r.digest, shift + ({fresh})
        FROM unnest(logged) r""",
}

# What a commit writes, in whole sets. The times of rows and entries belong to records; `at_` is the commit's.
APPLY = """
CREATE OR REPLACE FUNCTION {u}.dgent_apply(
    ahead bigint, shift bigint, at_ bigint, fresh {u}.datum[], heads {u}.datum[], was bigint[],
    buried {u}.past[], added {u}.standing[], removed {u}.entry[], logged {u}.commits[],
    lagging {u}.lag[], caught_up {u}.lag[], thinned bigint[], below int[], again boolean
) RETURNS void LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_seqscan = off AS $$
DECLARE n bigint;
BEGIN
    IF cardinality(fresh) > 0 THEN
        {rows};
    END IF;
    IF cardinality(heads) > 0 THEN
        UPDATE {u}.datum d SET rev = r.rev, seq = r.seq + ahead, live = r.live, t = r.t,
            at = coalesce(at_, r.at), schema = r.schema, sv = r.sv, author = r.author, source = r.source,
            parent = r.parent, tags = r.tags, enc = r.enc, fk = r.fk, x = r.x, data = r.data,
            content = r.content
        FROM unnest(heads) WITH ORDINALITY r(dk, id, rev, seq, live, t, at, schema, sv, author, source,
            parent, tags, enc, fk, x, data, content, trail, base_rev, place)
        WHERE d.id = r.id AND d.trail = 0 AND d.seq = was[r.place];
        GET DIAGNOSTICS n = ROW_COUNT;
        IF n <> cardinality(heads) THEN
            RAISE EXCEPTION 'a record changed meanwhile' USING ERRCODE = 'DG001';
        END IF;
    END IF;
    IF cardinality(removed) > 0 THEN
        DELETE FROM {u}.entry e USING unnest(removed) r
        WHERE e.ix = r.ix AND e.key = r.key AND e.t = r.t AND e.dk = r.dk AND e.id = r.id;
    END IF;
    IF again THEN
        {entries}
        ON CONFLICT DO NOTHING;
    ELSIF cardinality(added) > 0 THEN
        {entries};
    END IF;
    IF cardinality(buried) > 0 THEN
        INSERT INTO {u}.past SELECT * FROM unnest(buried);
    END IF;
    IF cardinality(thinned) > 0 THEN
        DELETE FROM {u}.past p USING unnest(thinned, below) r(dk, below)
        WHERE p.dk = r.dk AND p.rev < r.below;
    END IF;
    IF cardinality(caught_up) > 0 THEN
        DELETE FROM {u}.lag l USING unnest(caught_up) r WHERE l.schema = r.schema AND l.dk = r.dk;
    END IF;
    IF cardinality(lagging) > 0 THEN
        INSERT INTO {u}.lag (schema, dk, id)
        SELECT r.schema, CASE WHEN r.dk < 0 THEN r.dk + shift ELSE r.dk END, r.id FROM unnest(lagging) r
        ON CONFLICT DO NOTHING;
        UPDATE {u}.clock SET lag = true WHERE NOT lag;
    END IF;
    IF cardinality(logged) > 0 THEN
        {log};
    END IF;
END $$;
"""

# The beginning of both ways in: take the numbers, record the group, compare the catalog.
_BEGIN = """UPDATE {u}.clock c SET seq = c.seq + seqs, dk = c.dk + dks, at = greatest(c.at, now_)
    RETURNING c.seq - seqs, c.dk - dks, c.at, c.catalog INTO seq, dk, at, found_catalog;
    INSERT INTO {u}.once AS o (writer, n, seq, dk, at) VALUES (writer_, n_, seq, dk, at)
    ON CONFLICT (writer) DO UPDATE SET n = n_, seq = excluded.seq, dk = excluded.dk, at = excluded.at
    WHERE o.n < n_;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this was done before' USING ERRCODE = 'DG002';
    END IF;
    IF found_catalog <> catalog_ THEN
        RAISE EXCEPTION 'schemas changed meanwhile' USING ERRCODE = 'DG001';
    END IF;"""

# The usual way in for a commit. The clock's row is locked before anything is read, so whoever comes
# next sees all of this; a function, and not one statement, because each statement in it then reads
# what was committed while it waited.
COMMIT = """
CREATE OR REPLACE FUNCTION {u}.dgent_commit(
    writer_ bytea, n_ bigint, catalog_ bigint, seq_ bigint, strict boolean, now_ bigint, seqs int, dks int,
    checked text[], checked_seq bigint[],
    fresh {u}.datum[], heads {u}.datum[], was bigint[], buried {u}.past[], added {u}.standing[],
    removed {u}.entry[], logged {u}.commits[], lagging {u}.lag[], caught_up {u}.lag[], thinned bigint[],
    below int[], OUT seq bigint, OUT dk bigint, OUT at bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '8s' AS $$
DECLARE found_catalog bigint; ahead bigint; shift bigint; at_ bigint;
BEGIN
    {begin}
    IF strict AND seq <> seq_ THEN
        RAISE EXCEPTION 'others committed meanwhile' USING ERRCODE = 'DG001';
    END IF;
    IF cardinality(checked) > 0 AND EXISTS (
        SELECT FROM unnest(checked, checked_seq) r(id, seq)
        WHERE r.seq <> coalesce((SELECT d.seq FROM {u}.datum d WHERE d.id = r.id AND d.trail = 0), 0)
    ) THEN
        RAISE EXCEPTION 'a record changed meanwhile' USING ERRCODE = 'DG001';
    END IF;
    ahead := seq - seq_; shift := dk - ({fresh}); at_ := at;
    IF cardinality(heads) + cardinality(removed) + cardinality(buried) + cardinality(thinned)
        + cardinality(caught_up) + cardinality(lagging) > 0 THEN
        PERFORM {u}.dgent_apply(ahead, shift, at_, fresh, heads, was, buried, added, removed, logged, lagging,
            caught_up, thinned, below, false);
    ELSE
        -- New records only. A function with settings of its own costs as much as some of them.
        {rows};
        {entries};
        {log};
    END IF;
    PERFORM pg_notify('dgent_' || '{name}', (seq + seqs)::text);
END $$;
"""

# The other way in: new records that differ only in id, time, tags and data, each by a commit of its own. They
# travel as columns, and their numbers follow from their places. An entry is the number of its index and the
# place of its record; those with keys come first.
PUT = """
CREATE OR REPLACE FUNCTION {u}.dgent_put(
    writer_ bytea, n_ bigint, catalog_ bigint, now_ bigint, seqs int, schema_ int, sv_ int, author_ int,
    by_ int, kind_ smallint, ids text[], times bigint[], tags_ text[], bodies bytea[], ops_ bytea[],
    entries bigint[], keys bytea[], OUT seq bigint, OUT dk bigint, OUT at bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '8s' AS $$
DECLARE found_catalog bigint; dks int := seqs; seq_ bigint; dk_ bigint; at_ bigint;
BEGIN
    {begin}
    seq_ := seq; dk_ := dk; at_ := at;
    INSERT INTO {u}.datum (dk, id, rev, seq, live, t, at, schema, sv, author, tags, enc, data)
    SELECT dk_ + i, id, 1, seq_ + i, 1, t, at_, schema_, sv_, author_, tags, 0, body
    FROM (SELECT generate_series(1, seqs) i, unnest(ids) id, unnest(times) t, unnest(tags_) tags,
        unnest(bodies) body) r;
    INSERT INTO {u}.entry (ix, key, t, dk, id)
    SELECT ix, coalesce(key, ''), times[i], dk_ + i, ids[i]
    FROM (SELECT (e >> 32)::int ix, (e & 4294967295)::int i, key
        FROM (SELECT unnest(entries) e, unnest(keys) key) packed) r;
    INSERT INTO {u}.commits (seq, at, author, kind, ops, dk)
    SELECT seq_ + i, at_, by_, kind_, op, dk_ FROM (SELECT generate_series(1, seqs) i, unnest(ops_) op) r;
    PERFORM pg_notify('dgent_' || '{name}', (seq + seqs)::text);
END $$;
"""

_HAS_PUT = "to_regproc($1) IS NOT NULL"


def check_universe_name(name: object) -> str:
    """Return the name of a universe: a Postgres schema, so it must be short and plain."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise InputError(
            f"{name!r} is not a valid name for a universe",
            hint=f"a to z, 0 to 9 and _, starting with a letter, at most {MAX_NAME}",
            field="universe",
        )
    if name.startswith("pg_") or name in ("public", "information_schema"):
        raise InputError(f"the universe cannot be called {name!r}: Postgres uses that name", field="universe")
    return name


def channel(name: str) -> str:
    """Return the channel on which a universe's commits are announced."""
    return "dgent_" + name


def script(name: str) -> str:
    """Return the SQL that makes an empty universe; the name is checked, so it cannot inject SQL."""
    quoted = f'"{check_universe_name(name)}"'
    return (TABLES + STANDING).format(u=quoted) + functions(quoted)


def functions(quoted: str, texts: str = APPLY + COMMIT + PUT) -> str:
    """Return the SQL that makes the functions of a universe, or replaces them by newer ones."""
    inserts = {what: sql.format(u=quoted, fresh=FRESH) for what, sql in _INSERTS.items()}
    values = {"u": quoted, "name": quoted.strip('"'), "fresh": FRESH, "begin": _BEGIN.format(u=quoted)}
    return texts.format(**values, **inserts)


async def prepare(connection: Any, name: str, create: bool = True) -> bytes:
    """Make sure the tables are there and of this format; returns the epoch. Without `create` it only looks.

    Many processes may come at once: they queue at an advisory lock, and only the first finds work.
    """
    quoted = f'"{check_universe_name(name)}"'
    encoding, now_us = await connection.fetchrow(
        "SELECT current_setting('server_encoding'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    )
    if encoding != "UTF8":
        raise Unsupported(f"the database keeps text as {encoding}", hint="create one with ENCODING 'UTF8'")
    # A program that starts with a wrong clock goes by the server's, as those before it did.
    clock.recall(clock.ClockBelief(clock.boot(), now_us - clock.since_boot_us()))
    found = await read_number(connection, name)
    if found is None and not create:
        raise make_missing_error(f"the universe {name!r}")
    if found is None:
        async with connection.transaction():
            await queue_up(connection, name)
            found = await read_number(connection, name)
            if found is None:
                await _create(connection, name)
    if found is not None and found < FORMAT:
        raise make_too_old_error(f"the universe {name!r}", found, FORMAT)
    # Writers that were not heard of for a day have nothing to ask for any more. Whoever may only read,
    # or reads from a standby, leaves that to others.
    with suppress(asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError):
        await connection.execute(f"DELETE FROM {quoted}.once WHERE at < $1", clock.now_us() - DAY_US)
    epoch, complete = await connection.fetchrow(
        f"SELECT (SELECT bytes FROM {quoted}.meta WHERE name = 'epoch'), {_HAS_PUT}", f"{quoted}.dgent_put"
    )
    if not complete and create:
        await _add_put(connection, name)
    if not isinstance(epoch, bytes):
        raise Corrupt(f"the universe {name!r} has no epoch")
    return epoch


async def _add_put(connection: Any, name: str) -> None:
    """Create `dgent_put` in a universe that was made before there was one, if this role may."""
    quoted = f'"{check_universe_name(name)}"'
    with suppress(asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError):
        async with connection.transaction():
            await queue_up(connection, name)
            if not await connection.fetchval(f"SELECT {_HAS_PUT}", f"{quoted}.dgent_put"):
                await connection.execute(functions(quoted, PUT))


async def read_number(connection: Any, name: str) -> int | None:
    """Return the format of the tables, None when there are none; FormatTooNew for a newer one."""
    # As text[]: asyncpg knows that type, and would ask the server for a description of name[].
    there = await connection.fetchval(
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])",
        name,
        ["meta", "clock"],
    )
    if there == 0:
        return None
    quoted = f'"{check_universe_name(name)}"'
    found = None
    if there == 2:
        found = await connection.fetchval(f"SELECT number FROM {quoted}.meta WHERE name = 'format'")
    if not isinstance(found, int):
        raise Corrupt(
            f"the schema {name!r} has tables that are not dgent's", hint="use another universe name"
        )
    check_number(quoted, found)
    return found


def check_number(quoted: str, found: int) -> None:
    """Raise FormatTooNew for a format that this dgent does not know."""
    if found > FORMAT:
        raise FormatTooNew(f"the universe {quoted} has format {found}; this dgent knows {FORMAT}")


async def queue_up(connection: Any, name: str) -> None:
    """Queue with the others that make or upgrade the tables, until the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "dgent." + name)


async def _create(connection: Any, name: str) -> None:
    quoted = f'"{check_universe_name(name)}"'
    exists = await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", name)
    if not exists:
        await connection.execute(f"CREATE SCHEMA {quoted}")
    await connection.execute(script(name))
    await fill(connection, name)


async def fill(connection: Any, name: str) -> None:
    """Write the initial rows of an empty universe."""
    quoted = f'"{check_universe_name(name)}"'
    numbers = {
        "format": FORMAT,
        "created_at": clock.now_us(),
        "floor": 0,
        "floor_at": 0,
        "forgot": 0,
    }
    texts = {"universe_id": ids.new_id().encode(), "epoch": os.urandom(8), "forget_salt": os.urandom(16)}
    await connection.executemany(
        f"INSERT INTO {quoted}.meta (name, number, bytes) VALUES ($1, $2, $3)",
        [
            *((key, value, None) for key, value in numbers.items()),
            *((key, None, raw) for key, raw in texts.items()),
        ],
    )
    await connection.execute(
        f"INSERT INTO {quoted}.clock (one, seq, at, dk, catalog, lag) VALUES (0, 0, 0, 0, 1, false)"
    )
    # Number 0 is the empty text, which stands for "no schema".
    await connection.execute(f"INSERT INTO {quoted}.name (n, text) OVERRIDING SYSTEM VALUE VALUES (0, '')")
    await connection.execute(f"INSERT INTO {quoted}.trail (trail, id, state) VALUES (0, 'main', 0)")
