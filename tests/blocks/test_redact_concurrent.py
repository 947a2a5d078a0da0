"""Redacts beside each other, redacts whose erasing is late or never came, and what is left of the block."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.blocks.history import log
from dgent.store.sqlite import shared
from tests.command import python
from tests.fault.nursery import Nursery

SECRETS = [f"secret-number-{n}-of-many" for n in range(8)]


async def grown(library: Library, lines: int = 3) -> Block:
    """A block in which every other version brought a secret."""
    block = await library.create("notes", text="begin\n", limit=10**6)
    for secret in SECRETS:
        await block.append(f"{secret}\n")
        for n in range(lines):
            await block.append(f"line {n}\n")
    return block


def versions_of(lines: int = 3) -> list[int]:
    """The versions of `grown` that brought secrets."""
    return [2 + place * (lines + 1) for place in range(len(SECRETS))]


async def check_whole(library: Library, gone: list[str], there: list[str]) -> None:
    """The block loads anew, every version of it can be viewed, and exactly some of the secrets are gone."""
    block = await library.get("notes")
    text = await block.text()
    assert [each for each in SECRETS if each in text] == there
    assert text.startswith("begin\n") and text.count("\n") >= 1 + len(SECRETS)
    history = await block.history()
    assert [each.number for each in history] == list(range(len(history), 0, -1))
    for each in history:
        if not each.compacted:
            view = (await block.at(each.number)).text
            assert not [secret for secret in gone if secret in view]
    assert "begin" in await library.render(referenced="notes")
    await block.append("on\n")
    assert (await (await library.get("notes")).text()).endswith("on\n")


@pytest.mark.parametrize("small", [False, True])
async def test_concurrent_redacts_all_succeed(
    lib: Library, rival, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
            monkeypatch.setattr(log, name, value)
    await grown(lib)
    others = [await (await rival()).get("notes") for _ in SECRETS]
    calls = [other.redact(version) for other, version in zip(others, versions_of(), strict=True)]
    done = await asyncio.gather(*calls)
    assert sorted(number for each in done for number in each.versions) == versions_of()
    assert len({each.version for each in done}) == len(SECRETS)
    await check_whole(await rival(), SECRETS, [])
    assert {each.number for each in await (await lib.get("notes")).history() if each.redacted} == set(
        versions_of()
    )


async def test_concurrent_redacts_of_one_version_and_edits_beside_them(lib: Library, rival) -> None:
    await grown(lib)
    first = versions_of()[0]
    redacting = [await (await rival()).get("notes") for _ in range(4)]
    writing = [await (await rival()).get("notes") for _ in range(2)]

    async def write(place: int, block: Block) -> None:
        for step in range(10):
            await block.append(f"<{place}.{step}>\n")

    await asyncio.gather(
        *(each.redact(first) for each in redacting),
        *(write(place, each) for place, each in enumerate(writing)),
    )
    await check_whole(await rival(), SECRETS[:1], SECRETS[1:])
    text = await (await lib.get("notes")).text()
    assert all(text.count(f"<{place}.{step}>") == 1 for place in range(2) for step in range(10))


READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM datum").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Another program holds a read on a store, so nothing can be erased from its files."""
    command = [python(), "-c", READ, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == b"reading\n"
        yield
        program.stdin.close()


async def test_an_erasing_that_is_late_takes_nothing_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SCRUB_S", 0.1)
    place = tmp_path / "store.db"
    async with dgent.open(f"sqlite:///{place}", author="scout") as u:
        library = Library(u, agent="scout")
        block = await grown(library)
        numbers = versions_of()
        with reading(place):
            for number in numbers[:3]:
                assert not (await block.redact(number)).erased
                await check_whole(
                    Library(u, agent="scout"), SECRETS[:1], SECRETS[numbers.index(number) + 1 :]
                )
        assert (await block.redact(numbers[3])).erased
        await check_whole(Library(u, agent="scout"), SECRETS[:4], SECRETS[4:])
    assert not [each for each in SECRETS[:4] if each.encode() in place.read_bytes()]


def redact_in_a_process(nursery: Nursery, url: str, number: int, erases: bool) -> None:
    (done,) = nursery.wait(nursery.start("redact", url=url, number=number, erases=erases))
    assert done.code == (0 if erases else -signal.SIGKILL), done.said


@pytest.mark.parametrize("dies", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
async def test_a_kill_between_the_commit_and_the_erasing(tmp_path: Path, dies: tuple[int, ...]) -> None:
    place = tmp_path / "store.db"
    url = f"sqlite:///{place}"
    async with dgent.open(url, author="scout") as u:
        await grown(Library(u, agent="scout"))
    numbers = versions_of()
    with Nursery("tests.blocks.jobs") as nursery:
        for step in range(4):
            redact_in_a_process(nursery, url, numbers[step], step not in dies)
            async with dgent.open(url, author="scout") as u:
                await check_whole(Library(u, agent="scout"), SECRETS[: step + 1], SECRETS[step + 1 :])
    assert not [each for each in SECRETS[:4] if each.encode() in place.read_bytes()]
