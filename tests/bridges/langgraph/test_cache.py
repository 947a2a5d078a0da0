"""The cache against the framework's own, with expiry."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.cache import memory
from langgraph.cache.memory import InMemoryCache

import dgent.clock
from dgent.bridges.langgraph import DgentCache

START = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC).timestamp()
KEYS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "a.b", "\ud800", ""]), max_size=2).map(tuple),
    st.sampled_from(["k", "x" * 900, "a\0b", "a/b"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"),
            st.dictionaries(
                KEYS,
                st.tuples(
                    st.integers(-(2**63), 2**63 - 1) | st.binary() | st.none(), st.integers(1, 50) | st.none()
                ),
            ),
        ),
        st.tuples(st.just("get"), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("clear"), st.none() | st.lists(KEYS.map(lambda key: key[0]), max_size=2)),
        st.tuples(st.just("wait"), st.integers(1, 30)),
        st.tuples(st.just("sweep")),
    ),
    max_size=15,
)


class Clock:
    """A clock that both caches look at."""

    now = START

    def now_us(self) -> int:
        return int(self.now * 1_000_000)


@given(STEPS)
def test_programs_answer_as_in_the_framework(steps: list[Any]) -> None:
    clock = Clock()

    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(clock.now, tz)

    with pytest.MonkeyPatch.context() as patch, DgentCache[Any]("memory:") as ours:
        theirs: InMemoryCache[Any] = InMemoryCache()
        patch.setattr(dgent.clock, "now_us", clock.now_us)
        patch.setattr(memory.datetime, "datetime", Frozen)
        for kind, *rest in steps:
            if kind == "wait":
                clock.now += rest[0]
            elif kind == "sweep":
                ours.sweep()
            else:
                assert getattr(ours, kind)(*rest) == getattr(theirs, kind)(*rest)


async def test_the_async_calls_answer_too(url: str) -> None:
    async with DgentCache[Any](url) as made:
        await made.aset({(("a",), "k"): ({"x": [1]}, None), (("b",), "k"): (2, 0)})
        assert await made.aget([(("a",), "k"), (("b",), "k")]) == {(("a",), "k"): {"x": [1]}}
        assert await made.asweep() == 1
        await made.aset({})
        await made.aclear([("a",)])
        assert await made.aget([(("a",), "k")]) == {}
        await made.aset({(("a",), str(at)): (at, None) for at in range(1200)})
        await made.aclear()
        assert await made.place.arun(lambda u: u.count(schema="langgraph.cache")) == 0
