"""Schemas with a ttl: times on every put, sweeps in small commits, and reads that let records live on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import clock
from dgent.blocks import Library
from dgent.errors import InputError, SchemaError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.engine.expiry import expiry_of
from dgent.universe import expiry
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe
from dgent.verbs.path import invoke
from tests.calls import Calls

OVER = datetime(2020, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Note:
    text: str
    n: int = 0


@dataclass(frozen=True)
class Plain:
    text: str


def note(**fields: Any) -> Schema[Note]:
    return Schema("note", contract=Note, indexes=("n",), text={"text": 1}, **fields)


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
async def u(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Universe]:
    places = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/a.db", "jsonl": f"jsonl:{tmp_path}/lines"}
    async with dgent.open(places[request.param]) as universe:
        yield universe


@pytest.mark.parametrize(
    ("ttl", "span"),
    [
        ("14d", 14 * DAY),
        ("90s", timedelta(seconds=90)),
        (2 * DAY, 2 * DAY),
        (60, timedelta(minutes=1)),
        (0.5, None),
    ],
)
def test_a_ttl_is_a_text_a_timedelta_or_seconds(ttl: Any, span: timedelta | None) -> None:
    assert note(ttl=ttl).lifetime == (span or timedelta(seconds=0.5))


@pytest.mark.parametrize(
    "ttl", ["", "14", "d", "1y", "-1d", "0s", 0, -1, True, b"1d", timedelta(0), 10**20, "9" * 9 + "w"]
)
def test_other_ttls_are_refused(ttl: Any) -> None:
    with pytest.raises(SchemaError, match="ttl"):
        note(ttl=ttl)


def test_refresh_needs_a_ttl() -> None:
    with pytest.raises(SchemaError, match="refresh_on_read"):
        note(refresh_on_read=True)
    with pytest.raises(SchemaError, match="refresh_on_read"):
        note(refresh_on_read=1, ttl="1d")
    assert note().lifetime is None


def near(moment: datetime | None, wanted: datetime) -> bool:
    return moment is not None and abs(moment - wanted) < timedelta(seconds=20)


async def test_every_way_to_put_gives_a_new_time(u: Universe) -> None:
    u.register(note(ttl="14d"))
    wanted = clock.now() + 14 * DAY
    made = await u.remember(Note("a"))
    assert near(made.expires_at, wanted)
    assert (await u.get(made.id)).expires_at == made.expires_at
    stored = await u.store(made.replace(value=Note("b")))
    again = await u.update(stored, n=4)
    unchanged = await u.store(again)
    raw = await u.put((await u.get(made.id, raw=True)).replace(tags=frozenset({"t"})))
    times = [made.expires_at, stored.expires_at, again.expires_at, unchanged.expires_at, raw.expires_at]
    assert times == sorted(set(times), key=str), "each is later than the one before"
    async with u.transaction() as tx:
        inside = await tx.remember(Note("c"))
        await tx.put(Datum(id="d", data={"text": "d", "n": 1}, schema="note", schema_version=1))
    assert near(inside.expires_at, wanted)
    assert near((await u.get("d")).expires_at, wanted)
    gathered = await asyncio.gather(*(u.remember(Note(str(n))) for n in range(20)))
    assert all(near(each.expires_at, wanted) for each in gathered)
    many = await u.put_many([Datum(data={"text": "e", "n": 1}, schema="note", schema_version=1)])
    assert near(many[0].expires_at, wanted)


async def test_a_record_may_name_its_own_time(u: Universe) -> None:
    u.register(note(ttl="14d"), Schema("plain", contract=Plain))
    mine = datetime(2090, 1, 1, tzinfo=UTC)
    for value in (Note("a"), Plain("a"), {"a": 1}):
        made = await u.remember(value, expires_at=mine)
        assert made.expires_at == mine
    assert (await u.put(Datum(data={"a": 1}, expires_at=mine))).expires_at == mine
    await u.remember(Plain("gone"), expires_at=OVER, id="gone")
    assert [await u.get("gone"), await u.exists("gone"), await u.count(schema="plain")] == [None, False, 1]
    kept = await u.store((await u.query(schema="plain"))[0].replace(value=Plain("b")))
    assert kept.expires_at == mine, "without a ttl a time stays until it is changed"
    lasting = await u.put(kept.datum.replace(expires_at=None))
    assert [lasting.expires_at, lasting.extra] == [None, None]
    for wrong in (datetime(2030, 1, 1), "2030-01-01", 5):
        with pytest.raises(InputError, match="expires_at"):
            await u.remember({"a": 1}, expires_at=wrong)  # type: ignore[call-overload]


async def test_search_iterate_and_links_leave_expired_records_out(u: Universe) -> None:
    u.register(note())
    for n in range(6):
        await u.remember(Note("a red fox", n), expires_at=OVER if n % 2 else None, id=f"fox{n}")
    live = {"fox0", "fox2", "fox4"}
    assert {hit.id for hit in await u.search("fox", k=3)} == live
    assert {each.id async for each in u.iterate(schema="note")} == live
    assert {each.id for each in await u.recall("note")} == live
    assert [each.id for each in await u.query(schema="note", where={"n": {"$lte": 1}})] == ["fox0"]
    await u.indexed()
    assert {hit.id for hit in await u.search("fox", k=3)} == live


@pytest.mark.parametrize(("history", "versions"), [("all", 2), ("none", 1)])
async def test_a_sweep_keeps_the_history_that_the_schema_says(
    u: Universe, history: str, versions: int
) -> None:
    u.register(note(history=history))
    await u.put_many([_over(f"n{n}") for n in range(450)])
    await u.remember(Note("live"), id="live")
    before = await u.seq()
    assert await u.sweep(limit=7) == 7
    assert await u.sweep() == 443
    commits = await u.changes(before)
    assert max(len(each.items) for each in commits) <= expiry.BATCH
    assert {each.note for each in commits} == {"expired"}
    assert [await u.sweep(), await u.count(), len(await u.history("n3"))] == [0, 1, versions]


def _over(id: str) -> Datum:
    return Datum(id=id, data={"text": id, "n": 1}, schema="note", schema_version=1, expires_at=OVER)


async def test_two_sweeps_at_once_delete_each_record_once(u: Universe) -> None:
    u.register(note())
    await u.put_many([_over(f"n{n}") for n in range(300)])
    swept, others, again = await asyncio.gather(u.sweep(), u.sweep(), u.put(Datum(id="n7", data={"new": 1})))
    assert swept + others in (299, 300)
    assert (await u.get("n7")).data == again.data == {"new": 1}


async def test_sweeps_run_in_the_background_and_reads_delete_nothing(u: Universe) -> None:
    u.register(note(ttl=0.2))
    await u.remember(Note("a"), id="a")
    await asyncio.sleep(0.25)
    seq = await u.seq()
    assert [await u.get("a"), await u.count()] == [None, 0]
    assert await u.seq() == seq
    for _ in range(40):
        await asyncio.sleep(0.05)
        if await u.seq() > seq:
            break
    assert [each.op for each in await u.history("a")] == ["delete", "put"]


async def test_a_read_lets_a_record_live_on(u: Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "GATHER_S", 0.01)
    u.register(note(ttl="10m", refresh_on_read=True))
    soon = clock.now() + timedelta(minutes=5)
    ids = []
    for n in range(4):
        ids.append((await u.remember(Note("fox", n), expires_at=soon)).id)
    before, rev = await u.seq(), (await u.history(ids[0]))[0].rev
    await asyncio.sleep(0.05)
    for id in ids:
        await u.backend.get(id)  # not a read of the universe
    await u.get(ids[0])
    await u.query(schema="note", where={"n": 1})
    await u.search("fox", k=1, where={"n": 2})
    await asyncio.sleep(0.15)
    found = [await u.backend.get(id) for id in ids]
    later = [near(each and each.expires_at, clock.now() + timedelta(minutes=10)) for each in found]
    assert later == [True, True, True, False]
    if u.backend.name != "jsonl":
        assert [await u.seq(), found[0] and found[0].rev] == [before, rev], "neither a commit nor a version"
    seq = await u.seq()
    await u.get(ids[0])
    await asyncio.sleep(0.1)
    assert await u.seq() == seq, "once in a minute is enough"
    assert await u.count(Query(schema="note")) == 4


async def test_closing_keeps_what_was_read_last(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    soon = clock.now() + timedelta(minutes=5)
    async with dgent.open(url) as u:
        u.register(note(ttl="10m", refresh_on_read=True))
        made = await u.remember(Note("a"), expires_at=soon)
        await u.get(made.id)
    async with dgent.open(url) as u:
        found = await u.get(made.id)
        assert near(found.expires_at, clock.now() + timedelta(minutes=10))
        assert [each.id for each in await u.query(schema="note")] == [made.id]


async def test_records_that_do_not_expire_cost_no_more(u: Universe) -> None:
    u.register(Schema("plain", contract=Plain))
    await u.remember(Plain("a"))
    await u.query(schema="plain")
    counted = []
    with Calls() as calls:
        for ttl in ("1d", "2d"):
            with calls.counting():
                await u.query(schema="plain")
            counted.append(calls.python)
            u.register(Schema(f"note{ttl}", ttl=ttl))
            await u.remember({"text": "b"}, schema=f"note{ttl}")
            await u.query(schema="plain")
    # A folder of lines is looked at now and then, whoever asks.
    assert 0 < counted[1] <= counted[0] + (u.backend.name == "jsonl")


async def test_a_gated_handle_counts_only_what_it_may_see(u: Universe) -> None:
    u.register(note())
    await u.remember(Note("mine", 1), tags={"open"})
    for agent in ("scout", "other"):
        await Library(u, agent=agent).create(f"notes of {agent}")
    friend = u.acting(Principal("scout", "friend"))
    everything = await u.values("block.block", "label")
    assert everything == [("notes of other", 1), ("notes of scout", 1)]
    for schema, path in (("note", "n"), ("block.block", "label")):
        seen = await friend.query(schema=schema, raw=True, limit=None)
        assert await friend.values(schema, path) == sorted((each.data[path], 1) for each in seen)
    assert len(await friend.values("block.block", "label")) == 1
    assert await friend.tags("note") == [("open", 1)]


async def test_the_doctor_finds_nothing_wrong(u: Universe) -> None:
    u.register(note(ttl="1d", refresh_on_read=True))
    made = [await u.remember(Note(str(n), n)) for n in range(30)]
    await u.put_many([_over(f"n{n}") for n in range(300)])
    extend = getattr(u.backend, "extend", None)
    if extend is not None and u.backend.name != "jsonl":
        await extend([(each.id, each.rev, clock.now() + 9 * DAY) for each in made[:9]])
    await u.delete(made[3].id)
    await u.sweep(limit=50)
    if u.backend.name != "memory":
        found = await invoke(u, "self.store.doctor", deep=True)
        assert [each for each in found.findings if each.level in ("warning", "problem")] == []


async def test_a_search_among_ids(u: Universe) -> None:
    u.register(note())
    made = [await u.remember(Note("a red fox", n)) for n in range(60)]
    wanted = {made[3].id, made[44].id}
    await u.indexed()
    assert {hit.id for hit in await u.search("fox", ids=wanted, k=5)} == wanted
    assert await u.search("fox", ids=frozenset(), k=5) == []


@pytest.mark.parametrize(
    "extra", [b"[" * 100_000, b"{" * 9, b"\xff", b'{"expires_at": "9999-99-99T00:00:00Z"}', b"1"]
)
def test_damaged_bytes_name_no_time(extra: bytes) -> None:
    assert expiry_of(extra) is None
