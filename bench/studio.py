"""The studio: how much its first view loads, and what its calls cost on the largest store."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Any

from bench.measure import Row, say, verdict, within
from bench.plan import Plan
from bench.stores import CHUNK, SCHEMA, Stores, open_store
from dgent.verbs.path import invoke

_KB, _FIRST_MS, _PAGE_MS = 300, 1_000.0, 50.0
_ROUNDS = 7

FIRST: tuple[tuple[str, dict[str, Any]], ...] = (
    ("self.store.status", {"days": 14, "commits": 0, "quick": True}),
    ("self.agent.list", {}),
    ("self.crumb.ready", {"limit": 6, "explain": True}),
)
"""The calls that the overview waits for, which is what people see first."""
LAST = ("self.data.log", {"limit": 5, "records": 1})
"""What it shows when it comes: these commits may be large."""


async def studio(plan: Plan, stores: Stores) -> list[Row]:
    """Measure the studio's files, and the processor's time of what it asks for."""
    count = max(plan.sizes)
    say(f"  the studio, on {count:,} records")
    folder = files("dgent.doors.studio").joinpath("files")
    size = sum(len(each.read_bytes()) for each in folder.iterdir()) / 1_000
    judged = verdict(size, size, size, _KB)
    rows = [Row("all files of the studio", f"≤ {_KB} kB", size, verdict=judged, unit="kB")]
    async with open_store(await stores.sized(count), "full") as universe:
        first, last, page = [], [], []
        for _ in range(_ROUNDS):
            began = time.process_time()
            for path, given in FIRST:
                await invoke(universe, path, **given)
            first.append((time.process_time() - began) * 1e6)
            began = time.process_time()
            await invoke(universe, LAST[0], **LAST[1])
            last.append((time.process_time() - began) * 1e6)
            began = time.process_time()
            found = await invoke(universe, "self.data.query", schema=SCHEMA.name, limit=50)
            await invoke(universe, "self.data.query", schema=SCHEMA.name, limit=50, cursor=found.cursor)
            page.append((time.process_time() - began) * 1e6)
    rows.append(within(f"CPU of the first view of {count:,} records", first, [], _FIRST_MS))
    rows.append(within(f"CPU of the last five commits, {CHUNK:,} records each", last, [], _FIRST_MS))
    rows.append(within(f"CPU of two pages of a table of {count:,} records", page, [], _PAGE_MS))
    return rows
