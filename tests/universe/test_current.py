"""The universe of the process, and the mixin that gives agents a memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dgent
from dgent.errors import NoUniverse
from tests.universe.marks import mark


class Scout(dgent.DataMixin):
    pass


@pytest.fixture(autouse=True)
def _none_set() -> Iterator[None]:
    before = dgent.set_universe(None)
    yield
    dgent.set_universe(before)


def test_none_is_set() -> None:
    with pytest.raises(NoUniverse) as raised:
        dgent.get_universe()
    assert "set_universe" in raised.value.hint
    with pytest.raises(NoUniverse):
        _ = Scout().data


async def test_an_agent_with_a_memory(u: dgent.Universe) -> None:
    assert dgent.set_universe(u) is None
    assert dgent.get_universe() is u
    scout = Scout()
    assert scout.data is u
    kept = await scout.remember(mark(), tags={"t"})
    assert await scout.recall(dgent.Query(tags={"t"})) == [kept]
    assert dgent.set_universe(None) is u
    with pytest.raises(NoUniverse):
        await scout.remember(mark())


def test_only_a_universe_can_be_set() -> None:
    with pytest.raises(dgent.InputError):
        dgent.set_universe("memory:")  # type: ignore[arg-type]
    with pytest.raises(NoUniverse):
        dgent.get_universe()
