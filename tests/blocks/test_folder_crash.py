"""Syncs that are killed, that run at the same time, and files that are saved in the middle of one."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.folder.disk import Disk
from dgent.blocks.folder.sync import sync_folder
from dgent.errors import Busy, Corrupt
from dgent.universe.universe import Universe
from tests.command import python


class Killed(BaseException):
    """What stands for the end of the process: nothing after it is done."""


class Until:
    """Counts the steps that last: commits and writes; the one after so many does not happen any more."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int) -> None:
        self.count, self._most = 0, most
        for owner, name in ((Universe, "commit"), (os, "replace"), (os, "rename"), (os, "unlink")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            if self.count == self._most:
                raise Killed
            self.count += 1
            return step(*given, **named)

        return counted


async def prepare(lib: Library, folder: Path) -> None:
    """A folder in which every kind of thing is to be done."""
    for label, text in (("both", "one\ntwo\n"), ("file", "a"), ("base", "x"), ("gone", "g"), ("old", "o")):
        await lib.create(label, text=text)
    log = await lib.create("log", document="log")
    await log.log("first")
    await lib.create("tasks", template="task_list", value=[{"title": "a"}])
    await lib.sync(folder)
    (folder / "both.md").write_text("ONE one\ntwo\n")
    await (await lib.get("both")).append("three\n")
    (folder / "file.md").write_text("a and b")
    await (await lib.get("base")).append(" and y")
    (folder / "log.jsonl").write_text((folder / "log.jsonl").read_text() + '{"message": "second"}\n')
    await (await lib.get("log")).log("third")
    (folder / "tasks.json").write_text('[{"title": "a", "done": false, "priority": 3}, {"title": "b"}]')
    (folder / "new.md").write_text("fresh")
    (folder / "events.jsonl").write_text('{"message": "begin"}\n')
    (folder / "gone.md").unlink()
    await lib.rename("old", "older")


async def check(lib: Library, folder: Path) -> None:
    """Everything is there, once, on both sides."""
    assert not await lib.sync(folder)
    wanted = {
        "both": "ONE one\ntwo\nthree\n",
        "file": "a and b",
        "base": "x and y",
        "new": "fresh",
        "older": "o",
    }
    for label, text in wanted.items():
        assert await (await lib.get(label)).text() == text
        assert (folder / f"{label}.md").read_text().rstrip("\n") == text.rstrip("\n")
    entries = await (await lib.get("log")).entries()
    assert sorted(each["message"] for each in entries) == ["first", "second", "third"]
    assert [each["message"] for each in await (await lib.get("events")).entries()] == ["begin"]
    items = (await (await lib.get("tasks")).value())["items"]
    assert [each["title"] for each in items] == ["a", "b"]
    assert await lib.list_deleted() == ["gone"] and not list(folder.glob("*.mine"))
    assert len(await lib.list()) == 8


@pytest.mark.parametrize("later", [False, True])
async def test_a_sync_that_is_killed_at_any_step_is_run_again(
    tmp_path: Path, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step in turn; `later` has both sides go on before the next sync."""
    monkeypatch.setattr(
        os, "fsync", lambda _handle: None
    )  # what is on the disk then is not the question here
    for most in range(200):
        folder = tmp_path / str(most)
        async with dgent.open("memory:") as universe:
            lib = Library(universe, agent="scout")
            await prepare(lib, folder)
            with pytest.MonkeyPatch.context() as patch:
                steps = Until(patch, most)
                try:
                    await lib.sync(folder)
                    whole = True
                except Killed:
                    whole = False
            fresh = Library(universe, agent="scout")
            if later and not whole:
                await (await fresh.get("both")).append("four\n")
                (folder / "both.md").write_text("zero\n" + (folder / "both.md").read_text())
                await fresh.sync(folder)
                assert Counter((await (await fresh.get("both")).text()).split())["three"] == 1
                await (await fresh.get("both")).replace("four\n", "")
                await (await fresh.get("both")).replace("zero\n", "")
            report = await fresh.sync(folder)
            assert not report.refused and not report.conflicts
            await check(fresh, folder)
            shutil.rmtree(folder)
        if whole:
            assert steps.count == most > 20
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("kind", ["text", "log"])
async def test_a_sync_that_is_killed_again_after_more_was_edited(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any two steps: of the first sync, and of the one that comes after it."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    for steps in product(range(1, 6), repeat=2):
        folder = tmp_path / "-".join(map(str, steps))
        async with dgent.open("memory:") as universe:
            block = await Library(universe, agent="scout").create("notes", document=kind)
            await Library(universe, agent="scout").sync(folder)
            file = folder / ("notes.md" if kind == "text" else "notes.jsonl")
            for number, most in enumerate(steps):
                word = f"word{number}"
                file.write_text(f"{file.read_text()}{word if kind == 'text' else json.dumps(word)}\n")
                with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                    Until(patch, most)
                    await Library(universe, agent="scout").sync(folder)
            lib = Library(universe, agent="scout")
            await lib.sync(folder)
            assert re.findall(r"word\d", json.dumps(await block.value())) == ["word0", "word1"], steps
            assert not await lib.sync(folder)


SCRIPT = """
import asyncio, sys
import dgent
from dgent.blocks import Library

async def main():
    async with dgent.open(sys.argv[1]) as universe:
        lib = Library(universe, agent="scout")
        print("ready", flush=True)
        for _ in range(int(sys.argv[3])):
            await lib.sync(sys.argv[2])

asyncio.run(main())
"""


def start(url: str, folder: Path, times: int) -> subprocess.Popen[str]:
    command = [python(), "-c", SCRIPT, url, str(folder), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_a_process_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url, folder, dice = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "memory", random.Random(1)
    async with dgent.open(url) as universe:
        lib = Library(universe, agent="scout")
        block = await lib.create("notes", text="")
        await lib.sync(folder)
        for step in range(3):
            other = start(url, folder, 10_000)
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            until = time.monotonic() + 0.2 + dice.random() / 5
            while time.monotonic() < until:
                await block.append(f"d{step}{time.monotonic_ns()}\n")
                await asyncio.sleep(0.02)
            other.send_signal(signal.SIGKILL)
            other.wait()
            other.stdout.close()
            file = folder / "notes.md"
            file.write_text(file.read_text() + f"f{step}\n")
            await lib.sync(folder)
        lines = Counter((await block.text()).split())
        assert max(lines.values()) == 1 and {"f0", "f1", "f2"} <= lines.keys()
        versions = await block.history()
        assert len([line for line in lines if line[0] == "d"]) == len(
            [v for v in versions if v.op == "append"]
        )
        assert not await lib.sync(folder)


async def test_two_processes_sync_one_folder_at_once(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "memory"
    async with dgent.open(url) as universe:
        lib = Library(universe, agent="scout")
        for number in range(5):
            await lib.create(f"n{number}", text="base\n")
        await lib.sync(folder)
        others = [start(url, folder, 12) for _ in range(2)]
        for other in others:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
        for step in range(8):
            file = folder / f"n{step % 5}.md"
            unfinished = folder / "unfinished.tmp"
            unfinished.write_text(file.read_text() + f"line {step}\n")
            os.replace(unfinished, file)
            await lib.sync(folder)
        for other in others:
            assert other.wait(60) == 0 and other.stdout is not None
            other.stdout.close()
        await lib.sync(folder)
        found = Counter[str]()
        for number in range(5):
            text = await (await lib.get(f"n{number}")).text()
            assert text == (folder / f"n{number}.md").read_text() and text.startswith("base\n")
            found.update(line for line in text.splitlines() if line != "base")
        assert max(found.values()) == 1


async def test_only_one_sync_at_a_time(tmp_path: Path) -> None:
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        await lib.create("notes", text="x")
        await asyncio.gather(*(lib.sync(tmp_path) for _ in range(5)))
        (tmp_path / "notes.md").write_text("x and y")
        reports = await asyncio.gather(*(lib.sync(tmp_path) for _ in range(5)))
        assert sum(len(report.taken) for report in reports) == 1
        assert await (await lib.get("notes")).text() == "x and y"
        with open(tmp_path / ".blocks" / "lock", "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(Busy):
                await sync_folder(lib, tmp_path, None, False, 0.1)


async def test_a_file_that_is_saved_during_a_sync_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        block = await lib.create("notes", text="one\n")
        log = await lib.create("log", document="log")
        await lib.sync(tmp_path)
        file, lines = tmp_path / "notes.md", tmp_path / "log.jsonl"
        file.write_text("one\ntwo\n")
        lines.write_text('{"message": "a"}\n')
        await block.replace("one", "ONE")
        real, saved = Disk.save, []

        def saves(disk: Disk, known: bytes) -> None:
            """The editor saves once more after the first edits were taken in, before files are written."""
            real(disk, known)
            saved.append(known)
            if len(saved) == 2:
                file.write_text("one\ntwo\nthree\n")
                lines.write_text('{"message": "a"}\n{"message": "b"}\n')

        with monkeypatch.context() as patch:
            patch.setattr(Disk, "save", saves)
            report = await lib.sync(tmp_path)
        assert len(report.taken) == 2 and not report.written
        assert file.read_text() == "one\ntwo\nthree\n"
        await block.replace("ONE", "UNO")
        await lib.sync(tmp_path)
        assert await block.text() == "UNO\ntwo\nthree\n" == file.read_text()
        assert [each["message"] for each in await log.entries()] == ["b", "a"]
        assert not await lib.sync(tmp_path)


async def test_what_the_folder_knows_is_not_overwritten_when_it_is_damaged(tmp_path: Path) -> None:
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        await lib.create("notes", text="x")
        await lib.sync(tmp_path)
        (tmp_path / ".blocks" / "ledger.json").write_text('{"entries": ')
        with pytest.raises(Corrupt):
            await lib.sync(tmp_path)
        assert (tmp_path / ".blocks" / "ledger.json").read_text() == '{"entries": '


async def test_a_folder_is_followed(tmp_path: Path) -> None:
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        block = await lib.create("notes", text="x")
        reports = lib.follow_folder(tmp_path, every=0.01)
        assert [each.file for each in (await anext(reports)).written] == ["notes.md"]
        (tmp_path / "notes.md").write_text("x y")
        assert [each.version for each in (await anext(reports)).taken] == [2]
        (tmp_path / "wrong.json").write_text("[")
        assert (await anext(reports)).refused
        await block.append(" z")  # what stays wrong is told once
        report = await anext(reports)
        assert report.written and report.refused
        await reports.aclose()
        assert (tmp_path / "notes.md").read_text() == "x y z\n"
