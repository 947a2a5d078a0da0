"""A real store at the end of a cable that can be cut at any call, before it arrives or before its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgent
from dgent.errors import OutcomeUnknown, Unavailable
from dgent.store.backend import Commit, Committed, View
from dgent.store.offline.backend import DegradableBackend, Place
from dgent.store.offline.outbox import Outbox
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.universe.universe import Universe

HERE = {"name", "priority", "path", "epoch", "close"}


class Cable:
    """The way to a store. `left` commits still get through; `mute` ones arrive without an answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole = True
        self.left: int | None = None
        self.mute = 0
        self.opened = 0
        self.hang: asyncio.Event | None = None  # calls under way wait for this
        self.slow_s = 0.0  # how long each commit takes on its way

    def make(self) -> Any:
        """A handle on the store through this cable."""
        return _Far(self, SQLiteBackend(str(self.path), durability="relaxed"))

    def cut(self) -> None:
        """Nothing gets through any more."""
        self.whole = False

    def mend(self) -> None:
        """Everything gets through again."""
        self.whole, self.left, self.mute = True, None, 0

    def check(self) -> None:
        """Raise while it is cut."""
        if not self.whole:
            raise Unavailable("the cable is cut")


class _Far:
    """A backend whose every call goes through the cable."""

    def __init__(self, cable: Cable, store: SQLiteBackend) -> None:
        self._cable, self._store = cable, store

    async def commit(self, commit: Commit, view: View) -> Committed:
        cable = self._cable
        if cable.left is not None:
            cable.left -= 1
            cable.whole = cable.whole and cable.left >= 0
        cable.check()
        await asyncio.sleep(cable.slow_s)
        if cable.hang is not None:
            await cable.hang.wait()
        done = await self._store.commit(commit, view)
        if cable.mute:
            cable.mute -= 1
            cable.cut()
            raise OutcomeUnknown("the answer was lost", key=commit.key)
        return done

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in HERE or not callable(found):
            return found
        return self._through(name, found)

    def _through(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def through(*args: Any, **kwargs: Any) -> Any:
            if name == "is_available":
                return self._cable.whole
            self._cable.check()
            if name == "get" and self._cable.hang is not None:
                await self._cable.hang.wait()
            self._cable.opened += name == "open"
            return await call(*args, **kwargs)

        return through


def connected(cable: Cable, outbox: Path, *, optimistic: bool = False, author: str = "ann") -> dgent.Universe:
    """A degradable universe at the other end."""
    kept = Outbox(SQLiteBackend(str(outbox)), str(outbox))
    backend = DegradableBackend(
        [Place(cable.make, "far://store", "far://store")], kept, optimistic=optimistic
    )
    return Universe(backend, author=author)
