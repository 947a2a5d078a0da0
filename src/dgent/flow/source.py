"""Sources of events that can be read again from a position: the change feed, files, folders, a timer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dgent.errors import InputError
from dgent.model.query import Query
from dgent.store.backend import Change
from dgent.universe.universe import Universe

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

POLL_S = 0.2  # between two looks at a file or a folder
MAX_LINE = 16 * 1024 * 1024


class Source(Protocol[T_co]):
    """Events with positions, in order. A position is data that can be stored."""

    def read(self, after: Any) -> AsyncGenerator[tuple[Any, T_co], None]:
        """Yield positions and events after a position; after None, all of them."""
        ...


class Changes:
    """The commits of a universe, each at its seq."""

    def __init__(self, universe: Universe, query: Query | None = None, *, since: int = 0) -> None:
        self._universe, self._query, self._since = universe, query, since

    async def read(self, after: Any) -> AsyncGenerator[tuple[int, Change], None]:
        """Yield commits after a seq, and wait for more."""
        since = self._since if after is None else int(after)
        async with aclosing(self._universe.watch(since, query=self._query)) as changes:  # type: ignore[type-var]
            async for change in changes:
                if change.seq is not None:
                    yield change.seq, change


class Lines:
    """The lines of a text file, each at the byte where it ends; `follow` waits for more."""

    def __init__(self, path: str | Path, *, follow: bool = False) -> None:
        self._path, self._follow = Path(path), follow

    async def read(self, after: Any) -> AsyncGenerator[tuple[int, str], None]:
        """Yield lines after a byte. While it follows, a last line without an end waits until it has one."""
        position = 0 if after is None else int(after)
        while True:
            batch = await asyncio.to_thread(self._batch, position)
            for position, line in batch:
                yield position, line
            if not batch and not self._follow:
                return
            await asyncio.sleep(0 if batch else POLL_S)

    def _batch(self, position: int) -> list[tuple[int, str]]:
        out: list[tuple[int, str]] = []
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                raise InputError(
                    f"{self._path} is shorter than {position} bytes: it is not the file that was read before",
                    hint="give the flow another name to read it from the start",
                )
            file.seek(position)
            while len(out) < 256 and (line := file.readline(MAX_LINE)):
                if not line.endswith(b"\n") and (self._follow or len(line) == MAX_LINE):
                    if len(line) == MAX_LINE:
                        raise InputError(f"a line of {self._path} is longer than {MAX_LINE} bytes")
                    break
                out.append((file.tell(), line.decode(errors="replace").rstrip("\r\n")))
        return out


class Folder:
    """The files of a folder in the order of their names, each at its name; `follow` waits for later ones."""

    def __init__(self, path: str | Path, *, follow: bool = False) -> None:
        self._path, self._follow = Path(path), follow

    async def read(self, after: Any) -> AsyncGenerator[tuple[str, Path], None]:
        """Yield files whose names come after a name; hidden ones and folders are left out."""
        last = "" if after is None else str(after)
        while True:
            for name in await asyncio.to_thread(self._names, last):
                yield name, self._path / name
                last = name
            if not self._follow:
                return
            await asyncio.sleep(POLL_S)

    def _names(self, last: str) -> list[str]:
        with os.scandir(self._path) as found:
            names = [each.name for each in found if each.is_file() and not each.name.startswith(".")]
        return sorted(name for name in names if name > last)


class Timer:
    """Ticks: the number of each, counted from 0, at that number. `count` says how many; None never ends."""

    def __init__(self, every_s: float, *, count: int | None = None) -> None:
        if not every_s > 0:
            raise InputError(f"every_s is {every_s!r}, and must be above 0", field="every_s")
        self._every_s, self._count = every_s, count

    async def read(self, after: Any) -> AsyncGenerator[tuple[int, int], None]:
        """Yield ticks, the first after one interval. A late one does not move those after it."""
        tick = 0 if after is None else int(after) + 1
        time = asyncio.get_running_loop().time
        due = time() + self._every_s
        while self._count is None or tick < self._count:
            await asyncio.sleep(max(0.0, due - time()))
            yield tick, tick
            tick, due = tick + 1, due + self._every_s


class Numbered:
    """Events that come the same way each time, each at its number."""

    def __init__(self, events: AsyncIterable[T]) -> None:
        self._events = events

    async def read(self, after: Any) -> AsyncGenerator[tuple[int, Any], None]:
        """Yield events after a number; those before it are read and left out."""
        first = -1 if after is None else int(after)
        number = -1
        events: Any = self._events
        async with aclosing(events) if hasattr(events, "aclose") else nullcontext():
            async for event in events:
                number += 1
                if number > first:
                    yield number, event
