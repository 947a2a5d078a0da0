"""Versions, differences, going back: of one block, in however many handles and programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.blocks import Block, Library, Shape, Template, errors
from dgent.blocks.document import document
from dgent.blocks.document.shape import SectionShape
from dgent.blocks.history import log, pack
from dgent.errors import InputError, VersionConflict
from tests.blocks.agents import before_commit
from tests.soak import first


@pytest.fixture(params=first(["sqlite", "memory"], 1))
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url, durability="relaxed") as u:
        yield Library(u, agent="scout")


async def numbers(block: Block) -> list[int]:
    return [version.number for version in await block.history()]


async def test_each_call_is_one_version_with_author_message_and_size(library: Library) -> None:
    block = await library.create("notes", limit=100)
    await block.append("one two", by="ann", message="began")
    await block.replace("two", "three")
    newest, middle, first = await block.history()
    assert (newest.op, newest.by, newest.size, newest.diffstat) == ("replace", "scout", 9, "+5 -3")
    assert (middle.op, middle.by, middle.message) == ("append", "ann", "began")
    assert (first.op, first.number, first.size) == ("create", 1, 0)
    assert newest.at >= middle.at >= first.at
    assert await numbers(block) == [3, 2, 1]
    assert await block.history(limit=1) == [newest]


async def test_what_was_is_viewed_and_compared(library: Library) -> None:
    block = await library.create("notes", text="a\nb\nc\n")
    await block.replace("b", "B")
    middle = (await block.history())[0].at
    await block.append("d\n")
    assert (await block.at(1)).text == "a\nb\nc\n"
    assert (await block.at(time=middle)).version == 2
    assert str(await block.diff(1, 2)).splitlines()[2:] == ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"]
    assert not await block.diff(2, 2)
    assert "+d" in str(await block.diff())
    for wrong in (0, 4, -1):
        with pytest.raises(errors.VersionNotFound):
            await block.at(wrong)
    with pytest.raises(InputError):
        await block.at()


async def test_rolling_back_is_a_new_change(library: Library) -> None:
    block = await library.create("notes", text="good")
    await block.write("bad")
    await block.rollback(1)
    assert await block.text() == "good"
    assert (await block.at(2)).text == "bad"
    assert await numbers(block) == [3, 2, 1]


async def test_redo_follows_the_branch_last_left(library: Library) -> None:
    block = await library.create("notes")
    for text in "123":
        await block.append(text)
    await block.undo()
    await block.undo()
    assert await block.text() == "1"
    await block.append("4")
    with pytest.raises(errors.VersionNotFound):
        await block.redo()
    await block.undo()
    await block.redo()
    assert await block.text() == "14"  # and not the older branch with 2
    lines = await block.branches()
    assert [(await block.at(line.tip)).text for line in lines] == ["14", "123"]
    assert [line.current for line in lines] == [True, False]
    await block.visit(lines[1].tip)
    assert await block.text() == "123"
    await block.undo()
    assert await block.text() == "12"
    await block.redo()
    assert await block.text() == "123"


async def test_undo_to_the_first_version_and_no_further(library: Library) -> None:
    block = await library.create("notes", text="start")
    await block.append(".")
    await block.undo()
    assert await block.text() == "start"
    with pytest.raises(errors.VersionNotFound):
        await block.undo()


async def test_a_limit_is_told_before_anything_is_stored(library: Library) -> None:
    block = await library.create("notes", text="12345", limit=8)
    with pytest.raises(errors.LimitExceeded, match="9 characters; its limit is 8"):
        await block.append("6789")
    assert await block.text() == "12345"
    assert await numbers(block) == [1]
    await block.append("678")
    with pytest.raises(errors.LimitExceeded):
        await library.create("other", text="123", limit=2)


async def test_a_stale_expectation_changes_nothing(library: Library) -> None:
    block = await library.create("notes", text="a")
    other = await library.get("notes")
    await other.append("b")
    with pytest.raises(VersionConflict):
        await block.append("c", expect=1)
    assert await block.text() == "ab"
    await block.append("c", expect=2)
    assert await other.text() == "abc"


async def test_edits_at_the_same_time_are_all_there(library: Library) -> None:
    await library.create("notes", limit=10_000)
    handles = [await library.get("notes") for _ in range(5)]
    await asyncio.gather(
        *(handle.append(f"<{who}.{n}>") for who, handle in enumerate(handles) for n in range(10))
    )
    block = await library.get("notes")
    text = await block.text()
    for who in range(5):
        places = [text.index(f"<{who}.{n}>") for n in range(10)]
        assert places == sorted(places)
    assert await numbers(block) == list(range(51, 0, -1))
    assert [await handle.text() for handle in handles] == [text] * 5


async def test_folding_loses_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)
    block = await library.create("notes", limit=10_000)
    late = await library.get("notes")
    await late.text()
    for n in range(100):
        await block.append(f"{n} ", message=f"m{n}")
    assert block._version_log.last_packed > 80
    assert await late.text() == await block.text()  # what it had seen was folded away meanwhile
    fresh = await library.get("notes")
    assert [version.message for version in await fresh.history()] == [f"m{n}" for n in range(99, -1, -1)] + [
        ""
    ]
    for number in (1, 2, 9, 33, 50, 77, 99, 101):
        assert (await fresh.at(number)).text == "".join(f"{n} " for n in range(number - 1))
    await fresh.rollback(40)
    await fresh.undo()
    assert await fresh.text() == await block.text()
    await late.append("end")  # written by one that was behind a fold
    assert (await block.text()).endswith("99 end")
    assert await numbers(block) == list(range(block.version, 0, -1))


async def test_one_behind_a_fold_does_not_write_under_an_old_number(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 4)
    monkeypatch.setattr(log, "KEEP", 1)
    block = await library.create("notes", limit=10_000)
    late = await library.get("notes")
    await late.text()
    for n in range(20):
        await block.append(f"{n} ")
    done = await late.append("late ")
    assert done.number == 22
    assert await block.text() == await late.text()
    assert "late" in await block.text()


async def test_named_versions(library: Library) -> None:
    block = await library.create("notes", text="a")
    await block.checkpoint("before")
    await block.write("b")
    assert await block.checkpoints() == {"before": 1}
    await block.rollback((await block.checkpoints())["before"])
    assert await block.text() == "a"


async def test_an_edit_made_beside_folded_versions_is_viewed(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PACK_SIZE", 4), ("KEEP", 1), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    block = await library.create("notes", text="0.")
    slow = await Library(library._universe, agent="scout").get("notes")

    async def others() -> None:
        for number in range(2, 12):
            await block.append(f"{number}.")

    before_commit(slow, others)
    await slow.replace("0.", "0.slow.")  # made before theirs, and stored after
    for number in range(13, 24):
        await block.append(f"{number}.")
    for number in range(1, 24):
        text = (await block.at(number)).text
        assert ("slow." in text) == (number >= 12)
        assert ("11." in text) == (number >= 11)


async def test_what_is_appended_comes_last_however_old_the_handle(library: Library) -> None:
    old = await library.create("notes", text="one.")
    await old.text()
    await (await library.get("notes")).append("two.")
    await old.append("three.")
    assert await old.text() == "one.two.three."
    tasks = await library.create("tasks", document="list")
    await tasks.text()
    await (await library.get("tasks")).append("a")
    await tasks.append("b")
    assert (await tasks.value())["items"] == ["a", "b"]


async def test_a_long_text_goes_back_and_forth(library: Library) -> None:
    first, second = (
        "".join(f"{name} {n} has some words\n" for n in range(20_000)) for name in ("one", "two")
    )
    block = await library.create("notes", text=first, limit=10**7)
    await block.write(second)
    await block.undo()  # compared letter by letter in the document's history, this took minutes
    assert await block.text() == first
    await block.redo()
    await block.append("end\n")
    await block.rollback(1)
    assert await block.text() == first
    assert (await block.undo()).size == len(second) + 4
    assert await block.text() == second + "end\n"


def bare(value: Any) -> Any:
    """A value without the ids of nodes."""
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items() if key != "id"}
    return [bare(each) for each in value] if isinstance(value, list) else value


async def test_a_composite_goes_back_section_by_section(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = tuple(
        SectionShape(name, Shape(name)) for name in ("text", "list", "tree", "map", "log", "counter")
    )
    block = await library.create("all", template=Template("all", Shape("composite", sections=sections)))
    for far in (False, True):
        monkeypatch.setattr(document, "MAX_REVERTED", 0 if far else 4_000)
        node = await block.section("tree").add_node({"name": "x"})
        await block.section("list").append("one")
        before, number = await block.value(), block.version
        await block.section("text").write("some\ntext\n")
        await block.section("list").insert_item("zero", 0)
        await block.section("map").set_field("k", 1)
        await block.section("counter").increment(amount=3)
        await block.section("log").log("hello")
        after, last = await block.value(), block.version
        await block.rollback(number)
        assert await block.value() == before
        # What did not change is still the same node.
        await block.section("tree").set_node(node, {"name": "y"})
        await block.rollback(last)
        assert bare(await block.value()) == bare(after)


@given(*[st.lists(st.sampled_from(["a", "b", "c\n", "\n", "\r", "é\u2028"]), max_size=30).map("".join)] * 2)
def test_a_text_becomes_any_other(old: str, new: str) -> None:
    one, other = document.Document(), document.Document()
    one.write(old)
    one.write_lines(new)
    other.write(new)
    assert one.text() == new
    one.write(old)
    one.become(other)
    assert one.text() == new


async def test_only_pages_with_the_wanted_versions_are_read(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    block = await library.create("notes")
    for n in range(60):
        await block.append(f"{n} ")
    whole = await block.history()
    read: list[int] = []
    unpack = pack.decode_pack

    def counted(block: str, first: int, last: int, content: bytes) -> Any:
        read.append(last)
        return unpack(block, first, last, content)

    monkeypatch.setattr(pack, "decode_pack", counted)
    assert await block.history(2) == whole[:2] and not read
    for limit in (0, 1, 5, 20, 61, 100):
        assert await block.history(limit) == whole[:limit]
    read.clear()
    assert await block.history(20) == whole[:20]
    assert len(read) <= 3
    read.clear()
    assert (await block._version_log.find(9)).number == 9
    assert len(read) == 1
    read.clear()
    await block.undo()
    assert not read
