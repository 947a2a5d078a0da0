"""What was redacted since a backup stays gone when it is restored, and every block is whole."""

from __future__ import annotations

import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.blocks.errors import VersionNotFound
from dgent.blocks.history import log
from dgent.blocks.record import RedactionRecord, redaction_id, second_snapshot_id, snapshot_id
from dgent.errors import InputError
from dgent.exchange.backup import backup, restore
from dgent.store.backend import Delete, Put
from dgent.store.upkeep import upkeep_of
from tests.exchange.constellation import url
from tests.soak import first, times

HISTORIES = times(4)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)


@asynccontextmanager
async def library_of(folder: Path) -> AsyncIterator[Library]:
    folder.mkdir(mode=0o700, exist_ok=True)
    async with dgent.open(url(folder), author="scout") as u:
        yield Library(u, agent="scout")


async def grow(block: Block, first: int, last: int) -> None:
    """Versions that each bring a line with their number, and sometimes a message."""
    for number in range(first, last + 1):
        made = await block.append(f"secret-of-{number}.\n", message=f"note {number}" if number % 2 else "")
        assert made.number == number


async def back_up(folder: Path, name: str) -> Path:
    target = folder.with_name(name)
    async with dgent.open(url(folder)) as u:
        await backup(u, folder, target)
    return target


async def check(folder: Path, gone: set[int], there: set[int], label: str = "notes") -> None:
    """The block is whole, in every version, and says exactly what it should; and so does the disk."""
    async with library_of(folder) as library:
        block = await library.get(label)
        text = await block.text()
        assert {n for n in gone | there if f"secret-of-{n}." in text} == there
        history = await block.history()
        assert [each.number for each in history] == list(range(len(history), 0, -1))
        for each in history:
            if not each.compacted:
                view = (await block.at(each.number)).text
                assert not [n for n in gone if f"secret-of-{n}." in view]
        assert label in await library.render(referenced=label)
        findings = await upkeep_of(library._universe.backend).inspect(deep=True)
        assert not [each for each in findings if each.level == "problem"]
    for number in gone:
        found = subprocess.run(["grep", "-rlaF", f"secret-of-{number}.", str(folder)], capture_output=True)
        assert not found.stdout, number


@pytest.mark.parametrize("at", first([5, 30, 3, 12], 2))
@pytest.mark.parametrize("redacted", [(2,), (2, 4), (3, 11, 25), (25,), (40,)])
async def test_a_backup_older_than_a_redact(tmp_path: Path, at: int, redacted: tuple[int, ...]) -> None:
    home = tmp_path / "home"
    async with library_of(home) as library:
        block = await library.create("notes", text="begin.\n", limit=10**6)
        await library.create("other", text="untouched")
        await grow(block, 2, at)
    made = await back_up(home, "b")
    async with library_of(home) as library:
        block = await library.get("notes")
        await grow(block, at + 1, 40)
        for number in redacted:
            await block.redact(number)
    done = await restore(made, home, replace=True)
    again = {n for n in redacted if n <= at}
    assert (done.redacted, done.forgotten) == (len(again), 0)
    await check(home, set(redacted), set(range(2, at + 1)) - again)
    async with library_of(home) as library:
        assert await (await library.get("other")).text() == "untouched"
        block = await library.get("notes")
        assert {each.number for each in await block.history() if each.redacted} == again
        await block.append("on.\n")
        for number in range(2, min(at, 6)):
            with suppress(InputError):
                await block.redact(number)
        await (await library.get("notes")).text()


async def test_messages_that_were_cleared_stay_cleared(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with library_of(home) as library:
        await grow(await library.create("notes", text="begin.\n"), 2, 9)
    made = await back_up(home, "b")
    async with library_of(home) as library:
        block = await library.get("notes")
        await block.redact(3, 5)
        await block.redact(5, clear_messages=True)
    assert (await restore(made, home, replace=True)).redacted == 3
    async with library_of(home) as library:
        history = await (await library.get("notes")).history()
        told = {each.number: each.message for each in history if each.redacted}
        assert told == {3: "note 3", 4: "", 5: ""}


async def test_backups_of_different_ages_one_after_the_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with library_of(home) as library:
        await grow(await library.create("notes", text="begin.\n"), 2, 6)
    old = await back_up(home, "old")
    async with library_of(home) as library:
        await grow(await library.get("notes"), 7, 20)
    young = await back_up(home, "young")
    async with library_of(home) as library:
        await (await library.get("notes")).redact(15)
    assert (await restore(old, home, replace=True)).redacted == 0
    async with library_of(home) as library:  # other versions of the same numbers, which nobody redacted
        for number in range(7, 20):
            await (await library.get("notes")).append(f"another-{number}.\n")
        text = await (await library.get("notes")).text()
        assert "another-15." in text
    later = await back_up(home, "later")
    assert (await restore(young, home, replace=True)).redacted == 1
    await check(home, {15}, set(range(2, 21)) - {15})
    assert (await restore(later, home, replace=True)).redacted == 0
    async with library_of(home) as library:
        assert await (await library.get("notes")).text() == text
    assert (await restore(young, home, replace=True)).redacted == 1
    await check(home, {15}, set(range(2, 21)) - {15})


async def test_a_block_that_was_compacted_or_deleted_since(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with library_of(home) as library:
        for label in ("notes", "gone"):
            await grow(await library.create(label, text="begin.\n"), 2, 20)
    made = await back_up(home, "b")
    async with library_of(home) as library:
        block = await library.get("notes")
        await block.redact(5)
        await block.compact(2)
        await (await library.get("gone")).redact(7)
        await library.delete("gone")
    assert (await restore(made, home, replace=True)).redacted == 2
    async with library_of(home) as library:
        for label, number in (("notes", 5), ("gone", 7)):
            text = await (await library.get(label)).text()
            assert f"secret-of-{number}." not in text and "secret-of-6." in text


async def test_what_was_redacted_before_there_was_a_record_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with library_of(home) as library:
        await grow(await library.create("notes", text="begin.\n"), 2, 20)
    made = await back_up(home, "b")
    async with library_of(home) as library:
        block = await library.get("notes")
        await block.redact(5)
        await as_before(library, block.id)
        text = await (await library.get("notes")).text()
        assert "secret-of-5." not in text and "secret-of-6." in text
        assert "secret-of-6." in await library.render(referenced="notes")
    assert (await restore(made, home, replace=True)).redacted == 1
    await check(home, {5}, set(range(2, 21)) - {5})


async def as_before(library: Library, block: str) -> None:
    """Store a redacted block as it was stored when snapshots had two places."""
    u = library._universe
    record = await u.get(redaction_id(block))
    assert record is not None and isinstance(record.value, RedactionRecord)
    snapshot = await u.get(snapshot_id(block, record.value.snapshot), raw=True)
    moved = snapshot.replace(id=second_snapshot_id(block), rev=None, seq=None)
    await u.commit([Put(moved), Delete(snapshot.id), Delete(record.id)])


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_random_backups_redacts_and_restores(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    home, backups = tmp_path / "home", []
    gone: set[str] = set()
    async with library_of(home) as library:
        await library.create("notes", text="begin.\n", limit=10**6)
    for step in range(12):
        what = rng.choice(["grow", "grow", "grow", "redact", "redact", "compact", "backup", "restore"])
        if what == "backup":
            backups.append(await back_up(home, f"b{step}"))
        elif what == "restore":
            if backups:
                await restore(rng.choice(backups), home, replace=True)
        else:
            async with library_of(home) as library:
                gone |= await change(rng, await library.get("notes"), what, step)
        async with library_of(home) as library:
            block = await library.get("notes")
            views = [await block.text()]
            for each in await block.history():
                views += [] if each.compacted else [(await block.at(each.number)).text]
            assert all(view.startswith("begin.\n") for view in views)
            assert not [secret for secret in gone for view in views if secret in view]
    for secret in gone:
        assert not subprocess.run(["grep", "-rlaF", secret, str(home)], capture_output=True).stdout


async def change(rng: random.Random, block: Block, what: str, step: int) -> set[str]:
    """Change a block; the texts that are gone for good by that."""
    await block.text()
    if what == "grow":
        for n in range(rng.randint(1, 9)):
            await block.append(f"secret-{step}-{n}-{rng.random()}.\n")
    elif what == "compact":
        if rng.random() < 0.3:
            await block.checkpoint(f"c{step}")
        await block.compact(rng.randint(1, 9))
    elif block.version > 1:
        number = rng.randint(2, block.version)
        with suppress(InputError, VersionNotFound):  # it was compacted
            before, after = (await block.at(number - 1)).text, (await block.at(number)).text
            await block.redact(number)
            return {line for line in after.removeprefix(before).splitlines() if line.startswith("secret")}
    return set()
