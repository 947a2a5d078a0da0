"""Verbs that look back: versions, differences, the log, undo, and following what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from dgent.errors import Conflict, Denied, HistoryGone, InputError, NotFound, UndoConflict
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.backend import Change, Item, Keep, Version
from dgent.universe.history import find_redoable, find_undoable, read_back, revertible
from dgent.universe.origin import lowest_trust, read_origin
from dgent.universe.room import Describers, names_in_store
from dgent.universe.universe import Universe
from dgent.verbs import parse, room
from dgent.verbs.context import Context
from dgent.verbs.cupboard.answer import Work
from dgent.verbs.data.answer import ChangeResult, Record, record_of
from dgent.verbs.data.record import All, DryRun, FindRecords, find_record, query_of
from dgent.verbs.origin import LowTrust, mark_of
from dgent.verbs.registry import Ask, Items, PastAsk, argument, option, verb

COMMITS = "`dgent log` lists them"
SHOWN = 100  # records of each commit that a log lists


class RecordVersion(msgspec.Struct, frozen=True):
    """One version of a record in its history; `record` is None for a deletion."""

    id: str
    rev: int
    seq: int
    at: datetime
    op: Literal["put", "delete"]
    author: str | None
    note: str | None
    record: Record | None


class RecordHistory(PastAsk):
    """Input of `data.history`."""

    id: Annotated[str, argument("the record's id", complete="id")]
    limit: Annotated[int | None, option("at most so many", short="n")] = None


@verb("data.history", effect="read", errors=(NotFound,))
async def history(context: Context, ask: RecordHistory) -> Items[RecordVersion]:
    """List the versions of a record, newest first."""
    u = await context.universe(ask.as_of)
    return Items([version_of(version) for version in await _versions(u, ask.id, ask.limit)])


def version_of(version: Version) -> RecordVersion:
    """Return a version as doors show it."""
    datum = version.datum
    record = None if datum is None else record_of(datum, version.author)
    return RecordVersion(
        version.id,
        version.rev,
        version.seq,
        version.at,
        version.op,
        version.author,
        version.note,
        record,
    )


async def _versions(u: Universe, id: str, limit: int | None = None) -> list[Version]:
    versions = await u.history(id, limit=limit)
    if not versions:
        versions = await u.history((await find_record(u, id)).id, limit=limit)
    return versions


class RecordDifference(msgspec.Struct, frozen=True):
    """One path at which two versions differ; an absent value is left out of the JSON."""

    path: str
    old: Any = msgspec.UNSET
    new: Any = msgspec.UNSET


class RecordDiff(msgspec.Struct, frozen=True):
    """The differences of two versions of a record: path by path, and as text lines."""

    id: str
    old_rev: int
    new_rev: int
    differences: list[RecordDifference]
    unified: list[str]


class Between(Ask):
    """Input of `data.diff`."""

    id: Annotated[str, argument("the record's id", complete="id")]
    old: Annotated[int | None, argument("a rev; without it the one before `new`")] = None
    new: Annotated[int | None, argument("a rev; without it the newest")] = None


@verb("data.diff", effect="read", errors=(NotFound, HistoryGone))
async def diff(context: Context, ask: Between) -> RecordDiff:
    """Show how two versions of a record differ."""
    u = await context.universe()
    versions = {version.rev: version for version in await _versions(u, ask.id)}
    newest = max(versions)
    new = newest if ask.new is None else ask.new
    old = max((rev for rev in versions if rev < new), default=new) if ask.old is None else ask.old
    for rev in (old, new):
        if rev not in versions:
            kept = f"kept are {min(versions)} to {newest}"
            raise NotFound(f"{ask.id!r} has no rev {rev}", hint=kept, id=ask.id, rev=rev)
    before, after = _comparable(versions[old]), _comparable(versions[new])
    for name in [*before.keys() & after.keys()]:
        if name != "data" and before[name] == after[name]:
            del before[name], after[name]
    return RecordDiff(
        versions[new].id,
        old,
        new,
        list(_differences(before, after, "")),
        _diff_lines(before, after, f"rev {old}", f"rev {new}"),
    )


def _comparable(version: Version) -> dict[str, Any]:
    """Return what diff compares of a version: envelope and data, without numbers. Empty for a deletion."""
    if version.datum is None:
        return {}
    record: dict[str, Any] = msgspec.to_builtins(record_of(version.datum))
    for name in ("id", "rev", "seq", "created_at", "updated_at", "problem"):
        del record[name]
    record.pop("origin", None)  # which the source says
    return {name: value for name, value in record.items() if value not in (None, [])}


def _differences(old: Any, new: Any, at: str) -> Iterator[RecordDifference]:
    """List the smallest differences: maps are compared by key, lists by position."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            here = f"{at}.{key}" if at else key
            yield from _differences(old.get(key, msgspec.UNSET), new.get(key, msgspec.UNSET), here)
    elif isinstance(old, list) and isinstance(new, list):
        for place in range(max(len(old), len(new))):
            here, there = ([*each, *[msgspec.UNSET] * (place + 1 - len(each))][place] for each in (old, new))
            yield from _differences(here, there, f"{at}.{place}")
    elif type(old) is not type(new) or old != new:
        yield RecordDifference(at, old, new)


def _diff_lines(old: dict[str, Any], new: dict[str, Any], old_name: str, new_name: str) -> list[str]:
    import difflib

    return list(difflib.unified_diff(_pretty(old), _pretty(new), old_name, new_name, lineterm=""))


def _pretty(value: dict[str, Any]) -> list[str]:
    raw = msgspec.json.encode(value, order="deterministic")
    return msgspec.json.format(raw, indent=2).decode().splitlines()


class CommitItem(msgspec.Struct, frozen=True):
    """One record that a commit changed; `before` is what a deletion removed."""

    op: Literal["put", "delete", "forget"]
    id: str | None
    rev: int
    schema: str | None
    record: Record | None
    before: Record | None = None


class LogEntry(msgspec.Struct, frozen=True):
    """One commit in the log; without a number when it is `provisional`, because the store is unavailable.

    `summary` says in a sentence each what it did to crumbs, blocks and other things of rooms. `more` are the
    records that were left out, if only some were asked for. `origin` is the lowest of its records', where
    that is less than a partner's.
    """

    seq: int | None
    at: datetime
    author: str
    kind: str
    note: str | None
    of_seq: int | None
    items: list[CommitItem]
    provisional: bool = False
    summary: list[str] = []
    more: int = 0
    origin: LowTrust = msgspec.UNSET


class Log(msgspec.Struct, frozen=True):
    """Commits; `first_seq` is the oldest that is still kept, and `work` the work in progress."""

    items: list[LogEntry]
    first_seq: int = 0
    work: Work | None = None


class Back(Ask):
    """Input of `data.log`."""

    limit: Annotated[int, option("at most so many", short="n")] = 20
    before: Annotated[int | None, option("commits before this one")] = None
    since: Annotated[str | None, option("then or later: a time, or 2h for two hours ago")] = None
    author: Annotated[str | None, option("by this author")] = None
    id: Annotated[str | None, option("that touched this record", complete="id")] = None
    schema: Annotated[str | None, option("that touched this schema", short="s", complete="schema")] = None
    all: All = False
    records: Annotated[int, option("at most so many records of each commit")] = SHOWN


@verb("data.log", effect="read", errors=(InputError,))
async def log(context: Context, ask: Back) -> Log:
    """Show the commits, newest first."""
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    if ask.records < 0:
        raise InputError("records must be a number from 0", field="records")
    u = await context.universe()
    kept = (await u.stats()).first_seq
    first, last = kept, await u.seq()
    last = last if ask.before is None else min(ask.before - 1, last)
    if ask.since is not None:
        # Commit times never go back, so what is older lies before one commit.
        first = max(first, await u.backend.seq_at(parse.moment(ask.since, "since")) + 1)
    whole = ask.all or ask.id is not None or ask.schema is not None
    describers = describers_of(context, u)
    entries: list[LogEntry] = []
    named = ask.id is not None or ask.schema is not None  # only all records say whether it is among them
    async for change in read_back(u, first - 1, last, ask.limit, None if named else ask.records):
        entry = await describe(change, describers, whole, ask.records) if _is_wanted(change, ask) else None
        entries += [] if entry is None else [entry]
        if len(entries) == ask.limit:
            break
    # A filtered log is not a question about work.
    glance = ask == Back(limit=ask.limit, records=ask.records)
    return Log(entries, kept, await room.work(u) if glance else None)


def describers_of(context: Context, u: Universe) -> Describers:
    """Return what describes commits to the caller; a partner sees everything."""
    caller = context.caller
    return Describers(u, None if caller.trust == "partner" else caller.agent or caller.id)


async def describe(
    change: Change, describers: Describers, whole: bool, most: int | None = None
) -> LogEntry | None:
    """Return a commit with what it did in sentences; its records of rooms only if `whole`, at most so many.

    None for a commit of which nothing would be left: it is upkeep of dgent itself.
    """
    done = [each.sentence for each in await describers.describe(change)]
    items = [item for item in change.items if whole or not reserved.is_reserved(item.schema)]
    if change.items and not items and not done and not change.more:
        return None
    shown = entry_of(change, items[:most])
    more = len(items) - len(shown.items) + change.more
    return msgspec.structs.replace(shown, summary=done, more=more)


def entry_of(change: Change, items: Sequence[Item] | None = None) -> LogEntry:
    """Return a commit as doors show it, with all its records or with these."""
    listed = [_item_of(item, change.author) for item in (change.items if items is None else items)]
    return LogEntry(
        change.seq,
        change.at,
        change.author,
        change.kind,
        change.note,
        change.of_seq,
        listed,
        change.provisional,
        origin=_origin_of(change),
    )


def _origin_of(change: Change) -> LowTrust:
    """Return the lowest class of origin of what a commit stored."""
    stored = [read_origin(_datum(each.datum)) for each in change.items if each.datum is not None]
    return mark_of(lowest_trust("partner", *stored))


def _item_of(item: Item, author: str) -> CommitItem:
    record = None if item.datum is None else record_of(_datum(item.datum), author)
    before = None if item.last is None else record_of(_datum(item.last))
    return CommitItem(item.op, item.id, item.rev, item.schema, record, before)


def _datum(thing: Any) -> Datum:
    found: Datum = thing if isinstance(thing, Datum) else thing.datum
    return found


def _is_wanted(change: Any, ask: Back) -> bool:
    return (
        ask.author in (None, change.author)
        and (ask.id is None or any(item.id == ask.id for item in change.items))
        and (ask.schema is None or any(item.schema == ask.schema for item in change.items))
    )


class WholeCommit(LogEntry, frozen=True):
    """One commit, drawn with its records whole."""


class GetCommit(Ask):
    """Input of `data.get-commit`."""

    seq: Annotated[int, argument("the number of the commit")]
    records: Annotated[int | None, option("at most so many records of it")] = None


@verb("data.get-commit", effect="read", errors=(NotFound, HistoryGone))
async def get_commit(context: Context, ask: GetCommit) -> WholeCommit:
    """Show one commit with what it changed."""
    u = await context.universe()
    most = None if ask.records is None else max(ask.records, 0)
    kept = 1 <= ask.seq <= await u.seq()
    changes = await u.changes(ask.seq - 1, until=ask.seq, items=most) if kept else []
    if not changes:
        raise NotFound(f"there is no commit {ask.seq}", hint=COMMITS, seq=ask.seq)
    done = [each.sentence for each in await describers_of(context, u).describe(changes[0])]
    items = changes[0].items[:most]
    entry = entry_of(changes[0], items)
    more = len(changes[0].items) - len(items) + changes[0].more
    return WholeCommit(**msgspec.structs.asdict(entry) | {"summary": done, "more": more})


class ChangesSince(Ask):
    """Input of `data.changes`."""

    since: Annotated[int, argument("commits after this one")] = 0
    limit: Annotated[int, option("at most so many", short="n")] = 1000


@verb("data.changes", effect="read", errors=(HistoryGone,))
async def changes(context: Context, ask: ChangesSince) -> Log:
    """List the commits after one, oldest first: the feed."""
    u = await context.universe()
    return Log([entry_of(change) for change in await u.changes(ask.since, limit=ask.limit)])


class UndoCommit(Ask):
    """Input of `data.undo`."""

    seq: Annotated[
        int | None, argument("the number of the commit; without it the newest that is not undone")
    ] = None
    only: Annotated[tuple[str, ...], option("only these records of it", complete="id")] = ()
    force: Annotated[bool, option("also where a record has changed since")] = False
    dry_run: DryRun = False


@verb("data.undo", effect="write", errors=(NotFound, Conflict, HistoryGone))
async def undo(context: Context, ask: UndoCommit) -> ChangeResult:
    """Put back what a commit changed, as a new commit."""
    u = await context.universe()
    newest = await u.seq()
    describers = describers_of(context, u)
    seq = await find_undoable(u, describers) if ask.seq is None else ask.seq
    if seq is None:
        raise NotFound("there is nothing to undo", hint=COMMITS)
    if not 1 <= seq <= newest:
        raise NotFound(f"there is no commit {seq}", hint=COMMITS, seq=seq)
    return await _revert(u, seq, ask, describers)


class RedoCommit(Ask):
    """Input of `data.redo`."""

    force: Annotated[bool, option("also where a record has changed since")] = False
    dry_run: DryRun = False


@verb("data.redo", effect="write", errors=(NotFound, Conflict, HistoryGone))
async def redo(context: Context, ask: RedoCommit) -> ChangeResult:
    """Take back the newest undo, unless something was changed after it."""
    u = await context.universe()
    describers = describers_of(context, u)
    seq = await find_redoable(u, describers)
    if seq is None:
        hint = f"only an undo that nothing came after can be taken back; {COMMITS}, `dgent undo N` undoes any"
        raise NotFound("there is nothing to redo", hint=hint)
    again = UndoCommit(force=ask.force, dry_run=ask.dry_run)
    return msgspec.structs.replace(await _revert(u, seq, again, describers), redo=True)


async def _revert(u: Universe, seq: int, ask: UndoCommit, describers: Describers) -> ChangeResult:
    """Undo a commit; the answer says what came back, and of a dry run what the commit had done."""
    change = next(iter(await u.changes(seq - 1, until=seq)), None)
    u.rooms.update(await names_in_store(u))
    try:
        if ask.dry_run:
            planned = await revertible(u, seq, set(ask.only) or None, ask.force)
            summary = [] if change is None else await _summarize(change, describers)
            return ChangeResult(None, [each.id for each in planned], True, summary=summary, of_seq=seq)
        done = await u.undo(seq, only=ask.only or None, force=ask.force)
    except UndoConflict as error:
        error.hint = "undo the later commits first, or choose with only, or use force"
        raise
    except Denied as error:
        acted = [] if change is None else await describers.describe(change)
        block = next((each for each in acted if each.kind == "block"), None)
        if block is None:
            raise
        other = await find_undoable(u, describers, keeps=True)
        hint = f"`dgent block undo {block.name}` undoes it"
        hint += "" if other is None else f"; `dgent undo {other}` undoes the last change of something else"
        message = f"commit {seq} is of a block, and blocks have an undo of their own: {block.sentence}"
        raise Denied(message, hint=hint, seq=seq, block=block.name) from error
    written = [each.id for each in done.written if each.changed and each.id is not None]
    made = [] if done.seq is None else await u.changes(done.seq - 1, until=done.seq)
    summary = await _summarize(made[0], describers) if made else []
    return ChangeResult(done.seq, written, summary=summary, of_seq=seq)


async def _summarize(change: Change, describers: Describers) -> list[str]:
    """Return what a commit did in sentences without their author, records of no room included."""
    told = [each.text for each in await describers.describe(change)]
    for item in change.items:
        if not reserved.is_reserved(item.schema) and item.id is not None:
            back = item.rev > 1 and await _was_gone(describers.universe, change, item)
            words = {"put": "brought back" if back else "put back"}.get(item.op, "took back")
            told.append(f"{words} {item.id}")
    return told


async def _was_gone(u: Universe, change: Change, item: Item) -> bool:
    """Check whether a record was deleted before a commit."""
    assert change.seq is not None and item.id is not None
    try:
        return await u.get(item.id, as_of=change.seq - 1, raw=True) is None
    except HistoryGone:
        return False


class Watch(FindRecords):
    """Input of `data.watch`."""

    from_seq: Annotated[int | None, option("start after this commit; without it from now on")] = None
    all: All = False


@verb("data.watch", effect="read", errors=(HistoryGone, InputError))
async def watch(context: Context, ask: Watch) -> AsyncIterator[LogEntry]:
    """Follow commits as they happen."""
    u = await context.universe()
    if ask.as_of is not None:
        raise InputError("watch looks forward", hint="use from_seq to start earlier", field="as_of")
    filters = ask != Watch(from_seq=ask.from_seq, all=ask.all)
    wanted = query_of(ask).replace(limit=None) if filters else None
    describers = describers_of(context, u)
    async for change in u.watch(ask.from_seq, query=wanted):
        entry = await describe(change, describers, ask.all or filters)
        if entry is not None:
            yield entry


class CompactData(Ask):
    """Input of `data.compact`."""

    versions: Annotated[int | None, option("keep so many old versions of each record")] = None
    days: Annotated[float | None, option("keep what is younger than so many days")] = None
    schema: Annotated[str | None, option("only of this schema", short="s", complete="schema")] = None

    def __post_init__(self) -> None:
        if (self.versions is None) == (self.days is None):
            raise ValueError("needs one of --versions 10 and --days 30")
        if self.days is not None and not 0 <= self.days < 1_000_000:
            raise ValueError("days must be a number from 0")


class CompactResult(msgspec.Struct, frozen=True):
    """The pruned versions and commits, counted; `first_seq` is the oldest commit that is still kept."""

    versions: int
    commits: int
    first_seq: int


@verb("data.compact", effect="destroy", errors=(InputError,))
async def compact(context: Context, ask: CompactData) -> CompactResult:
    """Prune old versions."""
    from dgent import clock

    u = await context.universe()
    after = None if ask.days is None else clock.now() - timedelta(days=ask.days)
    done = await u.compact(Keep(versions=ask.versions, after=after, schema=ask.schema))
    return CompactResult(done.versions, done.commits, done.first_seq)
