"""A schema may have every text of its records searched, wherever it is in them."""

from __future__ import annotations

from dataclasses import dataclass

import dgent
from dgent import Datum, Schema
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]


@dataclass(frozen=True)
class Trip:
    place: str
    notes: tuple[str, ...] = ()


async def test_of_records_without_a_contract(u: dgent.Universe) -> None:
    u.register(Schema("any", text={"*": 1}))
    data = {"decision": "use tabs", "why": [{"reason": "onions", "weight": 3}], "*": "starred"}
    await u.put(Datum("a", data=data, schema="any", schema_version=1))
    for words in ("tab", "onion", "starred"):
        assert [hit.id for hit in await u.search(words)] == ["a"]
    assert not await u.search("reason weight"), "names of fields are no texts"


async def test_of_a_contract(u: dgent.Universe) -> None:
    u.register(Schema("trip", 1, Trip, text={"*": 1, "place": 3}))
    await u.remember(Trip("Lisbon", ("tram 28",)))
    await u.remember(Trip("Porto", ("a tram like in Lisbon",)))
    assert [hit.value.place for hit in await u.search("Lisbon")] == ["Lisbon", "Porto"]
    assert [hit.value.place for hit in await u.search("28")] == ["Lisbon"]
