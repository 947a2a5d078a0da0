"""A Postgres server that is stopped, killed and started again under programs that may go on without it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Degraded, Unavailable
from dgent.store.offline import backend as degradable
from tests.offline.world import NOTE, Note, back
from tests.postgres.server import HASTY, NoServer, Server, with_universe

pytestmark = [pytest.mark.filterwarnings("ignore::dgent.errors.Degraded"), pytest.mark.timeout(300)]

# A killed server must have kept what it said it kept.
SETTINGS = {name: value for name, value in HASTY.items() if name == "full_page_writes"}


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        made = Server(SETTINGS).create().start()
    except NoServer as error:
        pytest.skip(str(error))
    yield made
    made.remove()


def place(server: Server, timeout_s: int = 3) -> str:
    return with_universe(server.url, "away", timeout=timeout_s)


async def numbers(server: Server) -> dict[str, list[int]]:
    """The versions of every record, oldest first."""
    found: dict[str, list[int]] = {}
    async with dgent.open(with_universe(server.url, "away")) as u:
        for change in await u.changes(0, limit=None):
            for item in change.items:
                assert item.id is not None and item.datum is not None
                found.setdefault(item.id, []).append(item.datum.data["n"])
    return found


async def test_a_server_that_is_stopped_and_started(server: Server, tmp_path: Path) -> None:
    stand_in = f"sqlite:///{tmp_path}/copy.db"
    rest = {"degrade": True, "outbox": str(tmp_path / "outbox.db")}
    async with dgent.open([place(server), stand_in], **rest) as u:
        u.register(NOTE)
        await u.remember(Note("first", 1), id="a")
        async with dgent.open(stand_in) as target:
            await dgent.copy(u, target)
        server.stop()
        with pytest.warns(Degraded):
            made = await u.remember(Note("second", 2), id="a")
        assert made.seq is None and u.degraded is not None and u.degraded.stand_in == "sqlite"
        assert made.rev == 2
        with pytest.raises(Unavailable):
            await u.history("a")
        server.start()
        await back(u, 60)
        assert [(v.rev, v.datum and v.datum.data["n"]) for v in await u.history("a")] == [(2, 2), (1, 1)]
        assert (await u.remember(Note("third", 3), id="a")).seq == 3


async def test_started_without_a_server(server: Server, tmp_path: Path) -> None:
    rest = {"degrade": "optimistic", "outbox": str(tmp_path / "outbox.db")}
    async with dgent.open(place(server)) as u:
        u.register(NOTE)
        await u.remember(Note("there", 1), id="a")
    server.stop()
    with pytest.raises(Unavailable):
        await dgent.open(place(server))
    async with dgent.open(place(server), **rest) as u:
        u.register(NOTE)
        await u.remember(Note("right", 2), id="a", expect=1)
        await u.remember(Note("new", 4), id="b", expect=0)
    server.start()
    async with dgent.open(place(server), **rest) as u:
        u.register(NOTE)
        assert u.degraded is None
        assert [c.value.text for c in await u.recall(schema="note", order_by="n")] == ["new", "right"]


async def test_writers_over_a_server_that_is_killed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything answered is there, once, in each writer's order."""
    monkeypatch.setattr(degradable, "PROBE_S", (0.2, 1.0))
    rng = random.Random(3)
    done = asyncio.Event()
    # Shorter than the outages, so that they are noticed.
    async with dgent.open(place(server, 1), degrade=True, outbox=str(tmp_path / "outbox.db")) as u:
        written: dict[str, int] = {}

        async def write(name: str) -> None:
            n = 0
            while not done.is_set():
                await u.put(dgent.Datum(id=name, data={"n": n}))
                n += 1
                written[name] = n
                await asyncio.sleep(rng.random() * 0.1)

        async def shake() -> None:
            for round_ in range(3):
                await asyncio.sleep(rng.random())
                await asyncio.to_thread(server.kill if round_ % 2 else server.stop)
                await asyncio.sleep(1.5 + rng.random())
                # On this thread: the server ends with the thread that started it.
                server.start()
                await back(u, 60)
            done.set()

        await asyncio.gather(shake(), *(write(f"w{n}") for n in range(5)))
        await back(u, 60)
    assert min(written.values()) > 20
    assert await numbers(server) == {name: list(range(count)) for name, count in written.items()}
