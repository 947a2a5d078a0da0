"""Eight processes open an empty or an old universe at once: it is made or migrated exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import asyncpg
import pytest

import dgent
from dgent.errors import Corrupt, FormatTooNew
from dgent.store.postgres import format as storage
from tests.fault.nursery import Nursery
from tests.postgres.lease import server_url
from tests.postgres.load import feed
from tests.postgres.server import with_universe

PROCESSES = 8
# Run twice, each of these would fail or show.
STEP = """
ALTER TABLE {u}.trail ADD COLUMN colour text;
INSERT INTO {u}.meta (name, number) VALUES ('migrated', 1);
SELECT pg_sleep(0.2);
"""


@pytest.fixture
async def fresh(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a universe that is not there, and is gone afterwards."""
    name = f"m{time.time_ns()}"
    yield name
    connection = await asyncpg.connect(server_url())
    await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    await connection.close()


def _all_open(url: str, step: str | None) -> set[str]:
    with Nursery("tests.postgres.jobs") as nursery:
        at = time.time() + 0.3
        workers = [nursery.start("open_at", url=url, at=at, step=step) for _ in range(PROCESSES)]
        return set(nursery.finish(*workers))


async def test_an_empty_place_is_made_once(fresh: str) -> None:
    url = with_universe(server_url(), fresh)
    assert len(_all_open(url, None)) == 1, "they opened different universes"
    async with dgent.open(url) as u:
        assert await u.seq() == PROCESSES and len(await feed(u)) == PROCESSES


async def test_an_old_universe_is_migrated_once(fresh: str) -> None:
    url = with_universe(server_url(), fresh)
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="old"))
    assert len(_all_open(url, STEP)) == 1
    connection = await asyncpg.connect(server_url())
    rows = await connection.fetch(f'SELECT name, number FROM "{fresh}".meta WHERE number IS NOT NULL')
    assert dict(rows)["format"] == storage.FORMAT + 1 and dict(rows)["migrated"] == 1
    assert await connection.fetchval(f'SELECT count(*) FROM "{fresh}".commits') == PROCESSES + 1
    await connection.close()
    # This process does not know the step.
    with pytest.raises(FormatTooNew):
        await dgent.open(url).open()


async def test_a_step_that_fails_changes_nothing(fresh: str) -> None:
    url = with_universe(server_url(), fresh)
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="old"))
    broken = STEP + "SELECT 1 / 0;"
    with Nursery("tests.postgres.jobs") as nursery:
        workers = [nursery.start("open_at", url=url, at=0, step=broken) for _ in range(2)]
        assert [worker.code for worker in nursery.wait(*workers)] == [1, 1]
    async with dgent.open(url) as u:
        assert await u.exists("old")


async def test_a_format_without_a_step_is_refused(fresh: str) -> None:
    url = with_universe(server_url(), fresh)
    async with dgent.open(url):
        pass
    connection = await asyncpg.connect(server_url())
    await connection.execute(f"UPDATE \"{fresh}\".meta SET number = 0 WHERE name = 'format'")
    with pytest.raises(Corrupt):
        await dgent.open(url).open()
    await connection.execute(f'DROP TABLE "{fresh}".clock')
    with pytest.raises(Corrupt):
        await dgent.open(url).open()
    await connection.close()
