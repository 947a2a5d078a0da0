"""A constellation to back up, and what is in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgent
from dgent.store.port.telemetry import TelemetryEvent
from dgent.universe.telemetry import telemetry_of


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'membrane.db'}"


async def make(folder: Path, records: int = 50) -> None:
    """A folder with a store, some blobs and telemetry."""
    folder.mkdir(mode=0o700)
    (folder / "blobs" / "ab").mkdir(parents=True)
    (folder / "blobs" / "ab" / "abcd").write_bytes(b"blob" * 1000)
    (folder / "blobs" / "empty").write_bytes(b"")
    async with dgent.open(url(folder)) as u:
        await u.put_many(
            [dgent.Datum(id=f"n{i}", data={"n": i}, content=bytes([i % 256])) for i in range(records)]
        )
        await u.put(dgent.Datum(id="n0", data={"n": "changed"}, tags=frozenset({"t"})))
        await telemetry_of(u).append([TelemetryEvent("span", id="span", datum_id="n1")])


async def everything(folder: Path) -> dict[str, Any]:
    """Every record, its history, and the seq."""
    async with dgent.open(url(folder)) as u:
        found = await u.list(limit=None)
        history = {d.id: [(v.rev, v.seq, v.op) for v in await u.history(d.id)] for d in found}
        return {"records": {d.id: d for d in found}, "history": history, "seq": await u.seq()}
