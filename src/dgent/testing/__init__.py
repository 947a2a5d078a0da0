"""The storage contract as test classes that the author of any engine can inherit.

    # test_my_engine.py
    import pytest
    from dgent.testing import CONTRACTS
    from my_engine import MyBackend

    class Mine:
        persistent = True       # False when the data goes with the object

        @pytest.fixture
        def backend(self, tmp_path):
            async def make():
                return MyBackend(tmp_path / "store")     # not opened yet
            return make

    for contract in CONTRACTS:
        name = "Test" + contract.__name__
        globals()[name] = type(name, (Mine, contract), {})

The fixture `backend` returns an async function; each call within one test makes one more handle on
the same, at first empty, place. The tests are `async def`: run them with pytest-asyncio in auto mode.
One class can be taken alone: `class TestBasic(Mine, BasicContract): ...`. For asserts that show
values, put `pytest.register_assert_rewrite("dgent.testing")` at the top of your conftest.py.

`scramble` wraps an embedded engine's kernel so that stored bytes differ from what was put.
"""

from __future__ import annotations

from dgent.testing.basic import BasicContract
from dgent.testing.concurrency import ConcurrencyContract
from dgent.testing.contract import Contract
from dgent.testing.error import ErrorContract
from dgent.testing.expiry import ExpiryContract
from dgent.testing.feed import FeedContract
from dgent.testing.forget import ForgetContract
from dgent.testing.history import HistoryContract
from dgent.testing.index import IndexContract
from dgent.testing.lifecycle import LifecycleContract
from dgent.testing.order import OrderContract
from dgent.testing.query import QueryContract
from dgent.testing.retention import RetentionContract
from dgent.testing.schema import SchemaContract
from dgent.testing.scramble import scramble
from dgent.testing.search import SearchContract
from dgent.testing.tally import TallyContract
from dgent.testing.transaction import TransactionContract
from dgent.testing.update import UpdateContract
from dgent.testing.version import VersionContract

CONTRACTS: tuple[type[Contract], ...] = (
    BasicContract,
    VersionContract,
    QueryContract,
    OrderContract,
    UpdateContract,
    ExpiryContract,
    TallyContract,
    TransactionContract,
    HistoryContract,
    RetentionContract,
    FeedContract,
    ForgetContract,
    SchemaContract,
    IndexContract,
    SearchContract,
    ConcurrencyContract,
    LifecycleContract,
    ErrorContract,
)

__all__ = [
    "CONTRACTS",
    "BasicContract",
    "ConcurrencyContract",
    "ErrorContract",
    "ExpiryContract",
    "FeedContract",
    "ForgetContract",
    "HistoryContract",
    "IndexContract",
    "LifecycleContract",
    "OrderContract",
    "QueryContract",
    "RetentionContract",
    "SchemaContract",
    "SearchContract",
    "TallyContract",
    "TransactionContract",
    "UpdateContract",
    "VersionContract",
    "scramble",
]
