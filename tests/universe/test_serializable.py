"""Transactions behave as if they ran one after the other; whoever is too late is refused, and may retry."""

from __future__ import annotations

import asyncio

import pytest

import dgent
from dgent.errors import TransactionConflict
from dgent.universe.transaction import MAX_READS
from tests.universe.conftest import Another
from tests.universe.marks import mark


def person(name: str, on_call: bool = True) -> dgent.Datum:
    return dgent.Datum(id=name, data={"on_call": on_call})


ON_CALL = dgent.Query(where={"on_call": True})


async def test_lost_updates_are_refused(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    kept = await u.remember(mark("first"))
    for expect in (None, kept.rev):
        with pytest.raises(TransactionConflict) as refused:
            async with u.transaction() as tx:
                read = await tx.get(kept.id)
                await rival.put((await rival.get(kept.id)).with_tags(f"rival {expect}"))
                await tx.store(read.replace(value=mark("lost")), expect=expect and read.rev)
        assert refused.value.retryable
        assert refused.value.details["id"] == kept.id
    read = await u.get(kept.id)
    assert (read.value, read.tags) == (mark("first"), {"rival None", "rival 1"})


async def test_write_skew_is_refused(u: dgent.Universe, another: Another) -> None:
    """Each may go home while the other stays; together they would leave nobody."""
    await u.put_many([person("ann"), person("bob")])

    async def go_home(tx: dgent.Transaction, name: str) -> None:
        assert await tx.count(ON_CALL) >= 2
        await tx.put(person(name, on_call=False))

    rival = await another()
    async with u.transaction() as first:
        await go_home(first, "ann")
        with pytest.raises(TransactionConflict):
            async with rival.transaction() as second:
                await go_home(second, "bob")
                await first.commit()
    assert [p.id for p in await u.query(ON_CALL)] == ["bob"]


async def test_phantoms_are_refused(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    with pytest.raises(TransactionConflict):
        async with u.transaction() as tx:
            assert await tx.query(ON_CALL) == []
            await rival.put(person("eve"))
            await tx.put(person("only one"))
    with pytest.raises(TransactionConflict):
        async with u.transaction() as tx:
            assert await tx.get("nobody") is None
            await rival.put(person("nobody", on_call=False))
            await tx.remember(mark())
    assert {d.id for d in await u.query(dgent.Query())} == {"eve", "nobody"}


async def test_what_leaves_a_result_counts_too(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    await u.put_many([person("ann"), person("bob")])
    for leave in (rival.put(person("ann", on_call=False)), rival.delete("bob")):
        with pytest.raises(TransactionConflict):
            async with u.transaction() as tx:
                await tx.query(ON_CALL)
                await leave
                await tx.put(dgent.Datum(id="decided"))
    assert not await u.exists("decided")


async def test_a_change_between_two_reads_is_noticed_at_the_second(u: dgent.Universe) -> None:
    """So a transaction never sees two states at once, even before it commits."""
    await u.put_many([person("ann"), person("bob")])
    with pytest.raises(TransactionConflict):
        async with u.transaction() as tx:
            await tx.get("ann")
            await u.put_many([person("ann", False), person("bob", False)])
            await tx.get("bob")
            pytest.fail("it saw ann before and bob after")


async def test_what_others_do_elsewhere_does_not_disturb(u: dgent.Universe, another: Another) -> None:
    rival = await another()
    await u.put(person("ann"))
    async with u.transaction() as tx:
        await tx.query(ON_CALL)
        await rival.put(person("eve", on_call=False))
        await rival.put(dgent.Datum(id="else"))
        assert await tx.get("else") is not None, "the newest state"
        await rival.delete("eve")
        await tx.put(person("ann", on_call=False))
    assert tx.committed is not None
    assert await u.count(ON_CALL) == 0


async def test_two_links_closing_a_cycle_from_two_programs(u: dgent.Universe, another: Another) -> None:
    """Each checks that its link makes no cycle; the one that commits last would make one."""
    rival = await another()
    await u.put_many([dgent.Datum(id=name) for name in "abcd"])
    await u.put(dgent.Datum(id="a>b", data={"from": "a", "to": "b"}))
    await u.put(dgent.Datum(id="c>d", data={"from": "c", "to": "d"}))

    async def link(tx: dgent.Transaction, start: str, end: str) -> None:
        here, reached = [end], set()
        while here:
            now = here.pop()
            assert now != start, "a cycle"
            reached.add(now)
            here += [d.data["to"] for d in await tx.query(dgent.Query(where={"from": now}))]
        await tx.put(dgent.Datum(id=f"{start}>{end}", data={"from": start, "to": end}))

    async with u.transaction() as first:
        await link(first, "b", "c")
        with pytest.raises(TransactionConflict):
            async with rival.transaction() as second:
                await link(second, "d", "a")
                await first.commit()
    with pytest.raises(AssertionError, match="a cycle"):
        await rival.transact(lambda tx: link(tx, "d", "a"))
    assert not await u.exists("d>a")


# -- transact -----------------------------------------------------------------------------


async def test_transact_tries_until_it_succeeds(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="n", data={"n": 0}))
    tries = 0

    async def add(tx: dgent.Transaction) -> int:
        nonlocal tries
        tries += 1
        counter = await tx.get("n")
        if tries < 4:
            await u.put(counter.replace(data={"n": counter.data["n"] + 100}))
        await tx.store(counter.replace(data={"n": counter.data["n"] + 1}), expect=counter.rev)
        return tries

    assert await u.transact(add) == 4
    assert (await u.get("n")).data == {"n": 301}


async def test_transact_gives_up_in_the_end(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="n", data={"n": 0}))
    tries = 0

    async def unlucky(tx: dgent.Transaction) -> None:
        nonlocal tries
        tries += 1
        await tx.get("n")
        await u.put(dgent.Datum(id="n", data={"n": tries}))
        await tx.delete("n")

    with pytest.raises(TransactionConflict):
        await u.transact(unlucky, attempts=3)
    assert tries == 3
    with pytest.raises(dgent.InputError, match="attempts"):
        await u.transact(unlucky, attempts=0)


async def test_other_errors_are_not_retried(u: dgent.Universe) -> None:
    tries = 0

    async def wrong(tx: dgent.Transaction) -> None:
        nonlocal tries
        tries += 1
        await tx.put(dgent.Datum(id="n"), expect=5)

    with pytest.raises(dgent.VersionConflict):
        await u.transact(wrong)
    assert tries == 1


async def test_a_counter_under_many_tasks_is_exact(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="n", data={"n": 0}))

    async def add(tx: dgent.Transaction) -> None:
        counter = await tx.get("n")
        await asyncio.sleep(0)
        await tx.put(counter.replace(data={"n": counter.data["n"] + 1}))

    await asyncio.gather(*(u.transact(add, attempts=40) for _ in range(8)))
    assert (await u.get("n")).data == {"n": 8}


async def test_a_lock_makes_them_queue(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="n", data={"n": 0}))

    async def add(tx: dgent.Transaction) -> None:
        counter = await tx.get("n")
        await asyncio.sleep(0)
        await tx.put(counter.replace(data={"n": counter.data["n"] + 1}))

    await asyncio.gather(*(u.transact(add, attempts=1, lock="n") for _ in range(60)))
    assert (await u.get("n")).data == {"n": 60}
    assert not u.names._locks, "no lock outlives its users"


async def test_at_most_ten_thousand_reads(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=f"r{n}") for n in range(MAX_READS))
    everything = dgent.Query(limit=None)
    async with u.transaction() as tx:
        assert await tx.count(everything) == MAX_READS
        await tx.put(dgent.Datum(id="one more"))
    tries = 0

    async def too_much(tx: dgent.Transaction) -> None:
        nonlocal tries
        tries += 1
        await tx.query(everything)

    with pytest.raises(dgent.Conflict, match="10000") as refused:
        await u.transact(too_much)
    assert tries == 1, "no use in trying again"
    assert not refused.value.retryable
    assert "iterate" in refused.value.hint
