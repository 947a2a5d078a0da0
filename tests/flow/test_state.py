"""Agents with a state: threaded, saved once, never lost to another; every step a version."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any

import msgspec
import pydantic
import pytest

import dgent
from dgent.errors import Conflict, DecodeFailed, InputError, NotFound, VersionConflict
from dgent.flow import Agent, Id, StatefulAgent, StateFunctor, Symbiont
from dgent.model.polynomial import PolyAgent


@dataclass(frozen=True)
class Chat:
    history: tuple[str, ...] = ()


class Basket(pydantic.BaseModel, frozen=True):
    items: list[str] = []


class Point(msgspec.Struct, frozen=True):
    x: int = 0


def count(_: Any, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return s["count"], {**s, "count": s["count"] + 1}


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as u:
        yield u


def counter(u: dgent.Universe, namespace: str = "n", **how: Any) -> StatefulAgent[dict[str, Any], Any, int]:
    return StateFunctor(dict, u, {"count": 0}, namespace).lift_logic(count, **how)


async def test_state_is_threaded_and_lasts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as u:
        assert [await counter(u).invoke(None) for _ in range(3)] == [0, 1, 2]
    async with dgent.open(url) as u:
        assert await counter(u).invoke(None) == 3
        assert await counter(u).current_state() == {"count": 4}


async def test_states_of_every_kind(u: dgent.Universe) -> None:
    chat = StateFunctor(Chat, u, namespace="chat").lift_logic(
        lambda m, s: (len(s.history), Chat((*s.history, m)))
    )
    assert [await chat.invoke("a"), await chat.invoke("b")] == [0, 1]
    assert await chat.current_state() == Chat(("a", "b"))
    shop = StateFunctor(Basket, u, namespace="shop")
    await shop.lift_logic(lambda m, s: (None, Basket(items=[*s.items, m]))).invoke("pear")
    assert (await shop.lift(Id).current_state()).items == ["pear"]
    plane = StateFunctor(Point, u, namespace="plane").lift_logic(lambda d, s: (d, Point(s.x + d)))
    await plane.invoke(5)
    assert (await plane.current_state()).x == 5


async def test_old_states_upgrade_like_every_record(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Old:
        n: int = 0

    @dataclass(frozen=True)
    class New:
        n: int = 0
        seen: tuple[str, ...] = ()

    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as u:
        u.register(dgent.Schema("tally", contract=Old))
        await StateFunctor(Old, u, namespace="t").lift_logic(lambda d, s: (d, Old(s.n + d))).invoke(4)
    async with dgent.open(url) as u:
        u.register(dgent.Schema("tally", 2, New, {1: lambda d: {**d, "seen": ["old"]}}))
        state = await StateFunctor(New, u, namespace="t").lift(Id).current_state()
    assert state == New(4, ("old",))


async def test_a_hundred_at_once_lose_nothing(u: dgent.Universe) -> None:
    agent = counter(u)
    seen = await asyncio.gather(*(agent.invoke(None) for _ in range(100)))
    assert sorted(seen) == list(range(100))
    assert await agent.current_state() == {"count": 100}


async def test_two_handles_of_a_file_lose_nothing(tmp_path: Path) -> None:
    """Two universes share no queue, so only compare-and-set keeps them apart."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as one, dgent.open(url) as two:
        agents = [counter(one), counter(two)]
        await asyncio.gather(*(agents[i % 2].invoke(None) for i in range(60)))
        assert await agents[0].current_state() == {"count": 60}


async def test_an_agent_that_needs_its_own_state_is_told_so(u: dgent.Universe) -> None:
    agent = StateFunctor(dict, u, {"count": 0}, "n").lift_logic(lambda _, s: (None, s))
    nested = StateFunctor(dict, u, {"count": 0}, "n").lift(agent >> Id, state=True)
    with pytest.raises(InputError, match="wait for itself"):
        await nested.invoke(1)


async def test_a_rival_makes_an_agent_fail_and_pure_logic_try_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as mine, dgent.open(url) as theirs:
        rival, runs = counter(theirs), []

        async def slow(n: int, s: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            runs.append(s["count"])
            if len(runs) == 1:
                await rival.invoke(None)
            return n, {"count": s["count"] + n}

        functor = StateFunctor(dict, mine, {"count": 0}, "n")
        assert await functor.lift_logic(slow).invoke(10) == 10
        assert runs == [0, 1] and await rival.current_state() == {"count": 11}
        runs.clear()
        with pytest.raises(VersionConflict):
            await functor.lift_logic(slow, attempts=1).invoke(10)
        assert runs == [11] and await rival.current_state() == {"count": 12}


async def test_an_error_of_the_agent_is_its_own_and_saves_nothing(u: dgent.Universe) -> None:
    calls = []

    def fail(_: Any, s: dict[str, Any]) -> Any:
        calls.append(1)
        s["count"] = 99  # in place, which must not last either
        raise TypeError("inner")

    functor = StateFunctor(dict, u, {"count": 0}, "n")
    with pytest.raises(TypeError, match="inner"):
        await functor.lift_logic(fail).invoke(None)
    assert calls == [1]
    assert await counter(u).current_state() == {"count": 0} and await counter(u).history() == []


async def test_how_an_agent_gets_the_state_is_declared(u: dgent.Universe) -> None:
    functor = StateFunctor(dict, u, {"count": 3}, "n")
    pair = Agent.from_function(lambda n: (n, "no state"))
    assert await functor.lift(pair).invoke(5) == (5, "no state")
    assert await functor.lift(Agent.from_function(lambda n: n * 2)).invoke(5) == 10
    both = functor.lift(
        Agent.from_function(lambda given: (given[0] + given[1]["count"], {"count": 9})), state=True
    )
    assert await both.invoke(1) == 4 and await both.current_state() == {"count": 9}
    with pytest.raises(InputError, match=r"not \(output, state\)"):
        await functor.lift(Agent.from_function(lambda given: given[0]), state=True).invoke(5)


async def test_laws_of_the_seed(u: dgent.Universe) -> None:
    functor = StateFunctor(dict, u, {}, "laws")
    double, add = Agent.from_function(lambda n: n * 2), Agent.from_function(lambda n: n + 1)
    assert await functor.lift(Id).invoke("test") == "test"
    assert await functor.lift(double >> add).invoke(5) == 11
    assert await (functor.lift(double) >> functor.lift(add)).invoke(5) == 11
    assert StateFunctor.unlift(functor.lift(double)) is double
    assert await Symbiont(count, StateFunctor(dict, u, {"count": 7}, "s")).invoke(None) == 7


async def test_every_step_is_a_version_to_go_back_to(u: dgent.Universe) -> None:
    agent = counter(u)
    for _ in range(4):
        await agent.invoke(None)
    assert [version.rev for version in await agent.history()] == [4, 3, 2, 1]
    assert await agent.state_at(2) == {"count": 2}
    assert await agent.resume(2) == {"count": 2}
    assert await agent.invoke(None) == 2
    assert [version.rev for version in await agent.history(1)] == [6]
    with pytest.raises(NotFound, match="no version 77"):
        await agent.state_at(77)


async def test_a_run_can_be_forked_from_a_step(u: dgent.Universe) -> None:
    agent = counter(u)
    with pytest.raises(NotFound, match="no step yet"):
        await agent.fork("other")
    for _ in range(3):
        await agent.invoke(None)
    twin = await agent.fork("other", rev=1)
    assert await twin.invoke(None) == 1 and await agent.invoke(None) == 3
    assert (await u.get("other:state", raw=True)).parent_id == "n:state"
    with pytest.raises(VersionConflict):
        await agent.fork("other")


async def test_a_repeated_step_happens_once(u: dgent.Universe) -> None:
    agent = counter(u)
    seen = await asyncio.gather(*(agent.invoke(None, step="s1") for _ in range(8)))
    assert seen == [0] * 8 and await agent.current_state() == {"count": 1}
    assert await agent.invoke(None, step="s2") == 1
    plain = StateFunctor(dict, u, {}, "plain").lift(Agent.from_function(lambda n: n + 1))
    assert [await plain.invoke(1, step="a"), await plain.invoke(5, step="a")] == [2, 2]


async def test_a_step_whose_output_cannot_be_stored_saves_nothing(u: dgent.Universe) -> None:
    for output in (object(), b"bytes", (1, 2), {"deep": (1,)}):
        agent = StateFunctor(dict, u, {}, "n").lift_logic(lambda n, s, o=output: (o, {"n": n}))
        with pytest.raises(InputError, match="output"):
            await agent.invoke(1, step="s")
        assert await agent.history() == [] and await agent.invoke(1) is output
        await u.forget("n:state")


async def test_states_that_do_not_fit_are_refused(u: dgent.Universe) -> None:
    with pytest.raises(InputError, match="cannot be a state"):
        StateFunctor(int, u, 0, "n").lift(Id)

    @dataclass(frozen=True)
    class Needs:
        value: int

    with pytest.raises(InputError, match="initial_state"):
        await StateFunctor(Needs, u, namespace="needs").lift(Id).current_state()
    await counter(u, "shared").invoke(None)
    with pytest.raises(Conflict, match="another namespace"):
        await StateFunctor(Chat, u, namespace="shared").lift(Id).current_state()
    with pytest.raises(InputError, match="lift takes an agent"):
        StateFunctor(dict, u).lift(count)  # type: ignore[arg-type]


async def test_a_state_that_its_type_cannot_read_says_so(u: dgent.Universe) -> None:
    chat = StateFunctor(Chat, u, namespace="chat").lift_logic(lambda m, s: (m, s))
    await u.put(dgent.Datum("chat:state", data={"history": 5}, schema="state.Chat", schema_version=1))
    with pytest.raises(DecodeFailed):
        await chat.invoke("a")


async def test_storage_grows_with_what_changed(tmp_path: Path) -> None:
    """200 steps of a state that grows from 20 to 120 KB keep at most three times the bytes that changed."""
    path = tmp_path / "s.db"
    async with dgent.open(f"sqlite:///{path}") as u:
        functor = StateFunctor(dict, u, {"log": ["x" * 500] * 40}, "grow")
        agent = functor.lift_logic(lambda line, s: (None, {"log": [*s["log"], line]}))
        for n in range(200):
            await agent.invoke(f"{n:05}" * 100)
    changed = 20_000 + 200 * 500
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    async with dgent.open(f"sqlite:///{path}") as u:
        stats = await u.stats()
    assert stats.size_bytes <= 3 * changed + 120_000, (stats.size_bytes, size)


class Talk(msgspec.Struct, frozen=True):
    history: tuple[str, ...] = ()


@pytest.mark.parametrize("kind", [Chat, Basket, Talk])
async def test_storage_of_typed_states_grows_with_what_changed(kind: Any, tmp_path: Path) -> None:
    """The same for texts that hardly compress, in typed states; any step is read back."""
    field, rest = ("items" if kind is Basket else "history"), random.Random(7)
    lines = ["".join(rest.choices(ascii_letters, k=500)) for _ in range(240)]

    def say(n: int, state: Any) -> tuple[None, Any]:
        return None, kind(**{field: [*getattr(state, field), lines[40 + n]]})

    empty = tmp_path / "empty.db"
    async with dgent.open(f"sqlite:///{empty}") as u:
        await u.put(dgent.Datum(data={"a": 1}))
    async with dgent.open(f"sqlite:///{tmp_path / 's.db'}") as u:
        agent = StateFunctor(kind, u, kind(**{field: lines[:40]}), "grow").lift_logic(say)
        for n in range(200):
            await agent.invoke(n)
        for rev in (1, 100, 200):
            assert [*getattr(await agent.state_at(rev), field)] == lines[: 40 + rev]
    grown = (tmp_path / "s.db").stat().st_size - empty.stat().st_size
    assert grown <= 3 * 240 * 500, grown


@dataclass(frozen=True)
class Door:
    is_open: bool = False


async def test_a_stateful_agent_is_a_machine_of_values(u: dgent.Universe) -> None:
    def turn(word: str, door: Door) -> tuple[str, Door]:
        return f"{word} done", Door(word == "open")

    agent = StateFunctor(Door, u, namespace="door").lift_logic(turn)
    machine = PolyAgent.from_stateful(
        agent, (Door(), Door(True)), lambda door: ("close",) if door.is_open else ("open",)
    )
    assert machine.positions == {Door(), Door(True)}
    assert machine.run(Door(), ("open", "close")) == (Door(), ["open done", "close done"])
    with pytest.raises(InputError, match="does not take"):
        machine.invoke(Door(), "close")
    assert await agent.history() == [], "a machine of values stores nothing"
    stateless = StateFunctor(Door, u, namespace="door").lift(Agent.from_function(str.upper))
    assert stateless.transition(Door(), "x") == (Door(), "X")

    async def wait(word: str, door: Door) -> tuple[str, Door]:
        await asyncio.sleep(0)
        return word, door

    slow = StateFunctor(Door, u, namespace="door").lift_logic(wait)
    with pytest.raises(InputError, match="waits"):
        slow.transition(Door(), "open")
    with pytest.raises(InputError, match="hashed"):
        PolyAgent.from_stateful(counter(u), ({"count": 0},), lambda _: (None,))
