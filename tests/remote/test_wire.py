"""What is sent comes out as it went in, and what nobody sent is refused."""

from __future__ import annotations

import random

import pytest

from dgent.errors import Corrupt, InputError
from dgent.model.query import Query
from dgent.store.backend import Delete, Put
from dgent.store.remote import calls, wire
from dgent.testing.basic import FULL
from dgent.testing.query import ENVELOPE, WHERE
from tests.soak import times

DEEP = {"a": 1}
for _ in range(14):
    DEEP = {"$or": [DEEP, {"b": 2}]}  # type: ignore[dict-item]


@pytest.mark.parametrize("query", [*ENVELOPE, *WHERE, Query(where=DEEP), Query(where={"$or": [{}]})])
def test_a_query_is_the_same_query(query: Query) -> None:
    again = wire.unpack_query(
        calls.unpack_ask("query", calls.pack(calls.QueryAsk(wire.pack_query(query)))).query
    )
    assert again.digest() == query.digest()
    assert (again.limit, again.offset, again.content) == (query.limit, query.offset, query.content)
    assert wire.unpack_query(wire.pack_query(again)).digest() == query.digest()


def test_a_record_is_the_same_record() -> None:
    for datum in (FULL, FULL.replace(rev=3, seq=9, updated_at=FULL.created_at, problem="odd")):
        sent = calls.pack(datum)
        assert calls.unpack_answer("get", sent, "x") == datum
        assert calls.pack(calls.unpack_answer("get", sent, "x")) == sent
    op = wire.unpack_op(wire.pack_op(Put(FULL, 4)))
    assert isinstance(op, Put) and (op.datum, op.expect, op.plain, op.raw) == (FULL, 4, False, None)
    assert wire.unpack_op(wire.pack_op(Delete("a", "live"))) == Delete("a", "live")


@pytest.mark.parametrize("name", calls.CALLS)
def test_bytes_of_any_kind_raise_our_errors_alone(name: str) -> None:
    rng, refused = random.Random(name), 0
    seeds = [
        calls.pack(calls.QueryAsk(wire.pack_query(WHERE[20]))),
        calls.pack(calls.CommitAsk([wire.pack_op(Put(FULL))])),
        calls.pack([FULL, None]),
        calls.pack(wire.Hello(1, "a", "partner", "sqlite", b"", 0)),
    ]
    for _ in range(times(300)):
        body = bytearray(rng.choice(seeds) if rng.random() < 0.8 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(4)):
            if body:
                body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            calls.unpack_ask(name, bytes(body))
        except InputError:
            refused += 1
        try:
            calls.unpack_answer(name, bytes(body), "x")
        except Corrupt:
            refused += 1
    assert refused > 300
