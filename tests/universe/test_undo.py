"""Undo is an ordinary commit that puts things back, and refuses to trample on what came later."""

from __future__ import annotations

from typing import Any

import pytest

import dgent
from dgent.errors import HistoryGone, NotFound, UndoConflict
from tests.universe.conftest import Another
from tests.universe.marks import Mark, mark, old_mark

ALL = dgent.Query(limit=None)


async def test_undoing_a_creation_deletes(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    done = await u.undo(kept.seq)
    assert await u.get(kept.id) is None
    assert done.seq == await u.seq() == 2
    change = (await u.changes(1))[0]
    assert (change.kind, change.of_seq, change.author) == ("undo", kept.seq, "scout")
    assert [v.op for v in await u.history(kept.id)] == ["delete", "put"]


async def test_undoing_an_update_brings_everything_back(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"}, source="s", content=b"c", author="ann", parent="p")
    changed = await u.store(
        kept.replace(value=mark("worse"), tags=(), source=None, author="bob", parent_id=None)
    )
    await u.undo(changed.seq)
    read = await u.get(kept.id)
    assert read.datum.replace(rev=1, seq=kept.seq, updated_at=kept.updated_at) == kept.datum
    assert read.rev == 3


async def test_undoing_a_deletion_brings_it_back(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"})
    await u.delete(kept.id)
    await u.undo(await u.seq())
    read = await u.get(kept.id)
    assert read.datum.replace(rev=1, seq=kept.seq, updated_at=kept.updated_at) == kept.datum
    assert await u.recall(dgent.Query(tags={"t"}, where={"author": "scout"})) == [read]


async def test_undoing_an_undo_is_redo(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    changed = await u.store(kept.replace(value=mark("two")))
    undone = await u.undo(changed.seq)
    redone = await u.undo(undone.seq)
    assert (await u.get(kept.id)).value == mark("two")
    await u.undo(redone.seq)
    assert (await u.get(kept.id)).value == mark()

    made = await u.remember(mark("made"))
    undone = await u.undo(made.seq)
    await u.undo(undone.seq)
    assert (await u.get(made.id)).datum.replace(rev=1, seq=made.seq, updated_at=made.updated_at) == made.datum


async def test_what_changed_since_is_named_and_nothing_happens(u: dgent.Universe) -> None:
    first = await u.put_many(dgent.Datum(id=id, data={"v": 1}) for id in "abcd")
    batch = await u.put_many(dgent.Datum(id=id, data={"v": 2}) for id in "abcd")
    later = await u.put(dgent.Datum(id="b", data={"v": 3}))
    await u.delete("c")
    seq = await u.seq()
    with pytest.raises(UndoConflict) as refused:
        await u.undo(batch[0].seq)
    assert refused.value.details["records"] == {"b": (3, later.seq), "c": (3, seq)}
    assert "'b'" in str(refused.value) and "'c'" in str(refused.value)
    assert await u.seq() == seq

    await u.undo(batch[0].seq, only=["a", "d"])
    values = [None if d is None else d.data["v"] for d in await u.get_many(list("abcd"))]
    assert values == [1, 3, None, 1]
    await u.undo(batch[0].seq, only=["b", "c"], force=True)
    assert [d.data["v"] for d in await u.get_many(list("abcd"))] == [1, 1, 1, 1]
    assert (await u.get("a")).created_at == first[0].created_at


async def test_force_undoes_a_creation_that_changed(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    await u.store(kept.replace(value=mark("later")))
    with pytest.raises(UndoConflict):
        await u.undo(kept.seq)
    await u.undo(kept.seq, force=True)
    assert await u.get(kept.id) is None
    await u.undo(kept.seq, force=True)
    assert await u.get(kept.id) is None, "nothing left to do"


async def test_only_names_records_of_that_commit(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    with pytest.raises(NotFound, match="stranger"):
        await u.undo(kept.seq, only=[kept.id, "stranger"])
    with pytest.raises(dgent.InputError, match="only"):
        await u.undo(kept.seq, only=kept.id)
    with pytest.raises(NotFound, match="commit 99"):
        await u.undo(99)
    assert await u.exists(kept.id)


async def test_many_records_at_once(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=f"r{n}", data={"v": n}) for n in range(1000))
    before = {d.id: d.data for d in await u.query(ALL)}
    async with u.transaction() as tx:
        for n in range(0, 1000, 2):
            await tx.put(dgent.Datum(id=f"r{n}", data={"v": -n}))
        for n in range(1, 1000, 4):
            await tx.delete(f"r{n}")
        for n in range(50):
            await tx.remember(mark(f"new{n}"))
    assert tx.committed is not None
    await u.undo(tx.committed.seq)
    assert {d.id: d.data for d in await u.query(ALL)} == before


async def test_no_op_parts_of_a_commit_stay_alone(u: dgent.Universe) -> None:
    same = await u.put(dgent.Datum(id="same"))
    batch = await u.put_many([same, dgent.Datum(id="new")])
    await u.put(same.with_tags("later"))
    await u.undo(batch[1].seq)
    assert await u.get("new") is None
    assert (await u.get("same")).tags == {"later"}


async def test_a_forget_cannot_be_undone(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    forgotten = await u.forget(kept.id)
    with pytest.raises(dgent.Unsupported):
        await u.undo(forgotten.seq)
    with pytest.raises(HistoryGone):
        await u.undo(kept.seq)
    with pytest.raises(HistoryGone):
        await u.undo(kept.seq, force=True)


async def test_after_a_compaction(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    changed = await u.store(kept.replace(value=mark("two")))
    await u.compact(0)
    with pytest.raises(HistoryGone):
        await u.undo(changed.seq)
    assert (await u.get(kept.id)).value == mark("two")


async def test_undo_goes_back_to_old_versions_as_they_were_stored(u: dgent.Universe) -> None:
    old = await u.put(old_mark(1, "plan", id="x"))
    report = await u.upgrade_all(Mark)
    assert report.upgraded == 1
    await u.undo(await u.seq())
    assert (await u.get("x", raw=True)).replace(rev=1, seq=old.seq, updated_at=old.updated_at) == old
    by_new_field = dgent.Query(schema="witness.mark", where={"principles.0": "plan"})
    assert [c.id for c in await u.query(by_new_field)] == ["x"]


async def test_someone_faster_than_the_undo(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    kept = await u.put(dgent.Datum(id="x", data={"v": 1}))
    changed = await u.put(kept.replace(data={"v": 2}))
    plain = u.backend.states_before

    async def slow(seq: int) -> Any:
        found = await plain(seq)
        u.backend.states_before = plain
        await rival.put(changed.replace(data={"v": 3}))
        return found

    u.backend.states_before = slow
    with pytest.raises(UndoConflict) as refused:
        await u.undo(changed.seq)
    assert refused.value.details["records"] == {"x": (3, 3)}
    u.backend.states_before = slow
    await u.undo(changed.seq, force=True)
    assert (await u.get("x")).data == {"v": 1}
