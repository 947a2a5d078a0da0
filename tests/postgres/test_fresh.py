"""New values that many tasks remember at once on Postgres: sent together, and each as if it were alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

import dgent
from dgent import Query, Schema
from dgent.errors import Closed, InputError, OutcomeUnknown, Unavailable
from dgent.store.engine.fresh import FreshGroup
from dgent.store.postgres.writer import AT_ONCE
from tests.postgres.load import feed
from tests.postgres.proxy import Proxy


@dataclasses.dataclass(frozen=True)
class Note:
    text: str
    count: int | None = 0
    share: float = 0.5


NOTE = Schema("note", 1, Note, indexes=("count",))


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were worked out together, for each group; 0 for one that was given up."""
    sizes: list[int] = []
    place = FreshGroup.place

    def count(self: FreshGroup, ledger: Any) -> Any:
        done = place(self, ledger)
        sizes.append(0 if done is None else len(done[0]))
        return done

    monkeypatch.setattr(FreshGroup, "place", count)
    return sizes


@pytest.fixture
async def u(url: str) -> AsyncIterator[dgent.Universe]:
    async with await opened(url) as universe:
        yield universe


async def opened(url: str) -> dgent.Universe:
    u = await dgent.open(url)
    u.register(NOTE)
    await u.remember(Note("the first of its schema", None), tags=["a", "b", "c"])
    return u


def together(u: dgent.Universe, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(u.remember(Note(f"n{n}", n), tags=["a"])) for n in range(count)]


async def test_each_is_a_commit_of_its_own(u: dgent.Universe, placed: list[int]) -> None:
    values = [Note(f"n{n} ☃" if n % 9 else "", n if n % 5 else None, n / 3) for n in range(300)]
    sets = [None, {"a"}, ["b", "a"], frozenset({"c", "é"}), ()]
    made = await asyncio.gather(*[u.remember(v, tags=sets[n % 5]) for n, v in enumerate(values)])
    assert sum(placed) == 300 and min(placed) > 0
    assert sorted(each.seq for each in made) == list(range(2, 302))
    stored = await u.get_many([each.id for each in made], raw=True)
    for n, (each, value, datum) in enumerate(zip(made, values, stored, strict=True)):
        assert datum == each.datum and datum.data == dataclasses.asdict(value)
        assert (datum.rev, datum.author, datum.schema) == (1, "system", "note")
        assert (datum.seq, datum.updated_at) == (each.datum.seq, each.datum.updated_at)
        assert datum.tags == frozenset(sets[n % 5] or ())
    found = await u.recall(Query(schema="note", where={"count": 7}, tags={"b"}))
    assert [each.value for each in found] == [values[7]]
    changes = await u.changes()
    assert [len(each.items) for each in changes] == [1] * 301
    by_seq = {each.seq: each.id for each in made}
    assert [each.items[0].id for each in changes[1:]] == [by_seq[each.seq] for each in changes[1:]]
    findings = await u.backend.upkeep().inspect(deep=True)
    assert {each.level for each in findings} == {"ok"}


async def test_numbers_are_those_of_the_store(u: dgent.Universe, url: str, placed: list[int]) -> None:
    """Another process commits in between, so that none of the assumed numbers holds."""
    async with dgent.open(url) as other:
        for _ in range(3):
            await asyncio.gather(*[other.put(dgent.Datum(data={"n": n})) for n in range(7)])
            made = await asyncio.gather(*together(u, 20))
            told = await feed(other)
            assert [told[each.id] for each in made] == [[each.seq] for each in made]
    assert placed == [20, 20, 20]


async def test_a_wrong_one_is_refused_alone(u: dgent.Universe) -> None:
    puts = [u.remember(Note(f"{n}", n)) for n in range(40)]
    puts.insert(20, u.remember(Note("a", 2**63)))
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(ended.pop(20), InputError)
    assert sorted(each.value.count for each in ended) == list(range(40))
    assert await u.count(schema="note") == 41


async def test_a_cancelled_one_is_left_out(u: dgent.Universe, placed: list[int]) -> None:
    tasks = together(u, 40)
    asyncio.get_running_loop().call_soon(tasks[7].cancel)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(ended.pop(7), asyncio.CancelledError) and placed == [39]
    assert not await u.count(schema="note", where={"count": 7})
    assert await u.count(schema="note") == 40


async def test_a_schema_that_others_changed(u: dgent.Universe, url: str) -> None:
    """What was worked out for the old declaration is refused by the store, and worked out again."""
    await asyncio.gather(*together(u, 20))
    async with dgent.open(url) as other:
        other.register(Schema("note", 1, Note, indexes=("count", "text")))
        await other.remember(Note("other"))
        await asyncio.gather(*together(u, 20))
        assert await other.count(schema="note", where={"text": "n7"}) == 2
        assert await other.count(schema="note") == 42


async def test_those_that_wait_for_a_lane_travel_together(
    u: dgent.Universe, url: str, placed: list[int]
) -> None:
    await asyncio.gather(*together(u, 2 * AT_ONCE))  # makes both connections
    address = u.backend.address
    holder = await asyncpg.connect(address.dsn)
    async with holder.transaction():
        await holder.execute(f"SELECT FROM {address.universe}.clock FOR UPDATE")
        tasks = together(u, 2 * AT_ONCE)
        for _ in range(2):
            await asyncio.sleep(0.01)
            tasks += together(u, 5)
    await asyncio.gather(*tasks)
    await holder.close()
    assert placed[2:] == [AT_ONCE, AT_ONCE, 10]


async def test_a_universe_without_the_function_gets_it(url: str, placed: list[int]) -> None:
    """One that an older dgent made: with the function after the next opening, and usable before."""
    u = await opened(url)
    address = u.backend.address
    owner = await asyncpg.connect(address.dsn)
    (drop,) = await owner.fetchrow(
        "SELECT 'DROP FUNCTION ' || oid::regprocedure FROM pg_proc"
        f" WHERE oid = to_regproc('{address.universe}.dgent_put')"
    )
    await owner.execute(drop)
    for turn in range(2):
        made = await asyncio.gather(*together(u, 20))
        assert len({each.seq for each in made}) == 20, turn
    assert placed == [20, 20] and await u.count(schema="note") == 41
    await u.close()
    async with dgent.open(url) as again:
        again.register(NOTE)
        await again.remember(Note("again"))  # declares its schema
        there = await owner.fetchval(f"SELECT to_regproc('{address.universe}.dgent_put') IS NOT NULL")
        await asyncio.gather(*together(again, 20))
        assert there and placed == [20, 20, 20] and await again.count(schema="note") == 62
    await owner.close()


async def test_what_was_handed_in_before_a_close_is_stored(url: str) -> None:
    u = await opened(url)
    tasks = together(u, 30)
    await asyncio.sleep(0)
    await u.close()
    made = await asyncio.gather(*tasks)
    with pytest.raises(Closed):
        await u.remember(Note("late"))
    async with dgent.open(url) as again:
        again.register(NOTE)
        assert [each.value for each in await again.get_many([e.id for e in made])] == [e.value for e in made]


async def test_all_hear_that_the_server_is_silent(url: str) -> None:
    """Sent and not answered: unknown. Never sent: unavailable. Nobody waits a second time."""
    async with Proxy(url) as proxy, dgent.open(url) as direct:
        u = await opened(f"{proxy.url}&timeout=1&pool=1")
        proxy.mute = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        ended = await asyncio.gather(*together(u, 20), return_exceptions=True)
        assert {type(each) for each in ended} <= {OutcomeUnknown, Unavailable}
        assert loop.time() - began < 4
        proxy.mute = False
        await u.close()
        assert await direct.count(schema="note") in (1, 21)
