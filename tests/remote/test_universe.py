"""A remote universe in use: typed values, transactions, the feed, search, rooms and verbs."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import Query, Schema
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.doors.http import store
from dgent.errors import Denied, InputError, Unsupported, VersionConflict
from dgent.sync import open as open_sync
from dgent.universe.universe import Universe
from dgent.verbs.path import invoke
from tests.remote.conftest import OpenAs, Place
from tests.remote.host import AGENT


@dataclass(frozen=True)
class Note:
    text: str
    weight: int = 0
    price: Decimal = Decimal(1)


@dataclass(frozen=True)
class Deep:
    note: Note


NOTE = Schema("note", contract=Note, indexes=["weight"], text=["text"])


@dataclass(frozen=True)
class OldNote:
    body: str


@dataclass(frozen=True)
class NewNote:
    text: str
    size: int


OLD = Schema("memo", contract=OldNote)
NEW = Schema(
    "memo",
    version=2,
    contract=NewNote,
    migrations={1: lambda old: {"text": old["body"], "size": len(old["body"])}},
)


async def test_values_go_in_and_come_out(u: Universe) -> None:
    u.register(NOTE)
    made = await u.remember(Note("the lake", 3), tags=["a"], note="first")
    found = await u.get(made.id)
    assert (found.value, found.rev, found.datum.author) == (Note("the lake", 3), 1, AGENT)
    changed = await u.update(found, weight=4)
    assert (await u.get(made.id)).value.weight == 4 == changed.value.weight
    with pytest.raises(VersionConflict) as caught:
        await u.update(found, weight=5)
    assert caught.value.details["actual"] == 2
    assert [each.note for each in await u.history(made.id)] == [None, "first"]
    await u.undo(await u.seq())
    assert (await u.get(made.id)).value.weight == 3
    assert await u.delete(made.id) and await u.get(made.id) is None


async def test_the_author_is_the_agent_of_the_token(u: Universe, place: Place) -> None:
    assert u.author == AGENT
    made = await u.remember({"a": 1})
    assert made.author == AGENT and (await u.history(made.id))[0].author == AGENT
    with pytest.raises(Denied, match="'bob'"):
        await dgent.open(place.url, token=await place.token(), author="bob")
    async with dgent.open(place.url, token=await place.token(), author=AGENT) as same:
        assert same.author == AGENT


async def test_queries_see_defaults_and_decimals(u: Universe) -> None:
    u.register(NOTE)
    for text, weight, price in (("a", 1, "9"), ("b", 2, "100"), ("c", 3, "20.50")):
        await u.remember(Note(text, weight, Decimal(price)))
    await u.put(dgent.Datum("bare", data={"text": "bare"}, schema="note", schema_version=1))

    async def texts(**filters: Any) -> list[str]:
        return sorted(each.value.text for each in await u.query(schema="note", **filters))

    assert await texts(where={"weight": {"$gte": 2}}) == ["b", "c"]
    assert await texts(where={"weight": 0}) == ["bare"]
    assert await texts(where={"price": {"$gt": Decimal("9.5")}}) == ["b", "c"]
    assert await texts(where={"price": Decimal("1.0")}) == ["bare"]
    ordered = await u.query(schema="note", order_by="price", descending=False)
    assert [each.value.text for each in ordered] == ["bare", "a", "c", "b"]
    assert await u.count(schema="note", where={"$or": [{"weight": 1}, {"text": {"$prefix": "ba"}}]}) == 2
    assert await texts(since=datetime.now(UTC) - timedelta(hours=1), tags=["none"]) == []


async def test_records_of_older_versions_are_compared_here(u: Universe, open_as: OpenAs) -> None:
    u.register(OLD)
    for n in range(5):
        await u.remember(OldNote("x" * n))
    newer = await open_as()
    newer.register(NEW)
    await newer.remember(NewNote("abcdef", 6))
    found = await newer.query(schema="memo", where={"size": {"$gte": 3}}, order_by="size")
    assert [each.value.size for each in found] == [6, 4, 3]
    assert await newer.count(schema="memo", where={"size": {"$lt": 2}}) == 2
    sizes, query = [], Query(schema="memo", order_by="size", limit=2, descending=False)
    while True:
        page = await newer.page(query)
        sizes += [each.value.size for each in page.items]
        if page.cursor is None:
            break
        query = query.replace(cursor=page.cursor)
    assert sizes == [0, 1, 2, 3, 4, 6]
    with pytest.raises(InputError):
        await newer.page(query.replace(order_by="text"))


async def test_defaults_inside_of_a_value_are_seen_here(u: Universe) -> None:
    u.register(Schema("deep", contract=Deep))
    await u.put(dgent.Datum("d", data={"note": {"text": "t"}}, schema="deep", schema_version=1))
    (found,) = await u.query(schema="deep", where={"note.weight": 0})
    assert found.value == Deep(Note("t"))


async def test_a_transaction_conflicts_with_what_another_wrote(u: Universe, open_as: OpenAs) -> None:
    u.register(NOTE)
    other = await open_as()
    await u.remember(Note("a", 1), id="a")

    async def add(tx: Any) -> None:
        found = await tx.get("a")
        await tx.store(found.replace(value=Note("a", found.value.weight + 1)))

    await asyncio.gather(*(each.transact(add) for each in (u, u, u)))
    assert (await u.get("a")).value.weight == 4
    with pytest.raises(dgent.errors.TransactionConflict):
        async with u.transaction() as tx:
            assert await tx.query(Query(schema="note", where={"weight": {"$gt": 1}}))
            await other.put(
                dgent.Datum("b", data={"text": "b", "weight": 9}, schema="note", schema_version=1)
            )
            await tx.remember(Note("late"))
    assert await u.count(schema="note") == 2


async def test_the_feed_tells_what_others_do(u: Universe, open_as: OpenAs) -> None:
    other = await open_as(agent="bob")
    seen: list[str] = []

    async def follow() -> None:
        async for change in u.watch():
            seen.append(change.author)
            if len(seen) == 3:
                return

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.2)
    for n in range(3):
        await other.remember({"n": n})
    await asyncio.wait_for(following, 20)
    assert seen == ["bob"] * 3


async def test_a_search_finds_words_also_of_blocks(u: Universe, place: Place) -> None:
    u.register(NOTE)
    await u.remember(Note("a boat on the lake"))

    async def write(there: Universe) -> None:
        await Library(there, AGENT).create("persona", text="I like the lake")

    await place.here(write)
    hits = await u.search("lake")
    assert len(hits) == 2
    assert any("boat" in hit.snippet for hit in hits)
    assert [hit.value.text for hit in await u.search("boats", schema="note")] == ["a boat on the lake"]


async def test_a_search_looks_where_the_contracts_say(u: Universe, open_as: OpenAs) -> None:
    """Texts that nobody declared are searched, unless the caller knows that there are none."""
    await u.put(dgent.Datum("d", data={"note": {"text": "a heron"}}, schema="deep", schema_version=1))
    assert len(await u.search("heron")) == 1
    knowing = await open_as("conversant", "bob")  # it may not declare the schema to the store
    assert len(await knowing.search("heron")) == 1
    knowing.register(Schema("deep", contract=Deep))
    assert await knowing.search("heron") == []


async def test_more_than_one_request_takes(u: Universe) -> None:
    await u.put_many(dgent.Datum(f"r{n:05}", data={"n": n}) for n in range(2_500))
    assert len(await u.query(limit=None, prefix="r")) == 2_500
    assert len(await u.query(limit=1_700, prefix="r")) == 1_700
    assert [each.id async for each in u.iterate(prefix="r", descending=False)] == [
        f"r{n:05}" for n in range(2_500)
    ]
    found = await u.get_many([f"r{n:05}" for n in range(2_500)])
    assert [each.data["n"] for each in found] == [*range(2_500)]


async def test_large_records_come_in_smaller_parts(u: Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_ANSWER", 100_000)
    for n in range(12):
        await u.put(dgent.Datum(f"r{n:02}", content=bytes([n]) * 30_000))
    ids = [f"r{n:02}" for n in range(12)]
    assert [each.id for each in await u.query(prefix="r", descending=False)] == ids
    assert [each.content[0] for each in await u.get_many(ids)] == [*range(12)]
    assert [change.items[0].id for change in await u.changes()] == ids
    await u.put(dgent.Datum("large", content=b"x" * 200_000))
    with pytest.raises(InputError, match="more than is sent"):
        await u.get("large")
    with pytest.raises(InputError, match="more than is sent"):
        await u.query(prefix="large")


async def test_rooms_are_used_by_their_verbs(u: Universe) -> None:
    with pytest.raises(Unsupported, match="rooms"):
        await Library(u, AGENT).create("persona", text="x")
    with pytest.raises(Unsupported, match="rooms"):
        await Cupboard(u).add("a task")
    made = await invoke(u, "self.block.create", label="persona", text="I am a scout.")
    assert made.label == "persona"
    await invoke(u, "self.block.append", label="persona", text=" I like lakes.")
    block = await invoke(u, "self.block.get", label="persona")
    assert "I like lakes" in block.text
    (crumb,) = (await invoke(u, "self.crumb.new", text="find the lake")).items
    assert crumb.id in [each.id for each in (await invoke(u, "self.crumb.ready")).items]
    with pytest.raises(dgent.errors.NotFound):
        await invoke(u, "self.block.get", label="nothing")
    assert "self.block" in {each.path[:10] for each in (await invoke(u, "self")).items}


async def test_what_a_server_does_not_do_is_said(u: Universe) -> None:
    with pytest.raises(Unsupported):
        await u.search_vectors(b"\0" * 8, Query(schema="note"), 3)
    u.register(OLD)
    await u.remember(OldNote("a"))
    u.register(NEW)
    with pytest.raises(Unsupported, match="upgrade"):
        await u.upgrade_all("memo")


async def test_without_async(place: Place) -> None:
    token = await place.token()

    def work() -> int:
        with open_sync(place.url, token=token) as u:
            u.remember({"a": 1})
            return u.count()

    assert await asyncio.to_thread(work) == 2  # the token is a record too


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "https:///x",
        "http://host/a/b",
        "http://user:secret@host/x",
        "http://host:99999/x",
        "http://host/x?colour=red",
        "http://host/x?timeout=0",
        "http://host/x y",
        "http://host/x#part",
        "http://127.0.0.1/é",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError) as caught:
        dgent.open(url, token="t")
    assert "secret" not in str(caught.value)


def test_a_token_never_shows(store_path: Path) -> None:
    u = dgent.open("https://127.0.0.1:1/x", token="dgent_sesame")
    shown = [repr(u), repr(u.backend), repr(u.backend.address), str(vars(u.backend))]  # type: ignore[attr-defined]
    assert not [each for each in shown if "sesame" in each]
    with pytest.raises(InputError) as caught:
        dgent.open("https://host/x", token="dgent sesame\n")
    assert "sesame" not in str(caught.value)
    with pytest.raises(InputError, match="takes no token"):
        dgent.open(f"sqlite:///{store_path}/a.db", token="dgent_sesame")


async def test_nothing_leaks_over_many_opens(place: Place) -> None:
    token = await place.token()
    counts = []
    for _ in range(3):
        for _ in range(15):
            async with dgent.open(place.url, token=token) as u:
                await u.seq()
        await asyncio.sleep(0.1)  # the server's ends close a little later
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[2] <= counts[0] + 2, counts
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_a_client_needs_nothing_of_the_server() -> None:
    program = (
        "import sys, dgent; dgent.open('https://host/x', token='dgent_x');"
        "print([name for name in ('uvicorn', 'starlette', 'httptools', 'click') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
