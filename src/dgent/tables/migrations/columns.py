"""The columns that revisions share, as they were when these were written.

Revisions do not import the models: those are of now, and a revision is of its time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

ID = sa.String(64)
JSON = sa.JSON().with_variant(JSONB(), "postgresql")
MOMENT = sa.DateTime(timezone=True)


def times() -> tuple[sa.Column[object], sa.Column[object]]:
    """Return the columns `created_at` and `updated_at`."""
    return (
        sa.Column("created_at", MOMENT, nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", MOMENT, nullable=False, server_default=sa.func.now()),
    )


def json(name: str, empty: str) -> sa.Column[object]:
    """Return a column of JSON that is empty unless given: `[]` or `{}`."""
    return sa.Column(name, JSON, nullable=False, server_default=empty)


def count(name: str) -> sa.Column[int]:
    """Return a column that counts from 0."""
    return sa.Column(name, sa.Integer(), nullable=False, server_default="0")


def refer(name: str, target: str, on_delete: str, *, nullable: bool = False) -> sa.Column[object]:
    """Return a column with the id of a row in another table."""
    return sa.Column(name, ID, sa.ForeignKey(f"{target}.id", ondelete=on_delete), nullable=nullable)


def create_table(name: str, *parts: sa.schema.SchemaItem, index: tuple[str, ...] = ()) -> None:
    """Make a table and its indexes, each unless it is there."""
    op.create_table(name, *parts, if_not_exists=True)
    for column in index:
        op.create_index(f"ix_{name}_{column}", name, [column], if_not_exists=True)


def drop_tables(*names: str) -> None:
    """Drop tables with their indexes, each if it is there."""
    for name in names:
        op.drop_table(name, if_exists=True)
