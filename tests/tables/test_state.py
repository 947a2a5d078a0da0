"""States that are rows of a table of SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import JSON, DateTime, Numeric
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dgent.errors import InputError, Unsupported, VersionConflict
from dgent.flow import Id, StatefulAgent, StateFunctor, verify_functor
from dgent.flow.bridge import BridgeFunctor
from dgent.tables import Place, TableAdapter


class Base(DeclarativeBase):
    """The tables of these tests."""


class Account(Base):
    __tablename__ = "account"

    id: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2), default=0)
    tags: Mapped[list[str]] = mapped_column(JSON, default=list)
    seen: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    count: Mapped[int] = mapped_column(default=0)


Accounts = TableAdapter[Account]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def accounts(place: Place) -> AsyncIterator[Accounts]:
    async with place.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield TableAdapter(Account, place.sessions)


def pay(amount: str, account: Account) -> tuple[Decimal, Account]:
    account.total += Decimal(amount)
    account.tags = [*account.tags, amount]
    account.seen, account.count = NOON, account.count + 1
    return account.total, account


def start() -> Account:
    return Account(id="a1", total=Decimal("1.50"), tags=[], count=0)


def agent(accounts: Accounts, field: str | None = None, **how: Any) -> StatefulAgent[Account, str, Decimal]:
    functor = StateFunctor.from_table_adapter(accounts, start(), version_field=field)
    return functor.lift_logic(pay, **how)


@pytest.mark.parametrize("field", [None, "count"])
async def test_a_row_is_a_state(accounts: Accounts, field: str | None) -> None:
    one = agent(accounts, field)
    assert (await one.current_state()).total == Decimal("1.50")
    assert [await one.invoke("0.25"), await one.invoke("2")] == [Decimal("1.75"), Decimal("3.75")]
    state = await agent(accounts).current_state()
    assert isinstance(state, Account)
    assert (state.total, state.tags, state.seen, state.count) == (Decimal("3.75"), ["0.25", "2"], NOON, 2)
    await asyncio.gather(*(agent(accounts, field).invoke("1") for _ in range(30)))
    assert (await one.current_state()).count == 32
    for call in (one.history(), one.fork("b"), one.invoke("1", step="s")):
        with pytest.raises(Unsupported, match="account/a1"):
            await call


@pytest.mark.parametrize("field", [None, "count"])
async def test_a_rival_is_noticed(accounts: Accounts, field: str | None) -> None:
    async def slow(amount: str, account: Account) -> tuple[Decimal, Account]:
        await agent(TableAdapter(Account, accounts.session_factory), field).invoke("10")
        return pay(amount, account)

    functor = StateFunctor.from_table_adapter(accounts, start(), version_field=field)
    for _ in range(2):
        with pytest.raises(VersionConflict):
            await functor.lift_logic(slow, attempts=1).invoke("1")
    assert (await functor.lift(Id).current_state()).total == Decimal("21.50")
    with pytest.raises(InputError, match="its id became 'other'"):
        await functor.lift_logic(lambda _, s: (None, Account(id="other"))).invoke("1")


async def test_a_table_without_a_class_has_dicts_as_states(accounts: Accounts) -> None:
    rows: TableAdapter[Any] = TableAdapter(Account.__table__, accounts.session_factory)
    functor = StateFunctor.from_table_adapter(
        rows, {"id": "a2", "total": Decimal(1), "tags": [], "count": 0, "seen": NOON}, key="a2"
    )
    more = functor.lift_logic(lambda n, s: (s["count"], {**s, "count": s["count"] + n}))
    assert [await more.invoke(3), await more.invoke(3)] == [0, 3]
    assert (await more.current_state())["seen"] == NOON


async def test_the_bridge_over_a_table_is_a_functor(accounts: Accounts) -> None:
    sample = accounts.to_data(start())
    report = await verify_functor(BridgeFunctor(accounts, "count", sample))
    assert report.passed and report.identity_law.tried > 20
