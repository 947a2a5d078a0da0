"""The contract of a store, over HTTP: a real server with SQLite behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dgent.store.backend import Backend
from dgent.store.registry import backend_for
from dgent.testing import CONTRACTS
from dgent.testing.contract import Factory
from tests.contract.columns import REMOTE
from tests.remote.host import find_host


class Remote:
    """Gives each test an empty store on the server of this process."""

    persistent = True
    column = REMOTE

    @pytest.fixture
    async def backend(self, store_path: Path) -> AsyncIterator[Factory]:
        host = find_host()
        name = await host.add(f"sqlite:///{store_path / 'store.db'}")
        token = await host.let_in(name)

        async def make() -> Backend:
            return backend_for(f"{host.url}/{name}", token=token)

        yield make
        await host.remove(name)


for _contract in CONTRACTS:
    _name = f"Test{_contract.__name__.removesuffix('Contract')}_remote"
    globals()[_name] = type(_name, (Remote, _contract), {"contract": _contract})
