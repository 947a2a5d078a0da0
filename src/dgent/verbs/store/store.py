"""Verbs for the store itself: status, repair, backup, copy, upgrade of its format."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dgent import clock
from dgent.config.places import constellation_folder, make_private
from dgent.config.secret import mask
from dgent.config.url import spell_url
from dgent.errors import Busy, Conflict, Corrupt, FormatTooNew, InputError, NotFound, Unsupported
from dgent.exchange import backup as backups
from dgent.exchange import copy as copies
from dgent.exchange import folders as place
from dgent.exchange.tables import inspect_tables
from dgent.exchange.telemetry import inspect_telemetry
from dgent.model import reserved
from dgent.store.jsonl.backend import JSONLBackend
from dgent.store.registry import backend_for
from dgent.store.upgrade import Upgrade, upgrade_store
from dgent.store.upkeep import Finding, check_commit_times, upkeep_of
from dgent.universe.embedding import find_faults
from dgent.universe.machine import machine_of
from dgent.universe.room import load_room, names_in_store
from dgent.universe.universe import Universe
from dgent.universe.universe import open as open_universe
from dgent.verbs import room
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Work
from dgent.verbs.data.history import Back, Log, LogEntry, log
from dgent.verbs.data.record import All, DryRun
from dgent.verbs.registry import Ask, PastAsk, argument, option, verb

LAST = 5
MOST_DAYS = 366  # that are counted


class SchemaCount(msgspec.Struct, frozen=True):
    """A schema with the number of its records."""

    schema: str
    records: int
    building: list[str]


class ThingCount(msgspec.Struct, frozen=True):
    """The number of a user's things of one kind, such as crumb or block."""

    noun: str
    count: int


class DayCount(msgspec.Struct, frozen=True):
    """The number of commits of a day, which begins `at` that time."""

    at: datetime
    commits: int


class Status(msgspec.Struct, frozen=True):
    """A store at a glance; `records` and `schemas` are the user's, unless all were asked for.

    `health` is ok, problem or unchecked. `days` are the last ones, if they were asked for, oldest first.
    `state` is idle, reading, writing, migrating or recovering.
    """

    place: str
    engine: str
    constellation: str | None
    health: str
    degraded: bool
    findings: list[Finding]
    records: int
    seq: int
    size_bytes: int
    schemas: list[SchemaCount]
    commits: list[LogEntry]
    pending: int = 0
    conflicts: int = 0
    work: Work | None = None
    things: list[ThingCount] = []
    days: list[DayCount] = []
    state: str = "idle"


class ShowStatus(PastAsk):
    """Input of `store.status`."""

    all: All = False
    commits: Annotated[int, option("so many of the last commits")] = LAST
    days: Annotated[int, option("count the commits of so many last days, which begin at midnight UTC")] = 0
    quick: Annotated[
        bool, option("leave out the look for problems, which takes a while in a large store")
    ] = False

    def __post_init__(self) -> None:
        if not 0 <= self.days <= MOST_DAYS:
            raise ValueError(f"days must be a number from 0 to {MOST_DAYS}")
        if self.commits < 0:
            raise ValueError("commits must be a number from 0")


@verb("store.status", effect="read")
async def status(context: Context, ask: ShowStatus) -> Status:
    """Show the store at a glance."""
    u = await context.universe(ask.as_of)
    stats = await u.stats()
    # An unavailable store cannot be inspected, and has no log.
    unavailable = u.degraded is not None
    quick = ask.quick or u.past is not None  # what is wrong with it is wrong now
    looked = [] if unavailable or quick else [*await _inspect(u), *find_faults(await u.embedding())]
    findings = [each for each in looked if each.level in ("warning", "problem")]
    recent = Log([]) if unavailable else await _recent(context, u, ask)
    kinds = [
        SchemaCount(each.name, each.records, list(each.building))
        for each in stats.schemas
        if ask.all or not reserved.is_reserved(each.name)
    ]
    engine, place = stats.engine, stats.place
    if context.missing is not None:
        engine, place = context.settings.url.partition(":")[0], mask(str(context.missing))
    return Status(
        place if context.shows_place else "",
        engine,
        context.constellation,
        "unchecked" if quick else _judge(findings),
        bool(stats.details.get("degraded")),
        findings,
        stats.records if ask.all else sum(kind.records for kind in kinds),
        stats.seq,
        stats.size_bytes,
        sorted(kinds, key=lambda kind: -kind.records),
        recent.items,
        _count(stats.details, "pending"),
        _count(stats.details, "conflicts"),
        recent.work,
        [] if unavailable else await _count_things(u),
        [] if unavailable else await _count_days(u, ask.days),
        machine_of(u).report().state,
    )


def _judge(findings: list[Finding]) -> str:
    return "problem" if any(each.level == "problem" for each in findings) else "ok"


async def _recent(context: Context, u: Universe, ask: ShowStatus) -> Log:
    """Return the last commits, and the work in progress."""
    if ask.commits:
        before = None if u.past is None else u.past.seq + 1
        found = await log(context, Back(limit=ask.commits, all=ask.all, before=before))
        return found if before is None else msgspec.structs.replace(found, work=await room.work(u))
    return Log([], work=await room.work(u))


async def _count_days(u: Universe, days: int) -> list[DayCount]:
    """Count the commits of the last days by their numbers, so that none is read."""
    now = clock.now() if u.past is None else u.past.at
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [midnight - timedelta(days=back) for back in range(days - 1, -2, -1)] if days else []
    # The newest commit before a day: one at midnight itself is of that day.
    before = [await u.backend.seq_at(each - timedelta(microseconds=1)) for each in begins]
    return [DayCount(at, after - first) for at, (first, after) in zip(begins, pairwise(before), strict=False)]


async def _count_things(u: Universe) -> list[ThingCount]:
    """Count what a user has in the rooms of a store, without what there is none of."""
    found = [each for name in await names_in_store(u) for each in await load_room(name).count_things(u)]
    return [ThingCount(*each) for each in found if each[1]]


def _count(details: dict[str, Any], name: str) -> int:
    found = details.get(name)
    return found if isinstance(found, int) else 0


async def _inspect(u: Universe) -> list[Finding]:
    if u.degraded is not None:
        return []
    try:
        return await upkeep_of(u.backend).inspect()
    except Unsupported:
        return []


class Doctor(Ask):
    """Input of `store.doctor`."""

    deep: Annotated[bool, option("look at every record and every index entry")] = False
    fix: Annotated[bool, option("repair what can be repaired safely")] = False
    damaged: Annotated[
        Literal["accept", "drop"] | None,
        option(
            "keep or remove what is left of commits that lost lines, in a folder of text files; drop also"
            " removes commits that were cut off"
        ),
    ] = None


def _only_looks(ask: Doctor) -> Effect | None:
    return None if ask.fix or ask.damaged else "read"


class Examination(msgspec.Struct, frozen=True):
    """The findings of an inspection."""

    healthy: bool
    findings: list[Finding]


@verb("store.doctor", effect="write", lighter=_only_looks, errors=(Corrupt, Unsupported), local=True)
async def doctor(context: Context, ask: Doctor) -> Examination:
    """Look for what is wrong with the store, and repair what is safe to repair."""
    u = await context.universe()
    if ask.damaged is not None:
        if not isinstance(u.backend, JSONLBackend):
            raise Unsupported("only a folder of text files has commits that lost lines")
        await u.backend.settle_damaged(accept=ask.damaged == "accept")
    findings = await upkeep_of(u.backend).inspect(deep=ask.deep, fix=ask.fix, progress=context.report)
    findings += await check_commit_times(u.backend)
    findings += await room.inspect(u, deep=ask.deep)
    findings += find_faults(await u.embedding(check=True))
    findings += await inspect_telemetry(u, ask.deep)
    findings += await inspect_tables(u, ask.deep)
    findings += _leftovers(context, ask.fix)
    bad = [each for each in findings if each.level == "problem" and not each.fixed]
    if not bad and u.storage.state.recovering:
        await u.storage.recover()
    return Examination(not bad, findings)


def _leftovers(context: Context, fix: bool) -> list[Finding]:
    """Return findings on files that killed processes left beside the constellation and its backups."""
    if context.folder is None:
        return []
    found = place.find_leftovers(context.folder)
    if not found:
        return [Finding("ok", "leftovers", "nothing unfinished lies beside it")]
    cleared = len(place.clear_leftovers(found)) if fix else 0
    names = ", ".join(path.name for path in found[:5])
    message = f"{len(found)} unfinished of killed processes: {names}"
    return [Finding("warning", "leftovers", message, fixable=True, fixed=cleared == len(found))]


class BackUpStore(Ask):
    """Input of `store.backup`."""

    to: Annotated[str | None, argument("a new folder; without it one under the data folder")] = None


@verb("store.backup", effect="read", errors=(InputError, Conflict, Unsupported), local=True)
async def backup(context: Context, ask: BackUpStore) -> backups.Backup:
    """Copy the whole constellation while it is in use, and prove that the copy opens."""
    u = await context.universe()
    return await backups.backup(u, context.folder, _target(context, ask.to), progress=context.report)


def _target(context: Context, to: str | None) -> Path:
    if to is not None:
        return Path(to)
    name = context.constellation or "store"
    folder = context.settings.places.data / "backups"
    make_private(folder)
    return folder / f"{name}-{clock.now():%Y%m%dT%H%M%SZ}-{os.getpid()}"


class CopyStore(Ask):
    """Input of `store.copy`."""

    to: Annotated[str, argument("the URL of a store that is empty, or an earlier copy of this one")]


@verb("store.copy", effect="read", errors=(InputError, Conflict, Corrupt), local=True)
async def copy(context: Context, ask: CopyStore) -> copies.Copied:
    """Copy everything to another store, whatever its engine, or bring an earlier copy up to date."""
    if spell_url(ask.to).startswith("memory:"):
        raise InputError("a copy in memory is gone at the end", hint="give the URL of a file", field="to")
    u = await context.universe()
    async with open_universe(ask.to, author=u.author) as target:
        return await copies.copy(u, target, progress=context.report)


class RestoreStore(Ask):
    """Input of `store.restore`."""

    source: Annotated[str, argument("the folder of a backup", complete="file")]
    to: Annotated[str | None, option("another constellation", complete="constellation")] = None
    replace: Annotated[bool, option("put it in the place of what is there, which is kept aside")] = False
    dry_run: DryRun = False


class RestoreResult(msgspec.Struct, frozen=True):
    """The restored store, and the folder that keeps the previous one."""

    path: str
    seq: int
    records: int
    kept: str | None
    forgotten: int
    dry_run: bool = False
    redacted: int = 0


@verb("store.restore", effect="destroy", errors=(Busy, Conflict, Corrupt, NotFound), local=True)
async def restore(context: Context, ask: RestoreStore) -> RestoreResult:
    """Restore a backup: unpack it beside the current store, verify, swap."""
    name = context.constellation if ask.to is None else ask.to
    if name is None:
        raise InputError("restore brings back constellations", hint="name one with --to", field="to")
    folder = constellation_folder(context.settings.places, name)
    found = backups.inspect_backup(Path(ask.source))
    if ask.dry_run:
        return RestoreResult(str(folder), found.seq, found.records, None, 0, True)
    done = await backups.restore(
        Path(ask.source),
        folder,
        replace=ask.replace,
        progress=context.report,
        storage=context.settings.storage,
    )
    return RestoreResult(done.path, done.seq, done.records, done.kept, done.forgotten, False, done.redacted)


class UpgradeStore(Ask):
    """Input of `store.upgrade`."""

    no_backup: Annotated[bool, option("make no backup of it first")] = False
    dry_run: DryRun = False


@verb("store.upgrade", effect="write", errors=(Busy, Corrupt, FormatTooNew, NotFound), local=True)
async def upgrade(context: Context, ask: UpgradeStore) -> Upgrade:
    """Upgrade the store to the storage format of this dgent, after a backup of it."""
    backend = backend_for(context.settings.url)
    return await upgrade_store(
        backend, backup=not ask.no_backup, dry_run=ask.dry_run, progress=context.report
    )
