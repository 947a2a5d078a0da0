"""What the dialect can do, as SQLAlchemy's suite asks for it, with a reason for each difference."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements


class Requirements(SuiteRequirements):
    """The suite's defaults, but for what is said here."""

    reflect_table_options: Any = exclusions.open()
    schemas: Any = exclusions.closed()
    temporary_tables: Any = exclusions.closed()
    temp_table_reflection: Any = exclusions.closed()
