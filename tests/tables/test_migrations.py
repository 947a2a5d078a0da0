"""The revisions of the tables: up and down, from empty and from each earlier one, once and twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import dgent
from dgent.errors import Denied, InputError, NotFound
from dgent.tables import connect
from dgent.tables.migrate import (
    VERSION_TABLE,
    ensure_migrations,
    get_alembic_config,
    get_current_revision,
    get_pending_migrations,
    list_revisions,
    make_revision,
    run_migrations,
)
from dgent.tables.models import Base

ALL = ["001", "002", "003", "004"]
TABLES = {
    "001": set(),
    "002": {"brain_crystals", "brain_crystal_tags", "brain_settings"},
    "003": {"town_citizens", "citizen_conversations", "conversation_turns", "town_citizen_relationships"},
    "004": {"gardener_sessions", "garden_plots", "garden_ideas", "garden_idea_connections"},
}


async def tables_of(place) -> set[str]:
    async with place.engine.connect() as connection:
        found = await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names())
    return set(found) - {VERSION_TABLE}


def tables_at(revision: str) -> set[str]:
    return set().union(*(TABLES[each] for each in ALL[: ALL.index(revision) + 1]))


async def difference(place) -> list[object]:
    """Return how the tables of a place differ from the models."""

    def compare(connection: sa.Connection) -> list[object]:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        ours = Base.metadata.tables.keys()
        options["include_name"] = lambda name, kind, _parents: kind != "table" or name in ours
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)

    async with place.engine.connect() as connection:
        return await connection.run_sync(compare)


async def test_each_revision_goes_up_and_down_and_twice_is_once(place) -> None:
    assert await get_current_revision(place) is None
    assert await get_pending_migrations(place) == ALL
    assert await tables_of(place) == set(), "a look makes nothing"
    for revision in ALL:
        for _ in range(2):
            assert await run_migrations(place, revision) == revision
        assert await get_current_revision(place) == revision
        assert await tables_of(place) == tables_at(revision)
        assert await get_pending_migrations(place) == ALL[ALL.index(revision) + 1 :]
    assert await difference(place) == [], "the revisions make what the models say"
    assert not await ensure_migrations(place)
    for revision in reversed(ALL[:-1]):
        assert await run_migrations(place, "-1", development=True) == revision
        assert await tables_of(place) == tables_at(revision)
    assert await run_migrations(place, "base", development=True) is None
    assert await tables_of(place) == set()
    assert await ensure_migrations(place)
    assert await tables_of(place) == tables_at("004")


@pytest.fixture
async def sqlite(tmp_path: Path):
    """Tables in a SQLite file."""
    async with (
        dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u,
        await connect(u) as made,
    ):
        yield made


@pytest.mark.parametrize("start", ALL[:-1])
async def test_rows_of_an_earlier_revision_stay(sqlite, start: str) -> None:
    await run_migrations(sqlite, start)
    row = sa.text("INSERT INTO brain_crystals (id, content_hash, summary) VALUES ('a', 'h', 's')")
    if start != "001":
        async with sqlite.engine.begin() as connection:
            await connection.execute(row)
    assert await ensure_migrations(sqlite)
    async with sqlite.engine.connect() as connection:
        found = (await connection.execute(sa.text("SELECT id, tags, access_count FROM brain_crystals"))).all()
    assert [tuple(each) for each in found] == ([] if start == "001" else [("a", "[]", 0)])


async def test_tables_that_are_there_without_a_revision_are_taken_as_they_are(sqlite) -> None:
    async with sqlite.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    assert await run_migrations(sqlite) == "004"
    assert await difference(sqlite) == []


@pytest.mark.parametrize("target", ["-1", "base", "002"])
async def test_a_step_back_needs_development(sqlite, target: str) -> None:
    await run_migrations(sqlite)
    with pytest.raises(Denied, match="step back"):
        await run_migrations(sqlite, target)
    assert await get_current_revision(sqlite) == "004"


async def test_a_revision_that_fails_leaves_everything_as_it_was(sqlite, tmp_path: Path) -> None:
    folder = tmp_path / "my revisions: 100%"
    first = make_revision("add prices", folder)
    text = first.read_text()
    made = 'op.create_table("prices", sa.Column("item", sa.Text(), primary_key=True))'
    first.write_text(text.replace("pass", made, 1))
    second = make_revision("break", folder)
    second.write_text(second.read_text().replace("pass", f"{made}\n    raise RuntimeError('no')", 1))
    with pytest.raises((RuntimeError, sa.exc.DBAPIError)):
        await run_migrations(sqlite, folder=folder)
    assert await tables_of(sqlite) == set()
    assert await get_current_revision(sqlite, folder) is None
    second.write_text(second.read_text().replace(made, "").replace("raise RuntimeError('no')", "pass"))
    assert await run_migrations(sqlite, folder=folder) == "002"
    assert "prices" in await tables_of(sqlite)
    assert await get_current_revision(sqlite) is None, "they are counted apart from the shipped ones"
    assert [each.title for each in await list_revisions(sqlite, folder)] == ["add prices", "break"]
    assert await ensure_migrations(sqlite)
    assert await get_current_revision(sqlite, folder) == "002"


async def test_a_revision_that_nobody_knows_is_named(sqlite, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nonesuch"):
        await run_migrations(sqlite, "nonesuch")
    make_revision("mine", tmp_path / "mine")
    await run_migrations(sqlite, folder=tmp_path / "mine")
    (tmp_path / "other").mkdir()
    with pytest.raises(NotFound, match="001"):
        await run_migrations(sqlite, folder=tmp_path / "other")
    with pytest.raises(InputError, match="title"):
        make_revision(" ", tmp_path / "mine")


async def test_two_that_run_at_once_make_the_tables_once(sqlite) -> None:
    async with await connect(sqlite.universe) as other:
        done = await asyncio.gather(*(run_migrations(each) for each in (sqlite, other, sqlite)))
    assert done == ["004"] * 3
    assert await tables_of(sqlite) == tables_at("004")


RUN = """
import asyncio, sys, dgent
from dgent.tables import connect, run_migrations

async def main():
    async with dgent.open(sys.argv[1]) as u, await connect(u) as place:
        print("ready", flush=True)
        sys.stdin.readline()
        print(await run_migrations(place))

asyncio.run(main())
"""


async def test_processes_that_run_at_once_make_the_tables_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    command = [sys.executable, "-c", RUN, url]
    async with dgent.open(url) as u, await connect(u) as place, place.engine.connect() as writer:
        await u.seq()
        running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for each in running:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        await writer.execute(sa.text("CREATE TABLE held (a INTEGER)"))  # so that both have to wait
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        await asyncio.sleep(0.5)
        await writer.rollback()
        done = [await asyncio.to_thread(each.communicate, timeout=60) for each in running]
    assert [out for out, _ in done] == ["004\n"] * 2


async def test_an_empty_target_is_refused(sqlite) -> None:
    with pytest.raises(InputError, match="target"):
        await run_migrations(sqlite, "")


def test_columns_that_a_revision_adds_are_nullable_or_have_defaults() -> None:
    """A table that has rows takes a new column only so; the columns of a new table may be required."""
    script = ScriptDirectory.from_config(get_alembic_config())
    assert [each.revision for each in script.walk_revisions()][::-1] == ALL
    for each in script.walk_revisions():
        assert "add_column" not in Path(each.path).read_text(), "write this test for it, too"
    for table in Base.metadata.tables.values():
        for column in table.columns:
            required = not column.nullable and column.server_default is None and not column.primary_key
            assert not required or column.name in REQUIRED[table.name], f"{table.name}.{column.name}"


REQUIRED = {
    "brain_crystals": {"content_hash", "summary"},
    "brain_crystal_tags": {"crystal_id", "tag"},
    "brain_settings": set(),
    "town_citizens": {"name"},
    "citizen_conversations": {"citizen_name"},
    "conversation_turns": {"conversation_id", "role", "content"},
    "town_citizen_relationships": {"citizen_a_id", "citizen_b_id", "relationship_type"},
    "gardener_sessions": set(),
    "garden_plots": {"name"},
    "garden_ideas": {"content"},
    "garden_idea_connections": {"source_id", "target_id", "connection_type"},
}
"""The columns without which a row says nothing. A revision may never add one of these."""
