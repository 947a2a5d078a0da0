"""Brain: crystals, their tags, and settings."""

from __future__ import annotations

import sqlalchemy as sa

from dgent.tables.migrations.columns import ID, MOMENT, count, create_table, drop_tables, json, refer, times

revision = "002"
down_revision = "001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of Brain."""
    create_table(
        "brain_crystals",
        sa.Column("id", ID, primary_key=True),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        json("tags", "[]"),
        count("access_count"),
        sa.Column("last_accessed", MOMENT),
        sa.Column("datum_id", ID),
        sa.Column("source_type", sa.String(64)),
        sa.Column("source_ref", sa.Text()),
        *times(),
        index=("content_hash", "datum_id", "created_at"),
    )
    create_table(
        "brain_crystal_tags",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        refer("crystal_id", "brain_crystals", "CASCADE"),
        sa.Column("tag", sa.String(255), nullable=False),
        sa.UniqueConstraint("crystal_id", "tag"),
        index=("tag",),
    )
    create_table(
        "brain_settings",
        sa.Column("id", ID, primary_key=True, server_default="default"),
        json("default_tags", "[]"),
        sa.Column("retention_days", sa.Integer()),
        sa.Column("max_crystals", sa.Integer()),
        json("config", "{}"),
        *times(),
        index=("created_at",),
    )


def downgrade() -> None:
    """Drop the tables of Brain, and all that is in them."""
    drop_tables("brain_settings", "brain_crystal_tags", "brain_crystals")
