"""Reads by id stay on the calling thread when the engine can read there, and answer alike."""

from __future__ import annotations

import asyncio
import timeit
from typing import Any

import pytest

from dgent import Datum, sync
from dgent.errors import Closed
from dgent.model.lens import field
from dgent.sync.twin import _reading
from dgent.universe.universe import Universe
from tests.sync.marks import Mark

WHAT = field("what")


@pytest.fixture
def no_hops(u: sync.Universe, monkeypatch: pytest.MonkeyPatch) -> sync.Universe:
    """A universe whose loop must not be asked."""
    u.remember(Mark("a", 1), id="a")
    u.put(Datum(id="bad", data={"what": 3}, schema="mark", schema_version=1))

    def asked(*_: object) -> None:
        raise Closed("this went to the loop")

    home: Any = u._home  # type: ignore[attr-defined]
    monkeypatch.setattr(home.runner, "submit", asked)
    return u


def test_point_reads_stay_on_this_thread(no_hops: sync.Universe) -> None:
    assert no_hops.get("a").value == Mark("a", 1)
    assert no_hops.get("a", raw=True).data == {"what": "a", "n": 1}
    assert no_hops.get("nothing") is None
    assert no_hops.exists("a")
    found = no_hops.collection(Mark).get("a")
    assert found is not None
    assert found.value == Mark("a", 1)
    assert no_hops.focus("a", WHAT).get() == "a"
    with pytest.raises(Closed, match="went to the loop"):
        no_hops.get("a", as_of=1)


def test_point_reads_fail_like_the_async_ones(
    no_hops: sync.Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(id: Any) -> tuple[type, str]:
        with pytest.raises(Exception) as caught:
            no_hops.get(id)
        return caught.type, str(caught.value)

    here = {id: outcome(id) for id in ("bad", "", "\0", 3)}
    monkeypatch.undo()
    no_hops._home.reads_now = False  # type: ignore[attr-defined]
    assert {id: outcome(id) for id in here} == here


def test_an_engine_without_point_reads_is_asked_on_the_loop(place: str) -> None:
    async def waits(self: Universe, id: str, **_: Any) -> str:
        await asyncio.sleep(0)
        return f"waited for {id}"

    with sync.open(place) as u:
        assert _reading(waits)(u, "a") == "waited for a"
        u._home.reads_now = False  # type: ignore[attr-defined]
        assert u.get("a") is None


def test_a_point_read_is_several_times_faster_than_a_hop(u: sync.Universe) -> None:
    u.remember(Mark("a"), id="a")
    home: Any = u._home  # type: ignore[attr-defined]
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(15):
        for reads_now in times:
            home.reads_now = reads_now
            times[reads_now].append(timeit.timeit(lambda: u.get("a"), number=50))
    # The best of many short runs: what else the machine does is not what is measured.
    assert min(times[False]) > 2 * min(times[True])
