"""Settings of all tests, and one message instead of hundreds where no Postgres server can be started."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine

from dgent.store.sqlite import kernel
from tests import command
from tests.parallel import pytest_addoption, pytest_runtestloop
from tests.postgres.server import NoServer
from tests.scratch import memory, store_path, tmp_path
from tests.soak import examples

__all__ = ["memory", "pytest_addoption", "pytest_runtestloop", "store_path", "tmp_path"]
MOVE_AT = kernel.MOVE_AT

# Before anything imports it: the contract's asserts are to say what they saw.
pytest.register_assert_rewrite("dgent.testing")

# Deadlines and the too_slow check measure a loaded machine, not dgent; pytest-timeout catches what hangs.
settings.register_profile(
    "dgent",
    max_examples=examples(50),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A change is judged by the same examples each time; every other run, and `make soak`, looks for new ones.
settings.register_profile("ci", settings.get_profile("dgent"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dgent")

# A time-out breaks into the search for a smaller failure, and what it breaks into may then hang for good.
engine.MAX_SHRINKING_SECONDS = 60

# Collecting makes thousands of tests and drops nothing: a search for garbage would find none.
gc.disable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Load what programs need on the other core while the tests are collected."""
    if session.config.option.forks:
        command.begin_server()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare every later search for garbage the thousands of tests, which stay to the end."""
    if session.config.option.forks:
        command.share_server()
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)  # as often as usual, the searches would take three times as long
    gc.enable()


def pytest_runtest_setup() -> None:
    """Move index entries as often as usual; some tests have them moved at every commit, or hardly ever."""
    kernel.MOVE_AT = MOVE_AT


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[object]) -> None:
    """Stop at the first test that finds no server: all others that need one would only say the same."""
    if call.excinfo is not None and call.excinfo.errisinstance(NoServer) and not node.session.shouldfail:
        node.session.shouldfail = f"no Postgres server: {call.excinfo.value}"
