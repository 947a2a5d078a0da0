"""Own tables behind PgBouncer in transaction mode; a long look has the whole suite behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, Denied
from tests.storage.conftest import empty, url_of


async def test_statements_meet_any_connection_and_leave_nothing_on_it(tmp_path: Path) -> None:
    """More tasks than the pooler has connections, beside records, which need another role."""
    async with dgent.open(url_of("pgbouncer", tmp_path)) as u:
        store: Any = u.storage.relational
        role = f"{u.backend.address.universe}_sql"  # type: ignore[attr-defined]
        await empty(store)
        await store.execute("CREATE TABLE counters (id INT PRIMARY KEY, n INT CHECK (n < 1000))")
        await store.execute_many(
            "INSERT INTO counters VALUES (:id, 0)", [{"id": number} for number in range(4)]
        )

        async def work(number: int) -> None:
            for turn in range(8):
                async with store.transaction() as tx:
                    await tx.execute("UPDATE counters SET n = n + 1 WHERE id = :id", {"id": number % 4})
                    who = await tx.fetch_one("SELECT current_user AS who, current_schema() AS place")
                    assert who == {"who": role, "place": role}
                await u.put(dgent.Datum(f"{number}.{turn}", data={}))
                assert (await store.fetch_one("SELECT current_user AS who")) == {"who": role}

        await asyncio.gather(*(work(number) for number in range(12)))
        assert await store.fetch_all("SELECT DISTINCT n FROM counters") == [{"n": 24}]
        assert await u.count() == 96
        with pytest.raises(Conflict):
            await store.execute("UPDATE counters SET n = 5000")
        with pytest.raises(Denied):
            await store.limit_to_reads().execute("UPDATE counters SET n = 1")
        with pytest.raises(Denied):
            await store.execute(f"SELECT * FROM {role.removesuffix('_sql')}.datum")
        async with u.transaction() as tx:
            await tx.put(dgent.Datum("both", data={}))
            await tx.execute("UPDATE counters SET n = 7 WHERE id = 0")
        assert await store.fetch_one("SELECT n FROM counters WHERE id = 0") == {"n": 7}
