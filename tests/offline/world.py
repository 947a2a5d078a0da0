"""A preferred store that can be taken away for real: its folder is renamed, or its file system unmounted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dgent


@dataclass(frozen=True)
class Note:
    """The contract of these tests."""

    text: str
    n: int = 0


NOTE = dgent.Schema("note", contract=Note, indexes=("n",))


class World:
    """A preferred SQLite store in a folder of its own, an outbox and a stand-in beside it."""

    def __init__(self, base: Path) -> None:
        self.folder, self.away = base / "server", base / "server.away"
        self.folder.mkdir(exist_ok=True)
        self.url = f"sqlite:///{self.folder}/store.db"
        self.outbox = str(base / "outbox.db")
        self.stand_in = f"sqlite:///{base}/stand-in.db"

    def leave(self) -> None:
        """Make the store unreachable."""
        self.folder.rename(self.away)

    def come_back(self) -> None:
        """Make it reachable again."""
        self.away.rename(self.folder)

    def open(self, *others: str, degrade: Any = True, **rest: Any) -> dgent.Universe:
        """A degradable universe on it."""
        return dgent.open([self.url, *others], degrade=degrade, outbox=self.outbox, **rest)

    def plain(self) -> dgent.Universe:
        """The store itself."""
        return dgent.open(self.url)


async def back(u: dgent.Universe, seconds: float = 15) -> None:
    """Wait until a universe has noticed that its store is back."""
    async with asyncio.timeout(seconds):
        while u.degraded is not None:
            await asyncio.sleep(0.02)
