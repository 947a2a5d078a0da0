"""Copy the caller's own tables from one Postgres universe to another."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dgent.errors import Denied, QueryError
from dgent.store.port.own_tables import quote
from dgent.store.port.statement import one
from dgent.store.postgres.pool import Pool
from dgent.store.postgres.relational import PostgresRelational, SQLTransaction, check_statement, role_of

SPOOL_BYTES = 8 << 20  # rows of a table on their way; more are in a file


class PostgresTables:
    """The tables of the schema `<universe>_sql`, with keys, constraints, indexes, sequences and views."""

    def __init__(self, store: PostgresRelational, admin: Pool, universe: str) -> None:
        self.store, self._admin = store, admin
        self._universe, self._schema = universe, role_of(universe)

    async def names(self) -> list[str]:
        """Return the names of the tables; by the store's own login, which need not make the role for it."""
        rows = await self._admin.call(lambda connection: connection.fetch(_NAMES, self._schema))
        return [row["relname"] for row in rows]

    async def digest(self, name: str) -> str:
        """Return the number of rows of a table and the sum of their hashes."""
        found = await self.store.fetch_one(_DIGEST.format(quote(name)))
        assert found is not None, "an aggregate has a row"
        return f"{found['n']}:{found['s']}"

    async def shape(self) -> str:
        """Return a hash of the definitions of columns, constraints, indexes, sequences and views."""
        async with self.store.transaction() as reading:
            assert isinstance(reading, SQLTransaction)
            return await reading.run(_hash_shape)

    async def copy_from(
        self, source: PostgresTables, replaced: Sequence[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Copy all tables, in one transaction; what the target's server refuses is left out, and named."""
        async with source.store.transaction() as reading, self.store.transaction() as writing:
            assert isinstance(reading, SQLTransaction) and isinstance(writing, SQLTransaction)

            async def copy(into: asyncpg.Connection) -> tuple[dict[str, str], list[str]]:
                return await reading.run(lambda out: _Copy(out, into, self._universe).run(replaced))

            return await writing.run(copy)

    async def find_broken(self) -> list[str]:
        """Return nothing: the server itself keeps references whole."""
        return []

    async def close(self) -> None:
        """Close the connections."""
        await self.store.close()


async def _hash_shape(connection: asyncpg.Connection) -> str:
    found = [[*row] for row in await connection.fetch(_TABLES)]
    found += [[*each] for row in list(found) for each in await connection.fetch(_COLUMNS, row[0])]
    for sql in (_LATER, _SEQUENCES, _VIEWS):
        found += [[*row] for row in await connection.fetch(sql)]
    return hashlib.sha256(repr(found).encode()).hexdigest()


class _Copy:
    """One copy, by a connection to each server; the search path of both begins with the tables' schema."""

    def __init__(self, out: asyncpg.Connection, into: asyncpg.Connection, universe: str) -> None:
        self._out, self._into, self._universe = out, into, universe
        self._left_out: list[str] = []

    async def run(self, replaced: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Copy everything; return the digest of each copied table, and what was left out."""
        await self._out.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        views, tables = await self._out.fetch(_VIEWS), await self._out.fetch(_TABLES)
        unfit = {row["name"]: row["unfit"] for row in tables if row["unfit"]}
        await self._drop("VIEW", [row["name"] for row in views])
        await self._drop("TABLE", [name for name in replaced if name not in unfit])
        for row in await self._out.fetch(_SEQUENCES):
            async with self._attempt(f"sequence {row['name']}"):
                await self._drop("SEQUENCE", [row["name"]])
                await self._define(row["sql"])
        for row in tables:
            if not row["unfit"]:
                async with self._attempt(row["name"]):
                    await self._copy_table(row["oid"], row["name"])
        self._left_out += [f"{name} ({reason})" for name, reason in unfit.items()]
        for row in await self._out.fetch(_LATER):
            async with self._attempt(f"{row['kind']} {row['name']}"):
                await self._define(row["sql"])
        for row in await self._out.fetch(_COUNTERS):
            async with self._attempt(f"sequence {row['name']}"):
                await self._copy_counter(row)
        for row in views:
            async with self._attempt(f"view {row['name']}"):
                await self._define(f"CREATE VIEW {quote(row['name'])} AS {row['sql']}")
        self._left_out += [row["name"] for row in await self._out.fetch(_OTHERS)]
        return await self._compute_digests(), self._left_out

    async def _compute_digests(self) -> dict[str, str]:
        ours = {row["name"] for row in await self._out.fetch(_TABLES)}
        found = {}
        for row in await self._into.fetch(_TABLES):
            if (name := row["name"]) in ours:
                digest = await self._into.fetchrow(_DIGEST.format(quote(name)))
                found[name] = f"{digest['n']}:{digest['s']}"
        return found

    async def _drop(self, kind: str, names: Sequence[str]) -> None:
        """Drop what is replaced; with the schema, since the search path has another one after it."""
        schema = quote(await self._into.fetchval("SELECT current_schema()"))
        if names:
            listed = ", ".join(f"{schema}.{quote(name)}" for name in names)
            await self._into.execute(f"DROP {kind} IF EXISTS {listed}")

    async def _define(self, sql: str) -> None:
        """Run a text of the source's server, which may do no more than a statement of a caller."""
        check_statement(one(sql, "postgres"), self._universe)
        await (await self._into.prepare(sql)).fetch()

    @asynccontextmanager
    async def _attempt(self, name: str) -> AsyncIterator[None]:
        """Leave out what the other server cannot have: a type of an extension, say, or a missing table."""
        try:
            async with self._into.transaction():
                yield
        except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError, Denied, QueryError) as error:
            self._left_out.append(f"{name} ({error})")

    async def _copy_table(self, oid: int, name: str) -> None:
        """Make a table with its columns, and copy its rows."""
        columns = await self._out.fetch(_COLUMNS, oid)
        defined = ", ".join(f"{quote(row['name'])} {row['sql']}" for row in columns)
        await self._define(f"CREATE TABLE {quote(name)} ({defined})")
        stored = [row["name"] for row in columns if not row["generated"]]
        if not stored:
            return
        listed = ", ".join(map(quote, stored))
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as rows:
            await self._out.copy_from_query(
                f"SELECT {listed} FROM {quote(name)}", output=rows, format="binary"
            )
            rows.seek(0)
            await self._into.copy_to_table(name, source=rows, columns=stored, format="binary")

    async def _copy_counter(self, row: Any) -> None:
        """Have a sequence go on where that of the source is, and belong to its column."""
        name = quote(row["name"])
        at = await self._out.fetchrow(f"SELECT last_value, is_called FROM {name}")
        if row["identity"]:
            name = await self._into.fetchval(
                "SELECT pg_get_serial_sequence($1, $2)", quote(row["table"]), row["column"]
            )
        elif row["table"] is not None:
            await self._into.execute(
                f"ALTER SEQUENCE {name} OWNED BY {quote(row['table'])}.{quote(row['column'])}"
            )
        await self._into.execute("SELECT setval($1::text::regclass, $2, $3)", name, *at)


# Not the row's name alone, which could be that of a column.
_DIGEST = """
SELECT count(*) AS n, coalesce(sum(hashtextextended(ROW(dgent_row.*)::text, 0)), 0) AS s FROM {} dgent_row
"""
_SPACE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
_NAMES = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY c.oid
"""
_TABLES = f"""
SELECT c.oid, relname AS name, CASE
    WHEN relkind = 'p' THEN 'it is partitioned'
    WHEN EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) THEN 'it inherits'
    WHEN EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND t.typnamespace = {_SPACE})
        THEN 'it has a column of a type of your own' END AS unfit
FROM pg_class c WHERE relnamespace = {_SPACE} AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY c.oid
"""
_COLUMNS = """
SELECT attname AS name, attgenerated <> '' AS generated, format_type(atttypid, atttypmod)
    || CASE WHEN attcollation <> t.typcollation THEN (SELECT format(' COLLATE %I.%I', n.nspname, collname)
        FROM pg_collation c JOIN pg_namespace n ON n.oid = collnamespace WHERE c.oid = attcollation)
        ELSE '' END
    || CASE WHEN attgenerated <> '' THEN ' GENERATED ALWAYS AS (' || pg_get_expr(adbin, adrelid) || ') STORED'
        WHEN attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY'
        WHEN attidentity = 'd' THEN ' GENERATED BY DEFAULT AS IDENTITY'
        WHEN adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(adbin, adrelid) ELSE '' END
    || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END AS sql
FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid
    LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# Keys come first, since references need them. Texts of indexes name the schema, which may be another one.
_LATER = f"""
SELECT kind, name, sql FROM (
    SELECT 'constraint' AS kind, conname AS name, CASE contype WHEN 'f' THEN 3 ELSE 1 END AS turn, o.oid,
        format('ALTER TABLE %I ADD CONSTRAINT %I ', relname, conname) || pg_get_constraintdef(o.oid) AS sql
    FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid
    WHERE relnamespace = {_SPACE} AND relkind = 'r' AND contype IN ('p', 'u', 'c', 'x', 'f')
    UNION ALL
    SELECT 'index', c.relname, 2, c.oid,
        replace(pg_get_indexdef(c.oid), format(' ON %I.', current_schema()), ' ON ')
    FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_class t ON t.oid = indrelid
    WHERE c.relnamespace = {_SPACE} AND t.relkind = 'r'
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
) AS parts ORDER BY turn, oid
"""
_SEQUENCES = """
SELECT sequencename AS name,
    format('CREATE SEQUENCE %I AS %s INCREMENT %s MINVALUE %s MAXVALUE %s START %s%s',
    sequencename, data_type, increment_by, min_value, max_value, start_value,
    CASE WHEN cycle THEN ' CYCLE' ELSE '' END) AS sql
FROM pg_sequences WHERE schemaname = current_schema() AND NOT EXISTS (SELECT FROM pg_depend
    WHERE objid = format('%I.%I', schemaname, sequencename)::regclass AND deptype = 'i')
"""
_COUNTERS = f"""
SELECT s.relname AS name, d.deptype = 'i' AS identity, t.relname AS table, a.attname AS column
FROM pg_class s LEFT JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
    AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
    LEFT JOIN pg_class t ON t.oid = d.refobjid
    LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE s.relnamespace = {_SPACE} AND s.relkind = 'S' ORDER BY s.oid
"""
_VIEWS = f"""
SELECT relname AS name, pg_get_viewdef(oid) AS sql FROM pg_class
WHERE relnamespace = {_SPACE} AND relkind = 'v' ORDER BY oid
"""
_OTHERS = f"""
SELECT 'materialized view ' || relname AS name FROM pg_class WHERE relnamespace = {_SPACE} AND relkind = 'm'
UNION ALL SELECT 'foreign table ' || relname FROM pg_class WHERE relnamespace = {_SPACE} AND relkind = 'f'
UNION ALL SELECT 'type ' || typname FROM pg_type
    WHERE typnamespace = {_SPACE} AND (typtype IN ('e', 'd') OR typtype = 'c' AND EXISTS (
        SELECT FROM pg_class c WHERE c.oid = typrelid AND c.relkind = 'c'))
UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid
    WHERE relnamespace = {_SPACE} AND NOT tgisinternal
UNION ALL SELECT 'policy ' || polname FROM pg_policy p JOIN pg_class c ON c.oid = polrelid
    WHERE relnamespace = {_SPACE}
"""
