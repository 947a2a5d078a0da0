"""While the store is there, one that may be away answers exactly like the engine it stands for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dgent.store.backend import Backend
from dgent.store.offline.backend import DegradableBackend, Place
from dgent.store.offline.outbox import Outbox
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing import CONTRACTS


class Degradable:
    """The contract's store, with an outbox beside it."""

    persistent = True

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Callable[[], Awaitable[Backend]]:
        async def make() -> Backend:
            path = str(tmp_path / "outbox.db")
            store = tmp_path / "store.db"
            url = f"sqlite:///{store}"
            place = Place(lambda: SQLiteBackend(str(store), durability="relaxed"), url, url)
            made: Backend = DegradableBackend([place], Outbox(SQLiteBackend(path), path))
            return made

        return make


for _contract in CONTRACTS:
    _name = f"Test{_contract.__name__}"
    globals()[_name] = type(_name, (Degradable, _contract), {})
