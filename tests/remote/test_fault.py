"""Lost answers, restarts, slow servers, wrong tokens, and servers that answer nonsense."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Closed, Corrupt, Denied, DgentError, OutcomeUnknown, Unavailable, Unsupported
from dgent.store.backend import Commit, Put
from dgent.store.remote import calls, wire
from dgent.universe.gate import Principal
from dgent.universe.token import create_token, revoke_token
from dgent.universe.universe import Universe
from dgent.verbs.path import invoke
from tests.http.process import serve
from tests.remote.conftest import OpenAs, Place
from tests.remote.host import AGENT
from tests.remote.proxy import Proxy, answering

HELLO = wire.Hello(calls.FORMAT, AGENT, "partner", "sqlite", b"", 0)


def answer(body: bytes, kind: str = calls.KIND, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n".encode() + body


@pytest.fixture
async def proxy(place: Place) -> AsyncIterator[Proxy]:
    async with Proxy(place.host.port).run() as proxy:
        yield proxy


@pytest.fixture
async def through(place: Place, proxy: Proxy) -> AsyncIterator[Universe]:
    """The store, behind a proxy that may lose answers."""
    url = f"http://127.0.0.1:{proxy.port}/{place.name}?timeout=10"
    async with dgent.open(url, token=await place.token()) as u:
        yield u


def is_commit(request: bytes) -> bool:
    return b"/v1/store/commit " in request


async def test_a_lost_answer_and_a_retry_write_once(through: Universe, proxy: Proxy) -> None:
    lost: list[bytes] = []

    def lose(request: bytes) -> bool:
        if is_commit(request) and len(lost) < 2:
            lost.append(request)
            return True
        return False

    proxy.lose = lose
    made = await through.remember({"n": 1}, note="once")
    assert len(lost) == 2 and lost[0] == lost[1]
    assert made.rev == 1
    assert [each.rev for each in await through.history(made.id)] == [1]
    assert [each.note for each in await through.changes()] == ["once"]


async def test_a_keyed_commit_after_a_lost_answer_is_no_repetition_of_another(
    through: Universe, proxy: Proxy
) -> None:
    lost: list[bytes] = []
    proxy.lose = lambda request: is_commit(request) and not lost and not lost.append(request)  # type: ignore[func-returns-value]
    done = await through.commit([Put(dgent.Datum("a", data={"n": 1}))])
    assert not done.repeated and done.written[0].rev == 1
    again = await through.put(dgent.Datum("a", data={"n": 1}))
    assert again.rev == 1 and await through.seq() == done.seq


async def test_an_answer_that_never_comes_is_an_unknown_outcome(through: Universe, proxy: Proxy) -> None:
    proxy.lose = is_commit
    with pytest.raises(OutcomeUnknown) as caught:
        await through.put(dgent.Datum("a", data={"n": 1}), key="mine")
    assert caught.value.retryable and caught.value.details["key"] == "mine"
    proxy.lose = lambda _request: False
    assert (await through.outcome("mine")) is not None
    assert (await through.put(dgent.Datum("a", data={"n": 1}), key="mine")).rev == 1


async def test_a_verb_that_writes_is_never_sent_twice(through: Universe, proxy: Proxy) -> None:
    await invoke(through, "self.block.create", label="log", text="")
    proxy.lose = lambda request: b"/v1/verbs/" in request
    proxy.requests.clear()
    with pytest.raises(OutcomeUnknown):
        await invoke(through, "self.block.append", label="log", text="one line")
    assert len(proxy.requests) == 1
    with pytest.raises(Unavailable):
        await invoke(through, "self.block.get", label="log")
    assert len(proxy.requests) == 4
    proxy.lose = lambda _request: False
    assert (await invoke(through, "self.block.get", label="log")).text.count("one line") == 1


async def test_reads_are_sent_again(through: Universe, proxy: Proxy) -> None:
    made = await through.remember({"n": 1})
    lost: list[bytes] = []
    proxy.lose = lambda request: len(lost) < 2 and not lost.append(request)  # type: ignore[func-returns-value]
    assert (await through.get(made.id)).data == {"n": 1}
    assert len(lost) == 2


async def test_a_server_that_restarts(store_path: Path) -> None:
    url = f"sqlite:///{store_path / 'store.db'}"
    async with dgent.open(url) as here:
        _, token = await create_token(here, Principal(AGENT, "partner"))
    async with serve(url, store_path) as first:
        port = first.port
        u = await dgent.open(f"{first.url}?timeout=5", token=token)
        try:
            await u.remember({"n": 1}, id="a")
            waiting = asyncio.create_task(u.backend.wait(await u.seq(), 30))
            await asyncio.sleep(0.2)
            began = time.monotonic()
            first.process.terminate()
            await first.ended()
            assert time.monotonic() - began < 8, "nobody waits for those who wait"
            with pytest.raises(Unavailable):
                await waiting
            began = time.monotonic()
            with pytest.raises(Unavailable) as caught:
                await u.get("a")
            assert caught.value.retryable and time.monotonic() - began < 5
            with pytest.raises(Unavailable):
                await u.remember({"n": 2}, id="b")
            async with serve(url, store_path, ["--port", str(port)]):
                assert (await u.get("a")).data == {"n": 1}
                await u.remember({"n": 2}, id="b")
                assert await u.exists("b")
        finally:
            await u.close()


async def test_nobody_is_there() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached"):
        await dgent.open("http://127.0.0.1:9", token="dgent_x")
    assert time.monotonic() - began < 5


async def test_a_slow_server_is_given_up() -> None:
    async with answering(answer(calls.pack(HELLO)), pause_s=30) as url:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="in time"):
            await dgent.open(url + "?timeout=1", token="dgent_x")
        assert time.monotonic() - began < 10


async def test_wrong_tokens(place: Place) -> None:
    good = await place.token()
    altered = good[:-1] + ("B" if good.endswith("A") else "A")
    for token in ("dgent_x", altered, "dgent_" + "a" * 5000):
        with pytest.raises(Denied, match="token") as caught:
            await dgent.open(place.url, token=token)
        assert token not in str(caught.value)
    with pytest.raises(Denied, match="needs a token"):
        await dgent.open(place.url)
    with pytest.raises(DgentError):
        await dgent.open(f"{place.host.url}/nowhere", token=good)


async def test_a_revoked_token_ends(place: Place) -> None:
    token = await place.token("friend")
    async with dgent.open(place.url, token=token) as u:
        await u.remember({"n": 1})
        await place.here(lambda there: revoke_token(there, token.split("_")[1]))
        async with asyncio.timeout(20):
            with pytest.raises(Denied):  # a server looks a token up again each second
                while True:
                    await u.seq()
                    await asyncio.sleep(0.1)


HOSTILE = {
    "nothing": b"",
    "a status of other digits": answer(b"", status="²²² OK").decode().encode("latin-1"),
    "a pause of other digits": b"HTTP/1.1 429 Wait\r\nretry-after: \xb2\r\ncontent-length: 0\r\n\r\n",
    "a length of other digits": b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n",
    "a chunk of other digits": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\xb2\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a long head": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
    "a page": answer(b"<html>hello</html>", "text/html"),
    "no MessagePack": answer(b"\xc1\xc1"),
    "another type": answer(calls.pack(["a"])),
    "JSON": answer(b'{"ok": true}', "application/json"),
    "too much": answer(b"x", length=10**13),
    "no number": answer(b"x").replace(b"content-length: 1", b"content-length: -1"),
    "two lengths": answer(b"x").replace(b"content-length: 1", b"content-length: 1\r\ncontent-length: 2"),
    "cut short": answer(b"x", length=100)[:-1],
    "endless chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n",
    "no chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "a redirect": b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n",
    "a bare error": answer(b"", "text/plain", "500 Oops"),
    "an odd error": answer(b'{"code": 5}', "application/json", "400 Bad"),
    "deep": answer(b"\x91" * 100_000),
    "another format": answer(calls.pack(wire.Hello(99, AGENT, "partner", "x", b"", 0))),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_does_no_harm(name: str) -> None:
    async with answering(HOSTILE[name]) as url:
        with pytest.raises(
            (Unavailable, Corrupt, Unsupported, dgent.errors.StorageError, dgent.errors.InputError)
        ) as caught:
            await dgent.open(url + "?timeout=3", token="dgent_sesame")
        assert "sesame" not in repr(caught.value) + str(caught.value)


async def test_errors_of_a_server_are_ours(place: Place) -> None:
    report = {"ok": False, "code": "busy", "error": "dgent_sesame is busy", "hint": "", "retryable": True}
    report["details"] = {"self": 1, "hint": "x", "message": 2, "a b": 1, "n": 3}
    body = json.dumps(report).encode()
    async with answering(answer(body, "application/json", "503 Busy")) as url:
        with pytest.raises(dgent.errors.Busy) as caught:
            await dgent.open(url, token="dgent_sesame")
    assert caught.value.details == {"n": 3} and "sesame" not in str(caught.value)
    body = b'{"code": "no such code", "error": "hm"}'
    async with answering(answer(body, "application/json", "409 Conflict")) as url:
        with pytest.raises(dgent.errors.Conflict, match="hm"):
            await dgent.open(url, token="dgent_sesame")


async def test_an_answer_in_chunks_is_read(place: Place) -> None:
    body = calls.pack(HELLO)
    head = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: " + calls.KIND.encode() + b"\r\n\r\n"
    )
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, body[n : n + 1]) for n in range(len(body))) + b"0\r\nx: y\r\n\r\n"
    async with answering(lambda _n: head + chunks) as url, dgent.open(url, token="dgent_x") as u:
        assert u.author == AGENT


async def test_a_busy_server_is_asked_again_later() -> None:
    busy = b"HTTP/1.1 429 Wait\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    async with answering(lambda n: busy if n == 1 else answer(calls.pack(HELLO))) as url:
        began = time.monotonic()
        async with dgent.open(url, token="dgent_x"):
            assert time.monotonic() - began >= 0.9


async def test_cancelled_requests_leave_nothing_behind(u: Universe) -> None:
    for n in range(30):
        task = asyncio.create_task(u.remember({"n": n}, id=f"c{n}"))
        await asyncio.sleep(0.0005 * (n % 5))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    found = [each for each in await u.get_many([f"c{n}" for n in range(30)]) if each is not None]
    assert all(each.rev == 1 for each in found)
    await u.remember({"n": 1}, id="after")
    assert await u.exists("after")


async def test_many_at_once_and_flat_connections(u: Universe) -> None:
    await asyncio.gather(*(u.remember({"n": n}, id=f"m{n}") for n in range(300)))
    assert await u.count(prefix="m") == 300
    pool = u.backend._pool  # type: ignore[attr-defined]
    assert len(pool._idle) <= pool.address.pool and not pool._busy


async def test_many_who_wait_keep_nobody_from_working(place: Place) -> None:
    async with dgent.open(place.url + "?pool=2&timeout=5", token=await place.token()) as u:
        seq = await u.seq()
        waiting = [asyncio.create_task(u.backend.wait(seq, 20)) for _ in range(40)]
        await asyncio.sleep(0.3)
        await u.remember({"n": 1})
        assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [seq + 1] * 40
        pool = u.backend._pool  # type: ignore[attr-defined]
        assert len(pool._idle) <= 2


async def ask_to_wait(
    place: Place, token: str, seq: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request that waits for the commit after one."""
    body = calls.pack(calls.WaitAsk(seq, 20))
    head = (
        f"POST /{place.name}{calls.PATH}wait HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", place.host.port)
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


async def count_waits(place: Place, wanted: int) -> int:
    """Return how many requests wait, as soon as it is the wanted number."""
    served = await place.host.run(lambda: place.host.house.store(place.name))
    end = time.monotonic() + 5
    while len(served.waits) != wanted and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return len(served.waits)


async def test_who_goes_away_waits_no_longer(place: Place, u: Universe) -> None:
    token, seq = await place.token(), await u.seq()
    asked = [await ask_to_wait(place, token, seq) for _ in range(20)]
    assert await count_waits(place, 20) == 20
    for _, writer in asked[1:]:
        writer.close()
    assert await count_waits(place, 1) == 1
    await u.remember({"n": 1})
    reader, writer = asked[0]
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_one_token_has_so_many_waits(place: Place) -> None:
    token, other = await place.token(), await place.token()
    seq = await place.here(lambda there: there.seq())
    asked = [await ask_to_wait(place, token, seq) for _ in range(64)]
    assert await count_waits(place, 64) == 64
    refused, writer = await ask_to_wait(place, token, seq)
    assert b" 429 " in await asyncio.wait_for(refused.readline(), 10)
    asked += [(refused, writer), await ask_to_wait(place, other, seq)]
    assert await count_waits(place, 65) == 65
    for _, writer in asked:
        writer.close()
    assert await count_waits(place, 0) == 0


async def test_a_closed_handle_says_so(place: Place) -> None:
    u = await dgent.open(place.url, token=await place.token())
    backend = u.backend
    waiting = asyncio.create_task(backend.wait(await backend.last_seq(), 30))
    await asyncio.sleep(0.1)
    await u.close()
    with pytest.raises(Closed):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(Closed):
        await backend.commit(Commit([]), u.contracts)


async def test_agents_share_one_server(open_as: OpenAs) -> None:
    ann, bob = await open_as(agent="ann"), await open_as(agent="bob")
    made = await ann.remember({"n": 1})
    assert (await bob.get(made.id)).author == "ann"
