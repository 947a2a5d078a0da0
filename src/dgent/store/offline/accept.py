"""Check whether a commit can wait in the outbox, and add it there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dgent.errors import VersionConflict
from dgent.store.backend import LIVE, NEW, Check, Commit, Committed, Op, Put, Written
from dgent.store.engine.commit import prepare
from dgent.store.offline import event
from dgent.store.offline.entry import OutboxEntry, make_entry, name_of
from dgent.store.offline.overlay import PendingRecord

if TYPE_CHECKING:
    from dgent.store.offline.backend import DegradableBackend

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def keep_commit(backend: DegradableBackend, commit: Commit) -> Committed:
    """Add a commit to the outbox; raises Unavailable if it depends on what the store has."""
    assert commit.key is not None, "a degradable store gives every commit a key"
    prepared = prepare(commit)
    records = await backend.overlay.records()
    if (earlier := backend.outbox.pending.get(name_of(commit.key))) is None:
        for op in commit.ops:
            await _check(backend, op, records)
        if commit.guard is not None or commit.kind != "data":
            backend._refuse("a transaction that read something" if commit.guard else f"{commit.kind}")
    after = [_after(op, records) for op in commit.ops]
    entry, repeated = await backend.outbox.append(make_entry(prepared, commit.key, after))
    done = await _answer(backend, entry, repeated)
    if earlier is None and not repeated:
        backend.notices.notify(
            event.make_pending_change(
                entry, {each.id: each.rev for each in done.written if each.id is not None}
            )
        )
    return done


async def pending_outcome(backend: DegradableBackend, key: str) -> Committed | None:
    """Return the receipt of a commit in the outbox; None if no pending commit has the key."""
    entry = backend.outbox.pending.get(name_of(key))
    return None if entry is None else await _answer(backend, entry, True)


async def _answer(backend: DegradableBackend, entry: OutboxEntry, repeated: bool) -> Committed:
    """Return the receipt, without a seq, with the revs that result if nobody else writes."""
    records = await backend.overlay.records()
    found = await backend.overlay.get_many(entry.ids)
    written = []
    for step, datum in zip(entry.steps, found, strict=True):
        pending = records.get(step.id)
        rev = 0 if pending is None else pending.steps
        rev = datum.rev if datum is not None and datum.rev is not None else rev
        written.append(Written(step.id, rev, None, step.op != "check"))
    return Committed(None, tuple(written), repeated, pending=True)


async def _check(backend: DegradableBackend, op: Op, records: Mapping[str, PendingRecord]) -> None:
    """Refuse an op that only the store can check; check it against pending commits where possible."""
    pending = records.get(op.id)
    fresh = isinstance(op, Put) and op.expect in (0, NEW) and pending is None and _UUID7.fullmatch(op.id)
    if fresh or (op.expect is None and not isinstance(op, Check)):
        return
    if not backend.optimistic:
        what = "a check" if isinstance(op, Check) else f"expect={op.expect!r}"
        backend._refuse(f"{what} of {op.id!r}")
    if pending is None:
        return  # checked at replay
    (datum,) = await backend.overlay.get_many([op.id])
    rev = 0 if datum is None else datum.rev
    if rev == 0 if op.expect == LIVE else rev != op.expect:  # an id in a pending commit is not NEW either
        state = f"is at rev {rev}, not {op.expect}," if rev else "is deleted"
        raise VersionConflict(
            f"{op.id!r} {state} in a pending commit", id=op.id, expected=op.expect, actual=rev
        )


def _after(op: Op, records: Mapping[str, PendingRecord]) -> str | None:
    pending = records.get(op.id)
    return None if pending is None or op.expect is None else pending.key
