"""Compacting: old versions go, and what is kept is as it was."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dgent import clock
from dgent.blocks import Block, Library, errors
from dgent.blocks.history import log, retain
from dgent.errors import InputError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PACK_SIZE", 16), ("KEEP", 4), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)


async def grown(library: Library, count: int = 60) -> tuple[Block, dict[int, str]]:
    block = await library.create("notes", limit=100_000)
    texts = {1: ""}
    for number in range(2, count + 1):
        await block.append(f"line {number}\n")
        texts[number] = texts[number - 1] + f"line {number}\n"
    return block, texts


async def test_what_is_kept_is_as_it_was(lib: Library) -> None:
    block, texts = await grown(lib)
    assert await block.compact(20) == 40
    fresh = await lib.get("notes")
    for number in (41, 42, 55, 60):
        assert (await fresh.at(number)).text == texts[number]
    for number in (1, 20, 40):
        with pytest.raises(errors.VersionNotFound, match="compacted"):
            await fresh.at(number)
    history = await fresh.history()
    assert [v.number for v in history if v.compacted] == list(range(40, 0, -1))
    assert history[-5].op == "append" and history[-5].size == len(texts[5])
    assert await fresh.compact(20) == 0
    await fresh.append("on\n")
    assert await fresh.compact(20) == 1  # and not what says that something was compacted
    await fresh.rollback(45)
    assert await fresh.text() == texts[45]
    with pytest.raises(errors.VersionNotFound):
        await fresh.rollback(3)


async def test_every_version_can_be_where_the_kept_history_begins(
    quick: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 4)
    for keep in range(1, 14):
        block = await quick.create(f"notes{keep}", limit=100_000)
        texts = {1: ""}
        for number in range(2, 16):
            await block.append(f"{number} ")
            texts[number] = texts[number - 1] + f"{number} "
            if number == 10:
                await block.compact(9)  # pages are cut, some to a single version
                texts[11] = texts[10]
                await block.undo()
                texts[12] = texts[9]
                break
        await block.compact(keep)
        fresh = await quick.get(f"notes{keep}")
        for each in await fresh.history():
            if not each.compacted and each.number in texts:
                assert (await fresh.at(each.number)).text == texts[each.number], (keep, each.number)


async def test_checkpoints_are_kept_and_can_be_gone_back_to(quick: Library) -> None:
    block, texts = await grown(quick, 20)
    await block.checkpoint("good")
    for number in range(21, 60):
        await block.append(f"line {number}\n")
    await block.compact(5)
    assert await block.checkpoints() == {"good": 20}
    assert (await block.at(20)).text == texts[20]
    await block.rollback(20)
    assert await block.text() == texts[20]
    await block.undo()
    assert (await block.text()).endswith("line 59\n")
    await block.compact(1)
    assert (await block.at(20)).text == texts[20]
    await block.drop_checkpoint("good")
    await block.append("x")
    await block.compact(1)
    with pytest.raises(errors.VersionNotFound):
        await block.at(20)


@pytest.mark.parametrize("fold", [2, 3, 4])
async def test_pages_of_checkpointed_versions_alone_are_kept(
    quick: Library, fold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", fold)
    monkeypatch.setattr(log, "KEEP", 1)
    block = await quick.create("notes", limit=100_000)
    texts: dict[int, str] = {}
    for number in range(2, 40):
        await block.append(f"line {number}\n")
        if 10 <= number < 20 or number in (22, 23, 30):
            await block.checkpoint(f"at {number}")
            texts[number] = await block.text()
    for keep in (25, 12, 3, 1, 1):
        await block.compact(keep)
        fresh = await quick.get("notes")
        for number, text in texts.items():
            assert (await fresh.at(number)).text == text
        await block.append("on\n")
    await block.rollback(15)
    assert await block.text() == texts[15]


async def test_others_who_have_it_in_memory_go_on(quick: Library) -> None:
    block, _ = await grown(quick)
    other = await quick.get("notes")
    await other.text()
    await block.compact(2)
    await other.append("other\n")
    await block.append("mine\n")
    assert await other.text() == await block.text()
    assert {"other\n", "mine\n"} <= set((await block.text()).splitlines(keepends=True))
    again = await quick.get("notes")
    assert await again.text() == await block.text()


async def test_edits_made_beside_each_other_while_it_is_compacted(quick: Library) -> None:
    block, _ = await grown(quick, 20)
    others = [await quick.get("notes") for _ in range(3)]

    async def write(place: int, each: Block) -> None:
        for step in range(15):
            await each.append(f"<{place}.{step}>")

    async def compact() -> None:
        for _ in range(5):
            await block.compact(3)
            await asyncio.sleep(0)

    await asyncio.gather(compact(), *(write(place, each) for place, each in enumerate(others)))
    text = await (await quick.get("notes")).text()
    assert all(text.count(f"<{place}.{step}>") == 1 for place in range(3) for step in range(15))
    history = await block.history()
    assert [version.number for version in history] == list(range(len(history), 0, -1))
    assert sum(version.op == "append" for version in history) == 19 + 45


async def test_by_age(quick: Library) -> None:
    block, texts = await grown(quick, 30)
    moment = clock.now()
    for number in range(31, 41):
        await block.append(f"line {number}\n")
    assert await block.compact(older_than=timedelta(days=1)) == 0
    assert await block.compact(older_than=moment) == 30
    assert (await block.at(31)).text == texts[30] + "line 31\n"
    assert await block.compact(5, older_than=timedelta(days=1)) == 0  # the rule that keeps more decides


async def test_every_kind_of_document_goes_back_to_a_checkpoint(quick: Library) -> None:
    tasks = await quick.create("tasks", template="task_list", limit=50_000)
    await tasks.insert_item({"title": "one"})
    tree = await quick.create("tree", document="tree", limit=50_000)
    above = await tree.add_node({"t": "a"})
    facts = await quick.create("facts", document="map", limit=50_000)
    await facts.set_field("a", 1)
    counter = await quick.create("counter", document="counter")
    await counter.increment(amount=3)
    before = {}
    for block in (tasks, tree, facts, counter):
        await block.checkpoint("here")
        before[block.label] = await block.text()
    for step in range(20):
        await tasks.insert_item({"title": f"task {step}"})
        await tree.add_node({"t": step})
        await facts.set_field("a", step)
        await facts.set_field(f"b{step}", step)
        await counter.increment()
    for block in (tasks, tree, facts, counter):
        await block.compact(1)
        there = (await block.checkpoints())["here"]
        await block.rollback(there)
        assert await block.text() == before[block.label]
    await tasks.set_item(0, {"title": "uno"})
    assert "uno" in await tasks.text()
    assert above is not None


async def test_what_is_compacted_cannot_be_redacted_alone(quick: Library) -> None:
    block, _ = await grown(quick, 40)
    await block.compact(10)
    for number in (3, 31):
        with pytest.raises(InputError, match="compacted"):
            await block.redact(number)
    await block.redact(35)
    assert "line 35" not in await block.text() and "line 34" in await block.text()
    await block.compact(2)
    assert "line 34" in await (await quick.get("notes")).text()


async def test_a_rule_must_be_given(quick: Library) -> None:
    block = await quick.create("notes")
    for wrong in ({}, {"keep": 0}, {"keep": True}, {"older_than": "yesterday"}):
        with pytest.raises(InputError):
            await block.compact(**wrong)


async def test_what_was_redacted_before_is_compacted_too(quick: Library) -> None:
    block, _ = await grown(quick, 30)
    await block.redact(5)
    await block.compact(10)
    version = (await block.history())[-5]
    assert version.redacted and version.compacted
    for call in (block.at, block.rollback, block.visit):
        with pytest.raises(errors.VersionNotFound, match="compacted"):
            await call(5)


@pytest.mark.parametrize("steps", ["+++321", "++3+32", "++31+2", "++311+"])
async def test_again_and_again(quick: Library, steps: str) -> None:
    block = await quick.create("notes", document="list")
    values: dict[int, list[str]] = {}
    for step in steps:
        if step == "+":
            made = await block.insert_item("more")
            values[made.number] = (await block.value())["items"]
        else:
            await block.compact(int(step))
    fresh = await quick.get("notes")
    kept = [each.number for each in await fresh.history() if each.number in values and not each.compacted]
    assert kept and [(await fresh.at(each)).value["items"] for each in kept] == [values[n] for n in kept]


async def test_what_was_redacted_and_compacted_can_be_undone_past(quick: Library) -> None:
    block = await quick.create("notes")
    for word in ("one ", "two ", "three "):
        await block.append(word)
    await block.redact(3)
    await block.compact(1)
    for _ in range(4):
        try:
            await block.undo()
        except errors.VersionNotFound:
            break
    await block.append("on")
    assert (await block.text()).endswith("on")


async def test_a_rule_is_kept_from_then_on(quick: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retain, "LEAST", 10)
    block = await quick.create("notes", limit=100_000)
    await block.append("named\n")
    await block.checkpoint("here")
    assert (await quick.retain("notes", 10)).retain == 10
    block = await quick.get("notes")
    for number in range(60):
        await block.append(f"{number}\n")
    history = await block.history()
    with_content = [version.number for version in history if not version.compacted]
    assert 10 <= len(with_content) <= 22 and 2 in with_content
    assert (await block.at(2)).text == "named\n"
    assert (await (await quick.get("notes")).text()).splitlines()[1:] == [str(n) for n in range(60)]
    assert (await quick.retain("notes", None)).retain is None
    friend = Library(quick._universe, agent="scout", trust="friend")
    with pytest.raises(errors.PermissionDenied):
        await friend.retain("notes", 10)
    for wrong in (5, True, "10"):
        with pytest.raises(InputError):
            await quick.retain("notes", wrong)


async def test_an_edit_stands_when_leave_is_taken_while_its_rule_is_applied(
    quick: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retain, "LEAST", 10)
    await grown(quick, 19)
    await quick.retain("notes", 10)
    await quick.agents.create("scribe")
    await quick.share("notes", with_agent="scribe", permission="append")
    theirs = await Library(quick._universe, agent="scribe").get("notes")
    write = theirs._version_log.write

    async def write_then_unshare(*args: Any) -> Any:
        done = await write(*args)
        await quick.unshare("notes", with_agent="scribe")
        return done

    monkeypatch.setattr(theirs._version_log, "write", write_then_unshare)
    assert (await theirs.append("theirs\n")).number == 20
    assert (await (await quick.get("notes")).text()).endswith("theirs\n")
    with pytest.raises(errors.PermissionDenied):
        await theirs.append("more\n")
