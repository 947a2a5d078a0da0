"""A block that is opened again: its document is still in memory, and is proven to be what is stored."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library, errors
from dgent.blocks.history import idle
from dgent.blocks.record import version_id
from dgent.store.sqlite.backend import SQLiteBackend
from tests.blocks.conftest import Rival


class Counting:
    """A kernel that notes the ids that it is asked for."""

    ids: list[str] = []  # noqa: RUF012 - shared by all handles, emptied by the test

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def head(self, id: str) -> Any:
        Counting.ids.append(id)
        return self._kernel.head(id)

    def heads(self, ids: Any) -> Any:
        Counting.ids += ids
        return self._kernel.heads(ids)


async def test_opening_again_reads_the_header_and_the_proof(tmp_path: Path) -> None:
    async with dgent.Universe(SQLiteBackend(str(tmp_path / "a.db"), wrap=Counting)) as u:
        library = Library(u, agent="scout")
        block = await library.create("notes", text="one\n")
        for _ in range(20):
            await block.append("more\n")
        id, newest = block.id, block.version
        del block
        await (await library.get("notes")).text()
        Counting.ids.clear()
        text = await (await library.get("notes")).text()
        assert text == "one\n" + "more\n" * 20
        assert Counting.ids == [id, id, version_id(id, newest), version_id(id, newest + 1)]


async def test_a_young_block_is_loaded_by_one_read(tmp_path: Path) -> None:
    async with dgent.Universe(SQLiteBackend(str(tmp_path / "a.db"), wrap=Counting)) as u:
        block = await Library(u, agent="scout").create("notes", text="one\n")
        await block.append("two\n")
        block = await Library(u, agent="scout").get("notes")
        Counting.ids.clear()
        assert await block.text() == "one\ntwo\n"
        assert len(Counting.ids) == len(set(Counting.ids)) <= 12


async def test_what_others_write_is_seen(lib: Library, rival: Rival) -> None:
    await lib.create("notes", text="one\n")
    assert await (await lib.get("notes")).text() == "one\n"
    other = await rival()
    for number in range(20):
        await (await other.get("notes")).append(f"{number}\n")
        assert (await (await lib.get("notes")).text()).endswith(f"\n{number}\n")
        await (await lib.get("notes")).append("mine\n")
        assert (await (await other.get("notes")).text()).endswith(f"\n{number}\nmine\n")


async def test_what_others_redact_is_gone(lib: Library, rival: Rival) -> None:
    await lib.create("notes", text="one\n")
    await (await lib.get("notes")).append("secret\n")
    assert "secret" in await (await lib.get("notes")).text()
    await (await (await rival()).get("notes")).redact(2)
    assert "secret" not in await (await lib.get("notes")).text()


async def test_two_open_handles_are_independent(lib: Library) -> None:
    await lib.create("notes", text="one\n")
    first, second = await lib.get("notes"), await lib.get("notes")
    assert await first.text() == await second.text() == "one\n"
    await second.append("two\n")
    assert (first.version, second.version) == (1, 2)
    assert await first.text() == "one\ntwo\n"


async def test_calls_at_the_same_time(lib: Library) -> None:
    await lib.create("notes", text="")

    async def append(number: int) -> None:
        await (await lib.get("notes")).append(f"{number}\n")
        assert f"{number}\n" in await (await lib.get("notes")).text()

    await asyncio.gather(*map(append, range(20)))
    text = await (await lib.get("notes")).text()
    assert sorted(map(int, text.split())) == [*range(20)]


async def test_a_label_that_moved_means_its_new_block(lib: Library, rival: Rival) -> None:
    await lib.create("notes", text="old")
    assert await (await lib.get("notes")).text() == "old"
    other = await rival()
    await other.rename("notes", "before")
    with pytest.raises(errors.BlockNotFound):
        await lib.get("notes")
    await other.create("notes", text="new")
    assert await (await lib.get("notes")).text() == "new"
    await other.delete("notes")
    with pytest.raises(errors.BlockNotFound):
        await lib.get("notes")
    assert await (await lib.get("before")).text() == "old"


async def test_a_permission_that_was_revoked_ends_at_once(lib: Library, rival: Rival) -> None:
    await lib.create("notes", text="mine")
    await lib.agents.create("scribe")
    await lib.share("notes", with_agent="scribe")
    scribe = await rival("scribe")
    held = await scribe.get("notes")
    assert await held.text() == "mine"
    await lib.unshare("notes", with_agent="scribe")
    with pytest.raises(errors.PermissionDenied):
        await held.text()
    with pytest.raises(errors.BlockNotFound):
        await scribe.get("notes")


async def test_version_text_and_value_are_of_one_moment(lib: Library) -> None:
    block = await lib.create("notes", text="one")
    await block.append(" two")
    found = await block.current()
    assert (found.label, found.version, found.text) == ("notes", 2, "one two")
    assert found.value == await block.value()


async def test_few_and_small_ones_are_kept(quick: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MOST", 3)
    monkeypatch.setattr(idle, "MAX_BYTES", 2_000)
    for number in range(5):
        await quick.create(f"b{number}", text="x")
    long = await quick.create("long", limit=10**5)
    await long.append("".join(map(str, range(2_000))))
    kept = quick._permissions.logs._logs
    for number in range(5):
        assert await (await quick.get(f"b{number}")).text() == "x"
    assert await long.text()
    del long
    gc.collect()
    assert [log.number for log in kept.values()] == [1, 1, 1]
