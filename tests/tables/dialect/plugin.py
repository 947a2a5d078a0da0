"""What SQLAlchemy's suite needs of pytest: its plugin, and a database that has no other file attached."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.dialects.sqlite import provision  # noqa: E402, F401  # registers its own steps first
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
from sqlalchemy.testing.provision import post_configure_engine  # noqa: E402

from dgent.store.sqlite import session  # noqa: E402


@post_configure_engine.for_db("sqlite")
def _attach_nothing(url: object, engine: object, follower_ident: object) -> None:
    """Leave the engine as it is: SQLAlchemy's own step attaches a second file."""


session.WAIT_S = 1.0  # a test that fails may leave its transaction open, for which all others would wait
