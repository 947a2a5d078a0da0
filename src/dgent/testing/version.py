"""Revs and expectations: nobody overwrites what he did not see."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dgent.errors import VersionConflict
from dgent.store.backend import LIVE, NEW, Backend, Check, Delete, Expect, Op, Put
from dgent.testing.contract import DAY, Contract, commit, delete, everything, expect_error, put, record

CASES: list[tuple[str, Expect, bool]] = [
    ("never there", None, True),
    ("never there", 0, True),
    ("never there", 1, False),
    ("never there", LIVE, False),
    ("never there", NEW, True),
    ("at rev 2", None, True),
    ("at rev 2", 0, False),
    ("at rev 2", 1, False),
    ("at rev 2", 2, True),
    ("at rev 2", 3, False),
    ("at rev 2", LIVE, True),
    ("at rev 2", NEW, False),
    ("deleted at rev 2", None, True),
    ("deleted at rev 2", 0, True),
    ("deleted at rev 2", 1, False),
    ("deleted at rev 2", 2, False),
    ("deleted at rev 2", LIVE, False),
    ("deleted at rev 2", NEW, False),
    ("forgotten at rev 1", None, True),
    ("forgotten at rev 1", 0, True),
    ("forgotten at rev 1", 1, False),
    ("forgotten at rev 1", LIVE, False),
    ("forgotten at rev 1", NEW, False),
]


async def _reach(store: Backend, id: str, state: str) -> None:
    if state != "never there":
        await put(store, record(id, 1))
    if state == "at rev 2":
        await put(store, record(id, 2))
    elif state == "deleted at rev 2":
        await delete(store, id)
    elif state == "forgotten at rev 1":
        await store.forget([id], "tester", None)


class VersionContract(Contract):
    """`expect` decides, and a rev never comes back."""

    @pytest.mark.parametrize("kind", ["put", "delete", "check"])
    async def test_expectations(self, store: Backend, kind: str) -> None:
        for state, expect, passes in CASES:
            id = f"{state}, {expect}"
            await _reach(store, id, state)
            before = await everything(store, [id])
            ops: dict[str, Op] = {
                "put": Put(record(id, "new"), expect),
                "delete": Delete(id, expect),
                "check": Check(id, expect),
            }
            if passes:
                await commit(store, ops[kind])
            else:
                await expect_error("version_conflict", commit(store, ops[kind]))
                assert await everything(store, [id]) == before

    async def test_a_conflict_says_what_is_there(self, store: Backend) -> None:
        await put(store, record("a", 1))
        with pytest.raises(VersionConflict) as caught:
            await commit(store, Put(record("a", 2), expect=7))
        assert caught.value.details == {"id": "a", "expected": 7, "actual": 1}
        assert caught.value.hint

    async def test_the_rev_counts_on_through_everything(self, store: Backend) -> None:
        revs = [(await put(store, record("a", 1))).written[0].rev]
        revs.append((await put(store, record("a", 2))).written[0].rev)
        revs.append((await delete(store, "a")).written[0].rev)
        revs.append((await put(store, record("a", 3))).written[0].rev)
        revs.append((await delete(store, "a")).written[0].rev)
        await store.forget(["a"], "tester", None)
        revs.append((await put(store, record("a", 4))).written[0].rev)
        await store.forget(["a"], "tester", None)
        revs.append((await put(store, record("a", 5), record("b", 1))).written[0].rev)
        assert revs == [1, 2, 3, 4, 5, 6, 7]
        stored = await store.get("b")
        assert stored is not None
        assert stored.rev == 1

    async def test_a_stale_rev_never_matches_again(self, store: Backend) -> None:
        await put(store, record("a", 1))
        await delete(store, "a")
        await put(store, record("a", 1))
        await store.forget(["a"], "tester", None)
        await put(store, record("a", 1))
        for stale in (1, 2, 3):
            await expect_error("version_conflict", commit(store, Delete("a", stale)))
        await commit(store, Delete("a", 4))

    async def test_one_wrong_expectation_stops_the_whole_commit(self, store: Backend) -> None:
        await put(store, record("a", 1), record("b", 1))
        before = await everything(store, ["a", "b", "c"])
        ops: list[Op] = [Put(record("c", 1)), Put(record("a", 2)), Delete("b", expect=5)]
        await expect_error("version_conflict", commit(store, *ops))
        await expect_error("version_conflict", commit(store, *ops[:2], Check("nowhere")))
        assert await everything(store, ["a", "b", "c"]) == before

    async def test_created_at_is_kept_until_the_record_is_deleted(self, store: Backend) -> None:
        await put(store, record("a", 1, day=1))
        await put(store, record("a", 2, day=9))
        stored = await store.get("a")
        assert stored is not None
        assert stored.created_at == DAY + timedelta(days=1)
        await delete(store, "a")
        await put(store, record("a", 3, day=5))
        stored = await store.get("a")
        assert stored is not None
        assert stored.created_at == DAY + timedelta(days=5)

    async def test_a_no_op_with_an_expectation_keeps_its_rev(self, store: Backend) -> None:
        first = await put(store, record("a", 1))
        answer = await commit(store, Put(record("a", 1), expect=1))
        assert (answer.seq, answer.written[0].rev) == (first.seq, 1)
        await expect_error("version_conflict", commit(store, Put(record("a", 1), expect=2)))

    async def test_seq_rises_with_every_change_and_only_then(self, store: Backend) -> None:
        seqs = [await store.last_seq()]
        for step in range(5):
            await put(store, record("a", step))
            seqs.append(await store.last_seq())
        assert seqs == sorted(set(seqs))
        await put(store, record("a", 4))
        await commit(store, Check("a"))
        assert await store.last_seq() == seqs[-1]
