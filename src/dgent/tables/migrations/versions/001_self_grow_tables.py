"""A note: the tables of self.grow are records of the membrane, so nothing is made here.

The number stays, so that the others have the numbers that the ancestor gave them.
"""

from __future__ import annotations

revision = "001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make nothing: `dgent.membrane` keeps proposals, nursery and rollback tokens."""


def downgrade() -> None:
    """Drop nothing."""
