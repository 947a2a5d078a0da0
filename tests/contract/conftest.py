"""Gives each contract class the engine of its column, and lets nothing be skipped in silence."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from dgent.store.backend import Backend
from dgent.testing.contract import Factory
from tests.contract.known_gaps import GAPS


@pytest.fixture
def backend(request: pytest.FixtureRequest, store_path: Path) -> Factory:
    """A factory of backends of this class's column, all on one place."""

    async def make() -> Backend:
        backend: Backend = request.cls.column.make(store_path)
        return backend

    return make


def _gap(item: pytest.Item) -> str | None:
    cls = getattr(item, "cls", None)
    if cls is None or not hasattr(cls, "column"):
        return None
    test = getattr(item, "originalname", item.name)
    return GAPS.get((cls.column.name, f"{cls.contract.__name__}.{test}"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the table of gaps names."""
    for item in items:
        reason = _gap(item)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that the table does not explain into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _gap(item) is None:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped without a row in tests/contract/known_gaps.py"
    return report
