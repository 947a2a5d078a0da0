"""The provider obeys the storage polynomial: errors, migrations of other processes, and the way back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent.errors import Busy, Corrupt, Unavailable
from dgent.model.polynomial import Phase, StorageOp, StorageState
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe import machine as machine_module
from dgent.universe.machine import machine_of

MIGRATE = """
import asyncio, sys
import dgent
from dgent.universe.machine import machine_of

async def main():
    async with dgent.open(sys.argv[1]) as u:
        async with machine_of(u).migrating():
            print("migrating", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


class _Disk:
    """A disk whose reads fail while `failing` is set."""

    failing = False


class _File(apsw.VFSFile):
    def xRead(self, amount: int, offset: int) -> bytes:
        if _Disk.failing:
            error = apsw.IOError("injected")
            error.extendedresult = apsw.SQLITE_IOERR_READ
            raise error
        return super().xRead(amount, offset)


class _VFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File("unix", name, flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Disk]]:
    """A disk that can fail, under every file of SQLite that is opened meanwhile."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # what the driver says of the injected error
    vfs = _VFS()
    try:
        yield _Disk
    finally:
        _Disk.failing = False
        vfs.unregister()


async def test_reads_and_writes_run_at_once() -> None:
    """The state is what runs; when all has ended it is idle, whatever ended how."""
    async with dgent.open("memory:") as u:
        machine, storage = machine_of(u), u.storage
        assert storage.state == StorageState.IDLE
        async with machine.running(StorageOp.READ), machine.running(StorageOp.WRITE):
            assert storage.state == StorageState(reads=1, writes=1)
            await storage.telemetry.append([TelemetryEvent("tick")])
            assert (await u.stats()).details["storage"].state == "writing"
            with pytest.raises(Busy, match="1 reads and 1 writes") as refused:
                await storage.run_migrations()
            assert refused.value.retryable
        with pytest.raises(dgent.InputError):
            await storage.telemetry.query(limit=0)
        task = asyncio.ensure_future(storage.relational.fetch_all("SELECT 1 AS one"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await storage.relational.fetch_one("SELECT 1 AS one") == {"one": 1}
        assert storage.state == StorageState.IDLE


async def test_a_migration_excludes_the_rest() -> None:
    """Also in this process; what is refused may be tried again, and works then."""
    async with dgent.open("memory:") as u:
        async with machine_of(u).migrating():
            assert u.storage.state.phase is Phase.MIGRATING
            with pytest.raises(Busy, match="being migrated") as refused:
                await u.storage.telemetry.count()
            assert refused.value.retryable
        assert await u.storage.telemetry.count() == 0
        assert await u.storage.run_migrations() == []


async def test_a_migration_of_another_process_excludes_the_rest(store_path: Path) -> None:
    """The error names the process; once that has ended, or was killed, everything goes on."""
    url = f"sqlite:///{store_path / 'x.db'}"
    async with dgent.open(url) as u:
        await u.storage.relational.execute("CREATE TABLE t (a)")
        for end in ("done", "killed"):
            other = subprocess.Popen(
                [sys.executable, "-c", MIGRATE, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                assert other.stdout is not None and other.stdin is not None
                assert await asyncio.to_thread(other.stdout.readline) == b"migrating\n"
                with pytest.raises(Busy, match=f"process {other.pid} is migrating") as refused:
                    await u.storage.relational.execute("INSERT INTO t VALUES (1)")
                assert refused.value.retryable
                with pytest.raises(Busy, match="is migrating"):
                    await u.storage.run_migrations()
                assert machine_of(u).report().state == "migrating"
                if end == "killed":
                    other.kill()
            finally:
                await asyncio.to_thread(other.communicate, b"\n")
            await u.storage.relational.execute("INSERT INTO t VALUES (1)")
        assert await u.storage.relational.fetch_one("SELECT count(*) AS n FROM t") == {"n": 2}


async def test_a_migration_of_another_program_on_a_server(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a lock of the server, which ends with the connection that holds it."""
    from tests.postgres.lease import url_for

    monkeypatch.setattr(machine_module, "LOOK_SERVER_S", 0.0)
    url = url_for(store_path)
    async with dgent.open(url) as u, dgent.open(url) as other:
        assert await u.storage.telemetry.count() == 0
        async with machine_of(other).migrating():
            with pytest.raises(Busy, match="is migrating") as refused:
                await u.storage.telemetry.count()
            assert refused.value.retryable
            with pytest.raises(Busy, match="is migrating"):
                await u.storage.run_migrations()
        assert await u.storage.telemetry.count() == 0
        assert await u.storage.run_migrations() == []


async def test_an_error_of_the_disk_leads_to_a_recovery(store_path: Path, disk: type[_Disk]) -> None:
    """While the disk fails, calls say so; when it is back, the next call reopens and goes on."""
    url = f"sqlite:///{store_path / 'x.db'}"
    async with dgent.open(url) as u:
        await u.put(dgent.Datum("a", data={"n": 1}))
        await u.storage.telemetry.append([TelemetryEvent("tick") for _ in range(3)])
    async with dgent.open(url) as u:
        disk.failing = True
        with pytest.raises(Unavailable, match="the disk failed"):
            await u.storage.telemetry.count()
        assert u.storage.state == StorageState.RECOVERING
        with pytest.raises(Unavailable) as refused:
            await u.storage.relational.fetch_one("SELECT 1 AS one")
        assert refused.value.retryable
        report = machine_of(u).report()
        assert report.state == "recovering" and "disk failed" in report.reason
        disk.failing = False
        assert await u.storage.telemetry.count() == 3
        assert u.storage.state == StorageState.IDLE
        assert (await u.stats()).details["storage"].reason == ""


async def test_a_damaged_store_stays_until_the_doctor_finds_it_healthy(store_path: Path) -> None:
    """Nothing is begun meanwhile; the error is that of the damage, and says what to do."""
    path = store_path / "x.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        await u.put_many([dgent.Datum(f"n{n}", data={"text": "x" * 300}) for n in range(50)])
        machine = machine_of(u)
        editor = apsw.Connection(str(path))
        editor.execute("CREATE TABLE extra (a)")
        editor.execute("PRAGMA writable_schema = ON")
        taken = editor.execute("SELECT * FROM sqlite_schema WHERE name = 'extra'").fetchall()
        editor.execute("DELETE FROM sqlite_schema WHERE name = 'extra'")  # its page is nobody's now
        with pytest.raises(Corrupt):
            async with machine.running(StorageOp.READ):
                raise Corrupt("a page cannot be read")
        assert u.storage.state == StorageState.RECOVERING
        for _ in range(2):
            with pytest.raises(Corrupt, match="the file is damaged") as refused:
                await u.storage.telemetry.count()
            assert "doctor" in refused.value.hint
        with pytest.raises(Corrupt):
            await u.storage.recover()
        editor.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", taken)
        editor.close()
        await u.storage.recover()
        assert u.storage.state == StorageState.IDLE
        assert await u.storage.telemetry.count() == 0


async def test_an_outage_is_a_recovery_of_the_same_machine(store_path: Path) -> None:
    """The state of the outbox is read, not kept twice: when the store is back, so are its ports."""
    server = store_path / "server"
    server.mkdir()
    places = {"degrade": True, "outbox": str(store_path / "outbox.db")}
    url = f"sqlite:///{server / 'x.db'}"
    async with dgent.open([url], **places) as u:  # type: ignore[arg-type]
        await u.put(dgent.Datum("a", data={"n": 1}))
    server.rename(store_path / "away")
    with pytest.warns(dgent.errors.Degraded):
        u = await dgent.open([url], **places)  # type: ignore[arg-type]
    try:
        assert u.storage.state.phase is Phase.RECOVERING
        await u.put(dgent.Datum("b", data={"n": 2}))
        with pytest.raises(Unavailable, match="cannot be reached") as refused:
            await u.storage.telemetry.count()
        assert refused.value.retryable
        (store_path / "away").rename(server)
        await u.backend.reconnect()  # type: ignore[attr-defined]
        assert u.storage.state == StorageState.IDLE
        assert (await u.get("b")).data == {"n": 2}
        assert await u.storage.telemetry.count() == 0
    finally:
        await u.close()
