"""Who comes in, and how much: tokens, hosts, origins, cookies, trust, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.doors.http import house as houses
from dgent.doors.http.app import Server
from dgent.doors.http.house import House
from dgent.doors.http.limit import Limits
from dgent.doors.http.route import ROUTES
from dgent.errors import Unavailable
from dgent.universe.token import list_tokens, revoke_token, rotate_token
from dgent.verbs import registry
from dgent.verbs.caller import ALLOWED
from tests.http.client import Client, serve_universe, token_for


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


async def test_nothing_but_health_without_a_token(u: dgent.Universe) -> None:
    server = await serve_universe(u, limits=Limits(wrong_burst=10_000))
    for token in (None, "x", "dgent_" + "a" * 12 + "_" + "b" * 43):
        client = Client(server, token)
        for route in ROUTES:
            assert (await client.send(route.method, route.path)).status == 401, route
        for verb in registry.every():
            assert (await client.post(f"/v1/verbs/{verb.id}")).status == 401
        for path in ("/metrics", "/v1/openapi.json", "/v1/verbs", "/v1/constellations", "/mcp", "/", "/wat"):
            refused = await client.get(path)
            assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/healthz")).data == "alive"
        assert (await client.get("/readyz")).data == "ready"


async def test_trust_comes_from_the_token(u: dgent.Universe) -> None:
    server = await serve_universe(u)
    for trust in ("partner", "friend", "conversant"):
        client = Client(server, await token_for(u, trust, f"a-{trust}"))
        for verb in registry.every():
            if verb.streams:
                continue  # it would not end
            answer = await client.post(f"/v1/verbs/{verb.id}", {})
            assert answer.status < 500 or answer.status == 501, answer
            if verb.local and verb.unless is None:
                denied = {"input": 400, "denied": 403}
                assert answer.json["code"] in denied and answer.status == denied[answer.json["code"]], verb.id
            elif verb.effect not in ALLOWED[trust] and verb.lighter is None and answer.status != 400:
                assert answer.status == 403, (verb.id, answer)


async def test_the_agent_comes_from_the_token(u: dgent.Universe) -> None:
    server = await serve_universe(u)
    client = Client(server, await token_for(u, "friend", "scout"))
    made = await client.post("/v1/data/note", {"data": {}, "author": "ann"})
    assert made.status == 403
    made = await client.post("/v1/data/note", {"data": {}}, x_dgent_agent="ann", x_dgent_studio="1")
    assert made.data["author"] == "scout"
    assert [each.author for each in await u.history(made.data["id"])] == ["scout"]
    partner = Client(server, await token_for(u, "partner", "boss"))
    made = await partner.post("/v1/data/note", {"data": {}}, x_dgent_agent="ann")
    assert [each.author for each in await u.history(made.data["id"])] == ["boss"]


async def test_a_friend_sees_no_other_agents_blocks(u: dgent.Universe) -> None:
    server = await serve_universe(u)
    ann, eve = [Client(server, await token_for(u, "friend", name)) for name in ("ann", "eve")]
    await ann.post("/v1/blocks", {"label": "secret", "text": "the harbour"})
    assert (await eve.get("/v1/blocks/secret")).status == 404
    assert (await eve.get("/v1/blocks/secret?owner=ann")).status in (403, 404)
    for path in ("/v1/search?words=harbour", "/v1/export", "/v1/data?all=true&limit=100", "/v1/log?all=true"):
        assert b"harbour" not in (await eve.get(path)).body
    assert b"harbour" in (await ann.get("/v1/search?words=harbour")).body


async def test_a_revoked_token_is_refused_soon(u: dgent.Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(houses, "TOKEN_S", 0.0)
    client = Client(await serve_universe(u), await token_for(u))
    assert (await client.get("/v1/status")).status == 200
    [known] = await list_tokens(u)
    _, new = await rotate_token(u, known.id)
    assert (await client.get("/v1/status")).status == 401
    client.token = new
    assert (await client.get("/v1/status")).status == 200
    await revoke_token(u, known.id)
    assert (await client.get("/v1/status")).status == 401


async def test_other_hosts_and_origins(u: dgent.Universe) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    for host in ("evil.example", "evil.example:8730", "", "127.0.0.1.evil.example", "[::2]:80"):
        assert (await client.get("/v1/status", host=host)).status == 421
        assert (await client.get("/healthz", host=host)).status == 421
    for host in ("127.0.0.1:1", "localhost", "LOCALHOST:8730"):
        assert (await client.get("/v1/status", host=host)).status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8731", "file://"):
        assert (await client.get("/v1/status", origin=origin)).status == 403
    assert (await client.get("/v1/status", origin="http://127.0.0.1:8730")).status == 200


async def test_a_cookie_changes_things_only_through_the_studio(u: dgent.Universe) -> None:
    async def open(_stack: object) -> dgent.Universe:
        return u

    server = Server(House({"main": open}), hosts=("127.0.0.1",), sessions={"right": "ann"}.get)
    client = Client(server)
    cookie = {"cookie": "dgent_session_8730=right"}
    assert (await client.get("/v1/status", **cookie)).status == 200
    assert (await client.get("/v1/status", cookie="dgent_session_8730=wrong")).status == 401
    assert (await client.get("/v1/status", cookie="a=b;;=;\x01")).status == 401
    for other in ('prefs={"a":1}', "a b=c", 'x="open', "n=\xe9"):
        both = f"{other}; dgent_session_8730=right"
        assert (await client.get("/v1/status", cookie=both)).status == 200, "cookies of others may be odd"
    refused = await client.post("/v1/data/note", {"data": {}}, **cookie)
    assert refused.status == 403
    made = await client.post("/v1/data/note", {"data": {}}, x_dgent_studio="1", **cookie)
    assert made.data["author"] == "ann"
    made = await client.post("/v1/data/note", {"data": {}}, x_dgent_studio="1", x_dgent_agent="bob", **cookie)
    assert made.data["author"] == "bob"
    by_token = {"cookie": f"dgent_session_8730={await token_for(u)}"}
    assert (await client.get("/v1/status", **by_token)).status == 200
    assert (await client.post("/v1/data/note", {"data": {}}, **by_token)).status == 403


async def test_rates_are_bounded(u: dgent.Universe) -> None:
    server = await serve_universe(u, limits=Limits(rate=1, burst=3, wrong_rate=0.1, wrong_burst=2))
    first, second = [Client(server, await token_for(u)) for _ in range(2)]
    assert [(await first.get("/v1/status")).status for _ in range(4)] == [200, 200, 200, 429]
    refused = await first.get("/v1/status")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await second.get("/v1/status")).status == 200, "each token has its own"
    stranger = Client(server, "wrong")
    assert [(await stranger.get("/v1/status")).status for _ in range(3)] == [401, 401, 429]
    third = Client(server, await token_for(u))
    assert (await third.get("/v1/status")).status == 200, "wrong ones do not lock out right ones"


async def test_bodies_are_bounded(u: dgent.Universe) -> None:
    server = await serve_universe(u, limits=Limits(body_bytes=1000))
    client = Client(server, await token_for(u))
    assert (await client.post("/v1/data/note", {"data": {"a": "x" * 900}})).status == 201
    assert (await client.post("/v1/data/note", {"data": {"a": "x" * 1000}})).status == 413
    for said in ("10000000000", "-1", "1e9", "9" * 30, ""):
        answer = await client.send("POST", "/v1/data/note", b"{}", {"content-length": said})
        assert answer.status == 413 if said else answer.status in (400, 413)
    # A body that is longer than it says, or says nothing.
    long = b'{"data": {"a": "' + b"x" * 2000 + b'"}}'
    assert (await client.send("POST", "/v1/data/note", long, {"content-length": "0"})).status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"data": NaN}',
        b'{"data": Infinity}',
        b"\xff\xfe",
        b'{"data": "\xff"}',
        b'{"data": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"a":' * 100_000,
        b'{"data": 1, "wat": 2}',
        b'{"data": {"a": 1e999}}',
        b'{"data": {"\\ud800": 1}}',
        b"\x1f\x8b" + b"\0" * 50,
        b'{"data": {}, "expect": 99999999999999999999999}',
        b'{"data": {}, "limit": 1e9}',
    ],
)
async def test_bodies_that_are_no_input(u: dgent.Universe, body: bytes) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    answer = await client.send("POST", "/v1/data/note", body)
    assert 400 <= answer.status < 500, answer
    assert answer.json["ok"] is False and answer.json["error"]
    assert await u.count(schema="note") == 0


async def test_compressed_bodies_are_refused(u: dgent.Universe) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    answer = await client.send("POST", "/v1/data/note", b"{}", {"content-encoding": "gzip"})
    assert answer.status == 400


async def test_a_fault_says_nothing_of_itself(
    u: dgent.Universe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    monkeypatch.setattr(registry, "call", lambda *_: 1 / 0)
    answer = await client.get("/v1/status")
    assert answer.status == 500 and b"ZeroDivision" not in answer.body
    assert "ZeroDivisionError" in caplog.text


async def test_the_log_has_no_secrets(u: dgent.Universe, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dgent.http")
    token = await token_for(u)
    client = Client(await serve_universe(u), token)
    await client.get("/v1/data/note?where=password%3Dhunter2")
    await Client(client.server, "dgent_wrong").get("/v1/status")
    assert "GET /v1/data/{schema} 404" in caplog.text or "GET /v1/data/{schema} 200" in caplog.text
    assert token not in caplog.text and "hunter2" not in caplog.text and "dgent_wrong" not in caplog.text


async def test_numbers_for_prometheus(u: dgent.Universe) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    for _ in range(3):
        await client.get("/v1/status")
    text = (await client.get("/metrics")).body.decode()
    assert 'dgent_requests_total{method="GET",route="/v1/status",status="200"} 3' in text
    assert 'dgent_request_seconds_count{route="/v1/status"} 3' in text
    assert "dgent_requests_under_way 1" in text


async def test_a_store_that_opens_late(tmp_path: Path) -> None:
    """Two visitors who come at once open a store once; one that cannot be opened is a 503, not a fault."""
    opened = 0

    async def open(stack: object) -> dgent.Universe:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0.01)
        return await dgent.open(f"sqlite:///{tmp_path}/late.db")

    async def fail(stack: object) -> dgent.Universe:
        raise Unavailable("the disk is gone")

    house = House({"late": open, "broken": fail})
    server = Server(house, hosts=("127.0.0.1",))
    first = await asyncio.gather(*(Client(server).get("/readyz") for _ in range(5)))
    assert [each.status for each in first] == [200] * 5 and opened == 1
    broken = await Client(server, "x", "/broken").get("/v1/status")
    assert broken.status == 503 and broken.json["retryable"]
    await (await house.store("late")).universe.close()


async def test_a_page_is_bounded_however_it_is_written(u: dgent.Universe) -> None:
    client = Client(await serve_universe(u), await token_for(u))
    for limit in ("1001", "1e9", "1500.0", "1_001"):
        assert (await client.get(f"/v1/data/note?limit={limit}")).status == 400, limit
    assert (await client.post("/v1/query", {"limit": 1001})).status == 400
    assert (await client.post("/v1/query", {"limit": 1000})).status == 200


async def test_names_make_no_lines_in_the_log(u: dgent.Universe, caplog: pytest.LogCaptureFixture) -> None:
    async def open(_stack: object) -> dgent.Universe:
        return u

    caplog.set_level("INFO", "dgent.http")
    server = Server(House({"main": open}), hosts=("127.0.0.1",), sessions={"right": "ann"}.get)
    cookie = {"cookie": "dgent_session_8730=right", "x_dgent_agent": "a%0AFORGED"}
    await Client(server).get("/v1/status", **cookie)
    assert "FORGED" in caplog.text and "\nFORGED" not in caplog.text


async def test_a_store_that_is_closed_meanwhile(u: dgent.Universe, tmp_path: Path) -> None:
    other = await dgent.open(f"sqlite:///{tmp_path}/other.db")
    token = await token_for(other)
    client = Client(await serve_universe(other), token)
    assert (await client.get("/v1/status")).status == 200
    await other.close()
    answer = await client.get("/v1/status")
    assert answer.status == 503 and str(tmp_path).encode() not in answer.body


async def test_a_reload_opens_what_moved(tmp_path: Path) -> None:
    def opener(name: str):
        async def open(stack: Any) -> dgent.Universe:
            return await stack.enter_async_context(dgent.open(f"sqlite:///{tmp_path}/{name}.db"))

        open.place = name  # type: ignore[attr-defined]
        return open

    house = House({"main": opener("one")})
    first = await house.store("main")
    await house.reload({"main": opener("one")})
    assert await house.store("main") is first, "the same place stays open"
    await house.reload({"main": opener("two")})
    assert await house.store("main") is not first
    await house.close()
