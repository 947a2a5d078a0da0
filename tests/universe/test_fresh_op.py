"""Values of scalar fields take a shorter way into the store: it must store and refuse the same."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import uuid
from typing import Any

import pytest

import dgent
from dgent import Query, Schema, ids
from dgent.errors import InputError


@dataclasses.dataclass(frozen=True)
class Flat:
    text: str
    count: int | None = None
    share: float = 0.5
    done: bool = False


@dataclasses.dataclass(frozen=True)
class One:
    text: str


class Mood(enum.StrEnum):
    CALM = "calm"


SCHEMAS = (Schema("flat", 1, Flat, indexes=("text", "count")), Schema("one", 1, One))

VALUES: list[Any] = [
    Flat("a"),
    Flat("", 2**63 - 1, -0.0, True),
    Flat("naïve ☃ 😀", -(2**63), 1e308),
    Flat("a\0b"),
    One("x"),
    One("ü"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("tags", [None, frozenset(), {"b", "a"}, ["é"]], ids=["none", "no", "two", "odd"])
async def test_stored_as_the_long_way_stores_it(value: Any, tags: Any) -> None:
    async with dgent.open("memory:") as u:
        u.register(*SCHEMAS)
        short = await u.remember(value, tags=tags)
        long = await u.remember(value, tags=tags, source="here")
        assert short.value == value == (await u.get(short.id)).value
        raws = [await u.get(each.id, raw=True) for each in (short, long)]
        assert raws[0].data == raws[1].data == dataclasses.asdict(value)
        assert [type(item) for item in raws[0].data.values()] == [type(i) for i in raws[1].data.values()]
        assert raws[0].tags == raws[1].tags == frozenset(tags or ())
        assert (raws[0].author, raws[0].schema, raws[0].rev) == (raws[1].author, raws[1].schema, 1)
        assert raws[0] == short.datum, "the answer is what is stored"
        assert 0 <= (raws[1].created_at - raws[0].created_at).total_seconds() < 60
        found = [
            each.id for each in await u.recall(Query(schema=short.schema_name, where={"text": value.text}))
        ]
        assert sorted(found) == sorted((short.id, long.id))


@pytest.mark.parametrize(
    "value",
    [
        Flat(7),  # type: ignore[arg-type]
        Flat("\ud800"),
        Flat("a", 2**63),
        Flat("a", share=math.nan),
        Flat("a", share=math.inf),
        Flat(None),  # type: ignore[arg-type]
    ],
    ids=ascii,
)
async def test_refused_as_the_long_way_refuses_it(value: Any) -> None:
    async with dgent.open("memory:") as u:
        u.register(*SCHEMAS)
        refusals = []
        for fields in ({}, {"source": "here"}):
            with pytest.raises(InputError) as refused:
                await u.remember(value, **fields)
            refusals.append(str(refused.value))
        assert refusals[0] == refusals[1]
        assert await u.seq() == 0


async def test_texts_of_another_class_become_plain() -> None:
    async with dgent.open("memory:") as u:
        u.register(*SCHEMAS)
        made = await u.remember(Flat(Mood.CALM), tags=[Mood.CALM])
        stored = await u.get(made.id, raw=True)
        assert type(stored.data["text"]) is str
        assert {type(tag) for tag in stored.tags} == {str}


async def test_a_value_without_one_of_its_fields_is_refused() -> None:
    value = Flat("a")
    object.__delattr__(value, "text")
    async with dgent.open("memory:") as u:
        u.register(*SCHEMAS)
        with pytest.raises((InputError, AttributeError)):
            await u.remember(value)
        assert await u.seq() == 0


def test_ids_are_uuids_of_version_7_that_rise() -> None:
    made = [ids.new_id() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in made} == {(7, uuid.RFC_4122)}
    assert {each[19] for each in made} == set("89ab")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_other_ids() -> None:
    ids.new_id()
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writes, "".join(ids.new_id()[19:] for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child = os.read(reads, 10_000).decode()
    os.close(reads)
    os.close(writes)
    assert len(child) == 1_700
    ends = {child[at : at + 17] for at in range(0, len(child), 17)}
    assert ends.isdisjoint({ids.new_id()[19:] for _ in range(100)})
