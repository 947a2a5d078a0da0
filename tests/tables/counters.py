"""Count by the ORM in transactions of a universe: `python -m tests.tables.counters URL NAME COUNT`."""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import dgent
from dgent.tables import Place, connect
from dgent.universe.transaction import Transaction

ATTEMPTS = 1000


class Base(DeclarativeBase):
    """The tables of these programs."""


class Counter(Base):
    """A number that is read, and then written."""

    __tablename__ = "counters"
    id: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(default=0)


async def add_one(u: dgent.Universe, place: Place, record: str) -> None:
    """Count one more, with a record."""

    async def work(tx: Transaction) -> None:
        await tx.put(dgent.Datum(id=record, data={"a": 1}))
        async with place.transaction(tx) as session:
            (await session.get_one(Counter, "c")).n += 1

    await u.transact(work, attempts=ATTEMPTS)


async def main(url: str, name: str, count: int) -> None:
    """Count, one after another."""
    async with dgent.open(url) as u, await connect(u) as place:
        for number in range(count):
            await add_one(u, place, f"{name}-{number}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], int(sys.argv[3])))
