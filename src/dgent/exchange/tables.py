"""Copy the caller's own tables from one store to another of the same engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from dgent.errors import Conflict, StorageError
from dgent.store.port.own_tables import EMPTY, OwnTables
from dgent.store.upkeep import Finding
from dgent.universe.gate import Gate
from dgent.universe.universe import Universe

ENGINES = ("sqlite", "postgres")
BEGUN = "*"  # in the place of a digest: a copy that began to replace this table, and may not have ended
FOLLOW_S, SHARE = 0.5, 9  # a mirror looks at its tables so often, and for a tenth of the time at most


@asynccontextmanager
async def open_tables(universe: Universe) -> AsyncIterator[OwnTables | None]:
    """Open the own tables in a store itself; None where it has none, or none that this handle may use."""
    backend: Any = universe.backend
    if isinstance(backend, Gate) or backend.name not in ENGINES:
        yield None
        return
    tables: OwnTables = getattr(backend, "reachable_store", backend).own_tables()
    try:
        yield tables
    finally:
        await tables.close()


async def check_tables(source: Universe, target: Universe, copied: Mapping[str, str]) -> None:
    """Raise Conflict for a table of the target that a copy would replace, though it holds other rows."""
    async with open_tables(source) as ours, open_tables(target) as theirs:
        if ours is not None and theirs is not None and source.backend.name == target.backend.name:
            await _find_replaced(ours, theirs, copied)


async def copy_tables(
    source: Universe,
    target: Universe,
    copied: Mapping[str, str],
    note: Callable[[dict[str, str]], Awaitable[None]],
) -> list[str]:
    """Copy all own tables; return what was left out.

    `copied` has the digests of an earlier copy: a table that is still as that left it is replaced. `note`
    keeps those of this one; it is told of the tables that are about to change before they do.
    """
    async with open_tables(source) as ours, open_tables(target) as theirs:
        names = [] if ours is None else await ours.names()
        if ours is None or theirs is None or source.backend.name != target.backend.name:
            await note({})
            return names
        if not names and not copied:
            return []
        replaced = await _find_replaced(ours, theirs, copied)
        changed = [name for name in names if copied.get(name) != await ours.digest(name)]
        await note({**copied, **dict.fromkeys(changed, BEGUN)})
        digests, left_out = await theirs.copy_from(ours, replaced)
        await note(digests)
        return left_out


async def follow_tables(
    source: Universe, target: Universe, last: str, copy: Callable[[], Awaitable[object]]
) -> None:
    """Call `copy` whenever the own tables are no longer as described in `last`; ends if it cannot be."""
    async with open_tables(source) as ours, open_tables(target) as theirs:
        if ours is None or theirs is None or source.backend.name != target.backend.name:
            return
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            with suppress(StorageError):  # the commits that are copied beside it say what is wrong
                found = await _describe(ours)
                if found != last:
                    await copy()
                    last = found
            await asyncio.sleep(max(FOLLOW_S, SHARE * (loop.time() - began)))


async def describe_tables(universe: Universe) -> str:
    """Return a text that is another one after any change of own tables."""
    async with open_tables(universe) as tables:
        return "" if tables is None else await _describe(tables)


async def _describe(tables: OwnTables) -> str:
    digests = [f"{name} {await tables.digest(name)}" for name in await tables.names()]
    return "\n".join([await tables.shape(), *digests]) if digests else ""


async def _find_replaced(ours: OwnTables, theirs: OwnTables, copied: Mapping[str, str]) -> list[str]:
    """Return the tables of the target that the copy replaces, and those that the source no longer has."""
    names = await ours.names()
    replaced = []
    for name in await theirs.names():
        if name not in names and name not in copied:
            continue
        digest = await theirs.digest(name)
        # A copy that was interrupted at its very end has not recorded what it copied.
        if not (digest.startswith(EMPTY) or copied.get(name) in (digest, BEGUN)) and (
            name not in names or digest != await ours.digest(name)
        ):
            raise Conflict(
                f"the target has a table {name!r} with rows that do not come from this copy",
                hint="rename or drop that table in the target, or copy to an empty place",
            )
        replaced.append(name)
    return replaced


async def inspect_tables(universe: Universe, deep: bool) -> list[Finding]:
    """Return the findings on the own tables of a store; with `deep` also rows that refer to none."""
    async with open_tables(universe) as tables:
        names = [] if tables is None else await tables.names()
        if tables is None or not names:
            return []
        broken = await tables.find_broken() if deep else []
    hint = "add the rows that are missing, or delete those that refer to them"
    if broken:
        return [Finding("problem", "own tables", message, hint) for message in broken]
    checked = "; every reference leads to a row" if deep else ""
    return [Finding("ok", "own tables", f"{len(names):,} table{'s' * (len(names) > 1)}{checked}")]
