"""Run revisions on the connection that `dgent.tables.migrate` gives, in its transaction.

Alembic loads this file; nothing else does. It opens no database of its own.
"""

from __future__ import annotations

from alembic import context

from dgent.tables.models import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    transactional_ddl=True,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
