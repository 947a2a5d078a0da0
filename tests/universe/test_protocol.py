"""A universe is a store of datums as the protocol has it, for mypy and at run time."""

from __future__ import annotations

import dgent
from dgent.universe.protocol import DgentProtocol


async def test_a_universe_fits_the_protocol(u: dgent.Universe) -> None:
    store: DgentProtocol = u
    assert isinstance(u, DgentProtocol) and not isinstance(object(), DgentProtocol)
    first = await store.put(dgent.Datum("a", data={"n": 1}))
    assert await store.put(dgent.Datum("a", data={"n": 1}, created_at=first.created_at)) == first
    await store.put(dgent.Datum("b", parent_id="a"))
    assert await store.exists("a") and await store.count() == 2
    assert [each.id for each in await store.list("b")] == ["b"]
    assert len(await store.causal_chain("b")) == 2
    assert await store.delete("b") and not await store.delete("b") and await store.get("b") is None
