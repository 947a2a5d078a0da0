"""The contracts that dgent ships: registered on request, upgraded step by step, found by their words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import pytest

import dgent
from dgent import schemas
from dgent.model.schema import Schema
from dgent.schemas.trail import TrailRecord, TrailStep
from dgent.schemas.witness import WitnessMarkV1, WitnessMarkV2, WitnessMarkV3


@pytest.fixture
async def u() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:") as found:
        yield found


def test_all_names_are_there_once() -> None:
    assert {each.name for each in schemas.SHIPPED} == {
        *("witness.mark", "witness.trust", "witness.thought", "witness.action", "witness.escalation"),
        *("brain.crystal", "brain.setting"),
        *("trail.trail", "trail.step", "trail.commitment", "trail.annotation"),
    }
    assert len(schemas.SHIPPED) == 11
    assert all(each.contract.__dataclass_params__.frozen for each in schemas.SHIPPED)  # type: ignore[union-attr]
    assert [field.name for field in fields(WitnessMarkV3)] == [
        *("action", "reasoning", "author", "tags", "principles"),
    ]


async def test_marks_of_all_versions_are_read_as_the_newest(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url) as u:
        u.register(Schema("witness.mark", version=1, contract=WitnessMarkV1))
        await u.remember(WitnessMarkV1("ship", "it is ready", "ann"), id="one")
    async with dgent.open(url) as u:
        two = Schema(
            "witness.mark",
            version=2,
            contract=WitnessMarkV2,
            migrations={1: lambda data: {**data, "tags": ()}},
        )
        u.register(two)
        await u.remember(WitnessMarkV2("wait", "a test fails", "bob", ("ci",)), id="two")
    async with dgent.open(url) as u:
        u.register(*schemas.WITNESS)
        await u.remember(WitnessMarkV3("stop", "harm", "eve", (), ("do no harm",)), id="three")
        found = {each.id: each.value for each in await u.recall(schema="witness.mark")}
        assert found == {
            "one": WitnessMarkV3("ship", "it is ready", "ann"),
            "two": WitnessMarkV3("wait", "a test fails", "bob", ("ci",)),
            "three": WitnessMarkV3("stop", "harm", "eve", (), ("do no harm",)),
        }
        assert [hit.id for hit in await u.search("fails")] == ["two"]


@pytest.mark.parametrize("schema", schemas.SHIPPED, ids=lambda each: each.name)
async def test_each_contract_makes_the_round_trip(schema: Schema[object], u: dgent.Universe) -> None:
    """With its least fields, and again as it came back."""
    u.register(*schemas.SHIPPED)
    trail = await u.remember(TrailRecord("walk"))
    least = {
        "str": "words", "int": 1, "bool": True, "float": 0.5, "Any": {"a": 1},
        "Ref[TrailRecord]": dgent.Ref(trail.id),
    }  # fmt: skip
    kind = schema.contract
    assert kind is not None
    needed = {
        field.name: least[str(field.type)]
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is field.default_factory
    }
    made = await u.remember(kind(**needed))
    assert (await u.get(made.id)).value == made.value == kind(**needed)


async def test_a_step_refers_to_its_trail(u: dgent.Universe) -> None:
    u.register(*schemas.TRAIL)
    trail = await u.remember(TrailRecord("to the sea"))
    step = await u.remember(TrailStep(dgent.Ref(trail.id), 0, "src/a.py", "imports", ("src/b.py",)))
    assert [each.id for each in await u.referrers(trail.id)] == [step.id]
