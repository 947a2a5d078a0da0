"""Upgrade a universe on Postgres to this dgent's storage format, one transaction for each step.

No backup is made first: a step that fails leaves nothing behind, and a server has its own backups.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from dgent.errors import NotFound
from dgent.store.postgres import errors
from dgent.store.postgres import format as storage
from dgent.store.postgres.address import Address
from dgent.store.postgres.pool import Pool
from dgent.store.upgrade import (
    Step,
    Upgrade,
    describe_steps,
    make_step_error,
    make_too_old_error,
    steps_between,
)

LOCK_WAIT_S = 10  # so long a step waits for a table that others use; they queue behind it meanwhile
LONGEST_S = 24 * 3600.0  # a step may take long; so may the wait for another process that does it


async def plan_upgrade(pool: Pool, address: Address) -> Upgrade:
    """Return what an upgrade would do; changes nothing."""
    return await pool.call(lambda connection: _plan(connection, address), patient=False)


async def upgrade(pool: Pool, address: Address) -> Upgrade:
    """Do the steps that are left; processes that come at once queue, and each step is done once."""
    planned = await plan_upgrade(pool, address)
    more = bool(planned.steps)
    while more:
        end = asyncio.get_running_loop().time() + LONGEST_S
        more = await pool.call(lambda connection: _advance(connection, address), patient=False, end=end)
    return planned


async def _plan(connection: Any, address: Address) -> Upgrade:
    name = address.universe
    found = await storage.read_number(connection, name)
    if found is None:
        raise NotFound(f"there is no universe {name!r} on this server", hint="check the URL")
    steps = steps_between(storage.STEPS, found, storage.FORMAT, f"the universe {name!r}")
    size = await connection.fetchval(
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
        name,
    )
    note = f"no backup is made on a server; `pg_dump --schema={name}` makes one" if steps else ""
    return Upgrade(
        address.place, "postgres", found, storage.FORMAT, describe_steps(steps), size or 0, note=note
    )


async def _advance(connection: Any, address: Address) -> bool:
    """Do the next step, unless another process did it; return whether there are more."""
    name, place = address.universe, f"the universe {address.universe!r}"
    u = f'"{storage.check_universe_name(name)}"'
    async with connection.transaction():
        if await connection.fetchval("SELECT current_setting('transaction_read_only')::bool"):
            number = await storage.read_number(connection, name) or 0
            raise make_too_old_error(f"{place} can only be read here, and", number, storage.FORMAT)
        await connection.execute("SET LOCAL statement_timeout = 0")
        await storage.queue_up(connection, name)
        found = await storage.read_number(connection, name)
        if found is None or found == storage.FORMAT:
            return False
        step = steps_between(storage.STEPS, found, storage.FORMAT, place)[0]
        try:
            await _run_step(connection, u, step)
        except Exception as error:
            raise _explain(error, step, address) from error
    return step.number < storage.FORMAT


async def _run_step(connection: Any, u: str, step: Step) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
    # Nobody commits meanwhile. Handles that are open find another catalog then, load it, and see that the
    # format is too new for them.
    await connection.execute(f"UPDATE {u}.clock SET catalog = catalog + 1")
    before = await _list_tables(connection, u)
    if isinstance(step.run, str):
        await connection.execute(step.run.replace("{u}", u))
    else:
        await step.run(connection, u)
    await _share(connection, u, await _list_tables(connection, u) - before)
    await connection.execute(f"UPDATE {u}.meta SET number = $1 WHERE name = 'format'", step.number)


async def _list_tables(connection: Any, u: str) -> set[str]:
    rows = await connection.fetch(
        "SELECT quote_ident(relname) FROM pg_catalog.pg_class"
        " WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p')",
        u,
    )
    return {name for (name,) in rows}


async def _share(connection: Any, u: str, tables: set[str]) -> None:
    """Grant the roles that use the universe the same on its new tables as on that of the index entries."""
    grants = await connection.fetch(
        "SELECT DISTINCT a.privilege_type,"
        " CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END"
        " FROM pg_catalog.pg_class c, aclexplode(c.relacl) a"
        " WHERE c.oid = $1::text::regclass AND a.grantee <> c.relowner",
        f"{u}.entry",
    )
    for table in tables:
        for privilege, role in grants:
            await connection.execute(f"GRANT {privilege} ON {u}.{table} TO {role}")


def _explain(error: Exception, step: Step, address: Address) -> Exception:
    """Return the error of a step that was rolled back; that of a lost connection as it is, to try again."""
    if isinstance(error, errors.FAILURES):
        if errors.is_gone(error):
            return error
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            place = f"the role may not upgrade the universe {address.universe!r}, which"
            refused = make_too_old_error(place, step.number - 1, storage.FORMAT)
            refused.hint = "run `dgent store upgrade` as the role that owns its tables; nothing was changed"
            return refused
        error = errors.translate(error, address.place)
    return make_step_error(error, step, f"the universe {address.universe!r}", None)
