"""What waits for a name inside that name is told so; it never hangs."""

from __future__ import annotations

from typing import Any

import pytest

import dgent
from dgent import sync
from dgent.errors import InputError, QueryError
from dgent.model.lens import key


async def test_a_modify_inside_a_modify_of_the_same_record_is_refused(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="counter", data={"n": 1}))
    focus = u.focus("counter", key("n"))

    async def inside(n: Any) -> Any:
        await focus.modify(lambda m: m + 1)
        return n + 1

    with pytest.raises(InputError, match="wait for itself"):
        await focus.modify(inside)
    await focus.modify(lambda n: n + 1)
    assert await focus.get() == 2


async def test_a_transact_inside_a_transact_of_the_same_lock_is_refused(u: dgent.Universe) -> None:
    async def inner(tx: dgent.Transaction) -> None:
        await tx.put(dgent.Datum(id="x"))

    async def outer(tx: dgent.Transaction) -> None:
        await u.transact(inner, lock="other")
        await u.transact(inner, lock="one")

    with pytest.raises(InputError, match="wait for itself"):
        await u.transact(outer, lock="one")
    assert await u.exists("x")


def test_a_blocking_modify_inside_a_modify_is_refused() -> None:
    with sync.open("memory:") as u:
        u.put(dgent.Datum(id="counter", data={"n": 1}))
        focus = u.focus("counter", key("n"))

        def inside(n: Any) -> Any:
            focus.modify(lambda m: m + 1)
            return n + 1

        with pytest.raises(InputError, match="wait for itself"):
            focus.modify(inside)
        assert focus.get() == 1


async def test_filters_may_be_given_as_keywords(u: dgent.Universe) -> None:
    for n in range(3):
        await u.put(dgent.Datum(id=f"r{n}", data={"n": n}, tags=frozenset({"even"} if n % 2 == 0 else ())))
    assert [d.id for d in await u.query(tags={"even"}, order_by="n", descending=False)] == ["r0", "r2"]
    assert await u.count(where={"n": {"$gt": 0}}) == 2
    narrowed = await u.query(dgent.Query(tags={"even"}), where={"n": 0})
    assert [d.id for d in narrowed] == ["r0"]
    with pytest.raises(QueryError, match="colour"):
        await u.query(colour="red")


async def test_an_outcome_is_no_repetition(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="x", data={"n": 1}), key="once")
    outcome = await u.outcome("once")
    assert outcome is not None
    assert not outcome.repeated
    assert [written.id for written in outcome.written] == ["x"]
