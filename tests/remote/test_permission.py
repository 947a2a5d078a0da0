"""What a token lets a program do: never more than the same agent may do through a verb."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dgent
from dgent import Datum, Query, Schema, clock
from dgent.blocks import Library
from dgent.errors import Denied, InputError, NotFound, Unsupported
from dgent.store.backend import Commit, Declaration, Keep, Put, Shaped
from dgent.store.remote import calls, wire
from dgent.universe.gate import Trust
from dgent.universe.universe import Universe
from tests.remote.conftest import OpenAs, Place
from tests.remote.host import AGENT

OTHER = "mallory"


@pytest.fixture
async def secret(place: Place) -> list[str]:
    """The ids of records of another agent's private block."""

    async def write(there: Universe) -> list[str]:
        await Library(there, AGENT).create("diary", text="the treasure is under the oak")
        return [
            each.id
            for each in await there.query(raw=True, limit=None)
            if (each.schema or "").startswith("block.")
        ]

    found: list[str] = await place.here(write)
    assert found
    return found


async def send(u: Universe, name: str, body: bytes) -> Any:
    """Call the server with bytes of any kind."""
    backend: Any = u.backend
    answer = await backend._send(calls.PATH + name, body, calls.KIND)
    return calls.unpack_answer(name, answer.body, "the server")


@pytest.mark.parametrize("trust", ["friend", "conversant"])
async def test_private_records_stay_so(open_as: OpenAs, secret: list[str], trust: str) -> None:
    u = await open_as(trust, OTHER)
    private = [
        id for id in secret if id.startswith(("block.block", "block.entry", "block.page", "block.snapshot"))
    ]
    texts = [repr(each) for each in await u.query(raw=True, limit=None)]
    texts += [repr(each) for each in await u.get_many(secret, raw=True) if each is not None]
    texts += [repr(each) for each in await u.changes()]
    for id in secret:
        texts += [repr(await u.history(id))]
    texts += [repr([hit.snippet for hit in await u.search("treasure oak")])]
    texts += [repr(await u.query(schema="dgent.token", raw=True))]
    assert not [text for text in texts if "treasure" in text or "secret_hash" in text]
    assert all(each is None for each in await u.get_many(private, raw=True))
    assert await u.count(schema="dgent.token") == 0


@pytest.mark.parametrize("trust", ["partner", "friend", "conversant"])
async def test_nobody_writes_what_is_dgents_own(open_as: OpenAs, place: Place, trust: str) -> None:
    u = await open_as(trust, OTHER)
    before = await u.seq()
    for id, schema in (
        ("dgent.token/aaaaaaaaaaaa", "dgent.token"),
        ("x", "dgent.token"),
        ("dgent.fork/x", None),
        ("block.block/x", "block.block"),
        ("x", "block.agent"),
        ("cupboard.crumb/x", "cupboard.crumb"),
    ):
        with pytest.raises(Denied):
            await u.put(Datum(id, data={}, schema=schema, schema_version=None if schema is None else 1))
    assert await u.seq() == before


@pytest.mark.parametrize("field", ["room", "author", "at_us"])
async def test_a_commit_names_neither_room_nor_author_nor_time(u: Universe, field: str) -> None:
    value: Any = 1 if field == "at_us" else "blocks"
    with pytest.raises((Denied, Unsupported)):
        await u.backend.commit(Commit([Put(Datum("a"))], **{field: value}), u.contracts)
    ask = msgspec.to_builtins(calls.CommitAsk([wire.pack_op(Put(Datum("a")))]), builtin_types=(bytes,))
    with pytest.raises(InputError, match=field):
        await send(u, "commit", msgspec.msgpack.encode({**ask, field: value}))
    with pytest.raises(InputError, match="kind"):
        await send(u, "commit", msgspec.msgpack.encode({**ask, "kind": "forget"}))
    assert not await u.exists("a")


async def test_a_friend_does_nothing_that_cannot_be_undone(open_as: OpenAs, u: Universe) -> None:
    await u.remember({"n": 1}, id="a")
    friend = await open_as("friend", OTHER)
    backend = friend.backend
    for call in (
        lambda: friend.forget("a"),
        lambda: friend.compact(Keep(versions=0)),
        lambda: backend.drop_index("note", "n"),
        lambda: send(friend, "fill", calls.pack(calls.FillAsk("note", 1))),
        lambda: backend.declare(Declaration("note", 1, history="none")),
        lambda: backend.declare(Declaration("note", 1, owner="mine")),
        lambda: backend.declare(Declaration("note", 1, feed=False)),
        lambda: backend.declare(Declaration("block.block", 9)),
    ):
        with pytest.raises(Denied):
            await call()
    await friend.put(Datum("a", data={"n": 2}))
    assert [each.author for each in await u.history("a")] == [OTHER, AGENT]
    friend.register(Schema("note", indexes=["n"]))
    assert await friend.count(schema="note") == 0


async def test_a_conversant_reads_and_adds(open_as: OpenAs, u: Universe) -> None:
    await u.remember({"n": 1}, id="a")
    conversant = await open_as("conversant", OTHER)
    conversant.register(Schema("note", indexes=["n"]))
    assert (await conversant.get("a")).data == {"n": 1}
    assert (await conversant.remember({"n": 2}, id="b")).rev == 1
    for call in (
        lambda: conversant.put(Datum("a", data={"n": 3})),
        lambda: conversant.delete("a"),
        lambda: conversant.forget("a"),
        lambda: send(conversant, "declare", calls.pack(calls.DeclareAsk(Declaration("note", 1)))),
    ):
        with pytest.raises((Denied, dgent.errors.VersionConflict)):
            await call()
    assert (await u.get("a")).data == {"n": 1}


@pytest.mark.parametrize("trust", ["friend", "conversant"])
async def test_records_are_written_in_the_own_name_and_now(
    open_as: OpenAs, u: Universe, trust: Trust
) -> None:
    limited = await open_as(trust, OTHER)
    past, began = datetime(2001, 1, 1, tzinfo=UTC), clock.now()
    with pytest.raises(Denied, match=AGENT):
        await limited.put(Datum("a", data={}, author=AGENT))
    assert not await u.exists("a")
    await limited.put(Datum("b", past, data={}, author=OTHER))
    await limited.put(Datum("c", began + timedelta(days=900), data={}))
    for id in ("b", "c"):
        assert began <= (await u.get(id)).created_at <= clock.now()
    await u.put(Datum("d", past, data={}, author="someone"))
    assert ((await u.get("d")).created_at, (await u.get("d")).author) == (past, "someone")


async def test_a_friend_leaves_a_record_its_author(open_as: OpenAs, u: Universe) -> None:
    past = datetime(2001, 1, 1, tzinfo=UTC)
    await u.put(Datum("a", past, data={"n": 1}, author=AGENT))
    friend = await open_as("friend", OTHER)
    await friend.put((await friend.get("a", raw=True)).replace(data={"n": 2}))
    with pytest.raises(Denied, match="someone"):
        await friend.put(Datum("a", data={"n": 3}, author="someone"))
    assert (await u.get("a")).author == AGENT
    await friend.delete("a")
    with pytest.raises(Denied, match=AGENT):
        await friend.put(Datum("a", data={"n": 4}, author=AGENT))
    await friend.undo(await friend.seq())
    found = await u.get("a")
    assert (found.data, found.author, found.created_at) == ({"n": 2}, AGENT, past)


async def test_an_undo_is_of_a_commit_that_was(open_as: OpenAs, u: Universe, place: Place) -> None:
    await u.remember({"n": 1}, id="a")
    await u.put(Datum("a", data={"n": 2}))
    changed = await u.seq()
    forged = [Put(Datum("b"))]
    conversant, friend = await open_as("conversant", OTHER), await open_as("friend", OTHER)
    seq = await u.seq()
    with pytest.raises(Denied, match="undo"):
        await conversant.commit(forged, kind="undo", of_seq=seq)
    for who in (friend, u):
        for of_seq in (None, 0, 10**9):
            with pytest.raises(InputError, match="of_seq"):
                await who.commit(forged, kind="undo", of_seq=of_seq)
    with pytest.raises(Denied, match="did not change"):
        await friend.commit(forged, kind="undo", of_seq=changed)
    assert await u.seq() == seq and not await u.exists("b")

    async def write(there: Universe) -> int:
        await Library(there, AGENT).create("diary", text="the treasure is under the oak")
        return await there.seq()

    with pytest.raises(Denied, match="theirs to see"):
        await friend.commit([], kind="undo", of_seq=await place.here(write))


async def test_a_friend_takes_no_index_away(open_as: OpenAs, u: Universe) -> None:
    full = Declaration("note", 1, indexes=("n", "m"), refs=("of",), text=(("body", 1),), tokenizer="plain")
    await u.backend.declare(full)
    friend = (await open_as("friend", OTHER)).backend
    newer = msgspec.structs.replace(full, version=2)
    for lost, less in {
        "n": {"indexes": ("m",)},
        "of": {"refs": ()},
        "body": {"text": (("title", 1),)},
        "body, m, n, of": {"indexes": (), "refs": (), "text": ()},
    }.items():
        with pytest.raises(Denied, match=f"index {lost},"):
            await friend.declare(msgspec.structs.replace(newer, **less))
    with pytest.raises(Denied, match="body"):
        await friend.declare(msgspec.structs.replace(full, text=(("title", 1),)))
    await friend.declare(Declaration("note", 1))
    await friend.declare(msgspec.structs.replace(newer, indexes=("n", "m", "k")))
    found = {each.name: each for each in await u.schemas()}["note"]
    assert (found.indexes, found.refs, found.text, found.index_version) == (
        ("n", "m", "k"),
        ("of",),
        ("body",),
        2,
    )
    await u.backend.declare(Declaration("note", 3))
    assert {each.name: each.indexes for each in await u.schemas()}["note"] == ()


async def test_what_a_friend_says_of_an_index_is_not_believed(open_as: OpenAs, u: Universe) -> None:
    await u.backend.declare(Declaration("note", 2, indexes=("n",)))
    friend = await open_as("friend", OTHER)
    old = Datum("a", data={"n": 5}, schema="note", schema_version=1)
    for who, waiting in ((u, 0), (friend, 1)):
        put = Put(old.replace(id=who.author), None, Shaped(2, {"n": 1}))
        await who.backend.commit(Commit([put]), who.contracts)
        assert {each.name: each.lagging for each in await u.schemas()}["note"] == waiting


@pytest.mark.parametrize("trust", ["partner", "friend", "conversant"])
async def test_paths_of_the_server_are_for_partners(open_as: OpenAs, store_path: Path, trust: Trust) -> None:
    limited = await open_as(trust, OTHER)
    backend: Any = limited.backend
    for id in ("store.status", "data.stats"):
        body = await backend._send(f"/v1/verbs/{id}", b"{}", "application/json")
        assert (str(store_path) in body.body.decode()) is (trust == "partner")


async def test_a_partner_may_erase(u: Universe) -> None:
    await u.remember({"n": 1}, id="a")
    assert (await u.forget("a")).records == 1
    assert await u.history("a") == []


ODD: dict[str, tuple[str, bytes]] = {
    "no such call": ("evil", b""),
    "a method of the object": ("__init__", b""),
    "nothing": ("get", b""),
    "not a map": ("get", b"\x01"),
    "another type": ("get", msgspec.msgpack.encode({"id": 5})),
    "an unknown field": ("get", msgspec.msgpack.encode({"id": "a", "room": "x"})),
    "deep": ("query", b"\x91" * 100_000),
    "a page of a million": ("query", calls.pack(calls.QueryAsk(wire.WireQuery(limit=10**6)))),
    "all": ("query", calls.pack(calls.QueryAsk(wire.WireQuery(limit=None)))),
    "minus one": ("query", calls.pack(calls.QueryAsk(wire.WireQuery(limit=-1)))),
    "many ids": ("get_many", calls.pack(calls.ManyAsk(["a"] * 5_000))),
    "many commits": ("changes", calls.pack(calls.ChangesAsk(0, 10**9))),
    "a time of no year": ("seq_at", calls.pack(calls.TimeAsk(2**63 - 1))),
    "a query of no year": ("query", calls.pack(calls.QueryAsk(wire.WireQuery(since=2**62)))),
    "odd conditions": (
        "query",
        calls.pack(calls.QueryAsk(wire.WireQuery(where=["is", ["a"], "$eq", ["py", "os"]]))),
    ),
    "deep conditions": (
        "query",
        calls.pack(calls.QueryAsk(wire.WireQuery(where=["not", ["not", ["not", 5]]]))),
    ),
    "a list as data": (
        "commit",
        calls.pack(
            calls.CommitAsk(
                [
                    wire.WireOp(
                        "put",
                        None,
                        None,
                        wire.WireDatum("a", 0, b"[]", [], None, None, None, None, None, None),
                    )
                ]
            )
        ),
    ),
    "no JSON as data": (
        "commit",
        calls.pack(
            calls.CommitAsk(
                [
                    wire.WireOp(
                        "put",
                        None,
                        None,
                        wire.WireDatum("a", 0, b"\xff", [], None, None, None, None, None, None),
                    )
                ]
            )
        ),
    ),
    "deep data": (
        "commit",
        calls.pack(
            calls.CommitAsk(
                [
                    wire.WireOp(
                        "put",
                        None,
                        None,
                        wire.WireDatum(
                            "a",
                            0,
                            b'{"a":' * 5000 + b"1" + b"}" * 5000,
                            [],
                            None,
                            None,
                            None,
                            None,
                            None,
                            None,
                        ),
                    )
                ]
            )
        ),
    ),
    "a put of nothing": ("commit", calls.pack(calls.CommitAsk([wire.WireOp("put", None)]))),
    "many ops": ("commit", calls.pack(calls.CommitAsk([wire.WireOp("delete", None, "a")] * 20_000))),
    "a view without a name": (
        "count",
        calls.pack(
            calls.QueryAsk(wire.WireQuery(), wire.WireView([wire.SeenSchema("n", 1, [wire.SeenField([])])]))
        ),
    ),
    "a guard of before": ("validate", calls.pack(calls.GuardAsk(wire.WireGuard(-5, [], [])))),
    "a search of much": ("search", calls.pack(calls.SearchAsk(["a"], [], [], wire.WireQuery(), 10**9))),
    "a long wait": ("wait", calls.pack(calls.WaitAsk(-1, 1e9))),
    "a NaN": ("wait", calls.pack(calls.WaitAsk(0, float("nan")))),
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_requests_are_refused(u: Universe, name: str) -> None:
    call, body = ODD[name]
    await u.remember({"n": 1})
    if name == "a NaN":
        ask = calls.pack(calls.WaitAsk(await u.seq(), float("nan")))
        assert await send(u, call, ask) == await u.seq()
        return
    with pytest.raises((InputError, NotFound, Unsupported)):
        await send(u, call, body)
    assert await u.count(Query(prefix="a")) == 0
