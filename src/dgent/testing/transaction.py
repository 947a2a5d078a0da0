"""Commits: all or nothing, once, and only if what was read is still so."""

from __future__ import annotations

from typing import Any

import pytest

from dgent.model.query import Query
from dgent.store.backend import (
    LIVE,
    Backend,
    Check,
    Commit,
    Declaration,
    Delete,
    Guard,
    Keep,
    Op,
    Put,
    Written,
)
from dgent.testing.contract import (
    STORED,
    Contract,
    Factory,
    commit,
    delete,
    everything,
    expect_error,
    open_handle,
    put,
    record,
    typed_record,
)

IDS = [f"r{n}" for n in range(6)]


class TransactionContract(Contract):
    """The guarantees of a commit."""

    async def test_a_guard_without_ops_is_checked(self, backend: Factory, store: Backend) -> None:
        """Also when this handle has heard nothing of the commit that touched what was read."""
        since = (await put(store, record("a", 1))).seq
        assert since is not None
        if self.persistent:
            async with open_handle(backend) as other:
                await put(other, record("a", 2))
        else:
            await put(store, record("a", 2))
        await expect_error("transaction_conflict", commit(store, guard=Guard(since, frozenset({"a"}))))

    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            (Put(record("r5", 1), expect=3), "version_conflict"),
            (Delete("r5", expect=LIVE), "version_conflict"),
            (Check("r5"), "version_conflict"),
            (Put(record("r5", float("nan"))), "input"),
            (Put(record("r5", content="text")), "input"),
            (Put(typed_record("r5", schema="owned")), "denied"),
            (Put(typed_record("r0", version=1)), "newer_record"),
            (Put(record("r1", 9)), "input"),
        ],
        ids=["expect", "live", "check", "value", "content", "owner", "newer", "twice"],
    )
    async def test_one_bad_op_refuses_the_whole_commit(self, store: Backend, bad: Op, code: str) -> None:
        await store.declare(Declaration("owned", 1, owner="room"))
        await put(store, typed_record("r0", 1, version=2), record("r1", 1), record("r2", 1))
        before = await everything(store, IDS)
        good: list[Op] = [Put(record("r1", 2)), Delete("r2"), Put(record("r3", 1, tags=frozenset({"t"})))]
        for place in range(4):
            ops: list[Op] = [*good]
            ops.insert(place, bad)
            await expect_error(code, commit(store, *ops))
            await expect_error(code, commit(store, *ops, key="k"))
        assert await everything(store, IDS) == before
        assert await store.outcome("k") is None
        await commit(store, *good, key="k")

    async def test_the_same_id_twice_is_refused(self, store: Backend) -> None:
        pairs: list[tuple[Op, Op]] = [
            (Put(record("a", 1)), Put(record("a", 2))),
            (Put(record("a", 1)), Delete("a")),
            (Check("a", 0), Put(record("a", 1))),
            (Delete("a"), Delete("a")),
        ]
        for pair in pairs:
            error = await expect_error("input", commit(store, *pair))
            assert error.details["field"] == "id"
        assert await store.get("a") is None

    # -- idempotency ----------------------------------------------------------------------

    async def test_the_same_key_twice_happens_once(self, store: Backend) -> None:
        await put(store, record("old", 1), record("same", 1), record("gone", 1), record("seen", 1))
        ops: list[Op] = [
            Put(record("new", 1, content=b"c", tags=frozenset({"x", "y"}))),
            Put(record("old", 2), expect=1),
            Put(record("same", 1)),
            Delete("gone"),
            Delete("never"),
            Check("seen"),
        ]
        first = await commit(store, *ops, key="k")
        assert not first.repeated
        await put(store, record("old", 3))
        await delete(store, "new")
        before = await everything(store, ["new", "old", "same", "gone"])
        again = await commit(store, *ops, key="k")
        assert again.repeated
        assert (again.seq, again.written) == (first.seq, first.written)
        assert await everything(store, ["new", "old", "same", "gone"]) == before

    async def test_a_retry_may_have_another_creation_time(self, store: Backend) -> None:
        first = await put(store, record("a", 1, day=1), key="k")
        again = await put(store, record("a", 1, day=2), key="k")
        assert (again.seq, again.repeated) == (first.seq, True)

    async def test_a_key_with_other_work_is_refused(self, store: Backend) -> None:
        full = record("a", 1, content=b"c", tags=frozenset({"t"}), source="s", parent_id="p", extra={"x": 1})
        await commit(store, Put(full), key="k")
        before = await everything(store, ["a", "b"])
        others: list[list[Op]] = [
            [],
            [Put(full.replace(id="b"))],
            [Put(full.replace(data={"n": 2}))],
            [Put(full.replace(data={"n": True}))],
            [Put(full.replace(content=b"d"))],
            [Put(full.replace(tags=frozenset()))],
            [Put(full.replace(source=None))],
            [Put(full.replace(parent_id="q"))],
            [Put(full.replace(extra={"x": 2}))],
            [Put(full, expect=0)],
            [Put(full), Put(full.replace(id="b"))],
            [Delete("a")],
            [Check("a")],
        ]
        for ops in others:
            await expect_error("key_reused", commit(store, *ops, key="k"))
        assert await everything(store, ["a", "b"]) == before

    async def test_a_refused_commit_does_not_use_up_its_key(self, store: Backend) -> None:
        await expect_error("version_conflict", commit(store, Put(record("a", 1), expect=5), key="k"))
        assert await store.outcome("k") is None
        answer = await commit(store, Put(record("a", 2)), key="k")
        assert not answer.repeated

    async def test_the_outcome_of_a_key_can_be_asked_for(self, store: Backend) -> None:
        assert await store.outcome("k") is None
        first = await commit(store, Put(record("a", 1)), Put(record("b", 1)), key="k")
        await put(store, record("a", 2))
        outcome = await store.outcome("k")
        assert outcome is not None
        assert (outcome.seq, outcome.written) == (first.seq, first.written)
        assert outcome.written[0] == Written("a", 1, first.seq, True, first.written[0].at_us)
        assert await store.outcome("other") is None

    async def test_the_outcome_has_an_entry_for_every_op(self, store: Backend) -> None:
        await put(store, record("same", 1), record("kept", 1))
        ops = (Delete("never"), Put(record("same", 1)), Check("kept", 1), Put(record("new", 1)))
        first = await commit(store, *ops, key="k")
        assert [(each.id, each.rev, each.changed) for each in first.written] == [
            *(("never", 0, False), ("same", 1, False), ("kept", 1, False), ("new", 1, True))
        ]
        outcome = await store.outcome("k")
        assert outcome is not None
        # The log names no ids, and one that never was stored cannot be looked up.
        assert outcome.written == (Written(None, 0, 0, False), *first.written[1:])
        again = await commit(store, *ops, key="k")
        assert again.written == first.written

    async def test_a_commit_of_nothing_answers_with_the_newest_seq(
        self, store: Backend, backend: Factory
    ) -> None:
        if not self.persistent:
            return
        await commit(store, Delete("never"), key="k")
        async with open_handle(backend) as other:
            newest = await put(other, record("a", 1))
            answer = await store.commit(Commit([], kind="undo", of_seq=1), STORED)
            assert answer.seq == newest.seq == await store.last_seq()

    async def test_a_key_outlives_a_compaction(self, store: Backend) -> None:
        first = await commit(store, Put(record("a", 1)), key="k")
        for n in range(2, 6):
            await put(store, record("a", n))
        await store.compact(Keep(versions=0))
        again = await commit(store, Put(record("a", 1)), key="k")
        assert (again.seq, again.repeated) == (first.seq, True)
        stored = await store.get("a")
        assert stored is not None
        assert stored.data == {"n": 5}

    async def test_a_keyed_commit_that_changes_nothing_is_known(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        await commit(store, Put(record("a", 1)), key="k")
        assert await store.outcome("k") is not None
        assert await store.changes(first.seq, 10) == []
        assert len(await store.history("a", None)) == 1

    # -- guards ---------------------------------------------------------------------------

    async def _expect_conflict(self, store: Backend, guard: Guard) -> None:
        for check in (commit(store, Put(record("mine")), guard=guard), store.validate(guard, STORED)):
            error = await expect_error("transaction_conflict", check)
            assert error.retryable
        assert await store.get("mine") is None

    async def test_a_guarded_id_that_changed_is_a_conflict(self, store: Backend) -> None:
        since = (await put(store, record("a", 1), record("b", 1))).seq
        ids = frozenset({"a", "never"})
        await put(store, record("b", 2))
        await commit(store, Put(record("fine")), guard=Guard(since, ids))
        for change in (put(store, record("a", 2)), delete(store, "a"), put(store, record("never"))):
            at = await store.last_seq()
            await change
            await self._expect_conflict(store, Guard(at, ids))
        await commit(store, Put(record("mine")), guard=Guard(await store.last_seq(), ids))

    async def test_a_new_record_that_a_guarded_query_would_find_is_a_conflict(self, store: Backend) -> None:
        since = (await put(store, typed_record("a", 1))).seq
        guard = Guard(since, frozenset({"a"}), (Query(schema="note", where={"n": {"$lt": 5}}, limit=1),))
        await put(store, typed_record("b", 7), typed_record("c", 1, schema="other"))
        await commit(store, Put(record("fine")), guard=guard)
        await put(store, typed_record("b", 2))
        await self._expect_conflict(store, guard)

    async def test_write_skew_is_prevented(self, store: Backend) -> None:
        """Two read both records, each changes one: together they would break what both checked."""
        since = (await put(store, record("a", "on"), record("b", "on"))).seq
        guard = Guard(since, frozenset({"a", "b"}))
        await commit(store, Put(record("a", "off")), guard=guard)
        await expect_error("transaction_conflict", commit(store, Put(record("b", "off")), guard=guard))

    async def test_a_guard_is_not_hurt_by_what_changed_nothing(self, store: Backend) -> None:
        since = (await put(store, record("a", 1), record("b", 1))).seq
        guard = Guard(since, frozenset({"a"}), (Query(prefix="a"),))
        await put(store, record("a", 1))
        await commit(store, Put(record("a", 1)), key="same work again")
        await commit(store, Put(record("b", 2)), Check("a"), key="looked at")
        assert await store.validate(guard, STORED) == await store.last_seq()
        await commit(store, Put(record("mine")), guard=guard)

    async def test_a_guard_sees_what_was_forgotten_or_compacted(self, store: Backend) -> None:
        since = (await put(store, record("a", 1), record("b", 1))).seq
        await store.forget(["a"], "tester", None)
        await self._expect_conflict(store, Guard(since, frozenset({"a"})))
        for n in range(5):
            await put(store, record("b", n + 2))
        await store.compact(Keep(versions=0))
        await self._expect_conflict(store, Guard(since, frozenset({"c"})))

    async def test_a_commit_of_a_kind_carries_note_author_and_what_it_is_about(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        fields: dict[str, Any] = {"kind": "undo", "of_seq": first.seq, "note": "no'te", "author": "ann"}
        answer = await store.commit(Commit([Delete("a")], **fields), STORED)
        (change,) = await store.changes(first.seq, 10)
        assert (change.seq, change.kind, change.of_seq) == (answer.seq, "undo", first.seq)
        assert (change.note, change.author) == ("no'te", "ann")
        newest = (await store.history("a", None))[0]
        assert (newest.note, newest.author, newest.op) == ("no'te", "ann", "delete")
