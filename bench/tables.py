"""Rows of a table as datums, beside the same statement of SQLAlchemy by hand."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import JSON, Column, DateTime, Integer, MetaData, String, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

import dgent
from bench.measure import Row, awaits, compared, cpu_of, interleave, say
from bench.plan import Plan
from bench.postgres.databases import Databases
from bench.stores import Stores
from dgent.tables import Place, TableAdapter, connect

_GOAL = 1.3
_ROWS, _EACH = 500, 60
_NOTES = Table(
    "notes",
    MetaData(),
    Column("id", String, primary_key=True),
    Column("text", String),
    Column("n", Integer),
    Column("tags", JSON),
    Column("created_at", DateTime(timezone=True)),
)
_AT = datetime(2026, 1, 1, tzinfo=UTC)

Call = Callable[[int], Awaitable[Any]]


async def tables(plan: Plan, stores: Stores) -> list[Row]:
    """Measure get and put of an adapter, by the processor's time."""
    say("  tables of SQLAlchemy")
    with TemporaryDirectory() as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db") as u, await connect(u) as place:
            rows = await _measure(plan, place, "SQLite", sqlite.insert)
    async with Databases() as databases:
        url = await databases.copy()
        async with dgent.open(url) as u, await connect(u) as place:
            return rows + await _measure(plan, place, "Postgres", postgresql.insert)


async def _measure(plan: Plan, place: Place, engine: str, insert: Any) -> list[Row]:
    adapter: TableAdapter[Any] = TableAdapter(_NOTES, place.sessions)
    async with place.engine.begin() as connection:
        await connection.run_sync(_NOTES.create)
        await connection.execute(_NOTES.insert(), [_line(n) for n in range(_ROWS)])
    read = select(*_NOTES.c).where(_NOTES.c.id == bindparam("key"))
    put = insert(_NOTES).values(
        {name: bindparam(name, type_=column.type) for name, column in _NOTES.c.items()}
    )
    put = put.on_conflict_do_update(
        index_elements=[_NOTES.c.id], set_={name: put.excluded[name] for name in _line(0) if name != "id"}
    )

    universe = place.universe
    assert universe is not None
    write = _NOTES.update().where(_NOTES.c.id == bindparam("key")).values(n=bindparam("value"))
    add = _NOTES.update().where(_NOTES.c.id == bindparam("key")).values(n=_NOTES.c.n + 1)
    serializable = place.engine.execution_options(isolation_level="SERIALIZABLE")

    async def get_by_hand(n: int) -> Any:
        async with place.sessions() as session:
            return (await session.execute(read, {"key": f"note-{n}"})).first()

    async def put_by_hand(n: int) -> None:
        async with place.sessions() as session:
            await session.execute(put, _line(n))
            await session.commit()

    def datum(n: int) -> dgent.Datum:
        line = {**_line(n), "created_at": _AT.isoformat()}
        return dgent.Datum(id=line["id"], data=line)

    async def count_blindly(n: int) -> None:
        async with universe.transaction() as tx:
            await tx.remember({"n": n})
            async with place.transaction(tx) as session:
                await session.execute(add, {"key": f"note-{n}"})

    async def count_what_was_read(n: int) -> None:
        async with universe.transaction() as tx:
            await tx.remember({"n": n})
            async with place.transaction(tx) as session:
                row = (await session.execute(read, {"key": f"note-{n}"})).one()
                await session.execute(write, {"key": f"note-{n}", "value": row.n + 1})

    async def count_by_hand(n: int) -> None:
        async with serializable.begin() as connection:
            row = (await connection.execute(read, {"key": f"note-{n}"})).one()
            await connection.execute(write, {"key": f"note-{n}", "value": row.n + 1})
        await universe.remember({"n": n})

    return [
        await _compare(
            plan,
            f"{engine}: read and write in one commit with a record / by a session and a put",
            count_what_was_read,
            count_by_hand,
            None,
        ),
        await _compare(
            plan,
            f"{engine}: write in one commit with a record / the same with a read",
            count_blindly,
            count_what_was_read,
            None,
        ),
        await _compare(
            plan, f"{engine}: get / the statement by hand", lambda n: adapter.get(f"note-{n}"), get_by_hand
        ),
        await _compare(
            plan, f"{engine}: put / the statement by hand", lambda n: adapter.put(datum(n)), put_by_hand
        ),
    ]


def _line(n: int) -> dict[str, Any]:
    return {"id": f"note-{n}", "text": f"text {n}", "n": n, "tags": ["a", "b"], "created_at": _AT}


async def _compare(plan: Plan, work: str, ours: Call, hand: Call, goal: float | None = _GOAL) -> Row:
    numbers = itertools.count()

    def draw() -> list[tuple[int]]:
        return [(next(numbers) % _ROWS,) for _ in range(_EACH)]

    times = await interleave({"dgent": awaits(ours, draw), "hand": awaits(hand, draw)}, plan.rounds)
    return compared(work, cpu_of(times), "dgent", "hand", goal)
