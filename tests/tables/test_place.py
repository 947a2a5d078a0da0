"""SQLAlchemy on the universe's own database: sessions, transactions, and what they share with records."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Enum,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Uuid,
    delete,
    exc,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import dgent
from dgent.errors import Conflict, Denied, InputError, TransactionConflict, Unavailable, Unsupported
from dgent.tables import Place, connect
from dgent.universe.gate import Principal


class Base(DeclarativeBase):
    """The tables of these tests."""


class Note(Base):
    """A row with an id of the caller's."""

    __tablename__ = "notes"
    id: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(unique=True)
    at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    price: Mapped[Decimal | None] = mapped_column(Numeric(12, 3))


class Event(Base):
    """A row with an id of the database's."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture
async def tables(place: Place) -> AsyncIterator[Place]:
    """A place that has the tables."""
    async with place.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield place


async def texts(place: Place) -> list[str]:
    """Return the texts of all notes."""
    async with place.sessions() as session:
        return list(await session.scalars(select(Note.text).order_by(Note.id)))


async def test_rows_go_in_by_sessions_and_come_out(tables: Place) -> None:
    at = datetime(2024, 2, 29, 12, 30, 1, 7, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    async with tables.sessions.begin() as session:
        session.add_all([Event(name="a"), Event(name="b")])
        session.add(Note(id="1", text="at 10:30", at=at, price=Decimal("12.5")))
    async with tables.sessions() as session:
        assert [event.name for event in await session.scalars(select(Event).order_by(Event.id))] == ["a", "b"]
        note = await session.get_one(Note, "1")
        assert note.at == at and note.at.tzinfo is not None
        assert str(note.price) == "12.500"


async def test_a_session_that_ends_with_an_error_leaves_nothing(tables: Place) -> None:
    with pytest.raises(exc.IntegrityError):
        async with tables.sessions.begin() as session:
            session.add(Note(id="1", text="same"))
            await session.flush()
            session.add(Note(id="2", text="same"))
    assert await texts(tables) == []


async def test_a_savepoint_is_undone_alone(tables: Place) -> None:
    async with tables.sessions.begin() as session:
        session.add(Note(id="1", text="one"))
        nested = await session.begin_nested()
        await session.execute(insert(Note).values(id="2", text="two"))
        await nested.rollback()
        async with session.begin_nested():
            session.add(Note(id="3", text="three"))
    assert await texts(tables) == ["one", "three"]


async def test_counts_ids_and_returned_rows_are_those_of_the_database(tables: Place) -> None:
    async with tables.engine.begin() as connection:
        made = await connection.execute(insert(Event).values(name="a"))
        assert made.inserted_primary_key == (1,)
        rows = await connection.execute(insert(Event).returning(Event.id), [{"name": n} for n in "bcd"])
        assert sorted(rows.scalars()) == [2, 3, 4]
        assert (await connection.execute(update(Event).where(Event.id > 2).values(name="x"))).rowcount == 2
        assert (await connection.execute(delete(Event).where(Event.id > 9))).rowcount == 0
        empty = await connection.execute(select(Event.id, Event.name).where(Event.id > 9))
        assert list(empty.keys()) == ["id", "name"] and empty.all() == []


async def test_a_cancelled_task_undoes_its_transaction(tables: Place) -> None:
    begun = asyncio.Event()

    async def write() -> None:
        async with tables.sessions.begin() as session:
            session.add(Note(id="1", text="one"))
            await session.flush()
            begun.set()
            await asyncio.sleep(60)

    task = asyncio.get_running_loop().create_task(write())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with tables.sessions.begin() as session:
        session.add(Note(id="2", text="two"))
    assert await texts(tables) == ["two"]


async def test_reading_sessions_do_not_wait_for_one_that_writes(tables: Place) -> None:
    async with tables.sessions() as writing, tables.sessions() as reading:
        writing.add(Note(id="1", text="one"))
        await writing.flush()
        assert list(await reading.scalars(select(Note.text))) == []
        await writing.commit()
        assert list(await reading.scalars(select(Note.text))) == ["one"]


async def test_two_writing_sessions_of_one_task_conflict_at_once(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u, await connect(u) as place:
        async with place.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with place.sessions() as first, place.sessions() as second:
            first.add(Note(id="1", text="one"))
            await first.flush()
            second.add(Note(id="2", text="two"))
            with pytest.raises(exc.OperationalError, match="would wait for itself"):
                await second.flush()
            with pytest.raises(Conflict):
                await u.put(dgent.Datum(data={"a": 1}))
            await first.commit()
        assert await texts(place) == ["one"]


async def test_closing_undoes_what_a_session_left_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with dgent.open(url) as u:
        place = await connect(u)
        async with place.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        session = place.sessions()
        session.add(Note(id="1", text="one"))
        await session.flush()
        async with asyncio.timeout(10):
            await u.close()
        await session.close()
    async with dgent.open(url) as u, await connect(u) as again:
        assert await texts(again) == []


async def test_increments_of_many_tasks_all_count_when_serializable(tables: Place) -> None:
    async with tables.sessions.begin() as session:
        session.add(Event(id=1, name="0"))
    engine = tables.engine.execution_options(isolation_level="SERIALIZABLE")

    async def add_one() -> None:
        while True:
            try:
                async with engine.begin() as connection:
                    name = await connection.scalar(select(Event.name))
                    await connection.execute(update(Event).values(name=str(int(name) + 1)))
                return
            except exc.DBAPIError:  # Postgres tells one of them to try again
                continue

    await asyncio.gather(*(add_one() for _ in range(8)))
    async with tables.sessions() as session:
        assert await session.scalar(select(Event.name)) == "8"


async def test_reflection_shows_the_callers_tables_only(tables: Place) -> None:
    async with tables.engine.connect() as connection:
        found = await connection.run_sync(lambda sync: sorted(inspect(sync).get_table_names()))
        assert found == ["events", "notes"]
        columns = await connection.run_sync(lambda sync: inspect(sync).get_columns("notes"))
        assert [column["name"] for column in columns] == ["id", "text", "at", "price"]
        assert not await connection.run_sync(lambda sync: inspect(sync).has_table("meta"))


async def test_the_tables_of_dgent_cannot_be_read_or_made(place: Place) -> None:
    with pytest.raises(exc.DBAPIError):
        async with place.engine.begin() as connection:
            await connection.execute(text("SELECT * FROM meta"))
    if place.engine.dialect.name == "sqlite":
        with pytest.raises(exc.ProgrammingError) as caught:
            async with place.engine.begin() as connection:
                await connection.execute(text("CREATE TABLE meta (id INTEGER)"))
        assert isinstance(caught.value.orig, Exception)
        assert isinstance(caught.value.orig.__cause__, Denied)


# -- with records ---------------------------------------------------------------------------


async def test_rows_and_records_are_one_transaction(universe: dgent.Universe, tables: Place) -> None:
    assert tables.shared
    async with tables.sessions.begin() as session:
        session.add(Note(id="1", text="old"))
    async with universe.transaction() as tx:
        await tx.put(dgent.Datum(id="record", data={"a": 1}))
        async with tables.transaction(tx) as session:
            (await session.get_one(Note, "1")).text = "new"
            session.add(Note(id="2", text="two", price=Decimal("1.25"), at=datetime.now(UTC)))
            await session.flush()
            assert await session.scalar(select(func.count()).select_from(Note)) == 2
        assert await texts(tables) == ["old"]
    assert await texts(tables) == ["new", "two"]
    assert await universe.exists("record")


async def test_values_of_every_kind_are_part_of_a_commit(universe: dgent.Universe, place: Place) -> None:
    kinds = Table(
        "kinds",
        MetaData(),
        Column("id", Uuid, primary_key=True),
        Column("json", JSON),
        Column("raw", LargeBinary),
        Column("span", Interval),
        Column("flag", Boolean),
        Column("tag", Enum("a", "b", name="tag")),
    )
    async with place.engine.begin() as connection:
        await connection.run_sync(kinds.metadata.create_all)
    rows = [
        (uuid4(), {"it's": [":x", "?", "$1", None]}, b"\0\xff", timedelta(days=2, microseconds=1), True, "a"),
        (uuid4(), None, None, None, False, "b"),
    ]
    async with universe.transaction() as tx:
        await tx.put(dgent.Datum(data={"a": 1}))
        async with place.transaction(tx) as session:
            await session.execute(
                insert(kinds), [dict(zip(kinds.c.keys(), row, strict=True)) for row in rows]
            )
            await session.execute(update(kinds).where(kinds.c.tag == "b").values(json={"':p1'": 1}))
    rows[1] = (rows[1][0], {"':p1'": 1}, *rows[1][2:])
    async with place.sessions() as session:
        assert [tuple(row) for row in await session.execute(select(kinds).order_by(kinds.c.tag))] == rows
    async with place.engine.begin() as connection:
        await connection.run_sync(kinds.metadata.drop_all)


async def test_a_statement_that_is_cancelled_leaves_the_tables_usable(tables: Place) -> None:
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000000000)"
        " SELECT count(*) FROM n"
    )

    async def run() -> None:
        async with tables.sessions() as session:
            session.add(Note(id="1", text="one"))
            await session.flush()
            await session.execute(text(endless))

    task = asyncio.get_running_loop().create_task(run())
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with tables.sessions.begin() as session:
        session.add(Note(id="2", text="two"))
    assert await texts(tables) == ["two"]


async def test_a_commit_is_undone_if_its_rows_have_gone(universe: dgent.Universe, tables: Place) -> None:
    async with tables.sessions.begin() as session:
        session.add(Note(id="1", text="old"))
    with pytest.raises(TransactionConflict, match="changed 0 rows, and 1"):
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(id="record", data={"a": 1}))
            async with tables.transaction(tx) as session:
                await session.execute(update(Note).where(Note.id == "1").values(text="new"))
            async with tables.sessions.begin() as session:
                await session.execute(delete(Note))
    assert not await universe.exists("record")


async def test_increments_in_a_commit_all_count_by_sql_or_by_a_version(
    universe: dgent.Universe, place: Place
) -> None:
    class Own(DeclarativeBase):
        pass

    class Count(Own):
        __tablename__ = "counts"
        id: Mapped[str] = mapped_column(primary_key=True)
        by_sql: Mapped[int]
        read: Mapped[int]
        version: Mapped[int] = mapped_column()
        __mapper_args__: ClassVar = {"version_id_col": version}

    async with place.engine.begin() as connection:
        await connection.run_sync(Own.metadata.create_all)
    async with place.sessions.begin() as session:
        session.add(Count(id="1", by_sql=0, read=0))

    async def count(number: int) -> None:
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(id=f"record-{number}", data={"a": 1}))
            async with place.transaction(tx) as session:
                found = await session.get_one(Count, "1")
                found.read += 1
                found.by_sql = Count.by_sql + 1

    done = await asyncio.gather(*map(count, range(4)), return_exceptions=True)
    kept = sum(each is None for each in done)
    assert kept > 0 and all(each is None or isinstance(each, TransactionConflict) for each in done)
    async with place.sessions() as session:
        found = await session.get_one(Count, "1")
        assert (found.read, found.by_sql, found.version) == (kept, kept, kept + 1)


async def test_an_error_in_the_block_undoes_rows_and_records(universe: dgent.Universe, tables: Place) -> None:
    with pytest.raises(exc.IntegrityError):
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(id="record", data={"a": 1}))
            async with tables.transaction(tx) as session:
                session.add_all([Note(id="1", text="same"), Note(id="2", text="same")])
    assert await texts(tables) == [] and not await universe.exists("record")


async def test_what_a_session_took_back_is_not_part_of_a_commit(
    universe: dgent.Universe, tables: Place
) -> None:
    async with universe.transaction() as tx:
        await tx.put(dgent.Datum(id="record", data={"a": 1}))
        async with tables.transaction(tx) as session:
            await session.execute(insert(Note).values(id="1", text="rolled back"))
            await session.rollback()
            await session.execute(insert(Note).values(id="2", text="two"))
            nested = await session.begin_nested()
            await session.execute(insert(Note).values(id="3", text="undone alone"))
            await nested.rollback()
            async with session.begin_nested():
                session.add(Note(id="4", text="four"))
    assert await texts(tables) == ["two", "four"]


async def test_a_session_in_a_transaction_cannot_commit_by_itself(
    universe: dgent.Universe, tables: Place
) -> None:
    with pytest.raises(InputError, match="cannot commit by itself"):
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(id="record", data={"a": 1}))
            async with tables.transaction(tx) as session:
                await session.execute(insert(Note).values(id="1", text="one"))
                await session.commit()
    assert await texts(tables) == [] and not await universe.exists("record")


@pytest.mark.parametrize("statement", ["CREATE TABLE more (a INTEGER)", "/* ( */ DROP TABLE events"])
async def test_a_statement_that_cannot_be_run_again_is_refused(
    universe: dgent.Universe, tables: Place, statement: str
) -> None:
    with pytest.raises(Unsupported, match="cannot be part of a transaction"):
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(id="record", data={"a": 1}))
            async with tables.transaction(tx) as session:
                await session.execute(text(statement))
    assert not await universe.exists("record")


async def test_an_id_of_the_database_cannot_be_part_of_a_commit(
    universe: dgent.Universe, tables: Place
) -> None:
    with pytest.raises(InputError, match="id of a row of events"):
        async with universe.transaction() as tx:
            await tx.put(dgent.Datum(data={"a": 1}))
            async with tables.transaction(tx) as session:
                session.add(Event(name="a"))
    async with universe.transaction() as tx:
        await tx.put(dgent.Datum(data={"a": 1}))
        async with tables.transaction(tx) as session:
            session.add_all([Event(id=7, name="a"), Event(id=8, name="b")])
    async with tables.sessions() as session:
        assert sorted(await session.scalars(select(Event.id))) == [7, 8]


async def test_a_place_of_its_own_shares_no_transaction(tmp_path: Path) -> None:
    async with await connect(f"sqlite:///{tmp_path / 'other.db'}") as place:
        assert not place.shared
        async with place.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with place.sessions.begin() as session:
            session.add(Note(id="1", text="one"))
        assert await texts(place) == ["one"]
        async with dgent.open("memory:") as u:
            async with u.transaction() as tx:
                with pytest.raises(Unsupported, match="share no transaction"):
                    async with place.transaction(tx):
                        pass
            async with await connect(u) as memory:
                assert not memory.shared
                async with memory.engine.begin() as connection:
                    await connection.run_sync(Base.metadata.create_all)
                async with memory.sessions.begin() as session:
                    session.add(Note(id="1", text="in memory"))
                assert await texts(memory) == ["in memory"]


async def test_a_server_that_is_down_is_unavailable() -> None:
    place = await connect("postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(Unavailable) as caught:
        async with place.sessions() as session:
            await session.execute(text("SELECT 1"))
    assert caught.value.retryable
    await place.close()


async def test_below_partner_trust_there_is_no_place(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u:
        limited = u.acting(Principal("bob", "friend"))
        with pytest.raises(Denied):
            await connect(limited)
        with pytest.raises(Denied):
            _ = limited.adapters


def test_no_other_sqlite_is_loaded_and_none_of_it_with_dgent() -> None:
    program = (
        "import sys, asyncio, dgent\n"
        "assert not {'sqlalchemy', 'alembic', 'dgent.tables'} & sys.modules.keys()\n"
        "from dgent.tables import connect\n"
        "async def main():\n"
        "    async with dgent.open('memory:') as u, await connect(u) as place:\n"
        "        async with place.engine.connect() as c: await c.exec_driver_sql('SELECT 1')\n"
        "asyncio.run(main())\n"
        "assert not {'sqlite3', '_sqlite3', 'aiosqlite'} & sys.modules.keys()\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
