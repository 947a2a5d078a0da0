"""The laws of functors: those of dgent hold, and broken ones are caught with a small example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dgent.errors import InputError, NotFound
from dgent.flow import Agent, Functor, FunctorRegistry, Id, functors, verify_functor
from dgent.flow.bridge import BridgeFunctor, _Numbers
from dgent.flow.functor import FunctorVerificationReport
from dgent.flow.shipped import NOTHING, Just, Left, Logged, Right, RunFunctor

NAMES = ["Identity", "Maybe", "Either", "List", "Async", "Logged", "Fix", "State", "Flux", "Bridge"]
double = Agent.from_function(lambda n: n * 2, "double")


async def test_every_functor_of_dgent_is_lawful() -> None:
    reports = await functors().verify_all()
    assert list(reports) == NAMES
    assert [name for name, report in reports.items() if not report.passed] == []
    assert all(report.composition_law.tried > 100 for report in reports.values())


async def test_a_bridge_that_changes_rows_is_caught() -> None:
    """Its identity law is the way of a row to a datum and back."""

    class Rounded(_Numbers):
        def to_data(self, row: Any, /) -> dict[str, Any]:
            return {"id": row.id, "number": row.number // 100 * 100}

        def to_row(self, data: Mapping[str, Any], /) -> Any:
            return super().to_row({**data, "number": data["number"] + 1})

    bridge = BridgeFunctor(Rounded())
    report = await verify_functor(bridge)
    assert not report.composition_law.passed and bridge.loses
    assert report.composition_law.input.startswith("negate >> add one on ")
    lifted = functors().get("bridge").lift(double)
    assert functors().get("bridge").unlift(lifted) is double
    with pytest.raises(InputError, match="was not lifted"):
        bridge.unlift(double)


async def check(name: str, run: Any) -> FunctorVerificationReport:
    return await verify_functor(RunFunctor(name, run))


async def test_a_functor_that_runs_agents_twice_is_caught() -> None:
    async def twice(agent: Agent[Any, Any], given: Any) -> Any:
        return await agent.invoke(await agent.invoke(given))

    report = await check("Twice", twice)
    assert report.identity_law.passed and not report.composition_law.passed
    found = report.composition_law
    assert found.input == "add one >> double on 0" and (found.left, found.right) == ("6", "8")


async def test_a_functor_that_changes_values_is_caught_at_the_smallest_one() -> None:
    async def clip(agent: Agent[Any, Any], given: Any) -> Any:
        return min(await agent.invoke(given), 1)

    report = await check("Clip", clip)
    assert not report.identity_law.passed and report.identity_law.input == "Id on 2"


async def test_a_functor_that_hides_errors_is_caught() -> None:
    async def hide(agent: Agent[Any, Any], given: Any) -> Any:
        try:
            return await agent.invoke(given)
        except ValueError:
            return given

    report = await check("Hide", hide)
    assert report.identity_law.passed and not report.composition_law.passed


@pytest.mark.parametrize(
    ("name", "given", "gives"),
    [
        ("maybe", Just(2), Just(4)),
        ("maybe", NOTHING, NOTHING),
        ("either", Right(2), Right(4)),
        ("either", Left("no"), Left("no")),
        ("either", Right(None), Left("TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'")),
        ("list", [1, 2], [2, 4]),
        ("async", 3, 6),
        ("logged", Logged(3, ("x",)), Logged(6, ("x", "double"))),
        ("fix", 3, 6),
        ("identity", 3, 6),
    ],
)
async def test_what_lifted_agents_do(name: str, given: Any, gives: Any) -> None:
    functor = functors().get(name)
    lifted = functor.lift(double)
    assert await lifted.invoke(given) == gives
    assert functor.unlift(lifted) is double


async def test_fix_runs_an_agent_again() -> None:
    calls = []

    def fail_twice(n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise ValueError("not yet")
        return n

    assert await functors().get("Fix").lift(Agent.from_function(fail_twice)).invoke(7) == 7
    assert calls == [7, 7, 7]


async def test_own_functors_and_wrong_ones() -> None:
    class Shout(Functor):
        name = "Shout"

        def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
            return agent

        def unlift(self, lifted: Any) -> Agent[Any, Any]:
            return lifted

    registry = functors()
    registry.register(Shout())
    assert (await registry.verify_all())["Shout"].passed
    with pytest.raises(InputError, match="registered already"):
        registry.register(Shout())
    with pytest.raises(InputError, match="a functor is registered"):
        FunctorRegistry([Id])  # type: ignore[list-item]
    with pytest.raises(NotFound, match="no functor 'mayb'") as caught:
        registry.get("mayb")
    assert "maybe" in (caught.value.hint or "")
    with pytest.raises(InputError, match="was not lifted"):
        registry.get("maybe").unlift(double)
