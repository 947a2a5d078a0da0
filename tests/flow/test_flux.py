"""Agents over streams: every event once and in order, at the pace of the slowest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import Conflict, InputError
from dgent.flow import DEAD_LETTER, Agent, Flux, FluxConfig, FluxState, Id, StateFunctor
from tests.fault.nursery import Nursery

double = Agent.from_function(lambda n: n * 2)


async def stream(values: Iterable[Any], pause_s: float | None = None) -> AsyncIterator[Any]:
    for value in values:
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        yield value


async def collect(outputs: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in outputs]


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as u:
        yield u


def add_up(u: dgent.Universe, namespace: str = "sum") -> Any:
    functor = StateFunctor(dict, u, {"sum": 0, "seen": 0}, namespace)
    return functor.lift_logic(lambda n, s: (s["sum"] + n, {"sum": s["sum"] + n, "seen": s["seen"] + 1}))


async def test_events_come_out_in_order_and_none_is_lost() -> None:
    flow = Flux.lift(double)
    assert await collect(flow.start(stream(range(1000)))) == [n * 2 for n in range(1000)]
    assert (flow.stats.taken, flow.stats.given, flow.stats.dropped) == (1000, 1000, 0)
    assert flow.state is FluxState.STOPPED
    assert await collect(flow.start(stream([1]))) == [2]


async def test_slow_and_empty_sources_work() -> None:
    assert await collect(Flux.lift(double).start(stream([]))) == []
    assert await collect(Flux.lift(double).start(stream(range(3), 0.06))) == [0, 2, 4]


async def test_an_error_of_the_source_is_raised_after_what_it_gave() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone"):
        async for each in Flux.lift(double).start(broken()):
            seen.append(each)
    assert seen == [2]


async def test_the_source_waits_for_a_slow_reader() -> None:
    read = []

    async def source() -> AsyncIterator[int]:
        for n in range(100):
            read.append(n)
            yield n

    outputs = Flux.lift(Id, FluxConfig(buffer_size=5, batch=1)).start(source())
    assert await anext(outputs) == 0
    await asyncio.sleep(0.01)
    assert len(read) <= 8
    await outputs.aclose()


@pytest.mark.parametrize(("policy", "kept"), [("drop_newest", [0, 1, 2]), ("drop_oldest", [7, 8, 9])])
async def test_declared_policies_drop_and_count(policy: Any, kept: list[int]) -> None:
    flow = Flux.lift(Id, FluxConfig(buffer_size=3, drop_policy=policy))
    assert await collect(flow.start(stream(range(10)))) == kept
    assert flow.stats.dropped == 7


async def test_an_input_takes_its_place_among_the_events(u: dgent.Universe) -> None:
    flow = Flux.lift(add_up(u))
    assert await flow.invoke(1) == 1
    gate = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 10
        await gate.wait()
        yield 100

    outputs = flow.start(source())
    assert await anext(outputs) == 11
    asked = asyncio.create_task(flow.invoke(5))
    await asyncio.sleep(0)
    gate.set()
    assert await collect(outputs) == [116]
    assert await asked == 16


async def test_an_input_that_is_not_reached_is_told_so() -> None:
    flow = Flux.lift(Id, FluxConfig(batch=1))
    outputs = flow.start(stream([1, 2], 0.01))
    await anext(outputs)
    asked = asyncio.create_task(flow.invoke(5))
    await asyncio.sleep(0)
    await outputs.aclose()
    with pytest.raises(Conflict, match="ended before"):
        await asked


async def test_an_input_that_fails_does_not_end_the_flow() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0.02)
        yield 2

    flow = Flux.lift(Agent.from_function(lambda n: 10 // n))
    outputs = flow.start(source())
    assert await anext(outputs) == 10
    asked = asyncio.create_task(flow.invoke(0))
    assert await collect(outputs) == [5]
    with pytest.raises(ZeroDivisionError):
        await asked


async def test_stop_gives_what_was_read_and_ends() -> None:
    async def endless() -> AsyncIterator[int]:
        n = 0
        while True:
            yield n
            n += 1
            await asyncio.sleep(0)

    flow = Flux.lift(Id)
    seen = []
    async for each in flow.start(endless()):
        seen.append(each)
        if each == 3:
            await flow.stop()
    assert seen == list(range(len(seen))) and len(seen) >= 4
    await asyncio.wait_for(flow.wait(), 5)
    assert flow.state is FluxState.STOPPED


async def test_a_flow_runs_once_at_a_time() -> None:
    flow = Flux.lift(Id)
    outputs = flow.start(stream([1, 2]))
    await anext(outputs)
    with pytest.raises(Conflict, match="flowing already"):
        await anext(flow.start(stream([1])))
    await outputs.aclose()


def sometimes(failures: dict[int, int]) -> Agent[int, int]:
    def run(n: int) -> int:
        if failures.get(n, 0) > 0:
            failures[n] -= 1
            raise ValueError(f"no {n}")
        return n

    return Agent.from_function(run)


async def test_an_error_stops_a_flow() -> None:
    seen = []
    with pytest.raises(ValueError, match="no 2"):
        async for each in Flux.lift(sometimes({2: 9})).start(stream(range(5))):
            seen.append(each)
    assert seen == [0, 1]


async def test_a_retried_event_comes_in_its_place() -> None:
    config = FluxConfig(on_error="retry", attempts=3, backoff_s=0.001)
    assert await collect(Flux.lift(sometimes({2: 2}), config).start(stream(range(4)))) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no 2"):
        await collect(Flux.lift(sometimes({2: 3}), config).start(stream(range(4))))


async def test_a_skipped_event_is_kept_as_a_dead_letter(u: dgent.Universe) -> None:
    flow = Flux.lift(sometimes({2: 9}), FluxConfig(on_error="skip", dead_letters=u))
    assert await collect(flow.start(stream(range(4)))) == [0, 1, 3] and flow.stats.skipped == 1
    (letter,) = await u.recall(DEAD_LETTER.name)
    assert letter.value["event"] == 2 and letter.value["error"] == "ValueError: no 2"
    with pytest.raises(InputError, match="no place"):
        Flux.lift(Id, FluxConfig(on_error="skip"))


async def test_events_of_one_key_stay_in_order_while_others_run() -> None:
    done: list[str] = []
    running = most = 0

    async def slow(event: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02 if event in ("a1", "b1") else 0)
        running -= 1
        done.append(event)
        return event

    config = FluxConfig(workers=3, key=lambda event: event[0])
    events = ["a1", "a2", "b1", "c1", "b2", "a3", "c2"]
    assert await collect(Flux.lift(Agent.from_function(slow), config).start(stream(events))) == events
    for key in "abc":
        assert [each for each in done if each[0] == key] == [each for each in events if each[0] == key]
    assert done != events and most == 3


async def test_flows_in_a_row() -> None:
    row = (
        Flux.lift(double)
        | Flux.lift(Agent.from_function(lambda n: n + 1))
        | Flux.lift(Agent.from_function(str))
    )
    assert await collect(row.start(stream(range(3)))) == ["1", "3", "5"]
    with pytest.raises(InputError, match="joined with a flow"):
        row | double  # type: ignore[operator]


async def test_flux_of_state_as_in_the_seed(u: dgent.Universe) -> None:
    functor = StateFunctor(dict, u, {"count": 0}, "seed")
    flow = Flux.lift(functor.lift_logic(lambda x, s: (s["count"], {**s, "count": s.get("count", 0) + 1})))
    assert await collect(flow.start(stream(["a", "b", "c"]))) == [0, 1, 2]
    composed = StateFunctor.compose_flux(functor)(double)
    assert await collect(composed.start(stream([1, 2]))) == [2, 4]


async def test_a_flow_with_a_name_goes_on_where_it_was(u: dgent.Universe) -> None:
    config = FluxConfig(name="f", batch=7, buffer_size=7)
    flow = Flux.lift(add_up(u), config)
    seen = []
    outputs = flow.start(Flux.numbered(stream(range(100))))
    async for each in outputs:
        seen.append(each)
        if len(seen) == 10:
            break
    await outputs.aclose()
    state = await add_up(u).current_state()
    assert state["seen"] == 14  # two batches of seven lasted, also those that nobody read
    rest = await collect(Flux.lift(add_up(u), config).start(Flux.numbered(stream(range(100)))))
    assert len(rest) == 86
    assert await add_up(u).current_state() == {"sum": sum(range(100)), "seen": 100}


async def test_a_failing_event_in_a_named_flow_saves_those_before_it(u: dgent.Universe) -> None:
    def run(n: int, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        s["sum"] += n  # in place: the failing one must leave no trace
        if n == 5 and not healed:
            raise ValueError("five")
        return n, s

    healed: list[int] = []
    functor = StateFunctor(dict, u, {"sum": 0}, "n")
    seen = []
    with pytest.raises(ValueError, match="five"):
        async for each in Flux.lift(functor.lift_logic(run), FluxConfig(name="f")).start(
            Flux.numbered(stream(range(10)))
        ):
            seen.append(each)
    assert seen == [0, 1, 2, 3, 4] and await functor.lift(Id).current_state() == {"sum": 10}
    healed.append(1)
    rest = Flux.lift(functor.lift_logic(run), FluxConfig(name="f")).start(Flux.numbered(stream(range(10))))
    assert await collect(rest) == [5, 6, 7, 8, 9] and await functor.lift(Id).current_state() == {"sum": 45}


async def test_two_runs_of_one_name_do_not_apply_an_event_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    config = FluxConfig(name="f", batch=1, buffer_size=1)
    async with dgent.open(url) as one, dgent.open(url) as two:
        first = Flux.lift(add_up(one), config).start(Flux.numbered(stream(range(10))))
        await anext(first)
        second = Flux.lift(add_up(two), config).start(Flux.numbered(stream(range(10))))
        await anext(second)
        with pytest.raises(Conflict, match="another program runs"):
            await collect(first)
        await collect(second)
        assert await add_up(one).current_state() == {"sum": 45, "seen": 10}


async def test_others_may_change_the_state_of_a_flow(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as mine, dgent.open(url) as theirs:
        config = FluxConfig(name="f", batch=5, buffer_size=5)
        rival = add_up(theirs)

        async def source() -> AsyncIterator[int]:
            for n in range(50):
                if n % 5 == 2:
                    await rival.invoke(1000)
                yield n

        outputs = await collect(Flux.lift(add_up(mine), config).start(Flux.numbered(source())))
        assert len(outputs) == 50
        assert await rival.current_state() == {"sum": sum(range(50)) + 10_000, "seen": 60}


async def test_what_a_name_needs(u: dgent.Universe) -> None:
    with pytest.raises(InputError, match="no state on a universe"):
        await collect(Flux.lift(Id, FluxConfig(name="f")).start(stream([])))
    with pytest.raises(InputError, match="has none"):
        await collect(Flux.lift(add_up(u), FluxConfig(name="f")).start(stream([])))
    with pytest.raises(InputError, match="async iterable"):
        await collect(Flux.lift(Id).start([1, 2]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"buffer_size": 0},
        {"workers": True},
        {"drop_policy": "x"},
        {"on_error": "x"},
        {"backoff_s": float("nan")},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        FluxConfig(**wrong)
    assert caught.value.details["field"] in wrong


# -- sources ------------------------------------------------------------------------------


async def test_the_change_feed_is_a_source(u: dgent.Universe) -> None:
    for n in range(3):
        await u.put(dgent.Datum(f"r{n}", data={"n": n}))
    ids = Agent.from_function(lambda change: [item.id for item in change.items])
    flow = Flux.lift(ids)
    seen = []
    async for each in flow.start(Flux.from_changes(u, dgent.Query(where={"n": {"$gte": 1}}))):
        seen.extend(each)
        if len(seen) == 2:
            await u.put(dgent.Datum("r9", data={"n": 9}))
        if len(seen) == 3:
            break
    assert seen == ["r1", "r2", "r9"]


async def test_the_lines_of_a_file_are_a_source(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    path.write_text("a\nb\r\nlast")
    source = Flux.from_file(path)
    assert [each async for each in source.read(None)] == [(2, "a"), (5, "b"), (9, "last")]
    assert [each async for each in source.read(2)] == [(5, "b"), (9, "last")]
    following = Flux.from_file(path, follow=True).read(None)
    assert [(await anext(following))[1], (await anext(following))[1]] == ["a", "b"]
    with path.open("a") as file:
        file.write(" line\n")
    assert (await anext(following))[1] == "last line"
    await following.aclose()
    path.write_text("short")
    with pytest.raises(InputError, match="shorter"):
        await anext(source.read(9))


async def test_the_files_of_a_folder_are_a_source(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", ".hidden"):
        (tmp_path / name).write_text(name)
    os.mkdir(tmp_path / "folder")
    assert [name async for name, _ in Flux.from_folder(tmp_path).read(None)] == ["a.txt", "b.txt"]
    assert [path.name async for _, path in Flux.from_folder(tmp_path).read("a.txt")] == ["b.txt"]


async def test_a_timer_is_a_source() -> None:
    assert await collect(Flux.lift(Id).start(Flux.from_timer(0.001, count=3))) == [0, 1, 2]
    with pytest.raises(InputError, match="above 0"):
        Flux.from_timer(0)


# -- kill -9 ------------------------------------------------------------------------------


async def flow_until_killed(path: str) -> None:
    """Apply numbers to a state, saying after each batch how far it came."""
    from tests.fault.nursery import say

    async with dgent.open(f"sqlite:///{path}") as u:
        flow = Flux.lift(add_up(u), FluxConfig(name="f", batch=3, buffer_size=3))
        async for output in flow.start(Flux.numbered(stream(range(100_000), 0))):
            say(output)


async def test_a_killed_flow_applies_every_event_once(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    with Nursery("tests.flow.test_flux") as nursery:
        for heard in (5, 11, 20):
            child = nursery.start("flow_until_killed", path=path)
            nursery.hear(child, heard)
            child.kill()
            nursery.wait(child)
    async with dgent.open(f"sqlite:///{path}") as u:
        state = await add_up(u).current_state()
        mark = await u.get("sum:flow:f", raw=True)
    assert state["seen"] == mark.data["position"] + 1 >= 36
    assert state["sum"] == sum(range(state["seen"]))
