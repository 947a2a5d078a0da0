"""Retention: a rule removes old versions, and asking for them says that they were removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from dgent.errors import HistoryGone
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Delete, Keep, PartView, Put
from dgent.testing.contract import (
    STORED,
    Contract,
    Factory,
    commit,
    delete,
    expect_error,
    find_ids,
    open_handle,
    put,
    record,
    typed_record,
)


async def _revs(store: Backend, id: str) -> list[int]:
    return [version.rev for version in await store.history(id, None)]


async def _list_authors(store: Backend, id: str) -> list[tuple[str | None, str | None]]:
    """Return the author and the note of each version of a record."""
    return [(version.author, version.note) for version in await store.history(id, None)]


async def _series(store: Backend, id: str, schema: str, count: int) -> list[int]:
    records = [typed_record(id, n, schema=schema, content=bytes([n]) * 900) for n in range(count)]
    return [(await put(store, datum)).seq for datum in records]


class RetentionContract(Contract):
    """Rules of a schema, and `compact`."""

    async def test_a_schema_without_history_keeps_only_what_is_now(self, store: Backend) -> None:
        await store.declare(Declaration("tick", 1, history="none"))
        seqs = await _series(store, "a", "tick", 5)
        assert await _revs(store, "a") == [5]
        error = await expect_error("history_gone", store.get("a", seqs[2]))
        assert error.details["first_seq"] == seqs[4]
        await delete(store, "a")
        assert await _revs(store, "a") == [6]

    async def test_a_schema_may_keep_the_last_few(self, store: Backend) -> None:
        await store.declare(Declaration("tick", 1, history=3))
        seqs = await _series(store, "a", "tick", 20)
        assert await _revs(store, "a") == [20, 19, 18, 17]
        stored = await store.get("a", seqs[16])
        assert stored is not None
        assert (stored.rev, stored.content) == (17, bytes([16]) * 900)
        await expect_error("history_gone", store.get("a", seqs[15]))

    async def test_turning_history_off_and_on_again(self, store: Backend) -> None:
        await _series(store, "a", "tick", 4)
        await store.declare(Declaration("tick", 1, history="none"))
        await put(store, typed_record("a", "now", schema="tick", content=b"c" * 900))
        assert await _revs(store, "a") == [5]
        await store.declare(Declaration("tick", 1, history="all"))
        await put(store, typed_record("a", "later", schema="tick", content=b"d" * 900))
        history = await store.history("a", None)
        assert [version.datum and version.datum.data["n"] for version in history] == ["later", "now"]

    async def test_ticking_records_do_not_hide_the_past_of_others(self, store: Backend) -> None:
        await store.declare(Declaration("tick", 1, history="none"))
        first = await put(store, typed_record("a", 1), typed_record("beat", 0, schema="tick"))
        await put(store, typed_record("a", 2))
        for n in range(3):
            await put(store, typed_record("beat", n + 1, schema="tick"))
        query = Query(schema="note", where={"n": 1})
        assert await find_ids(store, query, as_of=first.seq) == ["a"]
        assert await store.count(query, STORED, first.seq) == 1
        await expect_error("history_gone", store.query(Query(schema="tick"), STORED, first.seq))
        await expect_error("history_gone", store.query(Query(), STORED, first.seq))

    async def test_a_view_may_part_what_is_kept_from_what_went(self, store: Backend) -> None:
        await store.declare(Declaration("tick", 1, history="none"))
        await store.declare(Declaration("few", 1, history=1))
        names = ("beat", "still", "went")
        first = await put(
            store,
            typed_record("a", 0),
            *(typed_record(name, 0, schema="tick") for name in names),
            *(typed_record(name, 0, schema="few") for name in ("f", "g")),
        )
        await put(store, typed_record("a", 1), typed_record("born", 1))
        for n in range(1, 4):
            await put(store, typed_record("beat", n, schema="tick"), typed_record("f", n, schema="few"))
        await delete(store, "went", "g")
        await put(store, typed_record("g", 9, schema="few"))
        await expect_error("history_gone", store.query(Query(), STORED, first.seq))

        async def read_all(gone: bool, **fields: Any) -> list[tuple[str, int]]:
            view, query = PartView(STORED, gone), Query(limit=2, descending=False, **fields)
            page = await store.query(query, view, first.seq)
            items = list(page.items)
            while page.cursor is not None:
                page = await store.query(query.replace(cursor=page.cursor), view, first.seq)
                items += page.items
            assert await store.count(query, view, first.seq) == len(items)
            return sorted((datum.id, datum.data["n"]) for datum in items)

        went = [("beat", 3), ("f", 2), ("g", 9)]
        assert await read_all(False) == [("a", 0), ("still", 0)]
        assert await read_all(True) == went
        assert await read_all(True, schema="few") == went[1:]
        assert await read_all(False, schema="tick") == [("still", 0)]
        assert await read_all(True, schema="few", where={"n": 9}) == [("g", 9)]
        assert await read_all(True, schema="note") == []

    async def test_compact_by_number(self, store: Backend) -> None:
        await _series(store, "a", "note", 6)
        await _series(store, "b", "note", 2)
        await delete(store, "b")
        done = await store.compact(Keep(versions=2))
        assert await _revs(store, "a") == [6, 5, 4]
        assert await _revs(store, "b") == [3, 2, 1]
        assert (done.versions, done.first_seq) == (3, 5)
        assert (await store.compact(Keep(versions=2))).versions == 0
        assert (await store.compact(Keep(versions=0))).versions == 4
        assert (await _revs(store, "a"), await _revs(store, "b")) == ([6], [3])

    async def test_compact_by_time(self, store: Backend) -> None:
        await _series(store, "a", "note", 4)
        history = await store.history("a", None)
        cutoff = history[1].at
        kept = [version.rev for version in history if version.at > cutoff]
        current = max(version.rev for version in history if version.at <= cutoff)
        done = await store.compact(Keep(after=cutoff))
        assert await _revs(store, "a") == [*kept, current]
        assert done.versions == current - 1
        stored = await store.get("a", history[1].seq)
        assert stored is not None
        assert stored.rev == current

    async def test_both_parts_of_a_rule_must_agree(self, store: Backend) -> None:
        await _series(store, "a", "note", 6)
        later = datetime.now(UTC) + timedelta(days=1)
        assert (await store.compact(Keep(versions=9, after=later))).versions == 0
        assert (await store.compact(Keep(versions=0, after=later - timedelta(days=9)))).versions == 0
        assert (await store.compact(Keep(versions=1, after=later))).versions == 4

    async def test_history_that_went_is_never_shortened_in_silence(self, store: Backend) -> None:
        seqs = await _series(store, "a", "note", 6)
        done = await store.compact(Keep(versions=1))
        stats = await store.stats()
        assert stats.first_seq == done.first_seq
        for call in (
            store.get("a", seqs[3]),
            store.get_many(["a"], seqs[3]),
            store.query(Query(), STORED, seqs[3]),
            store.count(Query(), STORED, seqs[3]),
            store.changes(0, 10),
            store.states_before(seqs[2]),
            store.states_before(done.first_seq - 1),
        ):
            error = await expect_error("history_gone", call)
            assert isinstance(error, HistoryGone)
        for first in (done.first_seq, error.details.get("first_seq", done.first_seq)):
            assert await find_ids(store, as_of=first) == ["a"]
            assert await store.changes(first, 10) == []
        assert await store.last_seq() == seqs[-1]

    async def test_compacting_one_schema_leaves_the_others_whole(self, store: Backend) -> None:
        first = await put(store, typed_record("a", 0), typed_record("b", 0, schema="log"))
        await _series(store, "a", "note", 4)
        await _series(store, "b", "log", 4)
        assert (await store.compact(Keep(versions=0, schema="log"))).versions == 4
        assert (await _revs(store, "a"), await _revs(store, "b")) == ([5, 4, 3, 2, 1], [5])
        assert await find_ids(store, schema="note", where={"n": 0}, as_of=first.seq) == ["a"]
        assert (await store.changes(0, 100))[0].seq == first.seq
        await expect_error("history_gone", store.query(Query(schema="log"), STORED, first.seq))
        await expect_error("history_gone", store.get("b", first.seq))

    async def test_a_time_before_what_is_kept_says_that_it_went(self, store: Backend) -> None:
        await _series(store, "a", "note", 4)
        times = [version.at for version in await store.history("a", None)]
        await store.compact(Keep(versions=0))
        gone = await store.seq_at(times[-1] - timedelta(seconds=1))
        await expect_error("history_gone", store.query(Query(), STORED, gone))
        await expect_error("history_gone", store.get("a", gone))
        assert await find_ids(store, as_of=await store.seq_at(times[0])) == ["a"]

    async def test_a_time_after_a_compaction_is_the_seq_by_then(self, store: Backend) -> None:
        """Also when older commits were left in the log, for their keys."""
        await put(store, record("k"), key="k")
        seqs = await _series(store, "a", "note", 4)
        await asyncio.sleep(0.002)
        await put(store, record("b"))
        by_then = (await store.history("a", 1))[0].at
        await store.compact(Keep(versions=0))
        assert await store.seq_at(by_then) == seqs[-1]
        assert await find_ids(store, as_of=seqs[-1]) == ["a", "k"]

    async def test_a_store_with_no_commits_left_goes_on(self, store: Backend) -> None:
        seqs = await _series(store, "a", "note", 5)
        await store.compact(Keep(after=datetime.now(UTC) + timedelta(days=1)))
        assert await store.last_seq() == seqs[-1]
        assert await find_ids(store) == ["a"]
        answer = await put(store, record("b"))
        assert answer.seq == seqs[-1] + 1
        assert [change.seq for change in await store.changes(seqs[-1], 10)] == [answer.seq]

    async def test_who_committed_goes_with_the_commit(self, store: Backend) -> None:
        """The author that a record names is a claim, and never replaces the committer; the time stays."""
        await commit(store, Put(record("a", 1)), author="ann", note="first")
        await commit(store, Put(record("a", 2, author="bob")), author="ann", note="second")
        before = await store.history("a", 1)
        await commit(store, Put(record("b")), author="cat", note="third")
        await commit(store, Delete("b"), author="dan", note="fourth")
        assert await _list_authors(store, "a") == [("ann", "second"), ("ann", "first")]
        await store.compact(Keep(versions=0))
        assert await _list_authors(store, "a") == [(None, None)]
        kept = (await store.history("a", None))[0].datum
        assert kept is not None
        assert kept.author == "bob"
        assert [version.at for version in await store.history("a", None)] == [before[0].at]
        assert await _list_authors(store, "b") == [(None, None)], "who deleted it was the commit's to say"

    async def test_nothing_is_told_of_commits_that_only_happen_to_be_left(
        self, store: Backend, backend: Factory
    ) -> None:
        """The newest commit stays to say where the log stands, and those with a key for their retries."""
        await commit(store, Put(record("k")), author="ann", note="with a key", key="k")
        newest = await commit(store, Put(record("a")), author="ann", note="the newest")
        async with open_handle(backend) as other:
            stores = [store, other] if self.persistent else [store]
            for each in stores:
                assert await _list_authors(each, "a") == [("ann", "the newest")]
                assert len(await each.states_before(newest.seq)) == 1
            done = await store.compact(Keep(after=datetime.now(UTC) + timedelta(days=1)))
            assert done.first_seq == newest.seq + 1
            for each in stores:
                assert await _list_authors(each, "a") == await _list_authors(each, "k") == [(None, None)]
                await expect_error("history_gone", each.states_before(newest.seq))
                await expect_error("history_gone", each.states_before(newest.seq - 1))
        later = await commit(store, Put(record("a", 2)), author="bob", note="later")
        assert await _list_authors(store, "a") == [("bob", "later"), (None, None)]
        assert (await commit(store, Put(record("k")), author="ann", note="with a key", key="k")).repeated
        assert [each.id for each in await store.states_before(later.seq)] == ["a"]

    async def test_a_rule_that_says_nothing_removes_nothing(self, store: Backend) -> None:
        await _series(store, "a", "note", 3)
        await expect_error("input", store.compact(Keep()))
        await expect_error("input", store.compact(Keep(schema="note")))
        assert await _revs(store, "a") == [3, 2, 1]

    async def test_many_records_are_compacted(self, store: Backend) -> None:
        many = [record(f"r{n:04}", 0) for n in range(1100)]
        await put(store, *many)
        await put(store, *(datum.replace(data={"n": 1}) for datum in many))
        assert (await store.compact(Keep(versions=0))).versions == 1100
        assert await _revs(store, "r0000") == await _revs(store, "r1099") == [2]
