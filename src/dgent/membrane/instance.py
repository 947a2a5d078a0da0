"""Running programs: each registers itself, sends heartbeats, and is stale when they stop.

Programs of one boot of one machine compare the time since the boot, which nobody can set; others have only
the wall clocks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from dgent import clock, ids
from dgent.errors import DgentError
from dgent.membrane.membrane import Membrane
from dgent.membrane.project import project_hash as hash_project
from dgent.membrane.record import Instance
from dgent.universe.universe import Universe

HEARTBEAT_S = 30.0
STALE_S = 300.0
KEPT_S = 7 * 24 * 3600.0
"""The time that a program which has ended or is stale stays in the list."""


class Instances:
    """The running programs of a universe: `Instances(u)`."""

    def __init__(self, universe: Universe) -> None:
        self._membrane = Membrane(universe)

    async def register(
        self, *, project_path: str | Path | None = None, project_hash: str | None = None
    ) -> Instance:
        """Register this process; the hash of the project follows from its path unless given."""
        import socket  # only who registers needs it

        now = clock.now()
        if project_hash is None and project_path is not None:
            project_hash = hash_project(project_path)
        instance = Instance(
            id=ids.new_id(),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            project_path=None if project_path is None else str(project_path),
            project_hash=project_hash,
            started_at=now,
            last_heartbeat=now,
            boot=clock.boot(),
            beat_us=clock.since_boot_us(),
        )
        await self._membrane.put(instance, new=True)
        return instance

    async def heartbeat(self, instance_id: str) -> bool:
        """Record that a program runs; one that was swept as stale is active again. False if it has ended."""

        def work(instance: Instance) -> list[Instance]:
            if instance.status == "terminated":
                return []
            now, since_boot = clock.now(), clock.since_boot_us()
            return [
                replace(instance, status="active", last_heartbeat=now, boot=clock.boot(), beat_us=since_boot)
            ]

        return await self._membrane.change(Instance, instance_id, work) is not None

    async def end(self, instance_id: str) -> bool:
        """Record that a program has ended; False if that was recorded already."""

        def work(instance: Instance) -> list[Instance]:
            return [] if instance.status == "terminated" else [replace(instance, status="terminated")]

        return await self._membrane.change(Instance, instance_id, work) is not None

    async def list(
        self, *, status: str | None = None, project_hash: str | None = None, limit: int | None = 100
    ) -> list[Instance]:
        """Return programs, those that started last first."""
        return await self._membrane.list(Instance, limit=limit, status=status, project_hash=project_hash)

    async def sweep(self, *, stale_s: float = STALE_S, kept_s: float = KEPT_S) -> int:
        """Mark active programs without a heartbeat for `stale_s` as stale; return how many.

        Those that ended or were stale `kept_s` ago are deleted.
        """

        def work(instance: Instance) -> list[Instance]:
            is_stale = instance.status == "active" and _silence_s(instance) >= stale_s
            return [replace(instance, status="stale")] if is_stale else []

        swept = 0
        for instance in await self._membrane.list(Instance, limit=None):
            if instance.status != "active" and _silence_s(instance) >= kept_s:
                await self._membrane.delete(Instance, instance.id)
            elif work(instance) and await self._membrane.change(Instance, instance.id, work) is not None:
                swept += 1
        return swept

    @asynccontextmanager
    async def running(
        self, *, project_path: str | Path | None = None, heartbeat_s: float = HEARTBEAT_S
    ) -> AsyncIterator[Instance]:
        """Register this process while a block of code runs, send its heartbeats, and sweep stale ones.

        A heartbeat that fails never disturbs the block: the next one may succeed.
        """
        instance = await self.register(project_path=project_path)

        async def beats() -> None:
            while True:
                with suppress(DgentError):
                    await self.sweep()
                await asyncio.sleep(heartbeat_s)
                with suppress(DgentError):
                    await self.heartbeat(instance.id)

        beater = asyncio.create_task(beats(), name="dgent-instance")
        try:
            yield instance
        finally:
            beater.cancel()
            await asyncio.gather(beater, return_exceptions=True)
            with suppress(DgentError):
                await self.end(instance.id)


def _silence_s(instance: Instance) -> float:
    """Return for how many seconds a program has sent no heartbeat."""
    if instance.boot == clock.boot():
        return (clock.since_boot_us() - instance.beat_us) / 1e6
    return (clock.now() - instance.last_heartbeat) / timedelta(seconds=1)
