"""The category of application state: migrations compose, and one of them changes nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from dgent.tables import APP_STATE, Migration, Place
from dgent.tables.category import no_op_migration, sequential_migration

REVISIONS = [Migration.from_revision(name) for name in ("002", "003", "004")]


def test_migrations_are_a_category() -> None:
    assert APP_STATE.objects >= {"brain_crystals", "garden_ideas"} and APP_STATE.morphisms is Migration
    assert all("CREATE TABLE" in each.statements()[0] for each in REVISIONS), "the arrows do something"
    assert APP_STATE.broken_laws(REVISIONS, ["sqlite", "postgresql"]) == []
    assert no_op_migration().statements() == []


def test_a_composition_that_forgets_an_arrow_is_caught() -> None:
    from dataclasses import replace

    broken = replace(APP_STATE, compose=lambda first, second: first)
    assert broken.broken_laws(REVISIONS, ["sqlite"]) != []
    swapped = replace(APP_STATE, compose=lambda first, second: Migration((*second.steps, *first.steps)))
    assert swapped.broken_laws(REVISIONS, ["sqlite"]) == [], "the other order is a category too"
    assert swapped.compose(*REVISIONS[:2]).statements() != APP_STATE.compose(*REVISIONS[:2]).statements()


async def test_an_arrow_runs_on_a_database(place: Place) -> None:
    rename = Migration((lambda: op.rename_table("mine", "yours"),))
    make = Migration((lambda: op.create_table("mine", sa.Column("id", sa.Integer(), primary_key=True)),))
    async with place.engine.begin() as connection:
        await connection.run_sync(sequential_migration(make, rename).run)
        names = await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names())
        assert "yours" in names and "mine" not in names
        await connection.run_sync(no_op_migration().run)
        assert await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names()) == names
