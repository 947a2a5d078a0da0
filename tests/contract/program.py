"""Random programs: steps that every engine, and the model, can run, and answers that compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st

from dgent import clock
from dgent.errors import DgentError
from dgent.model.contract.compile import CompiledContract
from dgent.model.contract.lookup import Lookup
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import (
    LIVE,
    Backend,
    Check,
    Commit,
    Declaration,
    Delete,
    Expect,
    Keep,
    Put,
    Shaped,
    View,
)
from dgent.store.engine import prune, read, recent
from dgent.store.tally import Tally
from dgent.testing.contract import DAY, STORED, Steps
from tests.contract.model import Model, exact

UUID = "0190d000-0000-7000-8000-00000000000d"  # SQLite stores it in 16 bytes, and the other ones as they are
IDS = ["a", "b", "b%", "c_", UUID, UUID.upper()]
FIELDS = ["n", "number", "double"]
INDEXES = [*FIELDS, "n.*", "number.*"]
LONG = "x" * 125


@dataclass(frozen=True)
class Priced:
    n: Decimal
    number: Decimal = Decimal("1E0")
    double: tuple[Decimal, ...] | int = 2


class Contracted(Steps):
    """A caller whose contract of `note` reads texts as decimals, and has defaults."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self._lookup = CompiledContract(Priced).lookup

    def shape(self, datum: Datum) -> Mapping[str, Any]:
        data = super().shape(datum)
        known = datum.schema == "note" and (datum.schema_version == self.known or data is not datum.data)
        return self._lookup.see(data) if known else data

    def upgrade(self, datum: Datum) -> Mapping[str, Any] | None:
        data = super().shape(datum)
        return None if data is datum.data else data

    def lookup(self, schema: str) -> Lookup | None:
        return self._lookup if schema == "note" else None


VIEWS: list[View] = [STORED, Steps(1), Steps(2), Steps(3), Contracted(1), Contracted(2), Contracted(3)]

KINDS = dict.fromkeys(("n", "number", "double.*"), "decimal")
LISTS = [[1], ["a", 1.0, "a"], [LONG + "a", LONG + "b", None, [1]]]
values = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        1.0,
        2,
        -1.5,
        2**53 + 1,
        "",
        "a",
        "1.0",
        "1E0",
        "-2.50",
        "10",
        LONG + "a",
        LONG + "b",
        *LISTS,
        {},
        {"a": 1, "*": "a"},
    ]
)
numbers = st.sampled_from([0, 1, 2, 2.5, 7])
moments = st.integers(0, 40).map(lambda n: clock.from_us(n * 1000))
seqs = st.integers(0, 30)


@st.composite
def datums(draw: st.DrawFn) -> Datum:
    schema = draw(st.sampled_from([None, "note", "note", "note", "tick"]))
    version = draw(st.integers(1, 3)) if schema else None
    number = draw(numbers)
    shapes: dict[int, dict[str, Any]] = {
        1: {"n": number},
        2: {"number": number},
        3: {"number": number, "double": number * 2},
    }
    data: dict[str, Any] = shapes[version or 1] if draw(st.integers(0, 3)) else {"n": draw(values)}
    large = draw(st.integers(0, 5)) == 0
    return Datum(
        id=draw(st.sampled_from(IDS)),
        created_at=DAY + timedelta(days=draw(st.integers(0, 3))),
        data=data,
        content=b"body" * 400 + bytes([draw(st.integers(0, 9))]) if large else b"",
        tags=draw(st.frozensets(st.sampled_from(["t", "u", "t u"]), max_size=2)),
        author=draw(st.sampled_from([None, None, "ann"])),
        source=draw(st.sampled_from([None, None, "web"])),
        parent_id=draw(st.sampled_from([None, None, "a"])),
        schema=schema,
        schema_version=version,
        expires_at=draw(st.one_of(st.none(), st.none(), st.none(), moments)),
    )


expects = st.sampled_from([None, None, None, 0, 1, 2, 3, LIVE])


def _put(datum: Datum, expect: Expect, known: int | None) -> Put:
    """A put by a program that knows a version of `note`, which may be another one than the index's."""
    data = None if known is None else Steps(known).upgrade(datum)
    return Put(datum, expect, None if data is None else Shaped(known or 0, dict(data)))


puts = st.builds(_put, datums(), expects, st.sampled_from([None, 2, 3]))
deletes = st.builds(Delete, st.sampled_from(IDS), expects)
checks = st.builds(Check, st.sampled_from(IDS), expects)
ops = st.one_of(puts, puts, puts, deletes, checks)


def _commit(ops: list[Any], key: str | None, undo: bool, note: str | None) -> Commit:
    return Commit(ops, key=key, kind="undo" if undo else "data", note=note)


keys = st.sampled_from([None, None, None, "k1", "k2"])
notes = st.sampled_from([None, "why"])
commits = st.builds(_commit, st.lists(ops, min_size=1, max_size=4), keys, st.booleans(), notes)

conditions = st.one_of(
    st.builds(lambda op, v: {op: v}, st.sampled_from(["$gt", "$lte"]), st.sampled_from([1, 1.5, "", True])),
    st.builds(
        lambda op, v: {op: v},
        st.sampled_from(["$gt", "$lte", "$eq", "$ne", "$contains"]),
        st.sampled_from([Decimal("1.00"), Decimal("-2.5"), Decimal("1E1"), "1", 10, 2]),
    ),
    st.builds(lambda v: {"$eq": v}, values),
    st.builds(lambda v: {"$in": v}, st.lists(values, max_size=3)),
    st.builds(lambda v: {"$contains": v}, values),
    st.sampled_from([{"$exists": True}, {"$exists": False}, {"$ne": 1}, {"$prefix": LONG}]),
)
queries = st.builds(
    Query,
    schema=st.sampled_from([None, "note", "note", "tick", "none"]),
    tags=st.sampled_from([frozenset(), frozenset({"t"}), frozenset({"t", "u"})]),
    any_tags=st.sampled_from([frozenset(), frozenset(), frozenset({"t", "u"})]),
    author=st.sampled_from([None, None, None, "ann", "system"]),
    source=st.sampled_from([None, None, None, "web"]),
    parent=st.sampled_from([None, None, None, "a"]),
    parents=st.sampled_from([None, None, None, frozenset(), frozenset({"a", "b"})]),
    ids=st.sampled_from([None, None, None, None, frozenset(), frozenset({"a", "b%", "never", UUID})]),
    prefix=st.sampled_from([None, None, None, "b", "b%", "c_", "0190", UUID[:12], UUID[:12].upper()]),
    since=st.sampled_from([None, None, DAY + timedelta(days=1)]),
    until=st.sampled_from([None, None, DAY + timedelta(days=2)]),
    updated_since=st.one_of(st.none(), st.none(), moments),
    updated_until=st.one_of(st.none(), st.none(), st.none(), moments),
    where=st.one_of(st.none(), st.dictionaries(st.sampled_from(FIELDS), conditions, max_size=2)),
    order_by=st.sampled_from(["created_at", "created_at", "updated_at", "seq", *FIELDS]),
    descending=st.booleans(),
    limit=st.sampled_from([None, 1, 2, 100]),
    content=st.booleans(),
    expired=st.sampled_from([False, False, False, True]),
)
views = st.sampled_from(VIEWS)
tallies = st.builds(
    Tally,
    st.one_of(st.sampled_from([Query(), Query(schema="note"), Query(schema="tick")]), queries),
    st.sampled_from([None, *INDEXES]),
    st.sampled_from([None, None, "", "x", LONG]),
    st.sampled_from([None, 1, 3]),
)
past = st.one_of(st.none(), seqs)
declarations = st.one_of(
    st.builds(
        Declaration,
        st.just("note"),
        st.integers(1, 3),
        st.lists(st.sampled_from(INDEXES), max_size=2, unique=True).map(tuple),
        kinds=st.sampled_from([{}, KINDS]),
    ),
    st.builds(Declaration, st.just("tick"), st.just(1), history=st.sampled_from(["all", "none", 1])),
)
keeps = st.builds(
    Keep,
    versions=st.sampled_from([0, 1, 2]),
    after=st.one_of(st.none(), moments),
    schema=st.sampled_from([None, None, "note"]),
) | st.builds(Keep, after=moments)


async def answer(backend: Backend | Model, name: str, args: tuple[Any, ...]) -> Any:
    """What a step comes to, in a form that compares: an error is its code."""
    try:
        given = await getattr(backend, name)(*args)
        if name == "query":
            given = await _pages(backend, given, args)
    except DgentError as error:
        return "error", error.code
    if name == "history" and not isinstance(backend, Model):
        given = [(v.rev, v.seq, v.at, v.op, v.datum, v.author, v.note) for v in given]
    if name == "tally":
        given = [(_as_number(value), count) for value, count in given]
    if name == "compact" and not isinstance(backend, Model):
        given = given.versions
    return exact(given)


def _as_number(value: Any) -> Any:
    """A value in one type: an index does not tell 1 from 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


async def _pages(backend: Backend | Model, page: Any, args: tuple[Any, ...]) -> list[Datum]:
    """The whole answer, read on page by page; the model gives it at once."""
    query, view, as_of = args
    if isinstance(backend, Model):
        whole = await backend.query(query.replace(limit=None), view, as_of)
        return [datum if query.content else datum.replace(content=b"") for datum in whole]
    items = list(page.items)
    while page.cursor is not None:
        page = await backend.query(query.replace(cursor=page.cursor), view, None)
        items += page.items
    return items


class SlowClock:
    """A clock that stands still until it is told to go on."""

    tick = 0

    def now_us(self) -> int:
        """Milliseconds since 1970, as many as there were ticks."""
        return self.tick * 1000


@contextmanager
def slow_clock() -> Iterator[SlowClock]:
    """The same time for all, and small batches: half-filled indexes and half-walked logs are met."""
    slow = SlowClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now_us", slow.now_us)
        patch.setattr(prune, "FILL_BATCH", 2)
        patch.setattr(read, "PROBE", 0)  # walks of the log begin, and end early
        patch.setattr(recent, "_PAGES", (1, 2, 3))
        yield slow
