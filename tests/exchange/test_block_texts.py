"""The texts that searches keep of blocks are left out of exports, copies and forks, and made again there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import dgent
from dgent.blocks import Library
from dgent.blocks.record import TEXT, text_id
from dgent.exchange.backup import backup, restore
from dgent.exchange.copy import copy
from dgent.exchange.export import export
from dgent.exchange.fork import fork, merge
from tests.exchange.constellation import url


async def make(u: dgent.Universe) -> Library:
    library = Library(u, agent="scout")
    block = await library.create("notes", text="the kettle boils\n")
    await block.append("zanzibarium\n")
    await block.append("cups\n")
    await library.archive("a kettle of fish")
    assert await find(u, "kettle") == ["entry", "notes"]
    return library


async def find(u: dgent.Universe, words: str) -> list[str]:
    return sorted(hit.label or hit.kind for hit in await Library(u, agent="scout").search(words))


async def test_an_export_has_none() -> None:
    lines: list[bytes] = []
    async with dgent.open("memory:") as u:
        await make(u)
        done = await export(u, lines.append)
        assert done.records == await u.count() - 1
    assert TEXT.name.encode() not in b"".join(lines)


async def test_a_copy_and_its_source_may_both_be_searched() -> None:
    async with dgent.open("memory:") as source, dgent.open("memory:") as target:
        library = await make(source)
        await copy(source, target)
        assert await target.query(schema=TEXT.name, raw=True) == []
        assert await find(target, "kettle") == ["entry", "notes"]
        await (await library.get("notes")).append("saucers\n")
        await copy(source, target)
        assert await find(target, "saucer") == ["notes"]
        await library.delete("notes")
        await copy(source, target)
        assert await find(target, "saucer") == []


async def test_a_fork_is_merged_without_them() -> None:
    async with dgent.open("memory:") as source, dgent.open("memory:") as target:
        library = await make(source)
        await fork(source, target)
        there = Library(target, agent="scout")
        await (await there.get("notes")).append("saucers\n")
        await (await library.get("notes")).append("spoons\n")
        assert await find(target, "saucer") == await find(source, "spoon") == ["notes"]
        done = await merge(target, source)
        assert not done.conflicts
        assert await find(source, "saucer") == await find(source, "spoon") == ["notes"]
        assert (await merge(target, source)).empty


async def test_a_restored_text_is_as_redacted_as_its_block(tmp_path: Path) -> None:
    folder, saved = tmp_path / "here", tmp_path / "saved"
    folder.mkdir(mode=0o700)
    async with dgent.open(url(folder)) as u:
        library = await make(u)
        await u.indexed()
        await backup(u, folder, saved)
        await (await library.get("notes")).redact(2)
        assert await find(u, "kettle") == ["entry", "notes"]
    await restore(saved, folder, replace=True)
    found = subprocess.run(["grep", "-rlaF", "zanzibarium", str(folder)], capture_output=True)
    assert not [each for each in found.stdout.split() if b".replaced" not in each]
    async with dgent.open(url(folder)) as u:
        assert await find(u, "zanzibarium") == []
        assert await find(u, "kettle cups") == ["entry", "notes"]
        block = await Library(u, agent="scout").get("notes")
        stored = await u.get(text_id(block.id), raw=True)
        assert stored.data["version"] == len(await block.history()) == 4
