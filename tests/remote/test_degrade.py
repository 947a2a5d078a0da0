"""A server that is away for a while: writes wait in an outbox, and happen once when it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import dgent
from dgent.errors import Denied, Unavailable, Unsupported
from dgent.store.offline import backend as offline
from dgent.universe.gate import Principal
from dgent.universe.token import create_token
from dgent.universe.universe import Universe
from dgent.verbs.path import invoke
from tests.http.process import serve
from tests.remote.conftest import Place
from tests.remote.proxy import Proxy

pytestmark = pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "PROBE_S", (0.1, 0.3))


async def back(u: Universe) -> None:
    """Wait until the store is available again, and has all writes."""
    async with asyncio.timeout(30):
        while u.degraded is not None:
            await asyncio.sleep(0.05)


async def test_writes_wait_for_the_server(store_path: Path) -> None:
    url, outbox = f"sqlite:///{store_path / 'store.db'}", str(store_path / "outbox.db")
    async with dgent.open(url) as here:
        _, token = await create_token(here, Principal("scout", "friend"))
    async with serve(url, store_path) as first:
        place = f"http://127.0.0.1:{first.port}?timeout=5"
        u = await dgent.open(place, token=token, degrade=True, outbox=outbox)
        assert u.author == "scout" and u.degraded is None
        await u.put(dgent.Datum("a", data={"n": 1}))
        first.process.terminate()
        await first.ended()
        assert (await u.put(dgent.Datum("b", data={"n": 2}))).seq is None
        assert u.degraded is not None and token not in str(u.degraded)
        with pytest.raises(Unavailable):
            await u.get("a")
        with pytest.raises(Unavailable):
            await invoke(u, "self.block.list")
        await u.close()
        # Also a start without the server, which does not say whose token it is.
        u = await dgent.open(place, token=token, degrade=True, outbox=outbox)
        await u.put(dgent.Datum("c", data={"n": 3}))
        async with serve(url, store_path, ["--port", str(first.port)]):
            await back(u)
            found = await u.get_many(["a", "b", "c"])
            assert [each.data["n"] for each in found] == [1, 2, 3]
            assert {each.author for each in found} == {"scout"}
            assert {each.author for id in "abc" for each in await u.history(id)} == {"scout"}
            assert (await invoke(u, "self.block.list")).items == []
            await u.close()


async def test_a_lost_answer_is_found_out_by_the_outbox(place: Place, store_path: Path) -> None:
    token = await place.token()
    async with Proxy(place.host.port).run() as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{place.name}?timeout=3"
        async with dgent.open(url, token=token, degrade=True, outbox=str(store_path / "o.db")) as u:
            proxy.lose = lambda request: b"/v1/store/commit " in request
            await u.put(dgent.Datum("a", data={"n": 1}))
            assert u.degraded is not None
            proxy.lose = lambda _request: False
            await back(u)
            assert [each.rev for each in await u.history("a")] == [1]


async def test_a_wrong_token_is_no_outage(place: Place, store_path: Path) -> None:
    with pytest.raises(Denied):
        await dgent.open(place.url, token="dgent_x", degrade=True, outbox=str(store_path / "o.db"))
    async with dgent.open(
        place.url, token=await place.token(), degrade=True, outbox=str(store_path / "p.db")
    ) as u:
        with pytest.raises(Unsupported):
            u.for_room("blocks")
