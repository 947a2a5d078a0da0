"""`inspect` finds what is wrong with a universe on Postgres, and mends what it can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

import dgent
from dgent.config.secret import mask
from dgent.errors import Unsupported
from dgent.store.upkeep import Finding, upkeep_of
from tests.postgres.lease import server_url, url_for


@dataclass(frozen=True)
class Note:
    text: str


NOTE = dgent.Schema("note", 1, Note, indexes=("text",))


async def findings(u: dgent.Universe, *, fix: bool = False) -> dict[str, Finding]:
    found = await upkeep_of(u.backend).inspect(deep=True, fix=fix)
    return {finding.subject: finding for finding in found}


async def broken(folder: Path, sql: str) -> None:
    name = url_for(folder).rpartition("universe=")[2]
    connection = await asyncpg.connect(server_url())
    await connection.execute(sql.replace("$u", f'"{name}"'))
    await connection.close()


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(url_for(tmp_path)) as universe:
        universe.register(NOTE)
        for n in range(5):
            await universe.remember(Note(f"note {n}"), tags=["a"], id=f"m{n}")
        yield universe


async def test_a_sound_universe(u: dgent.Universe) -> None:
    found = await findings(u)
    assert {finding.level for finding in found.values()} == {"ok"}
    assert {"server", "clock", "indexes", "records"} <= found.keys()


async def test_lost_and_stray_entries_are_mended(u: dgent.Universe, tmp_path: Path) -> None:
    await broken(tmp_path, "DELETE FROM $u.entry WHERE id = 'm1'")
    await broken(
        tmp_path, "INSERT INTO $u.entry SELECT ix, '\\x09', t, dk, id FROM $u.entry WHERE id = 'm2' LIMIT 1"
    )
    found = (await findings(u))["entries"]
    assert (found.fixable, found.message[:9]) == (True, "2 records")
    mended = (await findings(u, fix=True))["entries"]
    assert mended.fixed
    assert "entries" not in await findings(u)
    assert len(await u.query(dgent.Query(schema="note", where={"text": "note 1"}))) == 1


async def test_a_clock_that_is_behind_is_a_problem(u: dgent.Universe, tmp_path: Path) -> None:
    await broken(tmp_path, "UPDATE $u.clock SET seq = 1")
    assert (await findings(u))["clock"].level == "problem"


async def test_a_damaged_record_is_told(u: dgent.Universe, tmp_path: Path) -> None:
    await broken(tmp_path, "UPDATE $u.datum SET data = '{' WHERE id = 'm3'")
    found = (await findings(u))["records"]
    assert (found.level, "1 record" in found.message) == ("problem", True)


async def test_a_backup_as_a_file_is_refused(u: dgent.Universe, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="pg_dump"):
        await upkeep_of(u.backend).copy_to(str(tmp_path / "copy"))


async def test_the_place_shows_no_password() -> None:
    url = "postgresql://me:secret@db.example/work?universe=mine"
    u = dgent.open(url)
    assert "secret" not in repr(u.backend.address.place)
    assert u.backend.address.place == mask(url)
