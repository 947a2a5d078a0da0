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
        globals()[f"Test{contract.__name__}"] = type(contract.__name__, (Mine, contract), {})

The fixture `backend` returns an async function; each call within one test makes one more handle on
the same, at first empty, place. The tests are `async def`: run them with pytest-asyncio in auto mode.
One class can be taken alone: `class TestBasic(Mine, BasicContract): ...`.

`scramble` wraps an embedded engine's kernel so that stored bytes differ from what was put.
"""

from __future__ import annotations

from dgent.testing.basic import BasicContract
from dgent.testing.contract import Contract
from dgent.testing.scramble import scramble
from dgent.testing.version import VersionContract

CONTRACTS: tuple[type[Contract], ...] = (
    BasicContract,
    VersionContract,
)

__all__ = [
    "CONTRACTS",
    "BasicContract",
    "VersionContract",
    "scramble",
]
