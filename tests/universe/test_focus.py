"""A part of a record through a lens: get, set, modify, and no update lost."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import dgent
from dgent.errors import NotFound
from dgent.model import lens
from tests.universe.conftest import Another
from tests.universe.marks import mark, old_mark


async def test_a_field_of_a_value(u: dgent.Universe) -> None:
    kept = await u.remember(mark("ship", tags=("a", "b")), tags={"t"})
    action = u.focus(kept.id, lens.field("action"))
    assert await action.get() == "ship"
    changed = await action.set("wait")
    assert (changed.value, changed.rev, changed.tags) == (mark("wait", tags=("a", "b")), 2, {"t"})
    assert await u.get(kept.id) == changed
    second = u.focus(kept.id, lens.field("tags") >> lens.index(1))
    assert await second.get() == "b"
    await second.modify(str.upper)
    assert (await u.get(kept.id)).value.tags == ("a", "B")


async def test_a_key_of_a_raw_datum(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="x", data={"a": {"n": 1}, "other": True}))
    part = u.focus("x", lens.key("a") >> lens.key("n"))
    await part.modify(lambda n: n + 1)
    assert (await u.get("x")).data == {"a": {"n": 2}, "other": True}
    assert await part.get() == 2


async def test_setting_the_same_changes_nothing(u: dgent.Universe) -> None:
    kept = await u.remember(mark("ship"))
    await u.focus(kept.id, lens.field("action")).set("ship")
    assert await u.seq() == kept.seq


async def test_an_old_record_is_written_in_the_new_version(u: dgent.Universe) -> None:
    kept = await u.put(old_mark(1))
    await u.focus(kept.id, lens.field("principles")).modify(lambda have: (*have, "more"))
    read = await u.get(kept.id)
    assert read.value.principles == ("ship", "more")
    assert read.datum.schema_version == 3


async def test_what_is_not_there(u: dgent.Universe) -> None:
    part = u.focus("nothing", lens.key("a"))
    for work in (part.get(), part.set(1), part.modify(lambda a: a)):
        with pytest.raises(NotFound, match="nothing"):
            await work
    kept = await u.remember(mark())
    with pytest.raises(dgent.InputError):
        await u.focus(kept.id, lens.field("action")).set(7)
    assert await u.seq() == kept.seq


async def test_many_at_once_lose_nothing(u: dgent.Universe, another: Another) -> None:
    """64 tasks and a second program, one number."""
    rival = await another()
    await u.put(dgent.Datum(id="n", data={"n": 0}))

    async def add(universe: dgent.Universe) -> None:
        await universe.focus("n", lens.key("n")).modify(lambda n: n + 1)

    await asyncio.gather(*(add(u) for _ in range(64)), *(add(rival) for _ in range(32)))
    read = await u.get("n")
    assert (read.data["n"], read.rev) == (96, 97)


async def test_a_slow_change_is_tried_until_it_succeeds(u: dgent.Universe) -> None:
    """Somebody else is faster forty times in a row."""
    await u.put(dgent.Datum(id="n", data={"n": 0, "others": 0}))
    others = 0

    async def add(n: int) -> int:
        nonlocal others
        if others < 40:
            others += 1
            await u.put(dgent.Datum(id="n", data={"n": 0, "others": others}))
        return n + 1

    await u.focus("n", lens.key("n")).modify(add)
    assert (await u.get("n")).data == {"n": 1, "others": 40}


ADDER = """
import asyncio, sys
import dgent
from dgent.model import lens

async def main():
    async with dgent.open(sys.argv[1]) as u:
        for _ in range(25):
            await u.focus("n", lens.key("n")).modify(lambda n: n + 1)

asyncio.run(main())
"""


async def test_many_processes_lose_nothing(shared_url: str, tmp_path: Path) -> None:
    script = tmp_path / "adder.py"
    script.write_text(ADDER)
    async with dgent.open(shared_url) as u:
        await u.put(dgent.Datum(id="n", data={"n": 0}))
        adders = [
            await asyncio.create_subprocess_exec(sys.executable, str(script), shared_url) for _ in range(2)
        ]
        for _ in range(25):
            await u.focus("n", lens.key("n")).modify(lambda n: n + 1)
        assert [await adder.wait() for adder in adders] == [0, 0]
        assert (await u.get("n")).data == {"n": 75}
