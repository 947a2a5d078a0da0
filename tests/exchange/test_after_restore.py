"""After a store was restored from an older backup: what remembers its past notices, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import Conflict, CursorInvalid
from dgent.exchange.backup import backup, restore
from dgent.exchange.copy import copy
from dgent.exchange.fork import ForkMerged, fork, merge, status
from tests.exchange.constellation import url
from tests.exchange.forks import fill, state

Work = Callable[[dgent.Universe], Awaitable[None]]


class Home:
    """A constellation that is worked on, backed up and restored, and a fork of it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.kept, self.fork = root / "home", root / "kept", f"sqlite:///{root / 'fork.db'}"
        self.folder.mkdir()

    async def do(self, work: Work) -> None:
        async with dgent.open(url(self.folder), author="ann") as u:
            await work(u)

    async def do_in_fork(self, work: Work) -> None:
        async with dgent.open(self.fork, author="bob") as u:
            await work(u)

    async def back_up(self) -> None:
        async with dgent.open(url(self.folder)) as u:
            await backup(u, self.folder, self.kept)

    async def restore(self) -> None:
        await restore(self.kept, self.folder, replace=True)

    async def make_fork(self) -> None:
        async with dgent.open(url(self.folder)) as u, dgent.open(self.fork, author="bob") as other:
            await fork(u, other)

    async def merge(self) -> ForkMerged:
        async with dgent.open(url(self.folder), author="ann") as u, dgent.open(self.fork) as other:
            return await merge(other, u)

    async def texts(self) -> dict[str, str]:
        async with dgent.open(url(self.folder)) as u:
            return {each.label: await each.text() for each in await Library(u, "scout").list()}

    async def state(self) -> dict[str, object]:
        """What the records say that are no parts of blocks, whoever wrote them."""
        async with dgent.open(url(self.folder)) as u:
            found = await state(u)
        return {
            id: (schema, data, tags, content)
            for id, (schema, data, tags, _, content) in found.items()
            if schema is None or not str(schema).startswith("block.") or schema == "block.entry"
        }


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.do(fill)
    return made


async def work_in_fork(u: dgent.Universe) -> None:
    scout = Library(u, "scout")
    await (await scout.get("persona")).append(" And rain.")
    await scout.create("ideas", text="fly")
    await scout.pin("tasks")
    await scout.archive("the lake froze")
    await u.put(dgent.Datum("a", data={"n": "fork"}))
    await u.put(dgent.Datum("new", data={"n": "fork"}))
    await u.delete("b")


@pytest.mark.parametrize("before_fork", [False, True])
async def test_a_merge_comes_again_when_home_was_restored(home: Home, before_fork: bool) -> None:
    if before_fork:
        await home.back_up()
        await home.do(lambda u: u.put(dgent.Datum("later", data={"n": 1})))
    await home.make_fork()
    if not before_fork:
        await home.back_up()
    await home.do_in_fork(work_in_fork)
    await home.merge()
    wanted = await home.state(), await home.texts()
    assert wanted[1]["persona"].endswith("And rain.") and "b" not in wanted[0]
    assert (await home.merge()).empty
    await home.restore()
    assert (await home.state(), await home.texts()) != wanted
    done = await home.merge()
    assert not done.empty and not done.conflicts
    assert (await home.state(), await home.texts()) == wanted
    async with dgent.open(url(home.folder)) as u:
        assert (await Library(u, "scout").get("tasks")).pinned
    assert (await home.merge()).empty


async def test_home_and_the_fork_go_on_after_a_restore(home: Home) -> None:
    await home.make_fork()
    await home.do_in_fork(work_in_fork)
    await home.merge()
    await home.back_up()  # between two merges

    async def more(u: dgent.Universe) -> None:
        await (await Library(u, "scout").get("persona")).append(" And snow.")
        await u.put(dgent.Datum("a", data={"n": "again"}))
        await u.put(dgent.Datum("c", data={"n": "fork"}))

    await home.do_in_fork(more)
    await home.merge()
    await home.restore()

    async def here(u: dgent.Universe) -> None:
        await (await Library(u, "scout").get("ideas")).append(" away")
        await u.put(dgent.Datum("c", data={"n": "home"}))
        await u.put(dgent.Datum("new", data={"n": "home"}))

    await home.do(here)
    async with dgent.open(url(home.folder)) as u, dgent.open(home.fork) as other:
        assert not (await status(other, u)).merge.empty
    done = await home.merge()
    found, texts = await home.state(), await home.texts()
    assert texts["persona"].endswith("And rain. And snow.") and texts["ideas"] == "fly away"
    assert found["a"][1] == {"n": "again"} and found["new"][1] == {"n": "home"}  # type: ignore[index]
    assert found["c"][1] == {"n": "home"}  # type: ignore[index]
    (clash,) = done.conflicts
    assert clash.id == "c" and found[clash.kept][1] == {"n": "fork"}  # type: ignore[index]
    assert (await home.merge()).empty


@pytest.mark.parametrize("seed", range(3))
async def test_random_restores_lose_no_word_of_a_fork(home: Home, seed: int) -> None:
    """Whatever happens in between, what the fork has written is at home after a merge."""
    dice = random.Random(seed)
    await home.make_fork()
    await home.back_up()
    words: list[str] = []
    for step in range(5):
        word = f"word{seed}x{step}"
        words.append(word)
        await home.do_in_fork(lambda u, word=word: _write(u, word))  # type: ignore[misc]
        if dice.random() < 0.6:
            await home.merge()
        if dice.random() < 0.5:
            await home.restore()
        if dice.random() < 0.5:
            await home.do(lambda u, step=step: u.put(dgent.Datum(f"own{step}")))  # type: ignore[misc]
    await home.merge()
    texts, found = await home.texts(), await home.state()
    for word in words:
        assert texts["persona"].count(word) == 1 and word in found
    assert (await home.merge()).empty


async def _write(u: dgent.Universe, word: str) -> None:
    await (await Library(u, "scout").get("persona")).append(f" {word}")
    await u.put(dgent.Datum(word))


# -- folders ------------------------------------------------------------------------------------


async def test_files_that_are_newer_than_a_restored_store_are_kept(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "memory"

    async def sync(u: dgent.Universe) -> None:
        await Library(u, "scout").sync(folder)

    async def write(u: dgent.Universe) -> None:
        scout = Library(u, "scout")
        await scout.create("ideas", text="fly\n")
        await (await scout.get("persona")).append(" Newer.")
        await scout.sync(folder)

    await home.do(sync)
    await home.back_up()
    await home.do(write)
    unchanged = (folder / "tasks.json").read_bytes()
    await home.restore()
    await home.do(sync)
    texts = await home.texts()
    assert texts["ideas"].strip() == "fly" and (folder / "ideas.md").read_text() == "fly\n"
    assert (folder / "persona.md.mine").read_text().endswith("Newer.\n")
    assert (folder / "persona.md").read_text().strip() == texts["persona"].strip()
    assert (folder / "tasks.json").read_bytes() == unchanged and not (folder / "tasks.json.mine").exists()

    async def again(u: dgent.Universe) -> None:
        assert not await Library(u, "scout").sync(folder)

    await home.do(again)


async def test_a_file_deleted_before_a_restore_deletes_no_block(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "memory"

    async def sync(u: dgent.Universe) -> None:
        await Library(u, "scout").sync(folder)

    async def write(u: dgent.Universe) -> None:
        await (await Library(u, "scout").get("persona")).append(" Newer.")
        await sync(u)

    await home.do(sync)
    await home.back_up()
    await home.do(write)
    await home.restore()
    (folder / "persona.md").unlink()
    await home.do(sync)
    assert "persona" in await home.texts() and (folder / "persona.md").exists()


@pytest.mark.parametrize("went_on", [0, 1, 5])
async def test_a_copy_that_is_newer_than_its_source_is_not_cut(tmp_path: Path, went_on: int) -> None:
    """A file that was put back by hand has the same epoch as before."""
    source, target = tmp_path / "source.db", f"sqlite:///{tmp_path / 'target.db'}"
    async with dgent.open(f"sqlite:///{source}") as u:
        await u.put(dgent.Datum("old"))
    kept = source.read_bytes()
    async with dgent.open(f"sqlite:///{source}") as u, dgent.open(target) as other:
        await u.put(dgent.Datum("new"))
        await copy(u, other)
    source.write_bytes(kept)
    async with dgent.open(f"sqlite:///{source}") as u, dgent.open(target) as other:
        for n in range(went_on):  # the numbers are those of commits that the copy has, or higher
            await u.put(dgent.Datum(f"later{n}"))
        with pytest.raises(Conflict, match="restored"):
            await copy(u, other)
        assert await other.exists("new")


# -- the feed -----------------------------------------------------------------------------------


async def test_a_follower_hears_that_the_store_is_older_than_what_it_has(home: Home) -> None:
    await home.back_up()
    await home.do(work_in_fork)
    async with dgent.open(url(home.folder)) as u:
        since = await u.seq()
    await home.restore()
    async with dgent.open(url(home.folder)) as u:
        with pytest.raises(CursorInvalid, match="restored"):
            await anext(aiter(u.watch(since=since)))
        with pytest.raises(CursorInvalid, match="restored"):
            await u.changes(since=since)
