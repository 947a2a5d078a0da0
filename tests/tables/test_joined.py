"""Sessions that are part of a transaction of the universe: what they read is proven by its commit."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    DateTime,
    Float,
    ForeignKey,
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
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column, relationship, selectinload

import dgent
from dgent import ids
from dgent.errors import QueryError, TransactionConflict, Unsupported
from dgent.tables import Place, connect
from dgent.universe.transaction import Transaction
from tests.command import python
from tests.storage.conftest import url_of
from tests.tables.counters import ATTEMPTS, Base, Counter, add_one

Work = Callable[[AsyncSession], Awaitable[Any]]


class Author(Base):
    """Has books, which are loaded when they are asked for."""

    __tablename__ = "authors"
    id: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int] = mapped_column(default=0)
    books: Mapped[list[Book]] = relationship(order_by="Book.id")


class Book(Base):
    """Has a key of two columns, and a time that the database makes."""

    __tablename__ = "books"
    shelf: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[str] = mapped_column(ForeignKey("authors.id"))
    copies: Mapped[int] = mapped_column(default=1)
    made_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    changed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), onupdate=func.now())


KINDS = Table(
    "compared",
    MetaData(),
    Column("id", Uuid, primary_key=True),
    Column("json", JSON),
    Column("raw", LargeBinary),
    Column("span", Interval),
    Column("at", DateTime(timezone=True)),
    Column("day", Date),
    Column("price", Numeric(12, 2)),
    Column("weight", Float),
    Column("flag", Boolean),
)


@pytest.fixture
async def tables(place: Place) -> AsyncIterator[Place]:
    """A place with a counter, and an author with two books."""
    async with place.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with place.sessions.begin() as session:
        session.add_all([Counter(id="c", n=0), Author(id="ann")])
    async with place.sessions.begin() as session:
        session.add_all([Book(shelf="a", id=n, author_id="ann") for n in (1, 2)])
    yield place


async def change(place: Place, statement: Any) -> None:
    """Run a statement of somebody else."""
    async with place.sessions.begin() as session:
        await session.execute(statement)


async def is_refused(u: dgent.Universe, place: Place, work: Work, meanwhile: Any) -> bool:
    """Return whether a transaction is a conflict if somebody else runs a statement before it commits."""
    record = dgent.Datum(id=ids.new_id(), data={"a": 1})
    try:
        async with u.transaction() as tx:
            await tx.put(record)
            async with place.transaction(tx) as session:
                await work(session)
            await change(place, meanwhile)
    except TransactionConflict:
        assert not await u.exists(record.id)
        return True
    assert await u.exists(record.id)
    return False


async def count_by_orm(session: AsyncSession) -> None:
    (await session.get_one(Counter, "c")).n += 1


async def count_by_core(session: AsyncSession) -> None:
    n = await session.scalar(select(Counter.n).where(Counter.id == "c"))
    await session.execute(update(Counter).where(Counter.id == "c").values(n=n + 1))


async def count_by_text(session: AsyncSession) -> None:
    n = await session.scalar(text("SELECT n FROM counters WHERE id = :id"), {"id": "c"})
    await session.execute(text("UPDATE counters SET n = :n WHERE id = :id"), {"id": "c", "n": n + 1})


async def count_after_a_refresh(session: AsyncSession) -> None:
    found = await session.get_one(Counter, "c")
    await session.refresh(found)
    found.n += 1


async def count_after_expiry(session: AsyncSession) -> None:
    found = await session.get_one(Counter, "c")
    session.expire(found)
    await session.refresh(found, ["n"])
    found.n += 1


async def count_by_merge(session: AsyncSession) -> None:
    n = await session.scalar(select(Counter.n).where(Counter.id == "c"))
    await session.merge(Counter(id="c", n=n + 1))


async def count_after_another_write(session: AsyncSession) -> None:
    session.add(Author(id=ids.new_id()))  # written before the counter is read
    found = (await session.scalars(select(Counter))).one()
    found.n += 1


async def count_after_a_savepoint(session: AsyncSession) -> None:
    nested = await session.begin_nested()
    session.add(Author(id=ids.new_id()))
    n = await session.scalar(select(Counter.n))
    await nested.rollback()
    await session.execute(update(Counter).values(n=n + 1))


async def count_by_returning(session: AsyncSession) -> None:
    added = update(Counter).values(n=Counter.n + 1).returning(Counter.n)
    n = await session.scalar(added)
    await session.execute(update(Counter).values(n=n))


COUNTS = [
    count_by_orm,
    count_by_core,
    count_by_text,
    count_after_a_refresh,
    count_after_expiry,
    count_by_merge,
    count_after_another_write,
    count_after_a_savepoint,
    count_by_returning,
]


async def count(u: dgent.Universe, place: Place, work: Work) -> None:
    """Count in a transaction with a record of its own."""

    async def both(tx: Transaction) -> None:
        await tx.remember({"a": 1})
        async with place.transaction(tx) as session:
            await work(session)

    await u.transact(both, attempts=ATTEMPTS)


async def get_count(place: Place) -> int | None:
    async with place.sessions() as session:
        return await session.scalar(select(Counter.n))


@pytest.mark.parametrize("work", COUNTS)
async def test_every_increment_of_ten_tasks_counts(
    universe: dgent.Universe, tables: Place, work: Work
) -> None:
    await asyncio.gather(*(count(universe, tables, work) for _ in range(10)))
    assert await get_count(tables) == 10


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_every_increment_of_four_programs_counts(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    async with dgent.open(url) as u, await connect(u) as place:
        async with place.engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        async with place.sessions.begin() as session:
            session.add(Counter(id="c", n=0))
        programs = [
            subprocess.Popen([python(), "-m", "tests.tables.counters", url, name, "4"]) for name in "abcd"
        ]
        for program in programs:
            assert await asyncio.to_thread(program.wait, 120) == 0
        assert await get_count(place) == 16
        assert len([name for name in "abcd" for n in range(4) if await u.exists(f"{name}-{n}")]) == 16


@pytest.mark.parametrize("work", COUNTS[:-1])
async def test_a_row_that_was_read_and_changed_is_a_conflict(
    universe: dgent.Universe, tables: Place, work: Work
) -> None:
    assert await is_refused(universe, tables, work, update(Counter).values(n=7))
    assert await get_count(tables) == 7


async def test_another_row_that_changed_is_none(universe: dgent.Universe, tables: Place) -> None:
    other = update(Book).where(Book.id == 2).values(copies=9)
    assert not await is_refused(universe, tables, count_by_orm, other)

    async def read_one(session: AsyncSession) -> None:
        (await session.get_one(Book, ("a", 1))).copies += 1

    assert not await is_refused(universe, tables, read_one, other.values(copies=10))
    assert await is_refused(universe, tables, read_one, update(Book).values(copies=11))


async def test_rows_that_came_into_a_selection_are_a_conflict(
    universe: dgent.Universe, tables: Place
) -> None:
    async def sum_up(session: AsyncSession) -> None:
        found = await session.scalars(select(Book).where(Book.author_id == "ann"))
        (await session.get_one(Author, "ann")).total = sum(book.copies for book in found)

    more = insert(Book).values(shelf="b", id=1, author_id="ann")
    assert await is_refused(universe, tables, sum_up, more)
    assert await is_refused(universe, tables, sum_up, delete(Book).where(Book.shelf == "b"))
    await change(tables, insert(Author).values(id="bob", total=0))
    assert not await is_refused(universe, tables, sum_up, more.values(author_id="bob"))


async def test_rows_of_a_relationship_are_proven(universe: dgent.Universe, tables: Place) -> None:

    async def load_along(session: AsyncSession) -> None:
        ann = (await session.scalars(select(Author).options(selectinload(Author.books)))).one()
        ann.total = sum(book.copies for book in ann.books)

    async def load_by_refresh(session: AsyncSession) -> None:
        ann = await session.get_one(Author, "ann")
        await session.refresh(ann, ["books"])
        ann.total = sum(book.copies for book in ann.books)

    for number, work in enumerate((load_along, load_by_refresh)):
        more = insert(Book).values(shelf="b", id=number, author_id="ann")
        assert await is_refused(universe, tables, work, more)


async def test_the_order_of_rows_is_proven_where_it_was_asked_for(
    universe: dgent.Universe, tables: Place
) -> None:
    await change(tables, insert(Counter).values([{"id": "d", "n": 1}, {"id": "e", "n": 2}]))

    async def take_first(session: AsyncSession) -> None:
        await session.scalars(select(Counter.id).order_by(Counter.n))

    async def take_all(session: AsyncSession) -> None:
        await session.scalars(select(Counter.id))

    reorder = text("UPDATE counters SET n = 9 - n")
    assert await is_refused(universe, tables, take_first, reorder)
    assert not await is_refused(universe, tables, take_all, reorder)


async def test_a_datum_that_rests_on_rows_and_rows_that_rest_on_a_datum(
    universe: dgent.Universe, tables: Place
) -> None:
    """At least one of a record and a row stays: each of two transactions reads one and drops the other."""
    for number in range(5):
        record = f"keep-{number}"
        await universe.put(dgent.Datum(id=record, data={"a": 1}))
        await change(tables, insert(Author).values(id=record, total=0))

        async def drop_record(tx: Transaction, record: str = record) -> None:
            async with tables.transaction(tx) as session:
                if await session.get(Author, record) is not None:
                    await asyncio.sleep(0)
                    await tx.delete(record)

        async def drop_row(tx: Transaction, record: str = record) -> None:
            if await tx.get(record) is not None:
                await tx.remember({"dropped": record})
                async with tables.transaction(tx) as session:
                    await session.execute(delete(Author).where(Author.id == record))

        await asyncio.gather(universe.transact(drop_record), universe.transact(drop_row))
        async with tables.sessions() as session:
            left = await session.get(Author, record) is not None
        assert left != await universe.exists(record)


async def test_get_or_create_creates_once(universe: dgent.Universe, tables: Place) -> None:
    async def get_or_create(tx: Transaction) -> None:
        async with tables.transaction(tx) as session:
            found = await session.get(Author, "new")
            if found is None:
                found = Author(id="new", total=0)
                session.add(found)
                await tx.put(dgent.Datum(id="new", data={"a": 1}), expect=0)
            else:
                await tx.check("new")
            found.total += 1

    await asyncio.gather(*(universe.transact(get_or_create, attempts=ATTEMPTS) for _ in range(6)))
    async with tables.sessions() as session:
        assert (await session.get_one(Author, "new")).total == 6


async def test_a_row_that_somebody_else_added_first_is_tried_again(
    universe: dgent.Universe, tables: Place
) -> None:
    attempts = []

    async def add(tx: Transaction) -> None:
        await tx.remember({"a": 1})
        async with tables.transaction(tx) as session:
            attempts.append(1)
            await session.execute(insert(Author).values(id="new", total=1))
        if len(attempts) == 1:
            await change(tables, insert(Author).values(id="new", total=2))

    with pytest.raises(exc.IntegrityError):  # of the second attempt, which meets the row at once
        await universe.transact(add)
    assert len(attempts) == 2


# -- own writes --------------------------------------------------------------------------------


async def test_own_writes_are_read_and_proven_as_they_were(universe: dgent.Universe, tables: Place) -> None:
    async def write_and_read(session: AsyncSession) -> None:
        session.add_all([Book(shelf="c", id=n, author_id="ann") for n in range(3)])
        await session.flush()
        assert await session.scalar(select(func.count()).select_from(Book)) >= 5
        first = await session.get_one(Book, ("a", 1))
        first.copies += 1
        await session.flush()
        await session.refresh(first)
        assert first.changed_at is not None
        books = (await session.scalars(select(Book).order_by(Book.shelf, Book.id))).all()
        (await session.get_one(Author, "ann")).total = sum(book.copies for book in books)
        await session.execute(delete(Book).where(Book.shelf == "c"))
        assert not (await session.scalars(select(Book.id).where(Book.shelf == "c"))).all()

    await asyncio.gather(*(count(universe, tables, write_and_read) for _ in range(3)))
    async with tables.sessions() as session:
        assert (await session.get_one(Book, ("a", 1))).copies == 4
        assert (await session.get_one(Author, "ann")).total == 8
    more = update(Book).where(Book.id == 2).values(copies=5)
    assert await is_refused(universe, tables, write_and_read, more)


async def test_a_later_session_sees_what_an_earlier_one_changed(
    universe: dgent.Universe, tables: Place
) -> None:
    async with universe.transaction() as tx:
        await tx.remember({"a": 1})
        await tx.execute("UPDATE counters SET n = n + :by", {"by": 5})
        for expected in (5, 6):
            async with tables.transaction(tx) as session:
                found = await session.get_one(Counter, "c")
                assert found.n == expected
                found.n += 1
    assert await get_count(tables) == 7


async def test_many_rows_at_once_are_made_and_counted(universe: dgent.Universe, tables: Place) -> None:
    async def add_many(session: AsyncSession) -> None:
        session.add_all([Book(shelf="c", id=n, author_id="ann") for n in range(30)])
        await session.flush()
        rows = [{"shelf": "d", "id": n, "author_id": "ann", "copies": n} for n in range(30)]
        made = await session.scalars(insert(Book).returning(Book.id), rows)
        assert sorted(made) == list(range(30))
        both = update(Counter).where(Counter.id.in_(["c", "x"]))
        await session.execute(both.values(n=30))

    await count(universe, tables, add_many)
    async with tables.sessions() as session:
        assert await session.scalar(select(func.count()).select_from(Book)) == 62
        assert await session.scalar(select(func.sum(Book.copies)).where(Book.shelf == "d")) == 435
    assert await get_count(tables) == 30


async def test_rows_of_one_statement_for_many_are_counted_together(
    universe: dgent.Universe, tables: Place
) -> None:
    if tables.engine.dialect.name != "sqlite":
        pytest.skip("asyncpg does not count the rows of a statement for many")

    async def blind(session: AsyncSession) -> None:
        connection = await session.connection()
        await connection.execute(
            text("UPDATE books SET copies = :n WHERE id = :id"), [{"id": n, "n": 5} for n in (1, 2)]
        )

    assert await is_refused(universe, tables, blind, delete(Book).where(Book.id == 2))


async def test_an_upsert_that_returns_is_proven(universe: dgent.Universe, tables: Place) -> None:
    dialect: Any = postgresql if tables.engine.dialect.name == "postgresql" else sqlite

    async def next_number(session: AsyncSession) -> int:
        made = dialect.insert(Counter).values(id="seq", n=1)
        made = made.on_conflict_do_update(index_elements=["id"], set_={"n": Counter.n + 1})
        found = await session.scalar(made.returning(Counter.n))
        assert found is not None
        return int(found)

    async def take(tx: Transaction) -> int:
        async with tables.transaction(tx) as session:
            number = await next_number(session)
        await tx.put(dgent.Datum(id=f"ticket-{number}", data={"a": 1}), expect=0)
        return number

    taken = await asyncio.gather(*(universe.transact(take, attempts=ATTEMPTS) for _ in range(6)))
    assert sorted(taken) == [1, 2, 3, 4, 5, 6]


async def test_what_was_read_before_a_rollback_is_proven(universe: dgent.Universe, tables: Place) -> None:
    async def roll_back(session: AsyncSession) -> None:
        await session.execute(update(Counter).values(n=4))
        assert await session.scalar(select(Counter.n)) == 4
        await session.rollback()
        await session.execute(update(Author).values(total=1))

    assert not await is_refused(universe, tables, roll_back, update(Book).values(copies=2))
    assert await is_refused(universe, tables, roll_back, insert(Counter).values(id="d", n=1))
    assert await get_count(tables) == 0


async def test_values_of_every_kind_are_compared(universe: dgent.Universe, place: Place) -> None:
    async with place.engine.begin() as connection:
        await connection.run_sync(KINDS.metadata.drop_all)
        await connection.run_sync(KINDS.metadata.create_all)
    row = {
        "id": uuid4(),
        "json": {"b": [1, None, 2.5], "a": "it's"},
        "raw": b"\0\xff",
        "span": timedelta(days=2, microseconds=1),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "price": Decimal("1.50"),
        "weight": 0.1,
        "flag": True,
    }
    await change(place, insert(KINDS).values(**row))

    async def read(session: AsyncSession) -> None:
        assert (await session.execute(select(KINDS))).one()._asdict() == row

    other = {
        "json": {"b": [1, None, 2], "a": "it's"},
        "raw": b"\0",
        "span": timedelta(days=2),
        "at": row["at"].replace(microsecond=7),  # type: ignore[attr-defined]
        "day": date(2026, 1, 3),
        "price": Decimal("1.51"),
        "weight": 0.2,
        "flag": False,
    }
    for name, value in other.items():
        assert not await is_refused(universe, place, read, update(KINDS).values(**{name: row[name]}))
        assert await is_refused(universe, place, read, update(KINDS).values(**{name: value}))
        await change(place, update(KINDS).values(**row))
    async with place.engine.begin() as connection:
        await connection.run_sync(KINDS.metadata.drop_all)


# -- limits ------------------------------------------------------------------------------------


async def test_a_session_that_only_reads_needs_no_records(universe: dgent.Universe, tables: Place) -> None:
    async with universe.transaction() as tx, tables.transaction(tx) as session:
        assert await session.scalar(select(Counter.n)) == 0


async def test_answers_that_rest_on_no_table_are_not_compared(
    universe: dgent.Universe, tables: Place
) -> None:
    async def ask(session: AsyncSession) -> None:
        assert await session.scalar(select(func.now())) is not None
        assert await session.scalar(select(func.random())) is not None

    assert not await is_refused(universe, tables, ask, update(Counter).values(n=1))


async def test_a_large_answer_is_proven(universe: dgent.Universe, tables: Place) -> None:
    rows = [{"id": f"row-{n}", "total": n} for n in range(20_000)]
    async with tables.sessions.begin() as session:
        await session.execute(insert(Author), rows)

    async def read_all(session: AsyncSession) -> None:
        assert len((await session.execute(select(Author.id, Author.total))).all()) == 20_001

    assert not await is_refused(universe, tables, read_all, update(Counter).values(n=1))
    last = update(Author).where(Author.id == "row-19999").values(total=0)
    assert await is_refused(universe, tables, read_all, last)


async def test_a_stream_is_refused(universe: dgent.Universe, tables: Place) -> None:
    async def stream(session: AsyncSession) -> None:
        async for _row in await session.stream(select(Author.id)):
            pass

    if tables.engine.dialect.name == "sqlite":  # where all rows are there at once
        assert await is_refused(universe, tables, stream, delete(Book)) is False
        return
    with pytest.raises(Unsupported, match="stream"):
        await is_refused(universe, tables, stream, delete(Book))


async def test_records_of_rooms_are_read_with_the_transaction(
    universe: dgent.Universe, tables: Place
) -> None:
    if tables.engine.dialect.name != "sqlite":
        pytest.skip("sessions on Postgres do not see records of rooms as tables")

    async def read(session: AsyncSession) -> None:
        await session.execute(text("SELECT version FROM schema_version"))

    with pytest.raises(exc.DBAPIError, match="records of a room"):
        await is_refused(universe, tables, read, delete(Book))


async def test_statements_that_read_need_an_expected_answer(universe: dgent.Universe, tables: Place) -> None:
    async with universe.transaction() as tx:
        with pytest.raises(QueryError, match="SELECT cannot be part"):
            await tx.execute("SELECT n FROM counters")


async def test_a_key_in_json_is_not_taken_for_a_parameter(universe: dgent.Universe, tables: Place) -> None:
    if tables.engine.dialect.name != "postgresql":
        pytest.skip("only Postgres has the operator")

    async def ask(session: AsyncSession) -> None:
        asked = """SELECT n, '{"a": 1}'::jsonb ? 'a', E'it\\'s $1', $q$ $2 $q$ FROM counters WHERE id = :id"""
        assert (await session.execute(text(asked), {"id": "c"})).one() == (0, True, "it's $1", " $2 ")

    assert not await is_refused(universe, tables, ask, update(Book).values(copies=4))
    assert await is_refused(universe, tables, ask, update(Counter).values(n=1))


async def test_plain_sessions_lose_nothing_to_a_commit(universe: dgent.Universe, tables: Place) -> None:
    """Plain sessions that add by SQL beside joined ones that read and write: nobody's number is lost."""

    async def add_plain() -> None:
        await change(tables, update(Counter).values(n=Counter.n + 1))

    done = [add_one(universe, tables, f"r-{n}") for n in range(8)]
    await asyncio.gather(*done, *(add_plain() for _ in range(8)))
    assert await get_count(tables) == 16


async def test_records_are_written_while_sessions_are_proven(universe: dgent.Universe, tables: Place) -> None:
    """Plain puts of many tasks neither wait for long nor fail beside commits that compare rows."""
    puts = [universe.put(dgent.Datum(id=f"plain-{n}", data={"n": n})) for n in range(100)]
    async with asyncio.timeout(60):
        await asyncio.gather(*puts, *(add_one(universe, tables, f"joined-{n}") for n in range(6)))
    assert await get_count(tables) == 6
    assert await universe.count(prefix="plain-") == 100


async def test_serializable_sessions_and_transactions_do_not_skew(
    universe: dgent.Universe, tables: Place
) -> None:
    """Of two rows one stays at least: a plain session reads one and drops the other, a joined one too."""
    engine = tables.engine.execution_options(isolation_level="SERIALIZABLE")
    for number in range(4):
        pair = [f"x{number}", f"y{number}"]
        await change(tables, insert(Author).values([{"id": id, "total": 0} for id in pair]))

        async def drop_plain(keep: str = pair[0], drop: str = pair[1]) -> None:
            async with engine.begin() as connection:
                if (await connection.execute(select(Author.id).where(Author.id == keep))).first():
                    await asyncio.sleep(0.005)
                    await connection.execute(delete(Author).where(Author.id == drop))

        async def drop_joined(tx: Transaction, keep: str = pair[1], drop: str = pair[0]) -> None:
            await tx.remember({"a": 1})
            async with tables.transaction(tx) as session:
                if await session.get(Author, keep) is not None:
                    await session.execute(delete(Author).where(Author.id == drop))

        await asyncio.gather(drop_plain(), universe.transact(drop_joined), return_exceptions=True)
        async with tables.sessions() as session:
            left = (await session.scalars(select(Author.id).where(Author.id.in_(pair)))).all()
        assert len(left) >= 1
