"""The telemetry of a universe: where it is, who may read it, and what forgetting reaches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import apsw
import pytest

import dgent
from dgent.config import settings as config
from dgent.errors import Busy, Closed, Denied, StorageError
from dgent.store.port.telemetry import ITelemetryStore, Retention, TelemetryEvent
from dgent.store.registry import telemetry_for
from dgent.store.sqlite import connection
from dgent.universe.gate import Principal
from dgent.universe.telemetry import retention_of, telemetry_for_caller, telemetry_of


def _files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_forgetting_a_record_reaches_its_events(store_path: Path) -> None:
    """Those of other records stay, and so do those of a record that is only deleted."""
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        for id in ("a", "b"):
            await u.put(dgent.Datum(id, data={"n": 1}))
            await telemetry_of(u).append([TelemetryEvent("read", data={"said": f"of {id}"}, datum_id=id)])
        await u.delete("b")
        assert len(await telemetry_of(u).query()) == 2
        await u.forget("a", "b", only_deleted=True)
        assert [event.datum_id for event in await telemetry_of(u).query()] == ["a"]
        await u.forget("a")
        assert await telemetry_of(u).query() == []
    left = b"".join(file.read_bytes() for file in store_path.iterdir())
    assert b"of a" not in left


async def test_forgetting_beside_busy_or_damaged_events(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has no events waits for nobody; else the error says that the records are gone, and what to do."""
    monkeypatch.setattr(connection, "WAIT_S", 0.2)
    path = store_path / "x.db.telemetry.db"
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        for id in ("a", "b", "c"):
            await u.put(dgent.Datum(id, data={}))
        await telemetry_of(u).append([TelemetryEvent("read", datum_id=id) for id in ("a", "b")])
        other = apsw.Connection(str(path))
        other.set_busy_timeout(10_000)  # the store looks after its file meanwhile
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        await u.forget("c")
        assert time.monotonic() - began < 5
        with pytest.raises(Busy, match="the records are erased, but not their events"):
            await u.forget("a")
        other.execute("ROLLBACK")
        other.close()
        assert await u.get("a") is None
        await u.forget("a")
        assert [event.datum_id for event in await telemetry_of(u).query()] == ["b"]
    path.write_bytes(b"no database" * 1000)
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        with pytest.raises(StorageError, match="the records are erased, but not their events"):
            await u.forget("b")
        assert await u.get("b") is None


async def test_a_store_without_telemetry_gets_no_file(store_path: Path) -> None:
    """Forgetting, and asking whether there is any, make nothing."""
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        await u.put(dgent.Datum("a", data={}))
        await u.forget("a")
        assert not await telemetry_of(u).exists()
    assert _files(store_path) == ["x.db"]


async def test_settings_place_it_elsewhere(store_path: Path) -> None:
    """The table of the settings file is what `open` takes."""
    user = store_path / "config.toml"
    user.write_text('[storage.telemetry]\nurl = "sqlite:///events.db"\nkeep_days = 7\nmax_bytes = 0\n')
    found = config.load(config=user, environment={"HOME": str(store_path)}, cwd=store_path)
    assert found.warnings == ()
    url = f"sqlite:///{store_path / 'events.db'}"
    assert found.storage == {"telemetry": {"url": url, "keep_days": 7, "max_bytes": 0}}
    assert retention_of(found.storage["telemetry"]) == Retention(7, None)
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}", storage=found.storage) as u:
        await telemetry_of(u).append([TelemetryEvent("tick")])
    assert "events.db" in _files(store_path) and "x.db.telemetry.db" not in _files(store_path)


def test_a_wrong_setting_is_a_warning(store_path: Path) -> None:
    """It names the key and not the value; the environment has a name for each key too."""
    user = store_path / "config.toml"
    user.write_text('[storage.telemetry]\nkeep_days = "many"\nmood = 1\n[storage]\nother = 2\n')
    env = {"HOME": str(store_path), "DGENT_STORAGE_TELEMETRY_MAX_BYTES": "500"}
    found = config.load(config=user, environment=env, cwd=store_path)
    assert found.storage == {"telemetry": {"max_bytes": 500}}
    text = "\n".join(found.warnings)
    assert "storage.telemetry.keep_days" in text and "storage.telemetry.mood" in text and "many" not in text
    config.write_setting(user, "storage.telemetry.keep_days", "5")
    found = config.load(config=user, environment={"HOME": str(store_path)}, cwd=store_path)
    assert found.storage == {"telemetry": {"keep_days": 5}}


async def test_an_agent_reads_its_own_events_only() -> None:
    """Below full trust the store itself is denied, and verbs show the caller's own."""
    async with dgent.open("memory:") as u:
        await telemetry_of(u).append([TelemetryEvent("x", agent=name) for name in ("eve", "ann")])
        eve = u.acting(Principal("eve", "friend"))
        with pytest.raises(Denied):
            telemetry_of(eve)
        store, own = telemetry_for_caller(eve)
        assert own == "eve"
        assert [event.agent for event in await store.query(agent=own)] == ["eve"]


async def test_nothing_is_opened_after_the_universe_is_closed(store_path: Path) -> None:
    """A closed universe makes no file, and leaves no thread behind."""
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        await telemetry_of(u).append([TelemetryEvent("tick")])
        used = telemetry_of(u)
    assert not [each for each in threading.enumerate() if "telemetry" in each.name]
    with pytest.raises(Closed):
        await used.count()
    async with dgent.open("memory:") as other:
        pass
    with pytest.raises(Closed):
        telemetry_of(other)


async def test_a_forked_child_must_open_it_again(store_path: Path) -> None:
    """The handle it inherited is refused; one of its own works beside that of its parent."""
    url = f"sqlite:///{store_path / 'events.db'}"
    store = telemetry_for(url)
    await store.append([TelemetryEvent("parent")])
    child = await asyncio.to_thread(_fork, store, url)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert await store.append([TelemetryEvent("parent")]) == 1
    assert (await store.count("parent"), await store.count("child")) == (2, 1)
    await store.close()


def _fork(store: ITelemetryStore, url: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with contextlib.suppress(Closed):
            asyncio.run(store.count())  # type: ignore[arg-type]
            os._exit(2)

        async def own() -> None:
            mine = telemetry_for(url)
            assert await mine.append([TelemetryEvent("child")]) == 1
            await mine.close()

        asyncio.run(own())
        code = 7
    finally:
        os._exit(code)
