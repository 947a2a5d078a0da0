"""Short ways to a folder of lines and to what is in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dgent.store.jsonl.backend import JSONLBackend


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[JSONLBackend]:
    """A store in a folder, closed at the end."""
    backend = JSONLBackend(str(folder), **options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file that are JSON."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines() if line.startswith("{")]


def without_cache(folder: Path) -> None:
    """Make the next one who opens the folder read everything."""
    shutil.rmtree(folder / ".cache")


async def odd(backend: JSONLBackend) -> list[tuple[str, int, str]]:
    """What is odd: file, line and kind."""
    return [each[:3] for each in (await backend.check_lines())[0]]


async def data_of(backend: JSONLBackend, *ids: str) -> list[Any]:
    """The data of some records."""
    found = await backend.get_many(ids)
    return [None if each is None else each.data for each in found]
