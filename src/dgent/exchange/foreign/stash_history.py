"""The histories of stashes. A stash's history is the history of its record, so it is lived through again.

Each version is one commit, in which all stashes that have such a version take part. The last one comes with
the rest of the folder. So an import that is cut short goes on from there when it is repeated.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.cupboard.record import StashRecord
from dgent.exchange.foreign.fields import NOTE, Row, Times, stamp, times
from dgent.exchange.foreign.incoming import later
from dgent.exchange.foreign.origin import extra_of, note_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dgent.cupboard.change import Draft
    from dgent.cupboard.cupboard import Cupboard
    from dgent.exchange.foreign.report import Existing


class Life(NamedTuple):
    """A stash of a folder: its versions, oldest first, and the lines of its history that are none of them."""

    row: Row
    when: Times
    versions: list[StashRecord]
    odd: list[tuple[Row, str]]


def lives(rows: dict[str, list[Row]], changed_at: dict[str, datetime]) -> tuple[list[Life], list[Row]]:
    """The stashes of a folder with their versions; and the history of stashes that are not there."""
    entries: dict[str, list[Row]] = {}
    for row in rows["stash_history"]:
        entries.setdefault(row.fields["stash_id"], []).append(row)
    found = []
    for row in rows["stashes"]:
        mine = entries.pop(row.fields["stash_id"], [])
        found.append(_life(row, mine, changed_at))
    return found, [row for left in entries.values() for row in left]


def _life(row: Row, entries: list[Row], changed_at: dict[str, datetime]) -> Life:
    given = row.fields
    when = times(row, changed_at[row.file])
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
    odd: list[tuple[Row, str]] = []
    versions: list[StashRecord] = []

    def fits(entry: Row) -> bool:
        return bool(entry.fields["version"] != version or entry.fields["value"] == given["value"])

    for number, same in sorted(later(entries, lambda each: each.fields["version"], fits).items()):
        entry, *others = same
        # Where none of them fits they are all odd alike, in whatever order they stand.
        if number > version:
            odd += [(each, f"its stash is only at version {version}") for each in same]
            continue
        if not fits(entry):
            odd += [(each, "its stash has another value in this version") for each in same]
            continue
        odd += [(each, "another line has the same version of this stash") for each in others]
        if number == version:
            last = _version(last, row, entry, changed_at[entry.file], when.told)
        else:
            versions.append(_version(last, row, entry, changed_at[entry.file], False))
    return Life(row, when, [*versions, last], odd)


def _version(stash: StashRecord, row: Row, entry: Row, changed_at: datetime, told: bool) -> StashRecord:
    """A version of a stash, by its line of the history; `told` is whether the stash's own line has a time."""
    given = entry.fields
    when = times(entry, changed_at).created_at
    written = dict(row.written)
    if told and when != stash.updated_at:
        # A record has one time; the stash's own line may say another than the last one of its history.
        kept = written["updated_at"][1] if "updated_at" in written else stamp(stash.updated_at)
        written["updated_at"] = [stamp(when), kept]
    beside = {"unknown": extra_of(entry.unknown, NOTE, {}), "written": entry.written}
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


def history_extra(record: StashRecord) -> dict[str, Any]:
    """What a version keeps of its line of the history beside its fields."""
    history = note_of(record.extra, NOTE).get("history")
    if not isinstance(history, dict) or history.get("id") != record.history_id:
        return {}
    unknown: dict[str, Any] = dict(history.get("unknown", {}))
    if history.get("written"):
        unknown[NOTE] = {**note_of(unknown, NOTE), "written": history["written"]}
    return unknown


# -- living them again ----------------------------------------------------------------------


class Lived(NamedTuple):
    """What is to be done about a stash: from which version on, and whether what is there goes first."""

    life: Life
    start: int
    known: bool = True
    anew: bool = False

    @property
    def id(self) -> str:
        """The stash's id."""
        found: str = self.life.row.fields["stash_id"]
        return found

    @property
    def behind(self) -> bool:
        """Whether the store lacks some of its versions."""
        return self.start < len(self.life.versions)


async def compared(cupboard: Cupboard, life: Life, existing: Existing) -> Lived:
    """How much of a stash's life the store has: none, some, all, or another one."""
    stored = await cupboard.stashes.records(life.row.fields["stash_id"])
    if not stored:
        return Lived(life, 0, known=False)
    ours, theirs = [_key(each) for each in stored], [_key(each) for each in life.versions]
    if ours[-1] in theirs and existing != "skip":
        return Lived(life, theirs.index(ours[-1]) + 1)
    newer = life.versions[-1].updated_at > stored[-1].updated_at
    if theirs[-1] not in ours and (existing == "replace" or (existing == "newer" and newer)):
        return Lived(life, 0, anew=True)
    return Lived(life, len(theirs))


def _key(record: StashRecord) -> tuple[Any, ...]:
    value = (record.value, record.operation, record.changed_by)
    return (record.version, record.history_id, *value, record.updated_at)


async def replay(cupboard: Cupboard, lived: list[Lived], pace: Callable[[], None]) -> int | None:
    """Write all versions but the last; the last commit that took."""
    seq = await _commit(cupboard, _clear, [each for each in lived if each.anew])
    rounds = max((len(each.life.versions) - 1 - each.start for each in lived), default=0)
    for number in range(rounds):
        some = [each for each in lived if each.start + number < len(each.life.versions) - 1]
        due = [each._replace(start=each.start + number) for each in some]
        seq = await _commit(cupboard, _live, due) or seq
        pace()
    return seq


async def _commit(cupboard: Cupboard, step: Callable[[Draft, Lived], None], lived: list[Lived]) -> int | None:
    if not lived:
        return None

    async def work(draft: Draft) -> None:
        await draft.load(each.id for each in lived)
        for each in lived:
            step(draft, each)

    _, draft = await cupboard._change(work, "import: histories of stashes")
    return None if draft.tx.committed is None else draft.tx.committed.seq


def _clear(draft: Draft, lived: Lived) -> None:
    draft.drop(lived.id)


def _live(draft: Draft, lived: Lived) -> None:
    draft.put(lived.id, lived.life.versions[lived.start], created_at=lived.life.when.created_at)
