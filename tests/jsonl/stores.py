"""Short ways to a folder of lines and to what is in it."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dgent.blocks.document.document import Document
from dgent.blocks.history.pack import decode_pack
from dgent.blocks.record import PACK, SNAPSHOT, VERSION
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


def texts_of_blocks(folder: Path) -> str:
    """All that the lines of a folder hold of the documents of blocks, also lines that were replaced."""
    found: list[str] = []
    for line in (line for path in folder.glob("*.jsonl") for line in lines(folder, path.name)):
        content = base64.b64decode(line.get("content") or "")
        if content and line["schema"] == VERSION.name:
            found.append(content.decode("utf-8", "replace"))
        elif content and line["schema"] == SNAPSHOT.name:
            found += _texts(content)
        elif content and line["schema"] == PACK.name:
            pack = decode_pack("", line["data"]["first"], line["data"]["last"], content)
            found += [update.decode("utf-8", "replace") for update in pack.updates]
            found += [text for each in (pack.state, *pack.kept.values()) if each for text in _texts(each)]
    return "\n".join(found)


def _texts(snapshot: bytes) -> list[str]:
    document = Document.load(snapshot)
    return [document.text(), *(text for _, _, text in document.iterate_texts())]
