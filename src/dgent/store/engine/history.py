"""Read earlier versions of records, and the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Literal

from dgent import clock
from dgent.errors import HistoryGone
from dgent.model import reserved
from dgent.store.backend import KINDS, Change, Item, PartView, Version, View
from dgent.store.engine.kernel import DELETE, FORGET, PUT, QUIET, SAME, Logged, LoggedOp, Reading
from dgent.store.engine.row import Row, datum_of, unpack_row
from dgent.store.engine.versions import DELTA


def version_at(reading: Reading, head: Row, as_of: int) -> Row | None:
    """Return the version of a record at a seq, with a plain body; None if there was none then."""
    if head.seq <= as_of:
        return head
    spans = reading.spans(head.record_key)
    by_then = [rev for rev, seq, _ in spans if seq <= as_of]
    if by_then:
        return version(reading, head, by_then[-1])
    rev, seq, _ = spans[0] if spans else (head.rev, head.seq, head.at)
    if rev > 1 and not _was_forgotten(reading, head.id, rev):
        raise HistoryGone(
            f"the version of {head.id!r} at commit {as_of} was pruned",
            hint=f"the oldest kept one is of commit {seq}",
            id=head.id,
            first_seq=seq,
        )
    return None


def _was_forgotten(reading: Reading, id: str, rev: int) -> bool:
    """Return whether the versions before this one were forgotten, so that none is missing."""
    reading.refresh()
    return reading.forgotten_rev(id) == rev - 1


def version(reading: Reading, head: Row, rev: int) -> Row | None:
    """Return one version of a record by its rev, with a plain body; None if it is not kept."""
    if head.rev == rev:
        return head
    past = reading.past(head.record_key, rev)
    if not past or past[-1].rev != rev:
        return None
    # Unpacked from the nearest newer one that stands alone, or from the newest of all.
    alone = max((place for place, row in enumerate(past) if row.enc != DELTA), default=0)
    newer = head
    for row in past[alone:]:
        base = newer
        newer = unpack_row(row, lambda base=base: base)  # type: ignore[misc]
    return newer


def history(reading: Reading, id: str, limit: int | None) -> list[Version]:
    """Return the kept versions of a record, newest first."""
    head = reading.head(id)
    if head is None:
        return []
    found = [_version(reading, head)]
    newer = head
    for row in islice(reading.past(head.record_key), None if limit is None else limit - 1):
        base = newer
        newer = unpack_row(row, lambda base=base: base)  # type: ignore[misc]
        found.append(_version(reading, newer))
    return found


def _version(reading: Reading, row: Row) -> Version:
    datum = datum_of(row, reading.name) if row.live else None
    # Commits that are left below the floor say where the log stands, or know a retry, and nothing else.
    logged = reading.read_commit(row.seq) if row.seq > reading.floor() else None
    author, note = (None, None) if logged is None else (reading.name(logged.author), logged.note)
    op: Literal["put", "delete"] = "put" if row.live else "delete"
    return Version(row.id, row.rev, row.seq, clock.from_us(row.at), op, datum, author, note)


LARGE = 500  # records of a commit that are all read, also where only some are asked for
LOOKED_AT = 50  # records of a larger one that say what it is about


def changes(reading: Reading, since: int, limit: int, items: int | None = None) -> list[Change]:
    """Return commits after a seq that have something for the feed, in order.

    With `items`, at least so many records of each, and of a large commit no more than it takes.
    """
    check_floor(reading, since)
    found: list[Change] = []
    while len(found) < limit:
        batch = reading.log(since, limit)
        for logged in batch:
            since = logged.seq
            change = _change(reading, logged, items)
            if (change.items or change.more) and len(found) < limit:
                found.append(change)
        if len(batch) < limit:
            break
    return found


def check_floor(reading: Reading, seq: int) -> None:
    """Refuse to read from before the history that is complete."""
    floor = reading.floor()
    if seq < floor:
        raise HistoryGone(
            f"the history up to commit {floor} was pruned",
            hint=f"start from seq {floor}",
            first_seq=floor + 1,
        )


def _change(reading: Reading, logged: Logged, most: int | None) -> Change:
    ops = [op for op in logged.ops if not (op[0] & QUIET or op[0] == SAME)]
    more = 0
    if most is not None and len(ops) > max(LARGE, most):
        # What a commit did to things of rooms is told by all their records: those are read whole.
        some = _list_items(reading, ops[: max(LOOKED_AT, most)])
        if not any(reserved.is_reserved(item.schema) for item in some):
            ops, more = ops[:most], len(ops) - most
    return Change(
        logged.seq,
        clock.from_us(logged.at),
        reading.name(logged.author),
        KINDS[logged.kind],
        tuple(_list_items(reading, ops)),
        logged.note,
        logged.of_seq,
        more=more,
    )


def _list_items(reading: Reading, ops: Sequence[LoggedOp]) -> list[Item]:
    """Return the records of some ops, as far as they are kept."""
    items = []
    for code, record_key, rev in ops:
        if code == FORGET:
            items.append(Item("forget", None, rev))
            continue
        head = reading.row(record_key)
        if head is None:
            continue
        row = version(reading, head, rev - 1 if code == DELETE else rev)
        datum = None if row is None else datum_of(row, reading.name)
        schema = datum.schema if datum is not None else reading.name(head.schema) or None
        if code == DELETE:
            items.append(Item("delete", head.id, rev, schema, None, datum))
        else:
            items.append(Item("put", head.id, rev, schema, datum))
    return items


def find_changed(
    reading: Reading, schemas: Collection[str] | None, view: View, as_of: int
) -> dict[int, Row | None]:
    """Return the rows, as of a seq, of every record that changed after it and can be in the answer.

    None stands for one that was not live then. What follows from other records has no past: it never was.
    Raises HistoryGone for a pruned version, of one of the schemas if these are given.
    """
    touched: dict[int, tuple[int, int]] = {}  # the code and rev of the first op after it, by record
    for logged in reading.log(as_of, None):
        for code, record_key, rev in logged.ops:
            if record_key not in touched:
                touched[record_key] = code & ~QUIET, rev
    found: dict[int, Row | None] = {}
    for record_key, first in touched.items():
        if first == (PUT, 1):
            found[record_key] = None  # it was made later, so none of it is read
            continue
        head = reading.row(record_key)
        if head is None or head.seq <= as_of:
            continue
        if reading.name(head.schema) in reserved.UNSHARED:
            found[record_key] = None
            continue
        try:
            row, gone = version_at(reading, head, as_of), False
        except HistoryGone:
            if isinstance(view, PartView):
                row, gone = _next_kept(reading, head), True
            elif schemas is None or _was_of(reading, head, schemas):
                raise
            else:
                continue
        if isinstance(view, PartView) and gone != view.gone:
            continue
        found[record_key] = row if row is not None and row.live else None
    return found


def _next_kept(reading: Reading, head: Row) -> Row | None:
    """Return the oldest kept version of a record that is not a deletion."""
    kept = (version(reading, head, rev) for rev, _, _ in reading.spans(head.record_key))
    return next((row for row in (*kept, head) if row is not None and row.live), None)


def _was_of(reading: Reading, head: Row, schemas: Collection[str]) -> bool:
    """Return whether any kept version of a record is of one of some schemas."""
    return any(reading.name(row.schema) in schemas for row in (head, *reading.past(head.record_key)))
