"""Gardener: sessions, plots, ideas and their connections."""

from __future__ import annotations

import sqlalchemy as sa

from dgent.tables.migrations.columns import ID, MOMENT, count, create_table, drop_tables, json, refer, times

revision = "004"
down_revision = "003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of Gardener."""
    create_table(
        "gardener_sessions",
        sa.Column("id", ID, primary_key=True),
        sa.Column("title", sa.Text()),
        sa.Column("notes", sa.Text()),
        sa.Column("duration_seconds", sa.Double()),
        *times(),
        index=("created_at",),
    )
    create_table(
        "garden_plots",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("description", sa.Text()),
        sa.Column("color", sa.String(32)),
        *times(),
        index=("created_at",),
    )
    create_table(
        "garden_ideas",
        sa.Column("id", ID, primary_key=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("lifecycle", sa.String(16), nullable=False, server_default="SEED"),
        sa.Column("confidence", sa.Double(), nullable=False, server_default="0.3"),
        refer("session_id", "gardener_sessions", "SET NULL", nullable=True),
        sa.Column("last_nurtured", MOMENT),
        count("nurture_count"),
        refer("plot_id", "garden_plots", "SET NULL", nullable=True),
        sa.Column("datum_id", ID),
        json("tags", "[]"),
        sa.Column("causal_parent", ID),
        *times(),
        sa.CheckConstraint("lifecycle IN ('SEED', 'SAPLING', 'TREE', 'FLOWER', 'COMPOST')", name="lifecycle"),
        sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
        index=("lifecycle", "session_id", "plot_id", "datum_id", "causal_parent", "created_at"),
    )
    create_table(
        "garden_idea_connections",
        sa.Column("id", ID, primary_key=True),
        refer("source_id", "garden_ideas", "CASCADE"),
        refer("target_id", "garden_ideas", "CASCADE"),
        sa.Column("connection_type", sa.String(64), nullable=False),
        sa.Column("strength", sa.Double(), nullable=False, server_default="0.5"),
        sa.Column("notes", sa.Text()),
        *times(),
        sa.UniqueConstraint("source_id", "target_id", "connection_type"),
        index=("target_id", "created_at"),
    )


def downgrade() -> None:
    """Drop the tables of Gardener, and all that is in them."""
    drop_tables("garden_idea_connections", "garden_ideas", "garden_plots", "gardener_sessions")
