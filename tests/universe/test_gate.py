"""A limited handle learns nothing of hidden records by guards, expectations, ranks, counts or views."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import TransactionConflict
from dgent.store.backend import LIVE, NEW, STORED, Check, Commit, Delete, Guard, Op, Put
from dgent.store.remote.view import SentView
from dgent.store.remote.wire import SeenSchema, WireView
from dgent.universe.gate import Principal
from dgent.universe.token import create_token

Q = dgent.Query


class Store:
    """A store with a secret of ann, a token, and a handle of eve, who may see neither."""

    def __init__(self, u: dgent.Universe, trust: Any) -> None:
        self.u, self.eve = u, u.acting(Principal("eve", trust))

    async def fill(self) -> None:
        await self.u.put(dgent.Datum("open", data={"n": 1}))
        ann = Library(self.u, "ann", trust="friend")
        self.block = await ann.create("secret", text="the word is hunter2")
        await create_token(self.u, Principal("ann", "friend"))
        self.hidden = [each.id for each in await self.u.query(schema="block.block", raw=True)]
        self.tokens = [each.id for each in await self.u.query(schema="dgent.token", raw=True)]
        await self.u.search("hunter2")  # which makes the records of texts

    async def expect_conflict(self, guard: Guard) -> None:
        gate = self.eve.backend
        with pytest.raises(TransactionConflict):
            await gate.validate(guard, STORED)
        with pytest.raises(TransactionConflict):
            await gate.commit(Commit([Put(dgent.Datum("never"))], guard=guard), STORED)


@pytest.fixture(params=["friend", "conversant"])
async def store(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with dgent.open(url, author="ann") as u:
        made = Store(u, request.param)
        await made.fill()
        yield made


async def test_a_guard_is_silent_about_what_is_hidden(store: Store) -> None:
    gate, seq = store.eve.backend, await store.u.seq()
    assert store.hidden and store.tokens
    guards = [
        Guard(0, queries=(Q(schema="block.block"),)),
        Guard(0, queries=(Q(schema="block.text", where={"text": {"$gte": "a"}}),)),
        Guard(0, queries=(Q(schema="dgent.token", where={"agent": "ann"}),)),
        Guard(0, queries=(Q(prefix="dgent."),)),
        Guard(0, ids=frozenset((*store.hidden, *store.tokens))),
    ]
    for guard in guards:
        assert await gate.validate(guard, STORED) == seq
    for number, guard in enumerate(guards):
        await gate.commit(Commit([Put(dgent.Datum(f"note{number}"))], guard=guard), STORED)


async def test_a_deleted_hidden_record_is_no_conflict(store: Store) -> None:
    since = await store.u.seq()
    for id in store.tokens:
        await store.u.delete(id)
    guard = Guard(since, frozenset(store.tokens), (Q(schema="dgent.token"),))
    assert await store.eve.backend.validate(guard, STORED) == await store.u.seq()


async def test_what_may_be_seen_is_still_a_conflict(store: Store) -> None:
    since = await store.u.seq()
    mine = await Library(store.u, "eve", trust="friend").create("mine", text="my word")
    for guard in (
        Guard(0, frozenset({"open", *store.hidden})),
        Guard(0, queries=(Q(where={"n": 1}),)),
        Guard(since, frozenset({mine.id})),
        Guard(since, queries=(Q(schema="block.block"),)),
    ):
        await store.expect_conflict(guard)
    since = await store.u.seq()
    await store.u.delete("open")
    await store.expect_conflict(Guard(since, frozenset({"open"})))


async def test_a_deleted_record_that_could_be_seen_is_a_conflict(store: Store) -> None:
    room = store.u.for_room("blocks")
    fields = {"owner": "ann", "to": "agent/eve", "agent": "eve"}
    await room.put(dgent.Datum("s1", data={**fields, "owner": "eve"}, schema="block.share", schema_version=1))
    await room.put(dgent.Datum("s2", data=fields, schema="block.share", schema_version=1))
    assert await store.eve.get("s1", raw=True) is not None
    assert await store.eve.get("s2", raw=True) is None
    since = await store.u.seq()
    await room.delete("s1")
    await room.delete("s2")
    await store.expect_conflict(Guard(since, frozenset({"s1"})))
    await store.eve.backend.validate(Guard(since, frozenset({"s2"})), STORED)


@pytest.mark.parametrize("expect", [None, 0, 1, 7, LIVE, NEW])
async def test_an_expectation_of_a_hidden_record_is_answered_as_of_none(store: Store, expect: Any) -> None:
    gate, before = store.eve.backend, await store.u.seq()

    async def answer(op: Op) -> object:
        try:
            done = await gate.commit(Commit([op]), STORED)
        except dgent.DgentError as error:
            return type(error), str(error).replace(op.id, "ID"), {**error.details, "id": None}
        return done.seq, [(each.rev, each.seq, each.changed, each.at_us) for each in done.written]

    for id in store.hidden:
        assert await answer(Check(id, expect)) == await answer(Check("absent", expect))
        assert await answer(Delete(id, expect)) == await answer(Delete("absent", expect))
        said = await answer(Put(dgent.Datum(id), expect))
        assert isinstance(said, tuple) and said[0] in (dgent.Denied, dgent.VersionConflict)
        assert "rev 1" not in str(said) or expect == 1
    for id in store.tokens:
        assert await answer(Check(id, expect)) == await answer(Check("absent", expect))
    assert await store.u.seq() == before


async def test_ranks_and_versions_are_of_what_may_be_seen(store: Store) -> None:
    gate = store.eve.backend
    ranks = await gate.ranks(["open", *store.hidden, *store.tokens, "absent"])
    assert ranks[0] is not None
    assert ranks[1:] == [None] * (len(ranks) - 1)
    for id in store.tokens:
        await store.u.delete(id)
    assert await gate.ranks(store.tokens) == [None] * len(store.tokens)
    assert await gate.versions("block.block") == await gate.versions("dgent.token") == {}
    await Library(store.u, "eve", trust="friend").create("mine", text="my word")
    assert sum((await gate.versions("block.block")).values()) == 1


async def test_the_outcome_of_a_key_tells_nothing_of_hidden_records(store: Store) -> None:
    await store.u.for_room("blocks").commit([Check(store.hidden[0])], key="k1")
    done = await store.eve.backend.outcome("k1")
    assert done is not None
    assert [(each.rev, each.seq) for each in done.written] == [(0, 0)]


async def test_a_view_of_another_version_tells_nothing_of_hidden_records(store: Store) -> None:
    view = SentView(WireView([SeenSchema("block.block", 99), SeenSchema("dgent.token", 99)]))
    gate = store.eve.backend
    for schema in ("block.block", "dgent.token"):
        for query in (Q(schema=schema, where={"label": "x"}), Q(schema=schema, order_by="label"), Q()):
            page = await gate.query(query, view)
            assert not {each.id for each in page.items} & {*store.hidden, *store.tokens}
            await gate.count(query, view)
        guard = Guard(0, queries=(Q(schema=schema, where={"label": "x"}),))
        assert await gate.validate(guard, view) == await store.u.seq()
