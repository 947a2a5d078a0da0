"""Import the histories of stashes. The history of a stash is that of its record, so it is replayed.

Each round writes the next version of every stash in one commit. The last versions are written with the rest
of the folder. An interrupted import continues from there when it is repeated.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.cupboard.record import StashRecord
from dgent.exchange.foreign.fields import NOTE, SourceRow, Times, read_times
from dgent.exchange.foreign.incoming import group_newest_first
from dgent.exchange.foreign.origin import format_time, make_extra, read_note

if TYPE_CHECKING:
    from collections.abc import Callable

    from dgent.cupboard.change import Changeset
    from dgent.cupboard.cupboard import Cupboard
    from dgent.exchange.foreign.report import Existing


class StashHistory(NamedTuple):
    """A stash of a folder: its versions, oldest first, and the invalid lines of its history."""

    row: SourceRow
    when: Times
    versions: list[StashRecord]
    odd: list[tuple[SourceRow, str]]


def read_histories(
    rows: dict[str, list[SourceRow]], changed_at: dict[str, datetime]
) -> tuple[list[StashHistory], list[SourceRow]]:
    """Return the stashes of a folder with their versions, and history lines of missing stashes."""
    entries: dict[str, list[SourceRow]] = {}
    for row in rows["stash_history"]:
        entries.setdefault(row.fields["stash_id"], []).append(row)
    found = []
    for row in rows["stashes"]:
        mine = entries.pop(row.fields["stash_id"], [])
        found.append(_read_history(row, mine, changed_at))
    return found, [row for left in entries.values() for row in left]


def _read_history(row: SourceRow, entries: list[SourceRow], changed_at: dict[str, datetime]) -> StashHistory:
    given = row.fields
    when = read_times(row, changed_at[row.file])
    version = given["version"] or max((each.fields["version"] for each in entries), default=1)
    operation = given["last_operation"] or ("create" if version == 1 else "set")
    last = StashRecord(
        given["name"],
        given["stash_type"],
        when.updated_at,
        given["value"],
        version,
        operation,
        given["changed_by"],
        "",
        extra=row.extra(),
    )
    odd: list[tuple[SourceRow, str]] = []
    versions: list[StashRecord] = []

    def fits(entry: SourceRow) -> bool:
        return bool(entry.fields["version"] != version or entry.fields["value"] == given["value"])

    for number, same in sorted(
        group_newest_first(entries, lambda each: each.fields["version"], fits).items()
    ):
        entry, *others = same
        # Where none of them fits, all are reported, whatever their order.
        if number > version:
            odd += [(each, f"its stash is only at version {version}") for each in same]
            continue
        if not fits(entry):
            odd += [(each, "its stash has another value in this version") for each in same]
            continue
        odd += [(each, "another line has the same version of this stash") for each in others]
        if number == version:
            last = _make_version(last, row, entry, changed_at[entry.file], when.stated)
        else:
            versions.append(_make_version(last, row, entry, changed_at[entry.file], False))
    return StashHistory(row, when, [*versions, last], odd)


def _make_version(
    stash: StashRecord, row: SourceRow, entry: SourceRow, changed_at: datetime, stated: bool
) -> StashRecord:
    """Return a version of a stash from its line of the history; `stated`: the stash's own line has a time."""
    given = entry.fields
    when = read_times(entry, changed_at).created_at
    written = dict(row.written)
    if stated and when != stash.updated_at:
        # A record has one time; the line of the stash may have another than the last of its history.
        kept = written["updated_at"][1] if "updated_at" in written else format_time(stash.updated_at)
        written["updated_at"] = [format_time(when), kept]
    beside = {"unknown": make_extra(entry.unknown, NOTE, {}), "written": entry.written}
    history = {name: value for name, value in beside.items() if value}
    if history:
        history["id"] = given["history_id"]
    return replace(
        stash,
        version=given["version"],
        value=given["value"],
        operation=given["operation"],
        changed_by=given["changed_by"],
        history_id=given["history_id"],
        updated_at=when,
        extra=row._replace(written=written).extra(history=history),
    )


def read_history_extra(record: StashRecord) -> dict[str, Any]:
    """Return the unknown fields and the note of a version's line of the history."""
    history = read_note(record.extra, NOTE).get("history")
    if not isinstance(history, dict) or history.get("id") != record.history_id:
        return {}
    unknown: dict[str, Any] = dict(history.get("unknown", {}))
    if history.get("written"):
        unknown[NOTE] = {**read_note(unknown, NOTE), "written": history["written"]}
    return unknown


# -- replay -----------------------------------------------------------------------------------


class HistoryImport(NamedTuple):
    """The import of a stash: its first missing version; with `restart` the stored stash is deleted first."""

    history: StashHistory
    start: int
    known: bool = True
    restart: bool = False

    @property
    def id(self) -> str:
        """The id of the stash."""
        found: str = self.history.row.fields["stash_id"]
        return found

    @property
    def behind(self) -> bool:
        """True when the store lacks some of its versions."""
        return self.start < len(self.history.versions)


async def compare_history(cupboard: Cupboard, history: StashHistory, existing: Existing) -> HistoryImport:
    """Compare the history of a stash with the stored one: none, some, all, or another one."""
    stored = await cupboard.stashes.records(history.row.fields["stash_id"])
    if not stored:
        return HistoryImport(history, 0, known=False)
    ours, theirs = [_key(each) for each in stored], [_key(each) for each in history.versions]
    if ours[-1] in theirs and existing != "skip":
        return HistoryImport(history, theirs.index(ours[-1]) + 1)
    newer = history.versions[-1].updated_at > stored[-1].updated_at
    if theirs[-1] not in ours and (existing == "replace" or (existing == "newer" and newer)):
        return HistoryImport(history, 0, restart=True)
    return HistoryImport(history, len(theirs))


def _key(record: StashRecord) -> tuple[Any, ...]:
    value = (record.value, record.operation, record.changed_by)
    return (record.version, record.history_id, *value, record.updated_at)


async def replay(cupboard: Cupboard, imports: list[HistoryImport], pace: Callable[[], None]) -> int | None:
    """Write all versions but the last; return the last commit made, if any."""
    seq = await _commit(cupboard, _clear, [each for each in imports if each.restart])
    rounds = max((len(each.history.versions) - 1 - each.start for each in imports), default=0)
    for number in range(rounds):
        some = [each for each in imports if each.start + number < len(each.history.versions) - 1]
        due = [each._replace(start=each.start + number) for each in some]
        seq = await _commit(cupboard, _put_version, due) or seq
        pace()
    return seq


async def _commit(
    cupboard: Cupboard, step: Callable[[Changeset, HistoryImport], None], imports: list[HistoryImport]
) -> int | None:
    if not imports:
        return None

    async def work(changeset: Changeset) -> None:
        await changeset.load(each.id for each in imports)
        for each in imports:
            step(changeset, each)

    _, changeset = await cupboard._change(work, "import: histories of stashes")
    return None if changeset.tx.committed is None else changeset.tx.committed.seq


def _clear(changeset: Changeset, entry: HistoryImport) -> None:
    changeset.drop(entry.id)


def _put_version(changeset: Changeset, entry: HistoryImport) -> None:
    changeset.put(entry.id, entry.history.versions[entry.start], created_at=entry.history.when.created_at)
