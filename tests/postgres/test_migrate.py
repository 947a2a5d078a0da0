"""Eight processes open an empty or an old universe at once: it is made or migrated exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

import dgent
from dgent.errors import Busy, Corrupt, FormatTooNew, FormatTooOld, NotFound, StorageError
from dgent.store.postgres import format as storage
from dgent.store.postgres import upgrade as upgrading
from dgent.store.upgrade import Step, upgrade_store
from tests.fault.nursery import Nursery
from tests.postgres.lease import server_url
from tests.postgres.load import feed
from tests.postgres.server import with_universe

PROCESSES = 8
OLD, STEPS = storage.FORMAT, storage.STEPS
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
    assert dict(rows)["format"] == OLD + 1 and dict(rows)["migrated"] == 1
    assert await connection.fetchval(f'SELECT count(*) FROM "{fresh}".commits') == PROCESSES + 1
    await connection.close()
    # This process does not know the next format.
    with pytest.raises(FormatTooNew):
        await dgent.open(url).open()


def next_format(monkeypatch: pytest.MonkeyPatch, *runs: str | Callable[..., Any]) -> None:
    """Have formats after today's, with these steps to them."""
    steps = [Step(OLD + 1 + n, "mark it", run) for n, run in enumerate(runs)]
    monkeypatch.setattr(storage, "STEPS", (*STEPS, *steps))
    monkeypatch.setattr(storage, "FORMAT", OLD + len(runs))


@pytest.fixture
async def old(fresh: str) -> str:
    """The URL of a universe of today's format, which is old as soon as there is a `next_format`."""
    url = with_universe(server_url(), fresh)
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="old"))
    return url


async def value(name: str, sql: str) -> Any:
    connection = await asyncpg.connect(server_url())
    try:
        return await connection.fetchval(sql.replace("{u}", f'"{name}"'))
    finally:
        await connection.close()


NUMBER = "SELECT number FROM {u}.meta WHERE name = 'format'"
MARKED = "SELECT count(*) FROM {u}.meta WHERE name = 'migrated'"


async def test_each_step_is_stored_by_itself(old: str, fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step stays when the second fails; a step may be a function."""

    async def fail(connection: Any, u: str) -> None:
        await connection.execute(f"DELETE FROM {u}.datum")
        raise ValueError("a fault of the step")

    next_format(monkeypatch, STEP, fail)
    with pytest.raises(StorageError, match=rf"step {OLD + 2} \(mark it\) .* failed: a fault") as failed:
        await dgent.open(old).open()
    assert f"still has storage format {OLD + 1}" in failed.value.hint
    assert await value(fresh, NUMBER) == OLD + 1 and await value(fresh, MARKED) == 1
    next_format(monkeypatch, STEP, "SELECT 1 / 0")
    with pytest.raises(StorageError, match="division by zero"):
        await dgent.open(old).open()

    async def run(connection: Any, u: str) -> None:
        await connection.execute(f"INSERT INTO {u}.meta (name, number) VALUES ('second', 2)")

    next_format(monkeypatch, STEP, run)
    async with dgent.open(old) as u:
        assert await u.exists("old")
        done = u.backend.upgraded
        assert (done.from_format, done.to_format, done.backup) == (OLD + 1, OLD + 2, None)
    assert await value(fresh, NUMBER) == OLD + 2


async def test_planned_and_refused(old: str, fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    next_format(monkeypatch, STEP)
    planned = await upgrade_store(dgent.open(old).backend, dry_run=True)
    assert planned.dry_run and planned.size_bytes > 0 and f"pg_dump --schema={fresh}" in planned.note
    assert [step.number for step in planned.steps] == [OLD + 1]
    with pytest.raises(FormatTooOld, match=f"storage format {OLD}"):
        await dgent.open(old, upgrade="never").open()
    assert await value(fresh, NUMBER) == OLD
    done = await upgrade_store(dgent.open(old).backend)
    assert done.steps == planned.steps and await value(fresh, NUMBER) == OLD + 1
    assert (await upgrade_store(dgent.open(old).backend)).steps == []
    with pytest.raises(NotFound):
        await upgrade_store(dgent.open(with_universe(server_url(), fresh + "x")).backend, dry_run=True)


async def test_a_step_may_take_longer_than_a_call(
    old: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_format(monkeypatch, STEP + "SELECT pg_sleep(2.5);")
    async with dgent.open(f"{old}&timeout=2") as u:
        assert await u.exists("old")
    assert await value(fresh, MARKED) == 1


async def test_a_process_that_has_it_open_is_told(
    old: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by the old format: its next commit is refused, and so is its next query."""
    async with dgent.open(old) as one, dgent.open(old) as other:
        await one.put(dgent.Datum(id="before"))
        assert await other.count() == 2
        next_format(monkeypatch, STEP)
        await upgrade_store(dgent.open(old).backend)
        monkeypatch.setattr(storage, "FORMAT", OLD)
        with pytest.raises(FormatTooNew):
            await one.put(dgent.Datum(id="after"))
        with pytest.raises(FormatTooNew):
            await other.query(dgent.Query(where={"n": 1}))
    assert await value(fresh, "SELECT count(*) FROM {u}.datum") == 2


async def test_where_it_can_only_be_read(old: str, fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried there; the error names the command for where it can be written."""
    next_format(monkeypatch, STEP)
    setting = "options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(FormatTooOld, match="only be read here") as refused:
        await dgent.open(f"{old}&{setting}").open()
    assert "dgent store upgrade" in refused.value.hint
    assert await value(fresh, NUMBER) == OLD


@pytest.fixture
async def role(old: str, fresh: str) -> AsyncIterator[str]:
    """A role that may read and write the universe `old`, and owns none of it."""
    name, rights = f"role_{time.time_ns()}", "SELECT, INSERT, UPDATE, DELETE"
    connection = await asyncpg.connect(server_url())
    await connection.execute(f"CREATE ROLE {name} LOGIN")
    await connection.execute(f'GRANT USAGE ON SCHEMA "{fresh}" TO {name}')
    await connection.execute(f'GRANT {rights} ON ALL TABLES IN SCHEMA "{fresh}" TO {name}')
    yield name
    await connection.execute(f"DROP OWNED BY {name}")
    await connection.execute(f"DROP ROLE {name}")
    await connection.close()


async def test_roles_that_own_nothing(
    old: str, fresh: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cannot upgrade, and may use new tables as they may use the others once the owner has done it."""
    next_format(monkeypatch, "CREATE TABLE {u}.more (n int) PARTITION BY HASH (n)")
    parts = urlsplit(old)
    theirs = parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()
    with pytest.raises(FormatTooOld, match="role may not upgrade") as refused:
        await dgent.open(theirs).open()
    assert "as the role that owns its tables" in refused.value.hint
    assert await value(fresh, NUMBER) == OLD
    await upgrade_store(dgent.open(old).backend)
    async with dgent.open(theirs) as u:
        await u.put(dgent.Datum(id="theirs"))
    for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        asked = f"SELECT has_table_privilege('{role}', '{{u}}.more', '{right}')"
        assert await value(fresh, asked), right


async def test_a_table_in_use_is_waited_for_only_so_long(
    old: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "LOCK_WAIT_S", 1)
    next_format(monkeypatch, STEP)
    other = await asyncpg.connect(server_url())
    try:
        async with other.transaction():
            await other.execute(f'LOCK TABLE "{fresh}".trail IN ACCESS SHARE MODE')
            with pytest.raises(Busy, match=f"step {OLD + 1}"):
                await dgent.open(old).open()
        assert await value(fresh, NUMBER) == OLD
        async with dgent.open(old) as u:
            assert await u.exists("old")
    finally:
        await other.close()


async def test_killed_in_a_step(old: str, fresh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Nursery("tests.postgres.jobs") as nursery:
        worker = nursery.start("open_at", url=old, at=0, step=STEP + "SELECT pg_sleep(1);")
        await asyncio.sleep(0.4)
        worker.kill()
        nursery.wait(worker)
    assert await value(fresh, NUMBER) == OLD
    next_format(monkeypatch, STEP)
    async with dgent.open(old) as u:
        assert await u.exists("old")
    assert await value(fresh, MARKED) == 1


async def test_a_step_that_fails_changes_nothing(old: str) -> None:
    broken = STEP + "SELECT 1 / 0;"
    with Nursery("tests.postgres.jobs") as nursery:
        workers = [nursery.start("open_at", url=old, at=0, step=broken) for _ in range(2)]
        assert [worker.code for worker in nursery.wait(*workers)] == [1, 1]
    async with dgent.open(old) as u:
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
