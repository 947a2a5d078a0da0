"""A store with blocks is copied, backed up, restored, exported and imported, with all of their history."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

import dgent
from dgent.blocks import Library, Shape, Template
from dgent.blocks.history import log as chain
from dgent.errors import Denied
from dgent.exchange.backup import backup, restore
from dgent.exchange.copy import mirror
from dgent.exchange.export import export, import_
from dgent.store.registry import Engine
from tests.contract.columns import SETTINGS
from tests.universe.conftest import engine

__all__ = ["engine"]


@pytest.fixture
async def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Library]:
    """A store with blocks of several kinds, some of them folded."""
    monkeypatch.setattr(chain, "PACK_SIZE", 8)
    monkeypatch.setattr(chain, "KEEP", 2)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with dgent.open(f"sqlite:///{home}/membrane.db") as u:
        lib = Library(u, agent="scout")
        notes = await lib.create("notes", kind="core")
        for n in range(25):
            await notes.append(f"{n} ", message=f"m{n}")
        await notes.undo()
        await notes.checkpoint("here")
        tasks = await lib.create("tasks", template="task_list", value=[{"title": "go"}])
        await tasks.set_item(0, {"done": True})
        log = await lib.create("log", template=Template("few", Shape("log", keep=4)))
        for n in range(10):
            await log.log(f"beat{n}")
        await lib.agents.create("scribe")
        await lib.share("notes", with_agent="scribe", permission="append")
        await lib.archive("The sea is blue.", tags=["colours"])
        await lib.notices(mark=True)
        await lib.create("gone", text="deleted")
        await lib.delete("gone")
        yield lib


async def picture(lib: Library) -> dict[str, Any]:
    """All there is to see of the blocks."""
    found: dict[str, Any] = {}
    for block in await lib.list():
        history = await block.history()
        found[block.label] = (
            await block.text(),
            history,
            [(await block.at(each.number)).text for each in history[::5]],
            await block.checkpoints(),
            await block.branches(),
        )
    found["search"] = [hit.snippet for hit in await lib.search("sea beat1")]
    found["shared"] = await lib.list_shares()
    found["deleted"] = await lib.list_deleted()
    found["scribe"] = [each.label for each in await Library(lib._universe, agent="scribe").list(shared=True)]
    found["render"] = await lib.render()
    return found


async def goes_on(lib: Library) -> None:
    """The blocks can be used as before."""
    notes = await lib.get("notes")
    before = notes.version, await notes.text()
    for n in range(12):
        await notes.append(f"more{n} ")
    assert notes.version == len(await notes.history())
    assert (await notes.text()).startswith(before[1])
    await notes.rollback(3)
    assert await (await lib.restore("gone")).text() == "deleted"


async def test_a_copy_on_every_engine(source: Library, engine: Engine, tmp_path: Path) -> None:
    there = await picture(source)
    (tmp_path / "copy").mkdir()
    async with dgent.open(SETTINGS[engine.name][0].url(tmp_path / "copy")) as target:
        await dgent.copy(source._universe, target)
        assert await picture(Library(target, agent="scout")) == there
        # What came since, folds and all, comes with the next copy.
        await goes_on(source)
        later = await picture(source)
        await dgent.copy(source._universe, target)
        copied = Library(target, agent="scout")
        assert await picture(copied) == later
        await (await copied.get("notes")).append("and here it goes on")


async def test_a_backup_and_what_is_restored(source: Library, tmp_path: Path) -> None:
    there = await picture(source)
    await backup(source._universe, tmp_path / "home", tmp_path / "saved")
    await goes_on(source)
    await restore(tmp_path / "saved", tmp_path / "again")
    async with dgent.open(f"sqlite:///{tmp_path}/again/membrane.db") as u:
        lib = Library(u, agent="scout")
        assert await picture(lib) == there
        await goes_on(lib)


async def test_an_export_goes_into_an_empty_store_and_nowhere_else(source: Library, tmp_path: Path) -> None:
    there = await picture(source)
    with open(tmp_path / "all.jsonl", "wb") as file:
        await export(source._universe, file.write)
    async with dgent.open("memory:") as u:
        await import_(u, tmp_path / "all.jsonl")
        lib = Library(u, agent="scout")
        found = await picture(lib)
        assert found == there
        await goes_on(lib)
        # Where the room is at home, nobody writes its records past it.
        before = await u.seq()
        with pytest.raises(Denied, match=r"'block\.version' of blocks"):
            await import_(u, tmp_path / "all.jsonl", existing="replace")
        assert await u.seq() == before


async def test_a_mirror_follows_edits_and_folds(source: Library) -> None:
    u = source._universe
    notes = await source.get("notes")
    async with dgent.open("memory:") as target:
        mirroring = cast("AsyncGenerator[int]", mirror(u, target))
        async with aclosing(mirroring) as done:
            await anext(done)
            for n in range(20):
                await notes.append(f"later{n} ")
            newest = await u.seq()
            async for seq in done:
                if seq == newest:
                    break
        mirrored = await Library(target, agent="scout").get("notes")
        assert await mirrored.text() == await notes.text()
        assert await mirrored.history() == await notes.history()
        assert (await mirrored.at(5)).text == (await notes.at(5)).text
