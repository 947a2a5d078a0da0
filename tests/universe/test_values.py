"""Queries see values as contracts read them: decimals and durations by size, defaults for missing fields."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import dgent
from dgent import codec
from dgent.errors import QueryError
from dgent.store.backend import Declaration, Put, Shaped
from dgent.store.engine.backend import KernelBackend
from dgent.store.engine.commit import Ledger
from tests.soak import times
from tests.universe.conftest import Another

DAY = datetime(2025, 1, 1, tzinfo=UTC)
MORE = 300  # more than a planner reads without an index


@dataclass(frozen=True)
class Size:
    width: int = 2
    depth: Decimal = Decimal("1.5")


@dataclass(frozen=True)
class Offer:
    name: str
    price: Decimal
    wait: timedelta = timedelta(hours=1)
    stars: int = 3
    opens: time | None = None
    prices: tuple[Decimal, ...] = ()
    size: Size = Size()
    sizes: tuple[Size, ...] = ()
    mark: str = field(default_factory=lambda: str(uuid4()))


OFFER = dgent.Schema(
    "offer",
    contract=Offer,
    indexes=("price", "stars", "wait", "opens", "prices.*", "size.width", "name", "mark"),
)
PRICES = [
    "100",
    "1E+2",
    "100.00",
    "99.9",
    "9",
    "-5",
    "-5.25",
    "0",
    "-0.0",
    "1000",
    "1E-7",
    "123456789012345678901.5",
]
ZONES = [UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-5))]


def raw(id: str, **data: Any) -> dgent.Datum:
    """An offer as a program without the contract stores it: whatever fields it likes."""
    return dgent.Datum.create({"name": id, "price": "7", **data}, id=id, schema="offer", schema_version=1)


async def names(u: dgent.Universe, **asked: Any) -> list[str]:
    return [found.id for found in await u.query(schema="offer", limit=None, **asked)]


async def offers(u: dgent.Universe) -> None:
    u.register(OFFER)
    for n, price in enumerate(PRICES):
        await u.remember(Offer(price, Decimal(price)), id=f"o{n}", created_at=DAY + timedelta(hours=n))


async def test_decimals_are_equal_when_python_says_so(u: dgent.Universe) -> None:
    await offers(u)
    for asked in (Decimal(100), Decimal("1E+2"), "100", "1e2", 100, 100.0):
        assert sorted(await names(u, where={"price": asked})) == ["o0", "o1", "o2"], asked
        assert sorted(await names(u, where={"price": {"$in": [asked]}})) == ["o0", "o1", "o2"]
        assert len(await names(u, where={"price": {"$ne": asked}})) == len(PRICES) - 3
        assert await u.count(schema="offer", where={"price": asked}) == 3
    assert sorted(await names(u, where={"price": {"$gt": Decimal(9), "$lte": "100"}})) == [
        "o0",
        "o1",
        "o2",
        "o3",
    ]
    assert await names(u, where={"price": 0.0000001}) == ["o10"]


async def test_decimals_stand_in_pythons_order(u: dgent.Universe) -> None:
    await offers(u)
    ordered = [
        found.value.price for found in await u.query(schema="offer", order_by="price", descending=False)
    ]
    assert ordered == sorted(map(Decimal, PRICES))
    pages, query = [], dgent.Query(schema="offer", order_by="price", limit=5)
    while True:
        page = await u.page(query)
        pages += [found.value.price for found in page.items]
        if page.cursor is None:
            break
        query = query.replace(cursor=page.cursor)
    assert pages == sorted(map(Decimal, PRICES), reverse=True)


async def test_durations_and_zoned_times_compare_as_such(u: dgent.Universe) -> None:
    u.register(OFFER)
    waits = [timedelta(days=d, seconds=s) for d, s in ((0, 5), (1, 0), (0, 86_399), (-1, 5), (10, 0), (2, 0))]
    for n, wait in enumerate(waits):
        opens = time(20 - n, 30, 0, 500_000 * (n % 2), tzinfo=ZONES[n % 3])
        await u.remember(Offer(f"o{n}", Decimal(n), wait, opens=opens))
    for name in ("wait", "opens"):
        found = [getattr(each.value, name) for each in await u.query(schema="offer", order_by=name)]
        assert found == sorted(found, reverse=True)
    assert await u.count(schema="offer", where={"wait": {"$gte": timedelta(days=1)}}) == 3
    assert await u.count(schema="offer", where={"wait": {"$lt": "PT10S"}}) == 2
    assert await u.count(schema="offer", where={"wait": timedelta(hours=24)}) == 1
    assert await u.count(schema="offer", where={"opens": {"$gt": time(18, tzinfo=UTC)}}) == sum(
        time(20 - n, 30, 0, 500_000 * (n % 2), tzinfo=ZONES[n % 3]) > time(18, tzinfo=UTC) for n in range(6)
    )


async def test_without_a_contract_a_decimal_still_finds_decimals(u: dgent.Universe, another: Another) -> None:
    await offers(u)
    stranger = await another()
    query = dgent.Query(schema="offer", where={"price": {"$gt": Decimal("99.95")}}, limit=None)
    assert await stranger.count(query) == await u.count(query) == 5
    assert await stranger.count(query.replace(where={"price": "100"})) == 1  # the text, as it is stored


async def test_a_missing_field_is_asked_for_by_its_default(u: dgent.Universe) -> None:
    u.register(OFFER)
    await u.remember(Offer("full", Decimal(1)), id="full")
    await u.put(raw("bare"))
    await u.put(raw("inside", size={}, sizes=[{}]))
    for n in range(MORE):
        await u.put(raw(f"other{n}", stars=10 + n, size={"width": 9}, wait="PT2H", mark="m"))
    everyone = ["bare", "full", "inside"]
    for asked in (
        {"stars": 3},
        {"stars": {"$in": [3, 4]}},
        {"stars": {"$lt": 10}},
        {"stars": {"$not": {"$gte": 10}}},
        {"wait": timedelta(hours=1)},
        {"wait": {"$lt": timedelta(minutes=90)}},
        {"size.width": 2},
        {"size.width": {"$lt": 5}},
        {"size.depth": {"$eq": Decimal("1.50")}, "stars": 3},
        {"size": {"$eq": {"width": 2, "depth": "1.5"}}},
    ):
        assert sorted(await names(u, where=asked)) == everyone, asked
        assert await u.count(schema="offer", where=asked) == 3, asked
    assert await names(u, where={"stars": {"$exists": False}}) == []
    assert await names(u, where={"size.width": {"$exists": False}}) == []
    assert await names(u, where={"sizes.0.width": 2}) == ["inside"]
    assert await names(u, where={"mark": {"$exists": False}}) == ["inside", "bare"]  # made anew for each
    low = [found.id for found in await u.query(schema="offer", order_by="stars", descending=False, limit=4)]
    assert low == ["full", "bare", "inside", "other0"]
    high = [found.id for found in await u.query(schema="offer", order_by="stars", limit=None)]
    assert high[-4:] == ["other0", "inside", "bare", "full"] and len(high) == MORE + 3


async def test_a_filter_that_the_contract_cannot_have_is_an_error(u: dgent.Universe) -> None:
    await offers(u)
    wrong: list[dict[str, Any]] = [
        {"where": {"stars": {"gte": 1}}},
        {"where": {"stars": {"least": 1}}},
        {"where": {"star": 1}},
        {"where": {"size.height": 1}},
        {"where": {"name.first": "x"}},
        {"where": {"prices.first": 1}},
        {"where": {"$or": [{"stars": 1}, {"$not": {"starz": 1}}]}},
        {"where": {"stars": {"$not": {"$gte": 1}}, "nothing": {"$exists": False}}},
        {"order_by": "starz"},
        {"order_by": "size.0"},
    ]
    for asked in wrong:
        query = {"schema": "offer", **asked}
        calls: list[Callable[[], Any]] = [
            lambda query=query: u.query(**query),
            lambda query=query: u.recall(**query),
            lambda query=query: u.count(**query),
            lambda query=query: u.page(dgent.Query(**query)),
        ]
        for call in calls:
            with pytest.raises(QueryError):
                await call()
        with pytest.raises(QueryError):
            async with u.transaction() as tx:
                await tx.query(dgent.Query(**query))
    with pytest.raises(QueryError, match="starz") as caught:
        await u.query(schema="offer", where={"starz": 1})
    assert "stars" in caught.value.hint
    assert await names(u, where={"sizes.3.width": 1, "size.width": 2, "prices": {"$contains": 3}}) == []


async def test_a_program_without_the_contract_may_ask_for_any_field(
    u: dgent.Universe, another: Another
) -> None:
    await offers(u)
    stranger = await another()
    assert await stranger.count(schema="offer", where={"anything": {"$exists": False}}) == len(PRICES)
    assert await stranger.query(schema="offer", where={"size": {"width": 1}}) == []


@pytest.mark.parametrize("turn", range(times(1)))
async def test_random_records_and_queries_answer_as_python_does(u: dgent.Universe, turn: int) -> None:
    chance = random.Random(f"{turn} {random.random()}")  # others in each run, by the seed of its order
    u.register(OFFER)

    def price() -> Decimal:
        if chance.random() < 0.5:
            return Decimal(chance.choice(PRICES))
        return Decimal(
            (chance.randrange(2), (chance.randrange(10), chance.randrange(10)), chance.randrange(-3, 4))
        )

    def wait() -> timedelta:
        return timedelta(seconds=chance.choice([0, 1, -1, 3600, 86_400, 90_000, -86_400]))

    given: dict[str, Any] = {
        "price": lambda: str(price()),
        "wait": lambda: codec.plain(wait()),
        "stars": lambda: chance.randrange(1, 6),
        "prices": lambda: [str(price()) for _ in range(chance.randrange(3))],
        "size": lambda: {"width": chance.randrange(4)},
    }
    datums = []
    for n in range(MORE + 20):
        data = {name: make() for name, make in given.items() if name == "price" or chance.random() < 0.8}
        datums.append(raw(f"r{n:03}", **data))
    await u.put_many(datums)
    values = {found.id: found.value for found in await u.recall(schema="offer", limit=None)}
    assert len(values) == len(datums)
    reads: dict[str, Callable[[Offer], Any]] = {
        "price": lambda offer: offer.price,
        "wait": lambda offer: offer.wait,
        "stars": lambda offer: offer.stars,
        "size.width": lambda offer: offer.size.width,
    }
    operands = {
        "price": price,
        "wait": wait,
        "stars": given["stars"],
        "size.width": lambda: chance.randrange(5),
    }
    checks: dict[str, Callable[[Any, Any], bool]] = {
        "$eq": lambda a, b: a == b,
        "$ne": lambda a, b: a != b,
        "$gt": lambda a, b: a > b,
        "$lte": lambda a, b: a <= b,
    }
    for _ in range(times(25)):
        name, op = chance.choice(list(reads)), chance.choice(list(checks))
        operand = operands[name]()
        wanted = {id for id, value in values.items() if checks[op](reads[name](value), operand)}
        where = {name: {op: operand}}
        assert set(await names(u, where=where)) == wanted, where
        assert await u.count(schema="offer", where=where) == len(wanted), where
        by, down = chance.choice(list(reads)), chance.random() < 0.5
        found = await names(u, where=where, order_by=by, descending=down)
        keys = [reads[by](values[id]) for id in found]
        assert set(found) == wanted and keys == sorted(keys, reverse=down), (where, by)
    wanted = {id for id, value in values.items() if Decimal(100) in value.prices}
    assert set(await names(u, where={"prices": {"$contains": Decimal("1E2")}})) == wanted


async def test_decimals_are_found_in_the_order_of_their_index(u: dgent.Universe) -> None:
    u.register(OFFER)
    await u.put_many([raw(f"r{n:03}", price=str(Decimal(n) / 8), prices=[str(n)]) for n in range(MORE)])
    query = dgent.Query(schema="offer", order_by="price", limit=3)
    first = await u.page(query)
    assert [found.id for found in first.items] == ["r299", "r298", "r297"]
    assert first.explain == "field order"
    second = await u.page(query.replace(cursor=first.cursor))
    assert [found.id for found in second.items] == ["r296", "r295", "r294"]
    for where, ids in (
        ({"price": Decimal("1.50")}, ["r012"]),
        ({"price": 1.5}, ["r012"]),
        ({"price": {"$gt": 37, "$lt": Decimal("37.2")}}, ["r297"]),
        ({"prices": {"$contains": Decimal("7.0")}}, ["r007"]),
    ):
        page = await u.page(dgent.Query(schema="offer", where=where))
        assert [found.id for found in page.items] == ids
        assert page.explain != "schema", where


async def test_an_index_of_before_is_built_again_in_the_order_of_its_values(u: dgent.Universe) -> None:
    """A store whose decimals were indexed as texts answers right at once, and quickly when that is done."""
    await u.backend.declare(Declaration("offer", 1, indexes=("price", "stars"), digest=OFFER.digest))
    await u.put_many([raw(f"r{n:03}", price=str(n), stars=n) for n in range(MORE)])
    u.register(OFFER)
    query = dgent.Query(schema="offer", where={"price": {"$gte": Decimal(98)}}, order_by="price", limit=3)
    for _ in range(2):
        assert [found.id for found in await u.query(query)] == ["r299", "r298", "r297"]
        assert await u.count(query) == MORE - 98
        assert await u.count(query.replace(where={"stars": 7})) == 1
        await u.indexed()
    assert (await u.page(query)).explain == "field order"
    (stats,) = [stats for stats in await u.schemas() if stats.name == "offer"]
    assert stats.building == () and stats.lagging == 0
    await u.put(raw("r000", price="1E+9"))
    assert [found.id for found in await u.query(query)] == ["r000", "r299", "r298"]


async def test_records_that_a_store_of_before_indexed_wrongly_are_indexed_anew(u: dgent.Universe) -> None:
    """An older program's copy was taken for one of the index's version; the keys were wrong for good."""
    steps = {1: lambda data: {**data, "stars": int(data["price"]) * 100}}
    newest = dgent.Schema("offer", version=2, contract=Offer, migrations=steps, indexes=("stars", "name"))
    u.register(newest)
    await u.remember(Offer("new", Decimal(1), stars=5))
    await u.indexed()
    await u.commit([Put(raw("old"), indexed=Shaped(2, {"name": "wrong", "price": "7"}))])
    assert await names(u, where={"name": "old"}) == []

    def as_before(ledger: Ledger) -> None:
        state = ledger.kernel.state("offer")
        assert state is not None
        ledger.kernel.set_state(msgspec.structs.replace(state, keys=0))

    assert isinstance(u.backend, KernelBackend)
    await u.backend._write(as_before)
    u._undeclared.append(newest)  # as at the next start
    for _ in range(2):
        assert await names(u, where={"name": "old"}) == ["old"] == await names(u, where={"stars": 700})
        assert await names(u, where={"name": "wrong"}) == []
        assert len(await names(u, order_by="name")) == 2
        await u.indexed()
