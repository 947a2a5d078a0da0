"""Several processes at one block: no edit is lost and versions are dense, also when some are killed."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from dgent.blocks import Block
from dgent.blocks.record import PACK
from dgent.model.query import Query
from tests.blocks.jobs import opened
from tests.contract.columns import SETTINGS
from tests.fault.nursery import Child, Nursery
from tests.soak import times

PROCESSES = 6
EDITS = times(25)
KILLS = times(40)
ROUND = 10  # kills between two looks at the store


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.blocks.jobs") as made:
        yield made


async def check_history(block: Block) -> None:
    """Versions are dense, and each of a few can be viewed and has the size it says."""
    versions = (await block.history())[::-1]
    assert [each.number for each in versions] == list(range(1, len(versions) + 1))
    some = sorted({1, len(versions), *random.sample(range(1, len(versions) + 1), min(6, len(versions)))})
    for number in (number for number in some if not versions[number - 1].compacted):
        view = await block.at(number)
        assert len(view.text) == versions[number - 1].size, number


@pytest.mark.parametrize("engine", ["sqlite", "jsonl", "postgres"])
async def test_many_processes_edit_one_block(nursery: Nursery, engine: str, tmp_path: Path) -> None:
    url = SETTINGS[engine][0].url(tmp_path)
    many, times = (PROCESSES, EDITS) if engine == "sqlite" else (3, 10)
    async with opened(url) as lib:
        await lib.create("notes", limit=10**6)
        await lib.create("tasks", document="list", limit=10**6)
    at = time.time() + 0.3
    workers = [nursery.start("edit_all", url=url, at=at, name=f"w{n}", times=times) for n in range(many)]
    nursery.finish(*workers)
    async with opened(url) as lib:
        notes, tasks = await lib.get("notes"), await lib.get("tasks")
        expected = {f"w{n}.{k}" for n in range(many) for k in range(times)}
        found = re.findall(r"[\[<]([^\]>]+)[\]>]", await notes.text())
        assert Counter(found) == Counter(expected)
        assert (await notes.text()).count("<") == many * (times // 5)
        tens = {each for each in expected if int(each.partition(".")[2]) % 10 == 0}
        assert Counter((await tasks.value())["items"]) == Counter(tens)
        await check_history(notes)
        assert notes.version == 1 + many * (times + times // 5)
        folded = await lib._universe.count(Query(schema=PACK.name, limit=None))
        assert (folded > 0) == (notes.version > 160)


@pytest.mark.timeout(120 + KILLS)
async def test_killed_editors_lose_nothing_they_were_told(nursery: Nursery, tmp_path: Path) -> None:
    url = SETTINGS["sqlite"][0].url(tmp_path)
    async with opened(url) as lib:
        await lib.create("notes", limit=10**7)
    said: list[list[str]] = []
    names = count()
    for _ in range(KILLS // ROUND):
        alive: list[Child] = []
        everyone: list[Child] = []
        for _ in range(ROUND):
            while len(alive) < 3:
                alive.append(nursery.start("scribble", url=url, name=f"w{next(names)}", fold=5))
                everyone.append(alive[-1])
            await asyncio.sleep(random.choice((0.02, 0.05, 0.1)))
            alive.pop(random.randrange(len(alive))).kill()
        for child in alive:
            child.kill()
        nursery.wait(*everyone)
        assert {child.code for child in everyone} == {-9}, [c.said[-1:] for c in everyone if c.code != -9]
        said += [what for child in everyone for what in child.said]
        await check(url, said)
    assert said, "the workers wrote nothing"


async def check(url: str, said: list[list[str]]) -> None:
    async with opened(url) as lib:
        notes = await lib.get("notes")
        text = await notes.text()
        tokens = Counter(re.findall(r"\[[^\]]+\]", text))
        assert set(tokens.values()) <= {1}, "an edit is there twice"
        assert {what for kind, what in said if kind == "edit"} <= tokens.keys()
        assert "".join(tokens) == text, "half an edit"
        await check_history(notes)
        blocks = {block.label: block for block in await lib.list()}
        assert {what for kind, what in said if kind == "create"} <= blocks.keys()
        for label, block in blocks.items():
            assert label == "notes" or (await block.text(), len(await block.history())) == ("new", 1)
        await notes.append("[again.0]")
        await notes.replace("[again.0]", "")
