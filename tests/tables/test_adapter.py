"""Tables as stores of datums: every row comes back as it was, whatever its columns are."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    JSON,
    Column,
    Date,
    DateTime,
    Enum,
    Float,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Time,
    Uuid,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import dgent
from dgent.errors import Conflict, InputError, NotFound, QueryError, Unavailable
from dgent.flow import StateFunctor
from dgent.model.lens import key
from dgent.tables import Place, TableAdapter, connect
from dgent.universe.protocol import DgentProtocol
from tests.postgres.lease import ask_server, url_for
from tests.storage.conftest import empty


class Color(enum.Enum):
    """Values of a column."""

    RED = "r"
    GREEN = "g"


class Base(DeclarativeBase):
    """The tables of these tests."""


class Turn(Base):
    """A row with times and a cause."""

    __tablename__ = "turns"
    id: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String, default="")
    n: Mapped[int] = mapped_column(default=0)
    meta: Mapped[Any] = mapped_column("extra", JSON, nullable=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    causal_parent: Mapped[str | None]


WIDE = Table(
    "wide",
    Base.metadata,
    Column("space", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at", DateTime(timezone=True)),
    Column("plain_at", DateTime()),
    Column("day", Date),
    Column("hour", Time),
    Column("span", Interval),
    Column("json", JSON),
    Column("color", Enum(Color)),
    Column("price", Numeric(14, 4)),
    Column("ratio", Float),
    Column("uid", Uuid),
    Column("raw", LargeBinary),
    Column("flag", Integer),
)


@pytest.fixture
async def tables(place: Place) -> AsyncIterator[Place]:
    """A place that has the tables."""
    async with place.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield place


@pytest.fixture
def turns(tables: Place) -> TableAdapter[Turn]:
    """The turns as datums."""
    return TableAdapter(Turn, tables.sessions)


def turn(id: str, parent: str | None = None, /, **data: Any) -> dgent.Datum:
    """Return the datum of a turn."""
    return dgent.Datum(id=id, parent_id=parent, data=data)


async def rows_of(place: Place, table: Any) -> list[Any]:
    """Return all rows of a table as the database has them."""
    async with place.sessions() as session:
        return list(await session.execute(select(table)))


# -- the laws -------------------------------------------------------------------------------


async def test_a_row_is_its_data_and_says_where_it_is_from(turns: TableAdapter[Turn]) -> None:
    assert isinstance(turns, DgentProtocol)
    await turns.put(turn("a", "z", text="hi", extra={"k": [1, None]}))
    found = await turns.get("a")
    assert found is not None
    assert found.source == "alembic" and found.schema == "table.turns" and turns.table_name == "turns"
    assert found.parent_id == "z" and found.created_at.tzinfo is not None
    assert found.data["text"] == "hi" and found.data["extra"] == {"k": [1, None]}
    assert dgent.Datum(content=found.content) and b'"hi"' in found.content
    assert await turns.get("b") is None


async def test_putting_twice_is_putting_once(turns: TableAdapter[Turn], tables: Place) -> None:
    datum = turn("a", text="hi", n=3)
    await turns.put(datum)
    once = await rows_of(tables, Turn.__table__)
    await turns.put(datum)
    assert await rows_of(tables, Turn.__table__) == once
    assert await turns.count() == 1


async def test_a_row_made_by_the_database_comes_back_as_it_was(
    turns: TableAdapter[Turn], tables: Place
) -> None:
    async with tables.engine.begin() as connection:
        await connection.execute(text("INSERT INTO turns (id, text, n) VALUES ('a', 'hi', 1)"))
        await connection.execute(insert(Turn).values(id="b", text="", n=2, meta=None))  # JSON's null
    before = await rows_of(tables, Turn.__table__)
    for id in ("a", "b"):
        found = await turns.get(id)
        assert found is not None
        await turns.put(found)
        assert (await turns.get(id)) == found
    assert await rows_of(tables, Turn.__table__) == before
    async with tables.sessions() as session:
        nulls = await session.scalars(select(Turn.id).where(Turn.meta.is_(None)).order_by(Turn.id))
        assert nulls.all() in (["a"], ["b"])  # the other one is SQL's NULL


_AT = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.timezones() | st.just(UTC))
_WIDE = st.fixed_dictionaries(
    {
        "space": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9),
        "number": st.integers(-(2**31), 2**31 - 1),
        "at": st.none() | _AT,
        "plain_at": st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
        "day": st.none() | st.dates(date(1, 1, 2), date(9999, 12, 30)),
        "hour": st.none() | st.times(),
        "span": st.none() | st.timedeltas(timedelta(days=-9000), timedelta(days=9000)),
        "json": st.none()
        | st.recursive(
            st.booleans()
            | st.integers(-(2**53), 2**53)
            | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        "color": st.none() | st.sampled_from(Color),
        "price": st.none() | st.decimals(-(10**9), 10**9, places=4),
        "ratio": st.none() | st.floats(allow_nan=False),
        "uid": st.none() | st.uuids(),
        "raw": st.none() | st.binary(max_size=9),
        "flag": st.none() | st.integers(0, 1),
    }
)


async def test_every_kind_of_column_comes_back_as_it_was(tables: Place) -> None:
    adapter: TableAdapter[Any] = TableAdapter(WIDE, tables.sessions, id_field=("space", "number"))
    loop = asyncio.get_running_loop()

    async def check(row: dict[str, Any]) -> None:
        async with tables.engine.begin() as connection:
            await connection.execute(WIDE.delete())
            await connection.execute(WIDE.insert(), [row])
        before = await rows_of(tables, WIDE)
        (found,) = await adapter.list()
        assert await adapter.get(found.id) == found
        assert dgent.Datum(content=found.content).content == found.content
        await adapter.put(found)
        assert await rows_of(tables, WIDE) == before
        await adapter.delete(found.id)
        await adapter.put(found)
        assert await adapter.get(found.id) == found
        assert await rows_of(tables, WIDE) == before
        assert await adapter.replace(found.id, found.data, found.data)
        shown = before[0]._mapping
        # As times of one zone: a time in the hour that a zone skips or repeats equals none of another zone.
        assert shown["at"] is None or shown["at"] == row["at"].astimezone(UTC)
        assert shown["price"] == row["price"] and shown["uid"] == row["uid"]

    @settings(max_examples=12)
    @given(_WIDE)
    def search(row: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(check(row), loop).result(60)

    await asyncio.to_thread(search)


async def test_causes_are_followed_and_cycles_end(turns: TableAdapter[Turn]) -> None:
    for id, parent in (("a", None), ("b", "a"), ("c", "b"), ("x", "y"), ("y", "x"), ("d", "gone")):
        await turns.put(turn(id, parent))
    assert [datum.id for datum in await turns.causal_chain("c")] == ["a", "b", "c"]
    assert [datum.id for datum in await turns.causal_chain("c", limit=2)] == ["b", "c"]
    assert [datum.id for datum in await turns.causal_chain("x")] == ["y", "x"]
    assert [datum.id for datum in await turns.causal_chain("d")] == ["d"]
    assert await turns.causal_chain("none") == []


async def test_chains_cross_the_tracks(turns: TableAdapter[Turn], universe: dgent.Universe) -> None:
    await universe.put(dgent.Datum(id="first", data={"n": 1}))
    await turns.put(turn("t1", "first"))
    await turns.put(turn("t2", "t1"))
    await universe.put(dgent.Datum(id="last", data={"n": 2}, parent_id="t2"))
    assert [each.id for each in await universe.causal_chain("last")] == ["last"]
    universe.adapters.register(turns)
    assert list(universe.adapters) == ["turns"] and universe.adapters.get("turns") is turns
    assert [each.id for each in await universe.causal_chain("last")] == ["first", "t1", "t2", "last"]
    assert [each.id for each in await universe.causal_chain("t1")] == ["first", "t1"]
    assert [each.id for each in await universe.causal_chain("last", limit=2)] == ["t2", "last"]
    await turns.put(turn("first", None))  # another thing of the same id
    await universe.put(dgent.Datum(id="loop", data={}, parent_id="l1"))
    await turns.put(turn("l1", "loop"))
    assert [each.id for each in await universe.causal_chain("loop")] == ["l1", "loop"]
    universe.adapters.remove("turns")
    with pytest.raises(NotFound, match="no table 'turns'"):
        universe.adapters.get("turns")
    with pytest.raises(InputError):
        universe.adapters.register(universe)  # type: ignore[arg-type]


async def test_lenses_compose_over_rows(turns: TableAdapter[Turn]) -> None:
    await turns.put(turn("a", extra={"deep": {"n": 1}}))
    extra, deep, number = key("extra"), key("deep"), key("n")
    one = turns.focus("a", (extra >> deep) >> number)
    other = turns.focus("a", extra >> (deep >> number))
    assert await one.get() == await other.get() == 1
    await one.set(5)
    assert await other.get() == 5
    await asyncio.gather(*(other.modify(lambda n: n + 1) for _ in range(5)))
    assert await one.get() == 10
    with pytest.raises(NotFound):
        await turns.focus("none", extra).get()


async def test_the_tracks_are_apart(turns: TableAdapter[Turn], universe: dgent.Universe) -> None:
    await turns.put(turn("a", text="row"))
    await universe.put(dgent.Datum(id="a", data={"text": "record"}))
    assert (await universe.get("a", raw=True)).data == {"text": "record"}
    found = await turns.get("a")
    assert found is not None and found.data["text"] == "row"
    assert await turns.delete("a") and await universe.exists("a")
    assert await universe.delete("a") and not await turns.delete("a")


# -- one row --------------------------------------------------------------------------------


async def test_keys_that_are_no_columns_are_refused_on_insert_and_update(turns: TableAdapter[Turn]) -> None:
    with pytest.raises(InputError, match="no column 'meta'"):
        await turns.put(turn("a", meta=1))
    await turns.put(turn("a", text="hi"))
    with pytest.raises(InputError, match="no column 'nope'"):
        await turns.put(turn("a", nope=1))
    with pytest.raises(InputError, match="another 'id'"):
        await turns.put(turn("a", id="b"))
    with pytest.raises(InputError, match="has another one"):
        await turns.put(turn("a", "x", causal_parent="y"))
    with pytest.raises(InputError, match="not a valid value of 'created_at'"):
        await turns.put(turn("a", created_at="yesterday"))


async def test_a_row_is_replaced_only_as_it_was_read(turns: TableAdapter[Turn]) -> None:
    assert await turns.replace("a", None, {"text": "hi", "n": 1, "extra": {"k": 1.5}})
    assert not await turns.replace("a", None, {"text": "again"})
    old = await turns.get("a")
    assert old is not None
    assert await turns.replace("a", old.data, {"n": 2})
    assert not await turns.replace("a", old.data, {"n": 3})
    now = await turns.get("a")
    assert now is not None and now.data["n"] == 2 and now.data["text"] == "hi"
    assert await turns.replace("a", {"n": 2}, {"text": "by version"}, "n")
    assert not await turns.replace("a", {"n": 2}, {"text": "late"}, "n")
    last = await turns.get("a")
    assert last is not None and last.data["n"] == 3 and last.data["text"] == "by version"
    assert not await turns.replace("none", old.data, {"n": 1})
    with pytest.raises(InputError, match="old data has no"):
        await turns.replace("a", {"text": ""}, {"text": ""}, "n")


async def test_content_goes_through_functions_of_the_caller(tables: Place) -> None:
    adapter: TableAdapter[Turn] = TableAdapter(
        Turn,
        tables.sessions,
        serialize=lambda row: f"{row.id}|{row.text}".encode(),
        deserialize=lambda raw: Turn(id=raw.decode().split("|")[0], text=raw.decode().split("|")[1]),
    )
    await adapter.put(dgent.Datum(id="a", content=b"a|hello"))
    found = await adapter.get("a")
    assert found is not None and found.content == b"a|hello" and found.data["text"] == "hello"
    assert await adapter.put(found) == found


async def test_tables_dgent_never_saw_are_stores_too(tables: Place) -> None:
    async with tables.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE plain (code VARCHAR(9) PRIMARY KEY, size INTEGER)"))
        await connection.execute(text("INSERT INTO plain VALUES ('x', 1)"))
        table = await connection.run_sync(lambda sync: Table("plain", MetaData(), autoload_with=sync))
    adapter: TableAdapter[Any] = TableAdapter(table, tables.sessions)
    found = await adapter.get("x")
    assert found is not None and found.data == {"code": "x", "size": 1}
    await adapter.put(found.replace(data={"code": "x", "size": 2}))
    await adapter.put(dgent.Datum(id="y", content=b'{"size": 3}'))
    assert [(each.id, each.data["size"]) for each in await adapter.list()] == [("x", 2), ("y", 3)]
    with pytest.raises(QueryError):
        await adapter.list(after=0)
    async with tables.engine.begin() as connection:
        await connection.execute(text("DROP TABLE plain"))
    with pytest.raises(QueryError):
        await adapter.get("x")


async def test_a_row_is_the_state_of_an_agent(turns: TableAdapter[Turn]) -> None:
    def count(step: int, state: Turn) -> tuple[int, Turn]:
        state.n += step
        state.meta = {"last": step}
        return state.n, state

    states = StateFunctor.from_table_adapter(turns, Turn(id="state", n=0, text=""), version_field=None)
    agent = states.lift_logic(count)
    assert [await agent.invoke(step) for step in (1, 2)] == [1, 3]
    await asyncio.gather(*(agent.invoke(1) for _ in range(5)))
    found = await turns.get("state")
    assert found is not None and found.data["n"] == 8 and found.data["extra"] == {"last": 1}
    row = turns.to_row(found.data)
    assert isinstance(row, Turn) and row.created_at.tzinfo is not None
    assert turns.to_data(row) == found.data
    with pytest.raises(InputError, match="expected a row of turns"):
        turns.to_data(Base())  # type: ignore[arg-type]


# -- many rows ------------------------------------------------------------------------------


async def test_lists_and_queries_answer_as_the_universe_does(turns: TableAdapter[Turn]) -> None:
    for number, id in enumerate(("Aa", "ab", "a%b", "b")):
        at = datetime(2024, 1, 1 + number, tzinfo=UTC)
        await turns.put(dgent.Datum(id=id, created_at=at, data={"n": number, "text": f"t{number % 2}"}))
    await turns.put(dgent.Datum(id="old", created_at=datetime(1960, 1, 1, tzinfo=UTC), data={}))
    assert [each.id for each in await turns.list()] == ["b", "a%b", "ab", "Aa", "old"]
    assert [each.id for each in await turns.list("a")] == ["a%b", "ab"]
    assert [each.id for each in await turns.list("a%")] == ["a%b"]
    assert [each.id for each in await turns.list(after=0)] == ["b", "a%b", "ab", "Aa"]
    assert [each.id for each in await turns.list(after=datetime(2024, 1, 3, tzinfo=UTC))] == ["b"]
    assert [each.id for each in await turns.list(limit=1)] == ["b"] and await turns.list(limit=0) == []
    found = await turns.query(where={"n": {"$gte": 1}, "text": "t1"}, order_by="n", descending=False)
    assert [each.id for each in found] == ["ab", "b"]
    assert await turns.count() == 5 and await turns.count(where={"text": "t0"}) == 2
    assert await turns.exists("b") and not await turns.exists("B")
    assert await turns.query(schema="table.other") == []
    for wrong in (lambda: turns.list(limit=-1), lambda: turns.list(after=datetime(2024, 1, 1))):
        with pytest.raises(InputError):
            await wrong()


async def test_keys_of_numbers_and_uuids_are_texts_outside(tables: Place) -> None:
    keyed = Table("keyed", MetaData(), Column("id", Uuid, primary_key=True), Column("n", Integer))
    counted = Table("counted", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))
    uid = uuid4()
    async with tables.engine.begin() as connection:
        await connection.run_sync(keyed.create)
        await connection.run_sync(counted.create)
    by_uuid: TableAdapter[Any] = TableAdapter(keyed, tables.sessions)
    await by_uuid.put(dgent.Datum(id=str(uid), data={"n": 1}))
    found = await by_uuid.get(str(uid))
    assert found is not None and UUID(found.id) == uid
    by_number: TableAdapter[Any] = TableAdapter(counted, tables.sessions)
    await by_number.put(dgent.Datum(id="12", data={"n": 1}))
    assert [each.id for each in await by_number.list("1")] == ["12"]
    for adapter in (by_uuid, by_number):
        with pytest.raises(InputError, match="not a valid value of 'id'"):
            await adapter.get("x")


async def test_rules_of_a_table_and_decimals_too_long_are_said(tables: Place) -> None:
    adapter: TableAdapter[Any] = TableAdapter(WIDE, tables.sessions, id_field=("space", "number"))
    with pytest.raises(InputError, match="JSON list"):
        await adapter.get("a")
    with pytest.raises(InputError, match="no column 'id'"):
        TableAdapter(WIDE, tables.sessions, id_field="id")
    with pytest.raises(InputError, match="neither a Table"):
        TableAdapter(dict, tables.sessions)
    if tables.engine.dialect.name == "sqlite":
        exact = {"price": str(Decimal("1.2345678901234567890"))}
        with pytest.raises(InputError, match="15 digits"):
            await adapter.put(dgent.Datum(id='["a",1]', data=exact))
    turns: TableAdapter[Turn] = TableAdapter(Turn, tables.sessions)
    with pytest.raises(Conflict):
        await turns.put(turn("a", text=None))


async def test_an_adapter_whose_database_is_down_is_unavailable(tmp_path: Path) -> None:
    async with await connect("postgresql://nobody@127.0.0.1:9/none") as down:
        adapter: TableAdapter[Turn] = TableAdapter(Turn, down.sessions)
        for work in (adapter.get("a"), adapter.put(turn("a")), adapter.list(), adapter.causal_chain("a")):
            with pytest.raises(Unavailable) as caught:
                await work
            assert caught.value.retryable


async def test_a_row_that_is_there_keeps_its_time_unless_the_data_has_another(
    turns: TableAdapter[Turn],
) -> None:
    await turns.put(dgent.Datum("t", data={"text": "first"}, created_at=datetime(2026, 1, 1, tzinfo=UTC)))
    before = await turns.get("t")
    assert before is not None
    await turns.put(dgent.Datum("t", data={"text": "second"}))
    after = await turns.get("t")
    assert after is not None
    assert (after.data["text"], after.created_at) == ("second", before.created_at)
    later = datetime(2026, 2, 2, tzinfo=UTC)
    await turns.put(dgent.Datum("t", data={"text": "third", "created_at": later.isoformat()}))
    moved = await turns.get("t")
    assert moved is not None and moved.created_at == later


async def test_a_row_of_a_plain_table_can_be_put_into_a_universe(
    tables: Place, universe: dgent.Universe
) -> None:
    """The names of its columns are SQLAlchemy's own texts, which no record may have as keys."""
    notes = Table("plain_notes", MetaData(), Column("id", String, primary_key=True), Column("n", Integer))
    async with tables.engine.begin() as connection:
        await connection.run_sync(notes.metadata.create_all)
    adapter = TableAdapter(notes, tables.sessions)
    await adapter.put(dgent.Datum("a", data={"n": 1}))
    found = await adapter.get("a")
    assert found is not None
    stored = await universe.put(found)
    assert stored.data == {"id": "a", "n": 1}


async def test_an_adapter_whose_connections_are_cut_is_unavailable_then_well(tmp_path: Path) -> None:
    url = url_for(tmp_path)
    async with dgent.open(url) as u, await connect(u) as place:
        await empty(u.storage.relational)
        async with place.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            role = await connection.scalar(text("SELECT current_user"))
            pid = await connection.scalar(text("SELECT pg_backend_pid()"))
        turns: TableAdapter[Turn] = TableAdapter(Turn, place.sessions)
        await turns.put(turn("a", text="hi"))
        ask_server("SELECT pg_terminate_backend($1, 5000)", pid)
        with pytest.raises(Unavailable) as caught:
            await turns.get("a")
        assert caught.value.retryable and role.endswith("_sql")
        found = await turns.get("a")
        assert found is not None and found.data["text"] == "hi"


async def test_a_row_is_named_by_its_whole_key(tables: Place) -> None:
    tenants = Table(
        "tenants",
        MetaData(),
        Column("tenant", String, primary_key=True),
        Column("id", String, primary_key=True),
        Column("n", Integer),
    )
    async with tables.engine.begin() as connection:
        await connection.run_sync(tenants.create)
        await connection.execute(
            insert(tenants), [{"tenant": "a", "id": "1", "n": 1}, {"tenant": "b", "id": "1", "n": 2}]
        )
    adapter: TableAdapter[Any] = TableAdapter(tenants, tables.sessions)
    with pytest.raises(InputError, match="whose key is tenant, id"):
        await adapter.delete("1")
    with pytest.raises(InputError, match="whose key is tenant, id"):
        await adapter.get("\ud800")
    assert await adapter.replace('["a","1"]', {"n": 1}, {"n": 5})
    assert await adapter.delete('["a","1"]')
    assert [datum.data for datum in await adapter.list()] == [{"tenant": "b", "id": "1", "n": 2}]


async def test_a_fraction_is_not_cut_off_for_a_column_of_integers(tables: Place) -> None:
    numbers = Table("numbers", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))
    async with tables.engine.begin() as connection:
        await connection.run_sync(numbers.create)
    adapter: TableAdapter[Any] = TableAdapter(numbers, tables.sessions)
    await adapter.put(dgent.Datum(id="1", data={"n": 2.0}))
    for wrong in (1.9, float("inf")):
        with pytest.raises(InputError, match="'n'"):
            await adapter.put(dgent.Datum(id="1", data={"n": wrong}))
        with pytest.raises(InputError, match="'n'"):
            await adapter.replace("1", {"n": 2}, {"n": wrong})
    found = await adapter.get("1")
    assert found is not None and found.data == {"id": 1, "n": 2}
