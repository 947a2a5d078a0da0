"""What caused a record, oldest first."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

import dgent
from dgent.errors import InputError
from tests.universe.conftest import Another
from tests.universe.marks import mark, old_mark


async def test_oldest_first(u: dgent.Universe) -> None:
    root = await u.remember(mark("root"))
    middle = await u.put(dgent.Datum(id="raw", parent_id=root.id))
    leaf = await u.remember(mark("leaf"), parent=middle)
    assert await u.causal_chain(leaf.id) == [root, middle, leaf]
    assert await u.causal_chain(root.id) == [root]
    assert await u.causal_chain("nothing") == []


async def test_children_are_found_by_a_query(u: dgent.Universe) -> None:
    root = await u.remember(mark("root"))
    children = [await u.remember(mark(f"c{n}"), parent=root) for n in range(3)]
    assert await u.query(dgent.Query(parent=root.id, descending=False)) == children


async def test_a_missing_parent_ends_the_chain(u: dgent.Universe) -> None:
    leaf = await u.put(dgent.Datum(id="leaf", parent_id="lost"))
    assert await u.causal_chain("leaf") == [leaf]
    root = await u.put(dgent.Datum(id="lost"))
    assert await u.causal_chain("leaf") == [root, leaf]
    await u.delete("lost")
    assert await u.causal_chain("leaf") == [leaf]


async def test_a_cycle_ends_the_chain(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=id, parent_id=parent) for id, parent in ("ab", "bc", "ca", "dd", "ed"))
    assert [d.id for d in await u.causal_chain("a")] == ["c", "b", "a"]
    assert [d.id for d in await u.causal_chain("d")] == ["d"]
    assert [d.id for d in await u.causal_chain("e")] == ["d", "e"]


async def test_an_unreadable_link_breaks_nothing(u: dgent.Universe) -> None:
    root = await u.put(old_mark(1, "unlucky"))
    leaf = await u.remember(mark(), parent=root)
    found = await u.causal_chain(leaf.id)
    assert [f.id for f in found] == [root.id, leaf.id]
    assert found[0].problem


async def test_a_long_chain(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=f"r{n}", parent_id=f"r{n - 1}" if n else None) for n in range(2_000))
    assert [d.id for d in await u.causal_chain("r1999")] == [f"r{n}" for n in range(2_000)]
    assert [d.id for d in await u.causal_chain("r1999", limit=3)] == ["r1997", "r1998", "r1999"]
    assert [d.id for d in await u.causal_chain("r50", limit=None)] == [f"r{n}" for n in range(51)]
    with pytest.raises(InputError, match="limit"):
        await u.causal_chain("r1", limit=0)


async def test_a_chain_is_of_one_moment(u: dgent.Universe, another: Another) -> None:
    """Two writers hang a leaf now under one root, now under the other: no answer mixes the two."""
    await u.put_many(dgent.Datum(id=id) for id in ("a", "b"))

    async def put(root: str) -> None:
        links = [dgent.Datum(id="leaf", parent_id="m"), dgent.Datum(id="m", parent_id=root)]
        await other.put_many([each.replace(data={"root": root}) for each in links])

    other = await another()
    await put("a")
    writing = asyncio.create_task(_turns(put))
    for _ in range(100):
        root, middle, leaf = await u.causal_chain("leaf")
        assert root.id == middle.data["root"] == leaf.data["root"]
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def _turns(put: Callable[[str], Awaitable[None]]) -> None:
    for root in itertools.cycle("ba"):
        await put(root)
        await asyncio.sleep(0)  # memory makes nobody wait
