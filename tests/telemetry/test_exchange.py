"""Copies, mirrors, backups and the doctor cover telemetry."""

from __future__ import annotations

import asyncio
from pathlib import Path

import dgent
from dgent.config import settings as config
from dgent.exchange import backup as backups
from dgent.exchange.copy import copy, mirror
from dgent.exchange.telemetry import inspect_telemetry
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe.telemetry import telemetry_of
from tests.telemetry.stores import PLACES


async def _fill(u: dgent.Universe, *ids: str) -> None:
    for id in ids:
        await u.put(dgent.Datum(id, data={"n": 1}))
        await telemetry_of(u).append([TelemetryEvent("read", datum_id=id, id=f"event-{id}")])


async def _events(u: dgent.Universe) -> set[str]:
    return {event.id for event in await telemetry_of(u).query()}


async def test_a_copy_has_the_events_and_forgets_what_its_source_forgets(store_path: Path) -> None:
    """From a file to a server; a second copy brings what is new, and erases what was forgotten."""
    async with (
        dgent.open(f"sqlite:///{store_path / 'x.db'}") as source,
        dgent.open(PLACES["postgres"](store_path)) as target,
    ):
        await _fill(source, "a", "b")
        await copy(source, target)
        assert await _events(target) == {"event-a", "event-b"}
        await telemetry_of(source).append([TelemetryEvent("tick", id="late")])
        await copy(source, target)
        assert await _events(target) == {"event-a", "event-b", "late"}
        await source.forget("a")
        await copy(source, target)
        assert await _events(target) == {"event-b", "late"}
        before = await target.seq()
        await copy(source, target)
        assert await target.seq() == before  # nothing new, so nothing is noted


async def test_a_mirror_follows_events_without_commits(store_path: Path) -> None:
    """What arrives after the last commit arrives in the copy, too."""
    async with dgent.open("memory:") as source, dgent.open(f"sqlite:///{store_path / 'y.db'}") as target:
        await _fill(source, "a")
        followed = mirror(source, target)
        await anext(followed)
        following = asyncio.ensure_future(anext(followed))
        await asyncio.sleep(0)
        await telemetry_of(source).append([TelemetryEvent("tick", id="late")])
        async with asyncio.timeout(20):
            while await _events(target) != {"event-a", "late"}:
                await asyncio.sleep(0.05)
        await source.put(dgent.Datum("b", data={}))
        assert await following == await source.seq()
        await followed.aclose()


async def test_a_backup_has_events_that_are_kept_elsewhere(store_path: Path) -> None:
    """They are a file of it, and come back beside the restored store."""
    elsewhere = {"telemetry": {"url": f"sqlite:///{store_path / 'events.db'}"}}
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}", storage=elsewhere) as u:
        await _fill(u, "a", "b")
        made = await backups.backup(u, None, store_path / "backup")
        assert "telemetry.db" in made.files
    done = await backups.restore(store_path / "backup", store_path / "restored")
    async with dgent.open(f"sqlite:///{done.path}/{config.DATABASE}") as u:
        assert await _events(u) == {"event-a", "event-b"}
        assert [each.level for each in await inspect_telemetry(u, deep=True)] == ["ok"]


async def test_a_restore_does_not_bring_back_events_of_forgotten_records(store_path: Path) -> None:
    """The replaced store has forgotten a record since the backup: its events go as well."""
    folder = store_path / "stars"
    folder.mkdir()
    async with dgent.open(f"sqlite:///{folder / config.DATABASE}") as u:
        await _fill(u, "a", "b")
        await backups.backup(u, folder, store_path / "backup")
        await u.forget("a")
        assert await _events(u) == {"event-b"}
    done = await backups.restore(store_path / "backup", folder, replace=True)
    assert done.forgotten == 1
    async with dgent.open(f"sqlite:///{folder / config.DATABASE}") as u:
        assert await _events(u) == {"event-b"}


async def test_the_doctor_looks_at_telemetry(store_path: Path) -> None:
    """Nothing is said of what is not there; damage is a problem with a hint."""
    async with dgent.open(f"sqlite:///{store_path / 'x.db'}") as u:
        assert await inspect_telemetry(u, deep=False) == []
        (store_path / "x.db.telemetry.db").write_bytes(b"not a database" * 100)
        (found,) = await inspect_telemetry(u, deep=False)
        assert found.level == "problem" and found.subject == "telemetry" and found.hint
