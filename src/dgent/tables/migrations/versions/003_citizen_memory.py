"""Town: citizens, conversations, turns and relationships."""

from __future__ import annotations

import sqlalchemy as sa

from dgent.tables.migrations.columns import ID, MOMENT, count, create_table, drop_tables, json, refer, times

revision = "003"
down_revision = "002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of Town."""
    create_table(
        "town_citizens",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("archetype", sa.String(255)),
        sa.Column("description", sa.Text()),
        json("traits", "{}"),
        sa.Column("is_active", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("last_interaction", MOMENT),
        count("interaction_count"),
        sa.Column("memory_datum_id", ID),
        *times(),
        index=("created_at",),
    )
    create_table(
        "citizen_conversations",
        sa.Column("id", ID, primary_key=True),
        refer("citizen_id", "town_citizens", "CASCADE", nullable=True),
        sa.Column("citizen_name", sa.String(255), nullable=False),
        sa.Column("topic", sa.Text()),
        sa.Column("summary", sa.Text()),
        count("turn_count"),
        sa.Column("is_active", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("datum_chain_head", ID),
        sa.Column("causal_parent", ID),
        *times(),
        index=("citizen_id", "citizen_name", "causal_parent", "created_at"),
    )
    create_table(
        "conversation_turns",
        sa.Column("id", ID, primary_key=True),
        refer("conversation_id", "citizen_conversations", "CASCADE"),
        count("turn_number"),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("sentiment", sa.Double()),
        sa.Column("emotion", sa.String(64)),
        sa.Column("causal_parent", ID),
        *times(),
        sa.UniqueConstraint("conversation_id", "turn_number"),
        sa.CheckConstraint("role IN ('user', 'citizen', 'system')", name="role"),
        index=("causal_parent", "created_at"),
    )
    create_table(
        "town_citizen_relationships",
        sa.Column("id", ID, primary_key=True),
        refer("citizen_a_id", "town_citizens", "CASCADE"),
        refer("citizen_b_id", "town_citizens", "CASCADE"),
        sa.Column("relationship_type", sa.String(64), nullable=False),
        sa.Column("strength", sa.Double(), nullable=False, server_default="0.5"),
        count("interaction_count"),
        sa.Column("notes", sa.Text()),
        *times(),
        sa.UniqueConstraint("citizen_a_id", "citizen_b_id", "relationship_type"),
        index=("citizen_b_id", "created_at"),
    )


def downgrade() -> None:
    """Drop the tables of Town, and all that is in them."""
    drop_tables("town_citizen_relationships", "conversation_turns", "citizen_conversations", "town_citizens")
