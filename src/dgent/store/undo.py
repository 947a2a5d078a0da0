"""Finding out what undoing a commit would mean."""

from __future__ import annotations

from dgent.errors import Corrupt, HistoryGone, NotFound, Unsupported
from dgent.store import select
from dgent.store.backend import KINDS, Reverted
from dgent.store.kernel import FORGET, QUIET, SAME, Reading
from dgent.store.row import Row, datum_of


def reverted(reading: Reading, seq: int) -> list[Reverted]:
    """For each record that a commit changed: what it was before, and where it stands now.

    Records that are neither on the feed nor in the history, such as heartbeats, are left out.
    """
    select.check_floor(reading, max(seq - 1, 0))
    logged = reading.logged(seq)
    if logged is None:
        raise NotFound(f"there is no commit {seq}", seq=seq)
    if any(code & ~QUIET == FORGET for code, _, _ in logged.ops):
        raise Unsupported(f"commit {seq} forgot records for good", hint=f"it is of kind {KINDS[logged.kind]}")
    found = []
    for code, dk, rev in logged.ops:
        if code == SAME:
            continue
        head = reading.row(dk)
        if head is None:
            raise HistoryGone(f"a record of commit {seq} was forgotten", seq=seq)
        before = None if rev == 1 else select.version(reading, head, rev - 1)
        if before is None and rev > 1 and reading.forgotten_rev(head.id) != rev - 1:
            if code & QUIET and _keeps_none(reading, head):
                continue  # a sign of life: what it was is of no use to anybody
            raise HistoryGone(f"{head.id!r} before commit {seq} is no longer kept", id=head.id, seq=seq)
        datum = datum_of(before, reading.name) if before is not None and before.live else None
        if datum is not None and datum.problem is not None:
            raise Corrupt(datum.problem, id=head.id, seq=seq)
        found.append(Reverted(head.id, rev, head.rev, head.seq, bool(head.live), datum))
    return found


def _keeps_none(reading: Reading, row: Row) -> bool:
    state = reading.state(reading.name(row.schema))
    return state is not None and state.history == "none"
