"""Handles used wrongly: before open, after close, twice, from another loop; and several on one file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Closed
from dgent.store.registry import backend_for
from tests.fault.check import check_store, store_threads
from tests.fault.jobs import NOTE, Note

PLACES = ["memory:", "sqlite"]


def place_of(place: str, folder: Path) -> str:
    return place if place == "memory:" else f"sqlite:///{folder / 'life.db'}"


def calls(u: Any) -> list[Callable[[], Awaitable[Any]]]:
    """Everything a handle can be asked."""
    return [
        lambda: u.put(dgent.Datum(id="x")),
        lambda: u.put_many([dgent.Datum(id="x")]),
        lambda: u.get("x"),
        lambda: u.get_many(["x"]),
        lambda: u.exists("x"),
        lambda: u.query(dgent.Query()),
        lambda: u.count(),
        lambda: u.delete("x"),
        lambda: u.history("x"),
        lambda: u.changes(),
        lambda: u.undo(1),
        lambda: u.forget("x"),
        lambda: u.compact(3),
        lambda: u.seq(),
        lambda: u.stats(),
        lambda: u.outcome("key"),
        lambda: u.causal_chain("x"),
        lambda: u.associated("x"),
        lambda: u.transact(lambda tx: tx.get("x")),
        lambda: anext(aiter(u.iterate(dgent.Query()))),
        lambda: anext(aiter(u.watch(0))),
    ]


@pytest.mark.parametrize("place", PLACES)
async def test_before_open_and_after_close(tmp_path: Path, place: str) -> None:
    u = dgent.open(place_of(place, tmp_path))
    for call in calls(u):
        with pytest.raises(Closed):
            await call()
    await u.open()
    await u.put(dgent.Datum(id="x"))
    await u.close()
    await u.close()
    for call in calls(u):
        with pytest.raises(Closed):
            await call()
    with pytest.raises(Closed):
        await u.open()


@pytest.mark.parametrize("place", PLACES)
async def test_a_handle_never_opened_closes(tmp_path: Path, place: str) -> None:
    u = dgent.open(place_of(place, tmp_path))
    await u.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", PLACES)
def test_another_loop_is_refused_and_may_close(tmp_path: Path, place: str) -> None:
    """The loop that opened it is gone, as after `asyncio.run` without `async with`."""
    u = dgent.open(place_of(place, tmp_path))
    asyncio.run(_opened(u))

    async def elsewhere() -> None:
        for call in calls(u):
            with pytest.raises(Closed, match="loop"):
                await call()
        await u.close()

    asyncio.run(elsewhere())
    assert not store_threads()


async def _opened(u: Any) -> None:
    await u.open()
    await u.put(dgent.Datum(id="x"))


@pytest.mark.parametrize("place", PLACES)
async def test_opened_by_many_tasks_at_once(tmp_path: Path, place: str) -> None:
    u = dgent.open(place_of(place, tmp_path))
    same = await asyncio.gather(*(u.open() for _ in range(8)))
    assert all(each is u for each in same)
    await u.put(dgent.Datum(id="x"))
    await asyncio.gather(*(u.close() for _ in range(8)))
    if place == "sqlite":
        assert os.listdir(tmp_path) == ["life.db"], "the store is still open"
    assert not store_threads()


async def test_close_finishes_what_is_under_way(tmp_path: Path) -> None:
    """Every put that was handed in before close either stands or says Closed."""
    for durability in ("full", "relaxed"):
        path = str(tmp_path / f"{durability}.db")
        u = await dgent.open(f"sqlite:///{path}", durability=durability).open()
        puts = [asyncio.ensure_future(u.put(dgent.Datum(id=f"{i}"))) for i in range(300)]
        for _ in range(3):
            await asyncio.sleep(0)
        await u.close()
        ended = await asyncio.gather(*puts, return_exceptions=True)
        assert all(isinstance(each, dgent.Datum | Closed) for each in ended)
        async with dgent.open(f"sqlite:///{path}") as again:
            stored = {datum.id for datum in await again.list(limit=None)}
        assert stored == {each.id for each in ended if isinstance(each, dgent.Datum)}
        check_store(path)


def test_loops_in_threads_share_one_file(tmp_path: Path) -> None:
    """Four threads with a loop each, and handles of both durabilities, on one file of one process."""
    path = str(tmp_path / "threads.db")
    failed: list[BaseException] = []

    async def work(name: int) -> None:
        durability = ("full", "relaxed")[name % 2]
        async with dgent.open(f"sqlite:///{path}", durability=durability) as u:
            u.register(NOTE)
            for i in range(50):
                made = await u.remember(Note(i, f"{name}"), id=f"{name}.{i}")
                assert (await u.get(made.id)).value.n == i
            assert len(await u.recall(dgent.Query(schema=NOTE.name, where={"owner": f"{name}"}))) == 50

    def run(name: int) -> None:
        try:
            asyncio.run(work(name))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert check_store(path)["rows"] == 200


async def test_two_durabilities_see_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'both.db'}"
    async with dgent.open(url) as full, dgent.open(url, durability="relaxed") as relaxed:
        for i in range(100):
            await full.put(dgent.Datum(id=f"f{i}"))
            assert await relaxed.exists(f"f{i}")
            await relaxed.put(dgent.Datum(id=f"r{i}"))
            assert await full.exists(f"r{i}")
        await asyncio.gather(
            *(
                u.put(dgent.Datum(id=f"{name}.{i}"))
                for i in range(64)
                for name, u in (("f", full), ("r", relaxed))
            )
        )
        assert await full.count() == await relaxed.count() == 328
    assert os.listdir(tmp_path) == ["both.db"]


async def test_what_durability_means(tmp_path: Path) -> None:
    """Killing a process cannot show that a commit reached the disk; this asks SQLite."""
    for durability, level in (("full", 2), ("relaxed", 1)):
        async with dgent.open(f"sqlite:///{tmp_path / 'd.db'}", durability=durability) as u:
            asked = await u.backend._write(lambda ledger: ledger.kernel.connection.pragma("synchronous"))
            assert asked == level


async def test_one_file_by_two_names(tmp_path: Path) -> None:
    """A link to a store is that store: one writer, one log, beside the file itself."""
    real, link = tmp_path / "real.db", tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(real)
    async with dgent.open(f"sqlite:///{real}") as one, dgent.open(f"sqlite:///{link}") as two:
        await asyncio.gather(*(u.put(dgent.Datum(id=f"{n}")) for n, u in enumerate([one, two] * 20)))
        assert await one.count() == await two.count() == 40
        assert (await two.stats()).details["wal_bytes"] > 0
        assert os.listdir(link.parent) == ["link.db"]
    # A link to nowhere yet: the store is made where it leads.
    real.unlink()
    async with dgent.open(f"sqlite:///{link}") as again:
        await again.put(dgent.Datum(id="new"))
    assert real.exists() and link.is_symlink()


async def test_a_backend_opens_once(tmp_path: Path) -> None:
    backend = backend_for(f"sqlite:///{tmp_path / 'once.db'}")
    await backend.open()
    with pytest.raises(Closed, match="already"):
        await backend.open()
    await backend.close()
    await backend.close()
    assert os.listdir(tmp_path) == ["once.db"]
