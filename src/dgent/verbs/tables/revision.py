"""Verbs for the revisions of application tables, in the place that the settings name."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dgent import tables
from dgent.errors import Denied, InputError, NotFound, Unsupported
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, Items, argument, option, verb


class UpgradeTables(Ask):
    """Input of `tables.upgrade`."""

    target: Annotated[str, argument("a revision, head, +1, or with --development also -1 and base")] = "head"
    folder: Annotated[
        str | None,
        option(
            "a folder with revisions of your own; those run, after the shipped ones are at their head",
            complete="file",
        ),
    ] = None
    development: Annotated[bool, option("allow steps back, which drop tables with their rows")] = False


class TablesState(msgspec.Struct, frozen=True):
    """The revision that the tables have, None before the first, and those that have not run yet."""

    revision: str | None
    pending: list[str]


def _only_forward(ask: UpgradeTables) -> Effect | None:
    return None if ask.development else "write"


@verb(
    "tables.upgrade",
    effect="destroy",
    errors=(InputError, NotFound, Denied, Unsupported),
    lighter=_only_forward,
    local=True,
    unless=lambda ask: ask.folder is None,
    partner=True,
    makes=True,
)
async def upgrade(context: Context, ask: UpgradeTables) -> TablesState:
    """Bring the tables to a revision, all of it or nothing."""
    async with await tables.connect(await context.universe()) as place:
        if ask.folder is not None:
            await tables.run_migrations(place)
        await tables.run_migrations(place, ask.target, development=ask.development, folder=ask.folder)
        return await _state(place, ask.folder)


class LookAtTables(Ask):
    """Input of `tables.current` and `tables.history`."""

    folder: Annotated[
        str | None,
        option("a folder with revisions of your own, instead of the shipped ones", complete="file"),
    ] = None


@verb(
    "tables.current",
    effect="read",
    errors=(NotFound, Denied, Unsupported),
    local=True,
    unless=lambda ask: ask.folder is None,
    partner=True,
    makes=True,
)
async def current(context: Context, ask: LookAtTables) -> TablesState:
    """Show the revision that the tables have, and those that have not run yet."""
    async with await tables.connect(await context.universe()) as place:
        return await _state(place, ask.folder)


async def _state(place: tables.Place, folder: str | None) -> TablesState:
    found = await tables.list_revisions(place, folder)
    applied = [each.id for each in found if each.applied]
    return TablesState(applied[-1] if applied else None, [each.id for each in found if not each.applied])


class TableRevision(msgspec.Struct, frozen=True):
    """A revision, the one before it, and whether the tables have it."""

    id: str
    after: str | None
    title: str
    applied: bool


@verb(
    "tables.history",
    effect="read",
    errors=(NotFound, Denied, Unsupported),
    local=True,
    unless=lambda ask: ask.folder is None,
    partner=True,
    makes=True,
)
async def history(context: Context, ask: LookAtTables) -> Items[TableRevision]:
    """List the revisions of the tables, the first one first."""
    async with await tables.connect(await context.universe()) as place:
        return Items([TableRevision(*each) for each in await tables.list_revisions(place, ask.folder)])


class NewRevision(Ask):
    """Input of `tables.new`."""

    title: Annotated[str, argument("what the revision changes", words=True)]
    folder: Annotated[str, option("the folder with your revisions; made if it is not there", complete="file")]


class RevisionFile(msgspec.Struct, frozen=True):
    """The file of a new revision."""

    path: str


@verb("tables.new", effect="write", errors=(InputError, Unsupported), local=True)
async def new(context: Context, ask: NewRevision) -> RevisionFile:
    """Write the file of a new, empty revision of your own."""
    return RevisionFile(str(tables.make_revision(ask.title, ask.folder)))


class RepairTables(Ask):
    """Input of `tables.repair`."""

    missing_datum: Annotated[
        Literal["report", "restore", "delete"],
        option("what to do with a row whose text is gone: report it, restore the text, or delete the row"),
    ] = "report"
    dry_run: DryRun = False


class TableHalf(msgspec.Struct, frozen=True):
    """A text without its row, or a row without its text, and what was done about it."""

    table: str
    id: str
    missing: str
    done: str
    reason: str


def _deletes(ask: RepairTables) -> Effect | None:
    return None if ask.missing_datum == "delete" and not ask.dry_run else "read" if ask.dry_run else "write"


@verb(
    "tables.repair",
    effect="destroy",
    errors=(InputError, Denied, Unsupported),
    lighter=_deletes,
    partner=True,
)
async def repair(context: Context, ask: RepairTables) -> Items[TableHalf]:
    """Find texts and rows of Brain, Town and Gardener without each other, and mend them."""
    universe = await context.universe()
    async with await tables.connect(universe) as place:
        found = await tables.repair(universe, place, missing_datum=ask.missing_datum, dry_run=ask.dry_run)
    return Items([TableHalf(each.table, each.id, each.missing, each.done, each.reason) for each in found])
