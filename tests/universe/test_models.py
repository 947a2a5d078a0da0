"""Structs and pydantic models as contracts, on every engine: stored, found, changed and upgraded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, field_validator

import dgent
from dgent.errors import DecodeFailed, NotFound, SchemaConflict, UnreadableRecord
from dgent.model.lens import field
from dgent.model.ref import Ref
from tests.universe.conftest import Another

DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Place(msgspec.Struct, frozen=True):
    city: str
    rank: int = 0


class Visit(msgspec.Struct, frozen=True):
    at: datetime
    place: Place
    price: Decimal = Decimal(0)
    after: Ref[Visit] | None = None


class Site(BaseModel):
    city: str
    rank: int = 0


class Trip(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    at: datetime = Field(alias="when")
    place: Site
    price: Decimal = Decimal(0)
    after: Ref[Trip] | None = None
    url: HttpUrl | None = None
    names: set[str] = set()

    @field_validator("price")
    @classmethod
    def _payable(cls, price: Decimal) -> Decimal:
        if price < 0:
            raise ValueError("a price is never below zero")
        return price


INDEXES = ("at", "place.rank", "price")
VISIT = dgent.Schema("visit", contract=Visit, indexes=INDEXES)
TRIP = dgent.Schema("trip", contract=Trip, indexes=(*INDEXES, "url"))


@pytest.fixture(autouse=True)
def _registered(u: dgent.Universe) -> None:
    u.register(VISIT, TRIP)


def visit(n: int, **more: Any) -> Visit:
    return Visit(DAY + timedelta(n), Place(f"c{n % 2}", n), Decimal(n) * 10, **more)


def trip(n: int, **more: Any) -> Trip:
    return Trip(when=DAY + timedelta(n), place=Site(city=f"c{n % 2}", rank=n), price=Decimal(n) * 10, **more)


MAKERS = pytest.mark.parametrize("make", [visit, trip])


@MAKERS
async def test_round_trip(u: dgent.Universe, make: Any) -> None:
    kept = await u.remember(make(1), tags={"t"})
    assert kept.value == make(1) and type(kept.value) is type(make(1))
    read = await u.get(kept.id)
    assert read == kept and read.value == make(1)
    assert (await u.store(read)).rev == 1, "the same value has the same bytes"
    async with u.transaction() as tx:
        assert await tx.get(kept.id) == kept
        second = await tx.remember(make(2, after=Ref(kept)))
    assert [each.id for each in await u.referrers(kept.id)] == [second.id]
    assert (await u.resolve(await u.get(second.id))).found == {"after": kept}


@MAKERS
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"at": {"$gte": DAY + timedelta(2)}}, [2, 3]),
        ({"place.rank": {"$lt": 2}}, [0, 1]),
        ({"place.city": "c1"}, [1, 3]),
        ({"price": {"$gt": 9}}, [1, 2, 3]),
        ({"price": Decimal("20.0")}, [2]),
    ],
    ids=str,
)
async def test_found_by(u: dgent.Universe, make: Any, where: dict[str, Any], found: list[int]) -> None:
    for n in range(4):
        await u.remember(make(n))
    got = await u.collection(type(make(0))).query(where=where, order_by="price", descending=False)
    assert [each.value.place.rank for each in got] == found
    with pytest.raises(dgent.InputError, match="nowhere"):
        await u.collection(type(make(0))).query(where={"nowhere": 1})


async def test_a_field_that_only_pydantic_knows_is_found_by_its_json(u: dgent.Universe) -> None:
    await u.remember(trip(1))
    kept = await u.remember(trip(2, url="https://example.org/a", names={"b", "a"}))
    assert await u.recall(schema="trip", where={"url": "https://example.org/a"}) == [kept]
    assert await u.recall(schema="trip", where={"url": {"$prefix": "https:"}}) == [kept]
    assert await u.recall(schema="trip", where={"names": {"$contains": "a"}}) == [kept]


async def test_a_model_that_its_owner_changes_is_not_the_datum(u: dgent.Universe) -> None:
    given = trip(1)
    kept = await u.remember(given)
    given.place.rank = 7
    kept.value.place.rank = 8
    for read in (await u.get(kept.id), (await u.recall(schema="trip"))[0]):
        assert read.value.place.rank == 1 == read.datum.data["place"]["rank"]
        read.value.place.rank = 9
        assert read.datum.data["place"]["rank"] == 1
    changed = await u.store(kept, expect=kept.rev)
    assert changed.rev == 2 and (await u.get(kept.id)).value.place.rank == 8


@MAKERS
async def test_unknown_fields_survive(u: dgent.Universe, make: Any) -> None:
    kept = await u.remember(make(1))
    data = {**kept.datum.data, "more": 1, "place": {**kept.datum.data["place"], "zip": "0"}}
    await u.put(kept.datum.replace(data=data))
    changed = await u.focus(kept.id, field("place") >> field("rank")).set(5)
    assert changed.value.place.rank == 5
    assert changed.datum.data["more"] == 1 and changed.datum.data["place"]["zip"] == "0"


async def test_wrong_values_and_data_name_every_field(u: dgent.Universe) -> None:
    wrong = trip(1)
    wrong.place.rank = "a"  # type: ignore[assignment]
    wrong.price = Decimal(-1)
    with pytest.raises(dgent.InputError) as told:
        await u.remember(wrong)
    assert set(told.value.details["fields"]) == {"place.rank", "price"}
    assert await u.count() == 0
    bad = await u.put(dgent.Datum(data={"at": 5, "price": "-1"}, schema="trip", schema_version=1))
    with pytest.raises(DecodeFailed) as unread:
        await u.get(bad.id)
    assert (
        set(unread.value.details["fields"]) == {"at", "place", "price"}
        and unread.value.details["id"] == bad.id
    )
    with pytest.warns(UnreadableRecord, match="never below zero"):
        assert (await u.recall(schema="trip")).problems[0].id == bad.id


async def test_versions(u: dgent.Universe, another: Another) -> None:
    class Stay(BaseModel):
        city: str
        nights: int = 1

    old = await u.remember(visit(1))
    steps = {1: lambda data: {"city": data["place"]["city"]}}
    newer = await another(dgent.Schema("visit", 2, Stay, steps, indexes=("city",)))
    read = await newer.get(old.id)
    assert read.value == Stay(city="c1") and read.was_upgraded
    assert await newer.recall(schema="visit", where={"city": "c1", "nights": 1}) == [read]
    assert (await newer.upgrade_all(Stay)).upgraded == 1
    assert (await newer.get(old.id, raw=True)).data == {"city": "c1"}


async def test_a_contract_may_become_a_model_without_a_new_version(
    u: dgent.Universe, another: Another, recwarn: pytest.WarningsRecorder
) -> None:
    class Same(BaseModel):
        at: datetime
        place: Site
        price: Decimal = Decimal(0)
        after: Ref[Any] | None = None

    old = await u.remember(visit(1))
    other = await another(dgent.Schema("visit", contract=Same, indexes=INDEXES))
    assert (await other.get(old.id)).value.place == Site(city="c1", rank=1)
    assert await other.count(schema="visit") == 1
    assert not [each for each in recwarn if issubclass(each.category, SchemaConflict)]


async def test_a_model_that_is_not_registered(u: dgent.Universe) -> None:
    with pytest.raises(NotFound, match="no schema is registered for Site"):
        await u.remember(Site(city="a"))


async def test_update_changes_fields_of_every_kind_of_value(u: dgent.Universe) -> None:
    u.register(VISIT, TRIP, dgent.Schema("loose"))
    visit = await u.remember(Visit(DAY, Place("Oslo")))
    trip = await u.remember(Trip(when=DAY, place=Site(city="Oslo")))
    loose = await u.remember({"a": 1}, schema="loose")
    assert (await u.update(visit, price=Decimal(3))).value.price == 3
    assert (await u.update(trip, price=Decimal(4))).value.price == 4
    assert (await u.update(loose, b=2)).value == {"a": 1, "b": 2}
    with pytest.raises(dgent.VersionConflict):
        await u.update(visit, price=Decimal(5))
    with pytest.raises(dgent.InputError, match="prise"):
        await u.update(await u.get(trip.id), prise=Decimal(1))
    with pytest.raises(dgent.InputError, match="below zero"):
        await u.update(await u.get(trip.id), price=Decimal(-1))
