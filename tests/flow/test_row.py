"""States that are rows of a table: compared and set, without versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.errors import InputError, Unsupported, VersionConflict
from dgent.flow import Flux, Id, StatefulAgent, StateFunctor


@dataclass
class Tally:
    __tablename__ = "tally"

    id: str | None = None
    count: int = 0
    note: str | None = None
    version: int = 0


class Tallies:
    """A table as flow knows it, in plain SQL over the universe's own database."""

    model = Tally

    def __init__(self, u: dgent.Universe) -> None:
        self.sql = u.storage.relational

    def to_data(self, row: Tally, /) -> dict[str, Any]:
        return asdict(row)

    def to_row(self, data: Mapping[str, Any], /) -> Tally:
        return Tally(**data)

    def find_id(self, data: Mapping[str, Any], /) -> str | None:
        return data.get("id")

    async def get(self, id: str, /) -> dgent.Datum | None:
        rows = await self.sql.fetch_all("SELECT * FROM tally WHERE id = :id", {"id": id})
        return dgent.Datum(id, data=dict(rows[0])) if rows else None

    async def replace(
        self,
        id: str,
        old: Mapping[str, Any] | None,
        new: Mapping[str, Any],
        /,
        version_field: str | None = None,
    ) -> bool:
        if old is None:
            statement = (
                "INSERT OR IGNORE INTO tally (id, count, note, version) VALUES (:id, :count, :note, :version)"
            )
        else:
            names = ["id", *([version_field] if version_field else ["count", "note", "version"])]
            where = " AND ".join(f"{name} IS :old_{name}" for name in names)
            statement = f"UPDATE tally SET count = :count, note = :note, version = :version WHERE {where}"
        params = {**new, "id": id, **{f"old_{name}": value for name, value in (old or {}).items()}}
        params = {name: value for name, value in params.items() if f":{name}" in statement}
        return await self.sql.execute(statement, params) == 1


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        await u.storage.relational.execute(
            "CREATE TABLE tally (id TEXT PRIMARY KEY, count INTEGER, note TEXT, version INTEGER)"
        )
        yield u


def add(n: int, s: Tally) -> tuple[int, Tally]:
    s.count += n
    return s.count, s


def counter(u: dgent.Universe, rows: Tallies | None = None, **how: Any) -> StatefulAgent[Tally, int, int]:
    functor = StateFunctor.from_table_adapter(rows or Tallies(u), Tally("one"), **how)
    return functor.lift_logic(add)


@pytest.mark.parametrize("field", [None, "version"])
async def test_a_row_is_a_state(u: dgent.Universe, field: str | None) -> None:
    agent = counter(u, version_field=field)
    assert await agent.current_state() == Tally("one")
    assert [await agent.invoke(2), await agent.invoke(3)] == [2, 5]
    assert await counter(u).current_state() == Tally("one", 5, None, 1 if field else 0)
    seen = [output async for output in Flux.lift(agent).start(numbers())]
    assert seen == [5, 6, 8]


async def numbers() -> AsyncIterator[int]:
    for n in range(3):
        yield n


@pytest.mark.parametrize("field", [None, "version"])
async def test_a_hundred_steps_at_once_lose_nothing(u: dgent.Universe, field: str | None) -> None:
    rows = Tallies(u)
    agents = [counter(u, rows, version_field=field), counter(u, rows, version_field=field)]
    await asyncio.gather(*(agents[i % 2].invoke(1) for i in range(100)))
    assert (await agents[0].current_state()).count == 100
    strangers = [counter(u, Tallies(u), version_field=field) for _ in range(8)]  # these share no lock
    await asyncio.gather(*(each.invoke(1) for each in strangers))
    assert (await agents[0].current_state()).count == 108


@pytest.mark.parametrize("field", [None, "version"])
async def test_a_rival_is_noticed(u: dgent.Universe, field: str | None) -> None:
    async def slow(n: int, s: Tally) -> tuple[int, Tally]:
        await counter(u, version_field=field).invoke(10)
        return add(n, s)

    functor = StateFunctor.from_table_adapter(Tallies(u), key="one", version_field=field)
    for _ in range(2):  # once where the row is made, once where it is changed
        with pytest.raises(VersionConflict, match="tally/one"):
            await functor.lift_logic(slow, attempts=1).invoke(1)
    assert (await functor.lift(Id).current_state()).count == 20


async def test_what_a_row_cannot_do_is_said(u: dgent.Universe) -> None:
    agent = counter(u)
    await agent.invoke(1)
    for call in (
        agent.history(),
        agent.state_at(1),
        agent.resume(1),
        agent.fork("x"),
        agent.invoke(1, step="s"),
    ):
        with pytest.raises(Unsupported, match="tally/one"):
            await call
    with pytest.raises(InputError, match="id of the row"):
        StateFunctor.from_table_adapter(Tallies(u))
    functor: Any = StateFunctor.from_table_adapter(Tallies(u), key="one")
    for wrong in (Tally("two"), {"count": 1}):
        with pytest.raises(InputError):
            await functor.lift_logic(lambda _, s, wrong=wrong: (0, wrong)).invoke(1)
    with pytest.raises(InputError, match="version field"):
        await counter(u, version_field="note").invoke(1)
    assert (await agent.current_state()).count == 1
