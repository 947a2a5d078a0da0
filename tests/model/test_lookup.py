"""A contract as queries use it: which paths there are, what stands at them, and what is missing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

from dgent.errors import QueryError
from dgent.model.contract.compile import CompiledContract
from dgent.model.path import parse
from dgent.model.query import Query

_counted = itertools.count()


@dataclass(frozen=True)
class Paid:
    kind: Literal["paid"] = "paid"
    amount: Decimal = Decimal(0)


@dataclass(frozen=True)
class Free:
    kind: Literal["free"] = "free"
    amount: str = "nothing"


@dataclass(frozen=True)
class Tree:
    name: str
    cost: Annotated[Decimal, msgspec.Meta(title="cost")] = Decimal("1.0")
    took: timedelta | None = None
    below: tuple[Tree, ...] = ()
    named: dict[str, Tree] = field(default_factory=dict)
    pair: tuple[Decimal, str] | None = None
    deal: Paid | Free = Paid()
    rest: Any = None
    made: int = field(default_factory=lambda: next(_counted))
    odd: int = field(default_factory=lambda: 1 // 0)


LOOKUP = CompiledContract(Tree).lookup


def check(**asked: Any) -> None:
    query = Query(**asked)
    LOOKUP.check(query.filter.parts, query.order_path)


@pytest.mark.parametrize(
    "path",
    [
        "name",
        "cost",
        "below.0.below.3.cost",
        "named.any.cost",
        "pair.0",
        "pair.1",
        "deal.amount",
        "deal.kind",
        "rest",
        "rest.whatever.0.x",
        "below.0.named.k.deal.amount",
        "took",
    ],
)
def test_paths_of_the_contract(path: str) -> None:
    check(where={path: {"$exists": True}}, order_by=path)


@pytest.mark.parametrize(
    "path",
    [
        "nam",
        "cost.x",
        "below.x",
        "below.0.x",
        "named.k.x",
        "pair.2",
        "pair.x",
        "deal.price",
        "took.days",
        "name.0",
    ],
)
def test_paths_that_no_record_has(path: str) -> None:
    for asked in ({"where": {path: 1}}, {"order_by": path}, {"where": {"$or": [{"name": "a"}, {path: 1}]}}):
        with pytest.raises(QueryError):
            check(**asked)


def test_maps_where_the_contract_has_none() -> None:
    for path in ("name", "cost", "below", "pair"):
        with pytest.raises(QueryError, match="with a map"):
            check(where={path: {"a": 1}})
    for path in ("named", "deal", "rest", "below.0"):
        check(where={path: {"a": 1}})


def test_what_texts_stand_for() -> None:
    paths = ("name", "cost", "took", "pair.0", "pair.1", "below.*.cost")
    kinds = {path: LOOKUP.kind(parse(path)) for path in paths}
    assert kinds == {
        "name": None,
        "cost": "decimal",
        "took": "duration",
        "pair.0": "decimal",
        "pair.1": None,
        "below.*.cost": "decimal",
    }


def test_data_is_seen_with_values_and_defaults_at_every_level() -> None:
    stored: dict[str, Any] = {
        "name": "1",
        "cost": "1E+2",
        "took": "PT5S",
        "below": [{"name": "leaf"}],
        "named": {"k": {"name": "2", "cost": "2.50"}},
        "pair": ["3.0", "3.0"],
        "deal": {"kind": "free", "amount": "5"},
        "rest": {"cost": "1E+2"},
        "unknown": "4",
    }
    seen = LOOKUP.see(stored)
    assert (seen["name"], seen["cost"], seen["took"]) == ("1", Decimal(100), timedelta(seconds=5))
    leaf = seen["below"][0]
    assert (leaf["cost"], leaf["deal"]) == (Decimal(1), {"kind": "paid", "amount": Decimal(0)})
    assert seen["named"]["k"]["cost"] == Decimal("2.5") and seen["pair"] == [Decimal(3), "3.0"]
    assert seen["deal"] == {"kind": "free", "amount": "5"}, "the member that the data is of"
    assert (seen["rest"], seen["unknown"]) == ({"cost": "1E+2"}, "4")
    assert "made" not in seen and "odd" not in seen, "made anew each time, or not at all"
    assert stored["cost"] == "1E+2" and "deal" not in stored["below"][0]


def test_data_that_does_not_fit_is_seen_as_it_is() -> None:
    odds: list[dict[str, Any]] = [
        {"cost": "much"},
        {"cost": None},
        {"below": "x"},
        {"below": [1]},
        {"pair": []},
    ]
    for odd in (*odds, {"deal": {"kind": "?"}}):
        seen = LOOKUP.see({"name": "x", **odd})
        assert {key: seen[key] for key in odd} == odd
    assert LOOKUP.see({"cost": "NaN"})["cost"] == "NaN"
