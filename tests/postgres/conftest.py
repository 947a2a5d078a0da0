"""Servers for these tests, and nothing that is skipped in silence."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.postgres.known_gaps import GAPS
from tests.postgres.lease import url_for
from tests.postgres.server import Server

# What it says is on disk survives a kill of the server; the plug of the machine is not pulled.
SAFE = {"fsync": "off"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty universe on the shared server."""
    return url_for(tmp_path)


@pytest.fixture(scope="module")
def _server() -> Iterator[Server]:
    server = Server(SAFE).create()
    yield server
    server.remove()


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """A server of the file's own, to be stopped and killed."""
    # Anew for each test: one that a test started on another thread ends with that thread.
    _server.start()
    yield _server
    _server.kill()


@pytest.fixture
def make_server() -> Iterator[Callable[..., Server]]:
    """Makes servers with settings of one's own."""
    made: list[Server] = []

    def make(**settings: str) -> Server:
        made.append(Server({**SAFE, **settings}))
        return made[-1]

    yield make
    for server in reversed(made):
        server.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that the table does not explain into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if not any(gap in reason for gap in GAPS.values()):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped without a row in tests/postgres/known_gaps.py"
    return report
