"""History: old versions, the state at an earlier seq, and taking a commit back."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Declaration, Delete, Put
from dgent.testing.contract import (
    STORED,
    Contract,
    commit,
    delete,
    expect_error,
    expected_ids,
    find_ids,
    put,
    record,
    typed_record,
)

TAGS = [frozenset[str](), frozenset({"x"}), frozenset({"x", "y"})]


class HistoryContract(Contract):
    """Nothing is overwritten in silence."""

    async def test_history_is_newest_first_and_whole(self, store: Backend) -> None:
        second = record("a", 2, content=b"c", tags=frozenset({"t"}))
        records = [record("a", 1), second, None, record("a", 3, day=2)]
        answers = []
        for place, datum in enumerate(records):
            op = Delete("a") if datum is None else Put(datum)
            answers.append(await commit(store, op, note=f"note {place}", author=f"author {place}"))
        history = await store.history("a", None)
        assert [v.rev for v in history] == [4, 3, 2, 1]
        assert [v.op for v in history] == ["put", "delete", "put", "put"]
        assert [v.note for v in history] == ["note 3", "note 2", "note 1", "note 0"]
        for version, answer, place in zip(reversed(history), answers, range(4), strict=True):
            wanted = records[place]
            assert (version.seq, version.author) == (answer.seq, f"author {place}")
            if wanted is None:
                assert version.datum is None
            else:
                numbers = {"rev": place + 1, "seq": answer.seq, "author": f"author {place}"}
                assert version.datum == wanted.replace(**numbers, updated_at=version.at)
        times = [version.at for version in history]
        assert times == sorted(times, reverse=True)
        assert times[0].utcoffset() == timedelta(0)

    async def test_history_can_be_cut_short(self, store: Backend) -> None:
        for n in range(1, 30):
            await put(store, record("a", n, content=b"x" * 2000 + bytes([n])))
        for limit in (1, 2, 17, 29, 50):
            revs = [version.rev for version in await store.history("a", limit)]
            assert revs == list(range(29, 0, -1))[:limit]
        assert await store.history("never", None) == []

    async def test_large_bodies_over_many_revs(self, store: Backend) -> None:
        """History may keep them as differences: every version must still come back whole."""
        rng = random.Random(7)
        text = [rng.choice(["lorem ", "ipsum ", "dolor "]) for _ in range(2000)]
        records: list[Datum | None] = []
        for n in range(42):
            text[rng.randrange(len(text))] = f"change {n} "
            body = "".join(text) if n % 9 else "short"
            content = bytes([n]) * (5000 if n % 5 else 3)
            records.append(None if n in (13, 30) else record("a", data={"body": body}, content=content))
        seqs = []
        for datum in records:
            answer = await (delete(store, "a") if datum is None else put(store, datum))
            seqs.append(answer.seq)
        history = await store.history("a", None)
        assert len(history) == len(records)
        for place, version in enumerate(reversed(history)):
            wanted = records[place]
            for given in (version.datum, await store.get("a", seqs[place])):
                assert (given and given.data) == (wanted and wanted.data)
                assert (given and given.content) == (wanted and wanted.content)

    async def test_every_read_at_every_seq_against_a_replay(self, store: Backend) -> None:
        await store.declare(Declaration("note", 1, indexes=("n",)))
        rng = random.Random(11)
        now: dict[str, Datum] = {}
        order: dict[str, int] = {}
        states = {0: dict(now)}
        for step in range(40):
            ids = rng.sample([f"r{n}" for n in range(12)], rng.randint(1, 4))
            ops: list[Put | Delete] = []
            for id in ids:
                if id in now and rng.random() < 0.3:
                    ops.append(Delete(id))
                    del now[id]
                else:
                    new = typed_record(id, rng.randrange(6), day=rng.randrange(5), tags=rng.choice(TAGS))
                    new = new.replace(schema=rng.choice(["note", "other"]))
                    ops.append(Put(new))
                    order.setdefault(id, step * 100 + len(ops))
                    now[id] = new.replace(created_at=now[id].created_at) if id in now else new
            states[(await commit(store, *ops)).seq] = dict(now)
        queries = [Query(), Query(schema="note"), Query(order_by="n"), Query(prefix="r1")]
        queries += [Query(schema="note", where={"n": {"$gt": 2}}), Query(schema="note", where={"n": 3})]
        queries += [Query(tags=frozenset({"x"}), descending=False)]
        for seq, state in states.items():
            records = [state[id] for id in sorted(state, key=lambda id: order[id])]
            for query in queries:
                assert await find_ids(store, query, as_of=seq) == expected_ids(records, query), (seq, query)
                assert await store.count(query, STORED, seq) == len(expected_ids(records, query))
            ids = [f"r{n}" for n in range(12)]
            answers = await store.get_many(ids, seq)
            assert [a and (a.data, a.created_at) for a in answers] == [
                (state[id].data, state[id].created_at) if id in state else None for id in ids
            ]
        assert await find_ids(store, as_of=10**9) == await find_ids(store)

    async def test_a_time_becomes_the_seq_committed_by_then(self, store: Backend) -> None:
        assert await store.seq_at(datetime.now(UTC)) == 0
        seqs = [(await put(store, record("a", n))).seq for n in range(5)]
        times = [version.at for version in reversed(await store.history("a", None))]
        assert await store.seq_at(times[0] - timedelta(microseconds=1)) == 0
        for seq, at in zip(seqs, times, strict=True):
            # Commits of one microsecond share a time, and then the newest counts.
            assert (
                await store.seq_at(at) == max(s for s, t in zip(seqs, times, strict=True) if t == at) >= seq
            )
        assert await store.seq_at(times[-1] + timedelta(days=9)) == seqs[-1]

    async def test_what_a_commit_changed_can_be_taken_back(self, store: Backend) -> None:
        await put(store, record("a", 1), record("b", 1), record("same", 1))
        answer = await commit(
            store, Put(record("a", 2)), Delete("b"), Put(record("c", 1)), Put(record("same", 1))
        )
        await put(store, record("c", 2))
        records = {r.id: r for r in await store.states_before(answer.seq)}
        assert set(records) == {"a", "b", "c"}
        assert [(records[id].rev, records[id].now_rev, records[id].live) for id in "abc"] == [
            (2, 2, True),
            (2, 2, False),
            (1, 2, True),
        ]
        before = [records[id].before for id in "abc"]
        assert [datum and datum.data for datum in before] == [{"n": 1}, {"n": 1}, None]

    async def test_taking_back_what_is_not_there(self, store: Backend) -> None:
        await expect_error("not_found", store.states_before(0))
        await expect_error("not_found", store.states_before(5))
        first = await put(store, record("a", 1))
        second = await put(store, record("a", 2))
        forgotten = await store.forget(["a"], "tester", None)
        await expect_error("history_gone", store.states_before(second.seq))
        await expect_error("history_gone", store.states_before(first.seq))
        await expect_error("unsupported", store.states_before(forgotten.seq))

    async def test_taking_back_the_first_version_after_a_forget(self, store: Backend) -> None:
        await put(store, record("a", 1))
        await store.forget(["a"], "tester", None)
        again = await put(store, record("a", 2))
        (reverted,) = await store.states_before(again.seq)
        assert (reverted.rev, reverted.before) == (2, None)
