"""Several changes, all or none, and reads that see them before anyone else does."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.errors import Closed, QueryError
from dgent.store.backend import LIVE
from tests.universe.marks import mark, old_mark

START = datetime(2024, 1, 1, tzinfo=UTC)
ALL = dgent.Query(limit=None)


def numbered(n: int, value: int = 0) -> dgent.Datum:
    return dgent.Datum(id=f"r{n}", data={"n": value}, created_at=START + timedelta(minutes=n))


async def test_all_or_none(u: dgent.Universe) -> None:
    async with u.transaction(note="both") as tx:
        first = await tx.remember(mark("one"), tags={"t"})
        second = await tx.put(dgent.Datum(id="two"))
        assert not await u.exists(first.id), "nobody else sees it yet"
    assert tx.committed is not None
    assert tx.committed.seq == await u.seq()
    read = await u.get(first.id)
    assert (read.value, read.tags, read.author, read.seq) == (mark("one"), {"t"}, "scout", tx.committed.seq)
    assert (await u.get("two")).seq == tx.committed.seq
    assert (await u.history(second.id))[0].note == "both"
    assert len(await u.changes(0)) == 1


async def test_an_exception_means_nothing_happened(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    seq = await u.seq()
    with pytest.raises(ZeroDivisionError):
        async with u.transaction() as tx:
            await tx.remember(mark("never"))
            await tx.delete(kept.id)
            raise ZeroDivisionError
    assert (await u.seq(), await u.count()) == (seq, 1)
    assert tx.committed is None


async def test_a_cancelled_one_means_nothing_happened(u: dgent.Universe) -> None:
    waiting = asyncio.Event()

    async def work() -> None:
        async with u.transaction() as tx:
            await tx.remember(mark("never"))
            waiting.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await u.count() == 0


async def test_one_wrong_op_refuses_all(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await tx.remember(mark("never"))
            await tx.store(kept.replace(value=mark("wrong")), expect=7)
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await tx.remember(mark("never"))
            await tx.remember(mark("exists"), id=kept.id)
    assert await u.recall(ALL) == [kept]


async def test_own_writes_are_read(u: dgent.Universe) -> None:
    kept = await u.remember(mark("old"), id="x")
    async with u.transaction() as tx:
        assert (await tx.get("x")) == kept
        changed = await tx.store(kept.replace(value=mark("new", tags=["t"])))
        assert changed.value.tags == ("t",)
        assert (await tx.get("x")).value == mark("new", tags=("t",))
        assert (await tx.get("x", raw=True)).data["action"] == "new"
        await tx.delete("x")
        assert await tx.get("x") is None
        assert not await tx.exists("x")
        again = await tx.remember(mark("again"), id="x")
        assert await tx.get("x") == again
        assert await tx.get("nothing") is None
    read = await u.get("x")
    assert (read.value, read.rev) == (mark("again"), 2)


async def test_made_and_deleted_in_one_leaves_no_trace(u: dgent.Universe) -> None:
    async with u.transaction() as tx:
        made = await tx.remember(mark())
        await tx.delete(made.id)
    assert await u.history(made.id) == []
    assert await u.seq() == 0


async def test_an_old_record_inside(u: dgent.Universe) -> None:
    kept = await u.put(old_mark(1))
    async with u.transaction() as tx:
        read = await tx.get(kept.id)
        assert read.meta.crystallized_from == kept.id
        assert await tx.recall(dgent.Query(where={"principles.0": "ship"})) == [read]
        await tx.store(read.with_tags("seen"))
    assert (await u.get(kept.id)).datum.schema_version == 3


async def test_checks(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="there"))
    async with u.transaction() as tx:
        await tx.check("there")
        await tx.check("there", 1)
        await tx.check("not there", 0)
        await tx.put(dgent.Datum(id="made"))
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await tx.check("not there")
            await tx.put(dgent.Datum(id="never"))
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await tx.put(dgent.Datum(id="there", data={"a": 1}))
            await tx.check("there", 7)
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await tx.check("there")
            await tx.check("there", 7)
            await tx.put(dgent.Datum(id="never"))
    assert await u.count() == 2


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (lambda tx: tx.put(dgent.Datum(id="there")), lambda tx: tx.check("there", 0)),
        (lambda tx: tx.put(dgent.Datum(id="new")), lambda tx: tx.remember(mark(), id="new")),
        (lambda tx: tx.delete("there"), lambda tx: tx.check("there")),
        (lambda tx: tx.delete("there"), lambda tx: tx.put(dgent.Datum(id="there"), expect=LIVE)),
        (lambda tx: tx.check("there"), lambda tx: tx.remember(mark(), id="there")),
        (lambda tx: tx.check("new", 0), lambda tx: tx.check("new")),
        (lambda tx: tx.delete("there", expect=1), lambda tx: tx.put(dgent.Datum(id="there"), expect=2)),
    ],
)
async def test_expectations_that_exclude_each_other(u: dgent.Universe, first: Any, then: Any) -> None:
    await u.put(dgent.Datum(id="there"))
    with pytest.raises(dgent.VersionConflict):
        async with u.transaction() as tx:
            await first(tx)
            await then(tx)
    assert await u.seq() == 1


async def test_expectations_of_own_writes(u: dgent.Universe) -> None:
    kept = await u.put(dgent.Datum(id="there"))
    async with u.transaction() as tx:
        await tx.put(dgent.Datum(id="new"), expect=0)
        await tx.check("new")
        await tx.put(dgent.Datum(id="new", data={"n": 2}), expect=LIVE)
        await tx.check("there")
        await tx.put(kept.with_tags("a"), expect=kept.rev)
        await tx.put(kept.with_tags("b"), expect=kept.rev)
        await tx.delete("there")
        await tx.check("there", 0)
    assert [(d.id, d.data) for d in await u.query(ALL)] == [("new", {"n": 2})]


QUERIES = [
    ALL,
    ALL.replace(descending=False),
    ALL.replace(limit=4),
    ALL.replace(limit=3, offset=2),
    ALL.replace(limit=3, offset=2, descending=False),
    ALL.replace(order_by="n"),
    ALL.replace(order_by="n", descending=False, limit=5, offset=1),
    ALL.replace(where={"n": {"$gte": 3}}),
    ALL.replace(where={"n": {"$lt": 3}}, limit=2, offset=1),
    ALL.replace(tags={"odd"}, order_by="n", limit=3),
    ALL.replace(prefix="r1"),
    ALL.replace(until=START + timedelta(minutes=8)),
    ALL.replace(since=START + timedelta(minutes=3), until=START + timedelta(minutes=9), order_by="n"),
    ALL.replace(where={"n": {"$gte": 3}}, until=START + timedelta(minutes=6), limit=2, descending=False),
]


@pytest.mark.parametrize("round", range(6))
async def test_queries_see_own_writes_as_everyone_will(u: dgent.Universe, round: int) -> None:
    """Random changes over random records: the same question inside and afterwards has the same answer."""

    def some(n: int) -> dgent.Datum:
        datum = numbered(n, random.randrange(6))
        if random.random() < 0.6:  # also another time than the stored one, and the same as others have
            datum = datum.replace(created_at=START + timedelta(minutes=random.randrange(4) * 3))
        return datum.with_tags("odd") if random.random() < 0.4 else datum

    await u.put_many([some(n) for n in range(12)])
    old = await u.get_many([f"r{n}" for n in range(12)])
    for n in (2, 5, 7, 8):
        await u.delete(f"r{n}")
    await u.put(some(8))  # made anew
    async with u.transaction() as tx:
        for _ in range(8):
            n = random.randrange(18)
            what = random.random()
            if what < 0.3:
                await tx.delete(f"r{n}")
            elif what < 0.5:  # as it was read before, also as another record, or dated anew
                read = random.choice(old)
                await tx.put(random.choice([read, read.replace(id=f"r{n}"), read.replace(created_at=START)]))
            else:
                known = await tx.get(f"r{n}")
                new = some(n)
                merged = known is not None and random.random() < 0.5
                await tx.put(known.replace(data=new.data, tags=new.tags) if merged else new)
        inside = [[(d.id, d.created_at) for d in await tx.query(query)] for query in QUERIES]
        counts = [await tx.count(query) for query in QUERIES]
        one_by_one = [await tx.get(f"r{n}") for n in range(18)]
        at_once = await tx.get_many([f"r{n}" for n in range(18)])
    assert inside == [[(d.id, d.created_at) for d in await u.query(query)] for query in QUERIES]
    assert counts == [await u.count(query) for query in QUERIES]
    times = [None if d is None else d.created_at for d in await u.get_many([f"r{n}" for n in range(18)])]
    assert times == [None if d is None else d.created_at for d in one_by_one]
    assert times == [None if d is None else d.created_at for d in at_once]


@pytest.mark.parametrize("descending", [True, False])
async def test_ties_stand_in_the_order_of_first_commit(u: dgent.Universe, descending: bool) -> None:
    await u.put_many(numbered(n).replace(created_at=START) for n in range(4))
    query = ALL.replace(descending=descending)
    async with u.transaction() as tx:
        await tx.put(numbered(9).replace(created_at=START))
        await tx.put(numbered(1, 7).replace(created_at=START))
        await tx.put(numbered(8).replace(created_at=START))
        inside = [d.id for d in await tx.query(query)]
    in_order = ["r0", "r1", "r2", "r3", "r9", "r8"]
    assert inside == (in_order[::-1] if descending else in_order)
    assert inside == [d.id for d in await u.query(query)]


async def test_a_put_over_a_record_keeps_its_time_inside_too(u: dgent.Universe) -> None:
    await u.put_many([numbered(1), numbered(2)])
    async with u.transaction() as tx:
        await tx.put(dgent.Datum(id="r1", data={"n": 9}))
        assert [d.id for d in await tx.query(ALL)] == ["r2", "r1"]
    assert [d.id for d in await u.query(ALL)] == ["r2", "r1"]


async def test_a_record_that_was_read_keeps_its_time_whatever_the_caller_made_of_it(
    u: dgent.Universe,
) -> None:
    """What the caller read may be dated anew, given to another id, or have been deleted since."""
    await u.put_many([numbered(1), numbered(2), numbered(3)])
    read = await u.get_many(["r1", "r2", "r3"])
    await u.delete("r3")
    await u.put(numbered(3).replace(created_at=START + timedelta(minutes=30)))
    late = START + timedelta(minutes=50)
    async with u.transaction() as tx:
        await tx.put(read[0].replace(created_at=late))
        await tx.put(read[0].replace(id="r2"))
        await tx.put(read[2])
        inside = [(d.id, d.created_at) for d in await tx.query(ALL)]
        assert [d.id for d in await tx.query(ALL.replace(since=late))] == []
    assert inside == [(d.id, d.created_at) for d in await u.query(ALL)]


async def test_a_record_that_comes_to_match_keeps_its_place(u: dgent.Universe) -> None:
    await u.put_many(numbered(n, n).replace(created_at=START) for n in range(4))
    await u.delete("r2")
    query = ALL.replace(where={"n": {"$lt": 3}}, until=START + timedelta(minutes=1), descending=False)
    async with u.transaction() as tx:
        await tx.put(dgent.Datum(id="r3", data={"n": 0}))
        await tx.put(numbered(2, 2).replace(created_at=START))
        await tx.put(numbered(9, 1).replace(created_at=START))
        inside = [d.id for d in await tx.query(query)]
    assert inside == ["r0", "r1", "r2", "r3", "r9"]
    assert inside == [d.id for d in await u.query(query)]


async def test_an_empty_one_and_a_finished_one(u: dgent.Universe) -> None:
    async with u.transaction() as tx:
        await tx.get("x")
    assert tx.committed is not None
    assert tx.committed.seq == 0
    for late in (tx.get("x"), tx.put(dgent.Datum()), tx.query(ALL), tx.check("x"), tx.commit()):
        with pytest.raises(Closed, match="over"):
            await late
    with pytest.raises(Closed, match="begun"):
        await u.transaction().get("x")


async def test_committing_by_hand(u: dgent.Universe) -> None:
    async with u.transaction() as tx:
        await tx.put(dgent.Datum(id="x"))
        committed = await tx.commit()
        assert await u.exists("x")
    assert tx.committed == committed


async def test_cursors_are_not_read(u: dgent.Universe) -> None:
    await u.put_many([numbered(n) for n in range(3)])
    page = await u.page(ALL.replace(limit=1))
    async with u.transaction() as tx:
        with pytest.raises(QueryError, match="cursor"):
            await tx.query(ALL.replace(limit=1, cursor=page.cursor))
