"""What SQLAlchemy's suite needs of pytest: its plugin, one file without others, and what is left out."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.dialects.sqlite import provision  # noqa: E402, F401  # registers its own steps first
from sqlalchemy.testing.plugin import pytestplugin  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
from sqlalchemy.testing.provision import post_configure_engine  # noqa: E402

from dgent.store.sqlite import session  # noqa: E402

_SCHEMA = "it makes tables in a second file, which is never attached, and does not ask for schemas first"
_DIGITS = "it compares with a decimal of 16 digits, and SQLite keeps 15: such a parameter is refused"
EXCLUDED = {
    r"ComponentReflectionTestExtra.*::test_check_constraint_\w+\[True": _SCHEMA,
    r"ComponentReflectionTest_.*::test_metadata\[.*-True\]": _SCHEMA,
    r"JSONTest_.*::test_(?:index|path)_typed_comparison\[numeric1\]": _DIGITS,
}

session.WAIT_S = 1.0  # a test that fails may leave its transaction open, for which all others would wait


def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    """Skip what is excluded, and say why."""
    pytestplugin.pytest_collection_modifyitems(session, config, items)
    for item in items:
        for pattern, reason in EXCLUDED.items():
            if re.search(pattern, item.nodeid):
                item.add_marker(pytest.mark.skip(reason=f"excluded: {reason}"))


@post_configure_engine.for_db("sqlite")
def _attach_nothing(url: object, engine: object, follower_ident: object) -> None:
    """Leave the engine as it is: SQLAlchemy's own step attaches a second file."""
