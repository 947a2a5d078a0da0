"""A reply is lost with its connection, at each place where one can be: the work is done once.

Every kind of call is made again and again on a fresh universe, each time with one more reply let
through before the loss, until a call comes through whole. The answer is always as if nothing had
happened, and the feed has it once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import dgent
from dgent import Schema
from dgent.errors import VersionConflict
from dgent.ids import new_id
from dgent.store.backend import Declaration
from dgent.store.postgres.writer import AT_ONCE
from tests.postgres.load import feed
from tests.postgres.proxy import Proxy

PLACES = 32


@dataclasses.dataclass(frozen=True)
class Told:
    text: str


def made(id: str, **more: Any) -> dgent.Datum:
    return dgent.Datum(id=id, data={"n": 1}, **more)


async def _put(u: Any, turn: int) -> None:
    put = await u.put(made(f"put.{turn}"))
    assert put.rev == 1


async def _put_new(u: Any, turn: int) -> None:
    assert (await u.put(made(new_id()))).rev == 1


async def _put_together(u: Any, turn: int) -> None:
    """So many that they are sent before the loop comes round, in two groups."""
    put = await asyncio.gather(*(u.put(made(new_id())) for _ in range(2 * AT_ONCE)))
    assert [each.rev for each in put] == [1] * (2 * AT_ONCE)
    assert len({each.seq for each in put}) == 2 * AT_ONCE


async def _remember_together(u: Any, turn: int) -> None:
    """New values of one schema, which are worked out together; known to the store but for the first time."""
    u.register(Schema("told", 1, Told))
    if not turn:
        await u.remember(Told("the first of its schema"))
    made = await asyncio.gather(*(u.remember(Told(f"{turn}.{n}")) for n in range(AT_ONCE + 16 - (turn == 0))))
    assert len({each.seq for each in made}) == len(made)


async def _put_keyed(u: Any, turn: int) -> None:
    first = await u.put(made(f"keyed.{turn}"), key=f"key.{turn}")
    assert first.rev == 1 and (await u.outcome(f"key.{turn}")).seq == first.seq


async def _create(u: Any, turn: int) -> None:
    """Only if it is not there yet: had the first try been worked out again, it would be refused."""
    put = await u.put(made(f"create.{turn}"), expect=0)
    assert put.rev == 1
    with pytest.raises(VersionConflict):
        await u.put(made(f"create.{turn}"), expect=0)


async def _first_of_a_schema(u: Any, turn: int) -> None:
    """What no commit knew before, a name or a schema, is written under the lock."""
    put = await u.put(made(f"schema.{turn}", schema=f"schema{turn}", schema_version=1), expect=0)
    assert put.rev == 1


async def _count_up(u: Any, turn: int) -> None:
    before = await u.get("counter", raw=True)
    n = before.data["n"] + 1 if before else 0
    put = await u.put(dgent.Datum(id="counter", data={"n": n}), expect=before.rev if before else 0)
    assert put.rev == n + 1


async def _bulk(u: Any, turn: int) -> None:
    put = await u.put_many([made(f"bulk.{turn}.{i}") for i in range(1100)])
    assert {each.rev for each in put} == {1}


async def _transaction(u: Any, turn: int) -> None:
    async def work(tx: Any) -> None:
        assert not await tx.exists(f"tx.{turn}.0")
        for i in range(3):
            await tx.put(made(f"tx.{turn}.{i}"))

    await u.transact(work)


async def _forget(u: Any, turn: int) -> None:
    await u.put_many([made(f"forget.{turn}"), made(f"kept.{turn}")])
    assert (await u.forget(f"forget.{turn}")).records == 1


async def _declare(u: Any, turn: int) -> None:
    declared = await u.backend.declare(Declaration(f"declared{turn}", 1, indexes=("n",)))
    assert not declared.disputed


CALLS: dict[str, tuple[Callable[[Any, int], Awaitable[None]], int]] = {
    "put": (_put, 1),
    "put new": (_put_new, 1),
    "put together": (_put_together, 2 * AT_ONCE),
    "remember together": (_remember_together, AT_ONCE + 16),
    "put keyed": (_put_keyed, 1),
    "create": (_create, 1),
    "first of a schema": (_first_of_a_schema, 1),
    "count up": (_count_up, 1),
    "bulk": (_bulk, 1),
    "transaction": (_transaction, 1),
    "forget": (_forget, 2),
    "declare": (_declare, 0),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_lost_at_each_place(url: str, kind: str) -> None:
    call, commits = CALLS[kind]
    async with Proxy(url) as proxy, dgent.open(f"{proxy.url}&pool=1") as u, dgent.open(url) as direct:
        await u.put(made("warm"))
        lost = 0
        for place in range(PLACES if kind != "forget" else 20):
            before = await direct.seq()
            proxy.lose_replies_after(place)
            await asyncio.wait_for(call(u, place), 10)
            whole = proxy.replies_left is not None
            proxy.lose_replies_after(None)
            made_seqs = await direct.seq() - before
            assert made_seqs == commits, f"{kind}: {made_seqs} commits after losing reply {place}"
            if whole:
                break
            lost += 1
        # A forget ends with looking after each table, which is the same place many times.
        assert lost and (whole or kind == "forget"), f"{lost} replies were lost"
        seqs = await feed(direct)
        once = [id for id in seqs if id not in ("counter", "warm", None)]  # a forgotten one has no id
        assert all(len(seqs[id]) == 1 for id in once)
    print(f"\n{kind}: right after each of {lost} lost replies")


async def test_silence_instead_of_an_end(url: str) -> None:
    """The commit went through and the reply never comes: after a while it is asked for elsewhere."""
    async with Proxy(url) as proxy, dgent.open(f"{proxy.url}&timeout=3") as u, dgent.open(url) as direct:
        await u.put(made("warm"))
        proxy.mute = True
        put = asyncio.ensure_future(u.put(made("x"), expect=0))
        new = asyncio.ensure_future(u.put(made(new_id())))
        await asyncio.sleep(0.3)
        proxy.mute = False
        assert (await put).rev == 1 and (await new).rev == 1
        assert (await put).seq in (await feed(direct))["x"]
        assert sorted(map(len, (await feed(direct)).values())) == [1, 1, 1]
