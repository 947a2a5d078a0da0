"""The feed over HTTP: every commit once, in order, also for those who come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

import dgent
from dgent.doors.http import app, feed
from dgent.doors.http.house import Visitor
from dgent.doors.http.limit import Limits
from dgent.universe.token import check_token, revoke_token
from dgent.verbs.data.history import Watch
from tests.http.client import Client, serve_universe, token_for


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


async def visitor_of(u: dgent.Universe, trust: str = "friend") -> tuple[app.Server, Visitor, str]:
    server = await serve_universe(u)
    token = await token_for(u, trust)  # type: ignore[arg-type]
    return server, await (await server.house.store("main")).enter(token), token


def number_of(event: bytes) -> int | None:
    """The number of an event; None for a comment."""
    lines = dict(line.split(": ", 1) for line in event.decode().splitlines() if line and line[0] != ":")
    if "id" not in lines:
        return None
    assert json.loads(lines["data"])["seq"] == int(lines["id"])
    return int(lines["id"])


async def take(events: AsyncIterator[bytes], count: int) -> list[int]:
    """The numbers of the next events."""
    found: list[int] = []
    async with asyncio.timeout(60):
        async for event in events:
            number = number_of(event)
            if number is not None:
                found.append(number)
            if len(found) == count:
                break
    return found


async def begin(visitor: Visitor) -> None:
    """Wait until what the visitor follows knows the commit after which it begins."""
    async with asyncio.timeout(60):
        while not visitor.store.feeds:
            await asyncio.sleep(0.001)
        for each in visitor.store.feeds.values():
            await each._begun.wait()


async def test_commits_arrive_in_order(u: dgent.Universe) -> None:
    _, visitor, _ = await visitor_of(u)
    async with aclosing(feed.follow(visitor, Watch())) as events:
        assert (await anext(events)).startswith(b":"), "headers are sent at once"
        coming = asyncio.create_task(take(events, 20))
        await begin(visitor)
        first = await u.seq()
        for n in range(20):
            await u.remember({"n": n})
        assert await coming == list(range(first + 1, first + 21))


async def test_those_who_ask_for_the_same_share_one_look(u: dgent.Universe) -> None:
    _, visitor, _ = await visitor_of(u)
    streams = [feed.follow(visitor, Watch()) for _ in range(10)]
    for each in streams:
        await anext(each)
    waiting = [asyncio.create_task(take(each, 3)) for each in streams]
    await begin(visitor)
    assert len(visitor.store.feeds) == 1
    for n in range(3):
        await u.remember({"n": n})
    found = await asyncio.gather(*waiting)
    assert all(each == found[0] for each in found)
    for each in streams:
        await each.aclose()
    assert not visitor.store.feeds, "nobody looks when nobody listens"


@pytest.mark.parametrize("kept", [2, 1000])
async def test_who_comes_back_misses_nothing(
    u: dgent.Universe, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEPT", kept)
    _, visitor, _ = await visitor_of(u)
    async with aclosing(feed.follow(visitor, Watch())) as stays:
        await anext(stays)
        staying = asyncio.create_task(take(stays, 30))
        await begin(visitor)
        last, got = await u.seq(), list[int]()
        first = last
        for n in range(30):
            await u.remember({"n": n})
            if n % 7 == 6:
                async with aclosing(feed.follow(visitor, Watch(from_seq=last))) as again:
                    got += await take(again, 7)
                    last = got[-1]
        assert got == list(range(first + 1, first + 29))
        assert await staying == list(range(first + 1, first + 31))


async def test_a_slow_client_is_let_go(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_WAITING", 5)
    _, visitor, _ = await visitor_of(u)
    async with aclosing(feed.follow(visitor, Watch())) as slow:
        await anext(slow)
        coming = asyncio.create_task(take(slow, 1))
        await begin(visitor)
        for n in range(20):
            await u.remember({"n": n})
        got = await coming
        for _ in range(50):
            await asyncio.sleep(0.01)
        got += [number for number in [number_of(event) async for event in slow] if number]
    assert got == list(range(got[0], got[0] + len(got))) and len(got) < 20
    async with aclosing(feed.follow(visitor, Watch(from_seq=got[-1]))) as again:
        assert await take(again, 20 - len(got)) == list(range(got[-1] + 1, got[0] + 20))


async def test_the_feed_has_what_the_visitor_may_see(u: dgent.Universe) -> None:
    server, visitor, _ = await visitor_of(u, "conversant")
    ann = Client(server, await token_for(u, "friend", "ann"))
    async with aclosing(feed.follow(visitor, Watch(all=True))) as events:
        await anext(events)
        coming = asyncio.create_task(anext(events))
        await begin(visitor)
        await ann.post("/v1/blocks", {"label": "secret", "text": "the harbour"})
        await ann.post("/v1/data/note", {"data": {"n": 1}})
        seen = await asyncio.wait_for(coming, 60)
        while b'"note"' not in seen:
            assert b"harbour" not in seen
            seen = await asyncio.wait_for(anext(events), 60)


async def test_from_a_commit_that_is_not_there(u: dgent.Universe) -> None:
    _, visitor, _ = await visitor_of(u)
    async with aclosing(feed.follow(visitor, Watch(from_seq=10_000))) as events:
        found = [event async for event in events]
    assert found[-1].startswith(b"event: failed") and b"cursor" in found[-1]


async def test_a_revoked_token_ends_the_stream(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RECHECK_S", 0.0)
    monkeypatch.setattr("dgent.doors.http.house.TOKEN_S", 0.0)
    server, _, token = await visitor_of(u)
    client = Client(server, token)
    following = asyncio.create_task(client.get(f"/v1/changes?from_seq={await u.seq()}"))
    await u.remember({"n": 1})
    await client.hear(b"event: commit")
    assert not following.done()
    await revoke_token(u, (await check_token(u, token)).id)
    await u.remember({"n": 2})
    answer = await asyncio.wait_for(following, 60)
    assert answer.body.count(b"event: commit") == 1


async def test_stopping_ends_streams(u: dgent.Universe) -> None:
    server, _, token = await visitor_of(u)
    following = [asyncio.create_task(Client(server, token).get("/v1/changes")) for _ in range(3)]
    await asyncio.sleep(0.1)
    await server.stop()
    for each in await asyncio.wait_for(asyncio.gather(*following), 60):
        assert each.status == 200 and each.headers["content-type"].startswith("text/event-stream")
    assert (await Client(server).get("/readyz")).status == 503
    assert (await Client(server).get("/healthz")).status == 200


async def test_who_leaves_at_once_leaves_nothing(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the store takes long to say its newest commit."""
    _, visitor, _ = await visitor_of(u)
    slow = dgent.Universe.seq

    async def seq(self: dgent.Universe) -> int:
        await asyncio.sleep(0.1)
        return await slow(self)

    monkeypatch.setattr(dgent.Universe, "seq", seq)
    for _ in range(5):
        stream = feed.follow(visitor, Watch())
        await anext(stream)
        leaving = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await stream.aclose()
    assert not visitor.store.feeds


async def test_large_events_are_not_kept_for_ever(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_BYTES", 20_000)
    _, visitor, _ = await visitor_of(u)
    async with aclosing(feed.follow(visitor, Watch())) as events:
        await anext(events)
        coming = asyncio.create_task(take(events, 10))
        await asyncio.sleep(0.05)
        first = await u.seq()
        for n in range(10):
            await u.remember({"n": n, "text": "x" * 5_000})
            await asyncio.sleep(0.05)
        assert await coming == list(range(first + 1, first + 11))
        (shared,) = visitor.store.feeds.values()
        assert sum(len(raw) for _, raw in shared._kept) <= 20_000
        async with aclosing(feed.follow(visitor, Watch(from_seq=first))) as again:
            assert await take(again, 10) == list(range(first + 1, first + 11)), "the store has the rest"


async def test_streams_of_one_token_are_bounded(u: dgent.Universe) -> None:
    server = await serve_universe(u, limits=Limits(streams=2))
    client = Client(server, await token_for(u))
    following = [asyncio.create_task(client.get("/v1/changes")) for _ in range(2)]
    await asyncio.sleep(0.2)
    assert (await client.get("/v1/changes")).status == 429
    head = await client.send("HEAD", "/v1/changes")
    assert head.status == 200 and not head.body, "it does not begin to follow"
    await server.stop()
    await asyncio.wait_for(asyncio.gather(*following), 60)
    assert not server._streams
