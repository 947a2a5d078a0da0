"""Migrations as arrows between states of the tables, and the category that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from dgent.errors import Busy
from dgent.model.category import Category
from dgent.tables.migrate import get_alembic_config, hold_alembic
from dgent.tables.models import Base


@dataclass(frozen=True)
class Migration:
    """Changes of tables that run one after another; without any it changes nothing."""

    steps: tuple[Callable[[], None], ...] = ()

    @classmethod
    def from_revision(cls, revision: str) -> Migration:
        """Return a shipped revision as an arrow."""
        found = ScriptDirectory.from_config(get_alembic_config()).get_revision(revision)
        return cls((found.module.upgrade,))

    def run(self, connection: Connection) -> None:
        """Run the changes on a connection, in its transaction."""
        self._run(MigrationContext.configure(connection))

    def statements(self, dialect: str = "sqlite") -> list[str]:
        """Return the SQL of the changes, without a database."""
        written = StringIO()
        options = {"as_sql": True, "output_buffer": written}
        self._run(MigrationContext.configure(dialect_name=dialect, opts=options))
        return [text for each in written.getvalue().split(";\n") if (text := each.strip())]

    def _run(self, context: MigrationContext) -> None:
        with hold_alembic() as held:
            if not held:
                raise Busy("other migrations run in this process")
            with Operations.context(context):
                for step in self.steps:
                    step()


def no_op_migration() -> Migration:
    """Return the migration that changes nothing."""
    return Migration()


def sequential_migration(first: Migration, second: Migration) -> Migration:
    """Return the migration that runs one after the other."""
    return Migration((*first.steps, *second.steps))


APP_STATE: Category[Migration] = Category(
    name="application state",
    objects=frozenset(Base.metadata.tables),
    morphisms=Migration,
    identity=no_op_migration,
    compose=sequential_migration,
    same=lambda one, other, dialect: one.statements(dialect) == other.statements(dialect),
)
"""The state of an application: its tables, and the migrations between their shapes."""
