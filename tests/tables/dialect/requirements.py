"""What the dialect can do, as SQLAlchemy's suite asks for it, with a reason for each difference."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_YES, _NO = exclusions.open, exclusions.closed


class Requirements(SuiteRequirements):
    """The suite's defaults, but for what is said here."""

    # No other file is attached, and temporary tables would be gone before the next statement: a session has
    # no connection of its own.
    schemas: Any = _NO()
    temporary_tables: Any = _NO()
    temp_table_names: Any = _NO()
    temp_table_reflection: Any = _NO()
    temporary_views: Any = _NO()
    # SQLite names no constraint that the caller did not name.
    implicitly_named_constraints: Any = _NO()
    # SQLite keeps 15 digits of a decimal; what has more is refused, and these tests expect it stored.
    precision_numerics_many_significant_digits: Any = _NO()
    precision_numerics_enotation_large: Any = _NO()

    # What the suite leaves out unless a dialect says that it can do it.
    json_type: Any = _YES()
    legacy_unconditional_json_extract: Any = _YES()
    datetime_literals: Any = _YES()
    skip_autocommit_rollback: Any = _YES()
    infinity_floats: Any = _YES()
    inline_check_constraint_reflection: Any = _YES()
    indexes_check_column_order: Any = _YES()
    server_defaults: Any = _YES()
    expression_server_defaults: Any = _YES()
    reflect_indexes_with_expressions: Any = _YES()
    nvarchar_types: Any = _YES()
    datetime_timezone: Any = _YES()
    time_timezone: Any = _YES()
    datetime_historic: Any = _YES()
    date_historic: Any = _YES()
    timestamp_microseconds: Any = _YES()
    precision_numerics_general: Any = _YES()
    precision_numerics_enotation_small: Any = _YES()
    savepoints: Any = _YES()
    autocommit: Any = _YES()
    isolation_level: Any = _YES()
    get_isolation_level_values: Any = _YES()
    dbapi_lastrowid: Any = _YES()
    views: Any = _YES()
    view_reflection: Any = _YES()
    reflects_pk_names: Any = _YES()
    check_constraint_reflection: Any = _YES()
    reflect_table_options: Any = _YES()
    on_update_cascade: Any = _YES()
    foreign_key_constraint_option_reflection_ondelete: Any = _YES()
    foreign_key_constraint_option_reflection_onupdate: Any = _YES()
    fk_constraint_option_reflection_ondelete_restrict: Any = _YES()
    fk_constraint_option_reflection_onupdate_restrict: Any = _YES()

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        """Return the levels of isolation there are."""
        return {"default": "READ COMMITTED", "supported": ["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"]}
