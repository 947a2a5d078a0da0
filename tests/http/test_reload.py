"""A reload takes a store away: requests that are under way finish, and new ones find the new place."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.doors.http import house as houses
from dgent.doors.http.app import Server
from dgent.doors.http.house import House
from dgent.doors.http.limit import Limits
from dgent.errors import Closed
from tests.http.client import HOST, Client, serve_universe, token_for


def opener(place: str, opened: dict[str, dgent.Universe]) -> Any:
    async def open(stack: AsyncExitStack) -> dgent.Universe:
        opened[place] = await stack.enter_async_context(dgent.open(place))
        return opened[place]

    open.place = place  # type: ignore[attr-defined]
    return open


def slow(server: Server, token: str, given: Any) -> tuple[asyncio.Task[None], asyncio.Event, list[Any]]:
    """Begin a request whose body comes when the event is set."""
    body, arrived, got = json.dumps(given).encode(), asyncio.Event(), list[Any]()
    headers = {"host": HOST, "content-length": str(len(body)), "authorization": f"Bearer {token}"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/verbs/data.put",
        "raw_path": b"/v1/verbs/data.put",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        await arrived.wait()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        got.append(message)

    return asyncio.ensure_future(server(scope, receive, send)), arrived, got


async def test_a_reload_waits_for_what_is_under_way(tmp_path: Path) -> None:
    opened: dict[str, dgent.Universe] = {}
    old, new = (f"sqlite:///{tmp_path / name}.db" for name in ("old", "new"))
    tokens = {}
    for place in (old, new):
        async with dgent.open(place) as u:
            tokens[place] = await token_for(u)
    house = House({"main": opener(old, opened)})
    server = Server(house, hosts=("127.0.0.1",))
    request, arrived, got = slow(server, tokens[old], {"data": {"n": 1}, "id": "a"})
    while old not in opened or not house._open["main"]._busy:
        await asyncio.sleep(0.01)
    reload = asyncio.ensure_future(house.reload({"main": opener(new, opened)}))
    await asyncio.sleep(0.05)
    assert not reload.done()
    # New requests are for the new store already.
    made = await Client(server, tokens[new]).post("/v1/verbs/data.put", {"data": {"n": 2}, "id": "b"})
    assert made.status == 200
    arrived.set()
    await request
    assert got[0]["status"] == 200
    await reload
    with pytest.raises(Closed):
        await opened[old].get("a")
    assert await opened[new].get("a") is None
    async with dgent.open(old) as u:
        assert (await u.get("a")).data == {"n": 1}
    await house.close()


async def test_a_request_that_never_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(houses, "FINISH_S", 0.05)
    opened: dict[str, dgent.Universe] = {}
    place = f"sqlite:///{tmp_path / 'a.db'}"
    async with dgent.open(place) as u:
        token = await token_for(u)
    house = House({"main": opener(place, opened), "other": opener("memory:", opened)})
    server = Server(house, hosts=("127.0.0.1",))
    request, arrived, got = slow(server, token, {"data": {"n": 1}})
    while place not in opened or not house._open["main"]._busy:
        await asyncio.sleep(0.01)
    await house.reload({"other": opener("memory:", opened)})
    arrived.set()
    await request
    assert got[0]["status"] == 503
    await house.close()


async def test_only_a_few_exports_are_kept_at_a_time() -> None:
    async with dgent.open("memory:") as u:
        server = await serve_universe(u, limits=Limits(exports=1))
        client = Client(server, await token_for(u))
        await u.put(dgent.Datum("a", data={"n": 1}))
        with server._exports.take():  # one that is not sent yet
            refused = await client.get("/v1/export")
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        for _ in range(3):  # each gives its place back
            answer = await client.get("/v1/export")
            assert answer.status == 200
            assert b'"a"' in answer.body
