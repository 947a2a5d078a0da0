"""Blocks in two clones, edited apart and brought together by real git."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Block, Library
from dgent.blocks.history import log
from dgent.blocks.record import PACK, ROOM, pack_id
from dgent.model.datum import Datum
from dgent.store.backend import Put
from tests.jsonl.repositories import Clone, two_clones
from tests.jsonl.stores import odd, opened, texts_of_blocks, without_cache
from tests.soak import first

ROUTES = pytest.mark.parametrize("driver", [True, False], ids=["driver", "markers"])
Work = Callable[[Block], Awaitable[Any]]


@pytest.fixture
async def clones(tmp_path: Path, driver: bool) -> tuple[Clone, Clone]:
    (tmp_path / "one").mkdir()
    async with dgent.open(f"jsonl:{tmp_path}/one/memory", author="scout") as u:
        await Library(u, agent="scout").create("notes", text="begin\n")
    return two_clones(tmp_path, driver=driver)


async def _edit(clone: Clone, work: Work) -> Any:
    async with dgent.open(f"jsonl:{clone.store}", author="scout") as u:
        return await work(await Library(u, agent="scout").get("notes"))


def _lines(name: str, count: int) -> Work:
    async def work(block: Block) -> None:
        for n in range(count):
            await block.append(f"{name} {n}\n", message=f"{name} {n}")

    return work


async def _merge(clones: tuple[Clone, Clone], alike: bool = False) -> Any:
    """Merge both ways; git alone can do it where the lines are `alike`."""
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1], conflict=not clones[0].driver and not alike)
    found = await _contents(clones[0])
    clones[0].save()
    clones[1].pull(clones[0])
    assert found == await _contents(clones[1])
    return found


async def _contents(clone: Clone) -> Any:
    """What a clone says of its block, with its cache and without; opening it again writes nothing."""
    found = []
    for _ in range(2):
        async with opened(clone.store) as store:
            assert (await store.check_lines())[1] == []
        sizes = {path.name: path.stat().st_size for path in clone.store.glob("*.jsonl")}
        found.append(await _edit(clone, _look))
        assert {path.name: path.stat().st_size for path in clone.store.glob("*.jsonl")} == sizes
        without_cache(clone.store)
    assert found[0] == found[1]
    return found[0]


async def _look(block: Block) -> Any:
    history = [(each.number, each.by, each.op, each.message, each.parent) for each in await block.history()]
    texts = [(await block.at(number)).text for number, *_ in reversed(history)]
    text = await block.text()
    assert texts[-1] == text
    assert [number for number, *_ in reversed(history)] == list(range(1, len(history) + 1))
    return text, history


@ROUTES
@pytest.mark.parametrize(("left", "right"), first([(2, 3), (5, 1), (1, 1)], 2))
async def test_edits_of_both_sides_are_in_text_and_history(clones: Any, left: int, right: int) -> None:
    await _edit(clones[0], _lines("left", left))
    await _edit(clones[1], _lines("right", right))
    text, history = await _merge(clones)
    wanted = [f"left {n}" for n in range(left)] + [f"right {n}" for n in range(right)]
    assert sorted(text.splitlines()) == sorted(["begin", *wanted])
    assert sorted(message for *_, message, _ in history if message) == sorted(wanted)
    assert len(history) == 1 + left + right
    await _edit(clones[0], _lines("after", 2))
    await _edit(clones[1], _lines("too", 1))
    text, history = await _merge(clones)
    assert sorted(text.splitlines()) == sorted(["begin", *wanted, "after 0", "after 1", "too 0"])
    assert len(history) == 4 + left + right


@ROUTES
@pytest.mark.parametrize(
    ("shared", "left", "right"), first([(2, 12, 1), (12, 9, 12), (30, 1, 2), (7, 1, 9)], 2)
)
async def test_versions_that_either_side_packed(
    clones: Any, shared: int, left: int, right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)
    await _edit(clones[0], _lines("shared", shared))
    clones[0].save()
    clones[1].pull(clones[0])
    await _edit(clones[0], _lines("left", left))
    await _edit(clones[1], _lines("right", right))
    text, history = await _merge(clones)
    wanted = [f"shared {n}" for n in range(shared)]
    wanted += [f"left {n}" for n in range(left)] + [f"right {n}" for n in range(right)]
    assert sorted(text.splitlines()) == sorted(["begin", *wanted])
    assert len(history) == 1 + len(wanted)
    await _edit(clones[1], _lines("after", 12))
    clones[1].save()
    clones[0].pull(clones[1])
    found = await _contents(clones[0])
    assert found == await _contents(clones[1]) and len(found[1]) == 13 + len(wanted)


@ROUTES
async def test_what_one_side_redacted_the_other_does_not_bring_back(clones: Any) -> None:
    await _edit(clones[0], _lines("secret", 2))
    clones[0].save()
    clones[1].pull(clones[0])

    async def redact(block: Block) -> None:
        await block.redact(2)

    await _edit(clones[0], redact)
    await _edit(clones[1], _lines("right", 2))
    text, history = await _merge(clones)
    assert "secret 0" not in text and "secret 1" in text and "right 1" in text
    assert len(history) == 6


async def _search(block: Block) -> list[str]:
    library = Library(block._permissions.universe, agent="scout")
    return [hit.label for hit in await library.search("zanzibarium secret")]


@ROUTES
@pytest.mark.parametrize("edits", [0, 2])
async def test_searches_of_one_side_do_not_bring_back_what_the_other_redacted(
    clones: Any, edits: int, tmp_path: Path
) -> None:
    async def slip(block: Block) -> None:
        await block.append("zanzibarium\n")
        await block.append("secret\n")

    async def redact(block: Block) -> None:
        await block.redact(2)

    await _edit(clones[0], slip)
    clones[0].save()
    clones[1].pull(clones[0])
    await _edit(clones[0], redact)
    await _edit(clones[1], _lines("right", edits))
    assert await _edit(clones[1], _search) == ["notes"]
    text, _ = await _merge(clones, alike=not edits)
    assert "zanzibarium" not in text
    for clone in clones:
        assert b"zanzibarium" not in b"".join(path.read_bytes() for path in clone.store.glob("*.jsonl"))
        assert await _edit(clone, _search) == ["notes"]
        assert b"zanzibarium" not in b"".join(path.read_bytes() for path in clone.store.rglob("*.jsonl"))


@ROUTES
async def test_texts_that_both_sides_made_are_made_again(clones: Any) -> None:
    for clone, name in zip(clones, ("left", "right"), strict=True):
        await _edit(clone, _lines(f"secret {name}", 2))
        assert await _edit(clone, _search) == ["notes"]
    await _merge(clones)
    for clone in clones:
        assert await _edit(clone, _search) == ["notes"]

        async def find(block: Block) -> list[str]:
            library = Library(block._permissions.universe, agent="scout")
            return [hit.label for word in ("left", "right") for hit in await library.search(word)]

        assert await _edit(clone, find) == ["notes", "notes"]


@ROUTES
async def test_what_one_side_redacted_stays_so_when_the_other_packed_it(
    clones: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)
    await _edit(clones[0], _lines("secret", 4))
    clones[0].save()
    clones[1].pull(clones[0])

    async def redact(block: Block) -> None:
        await block.redact(2)
        await block.append("left\n", message="left")

    await _edit(clones[0], redact)
    await _edit(clones[1], _lines("right", 12))
    text, history = await _merge(clones)
    assert "secret 0" not in text and all(line in text for line in ("secret 3", "left", "right 11"))
    assert len(history) == 5 + 2 + 12

    async def all_texts(block: Block) -> str:
        return "".join([(await block.at(each.number)).text for each in await block.history()])

    assert "secret 0" not in await _edit(clones[1], all_texts)


@ROUTES
@pytest.mark.parametrize(("left", "right"), first([(1, 1), (9, 1), (12, 12), (2, 2), (1, 12)], 3))
async def test_a_redaction_takes_nothing_of_the_same_number_elsewhere(
    clones: Any, left: int, right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides have a version 2, and perhaps a page that ends with the same version; one erases its own."""
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)

    async def redact(block: Block) -> None:
        await _lines("left", left)(block)
        await block.redact(2)

    await _edit(clones[0], redact)
    await _edit(clones[1], _lines("right", right))
    text, history = await _merge(clones)
    wanted = [f"left {n}" for n in range(1, left)] + [f"right {n}" for n in range(right)]
    assert sorted(line for line in text.splitlines() if "\N{REPLACEMENT CHARACTER}" not in line) == sorted(
        ["begin", *wanted]
    )
    assert len(history) == 2 + left + right

    async def redacted(block: Block) -> list[str]:
        return [each.message for each in await block.history() if each.redacted]

    for clone in clones:
        assert await _edit(clone, redacted) == ["left 0"]
    await _edit(clones[1], _lines("after", 1))


@ROUTES
@pytest.mark.parametrize("past", [False, True], ids=["recent", "past the other side"])
async def test_a_history_that_one_side_compacted(
    clones: Any, past: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)

    async def begin(block: Block) -> None:
        await _lines("shared", 2)(block)
        await block.checkpoint("early")
        await _lines("shared", 6)(block)

    async def compact(block: Block) -> None:
        await _lines("left", 6 if past else 1)(block)
        await block.compact(keep=2)

    async def look(block: Block) -> Any:
        for each in await block.history():
            if not each.compacted:
                await block.at(each.number)
        return await block.text(), (await block.at((await block.checkpoints())["early"])).text

    await _edit(clones[0], begin)
    clones[0].save()
    clones[1].pull(clones[0])
    await _edit(clones[0], compact)
    await _edit(clones[1], _lines("right", 2))
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1], conflict=not clones[0].driver)
    for _ in range(2):
        text, early = await _edit(clones[0], look)
        assert "left 0" in text and early.splitlines() == ["begin", "shared 0", "shared 1"]
        async with opened(clones[0].store) as store:
            conflicts = (await store.check_lines())[1]
        assert conflicts == [] and "right 1" in text
        without_cache(clones[0].store)
    await _edit(clones[0], _lines("after", 1))


@ROUTES
@pytest.mark.parametrize("past", [False, True], ids=["recent", "past the other side"])
async def test_what_each_side_redacted_the_other_compacted(
    clones: Any, past: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state of either side is without both: what is left is taken from both."""
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)
    await _edit(clones[0], _lines("shared", 10))
    clones[0].save()
    clones[1].pull(clones[0])

    def rewrite(name: str, number: int, keep: int) -> Work:
        async def work(block: Block) -> None:
            await _lines(name, 6 if past else 1)(block)
            await block.redact(number)
            await block.compact(keep=keep)
            await _lines(f"{name} after", 1)(block)

        return work

    await _edit(clones[0], rewrite("left", 8, 5))
    await _edit(clones[1], rewrite("right", 9, 4))
    text, _ = await _merge_ended(clones)
    edits = [f"{name} {n}" for name in ("left", "right") for n in range(6 if past else 1)]
    wanted = ["begin", *(f"shared {n}" for n in range(10) if n not in (6, 7)), *edits]
    wanted += ["left after 0", "right after 0"]
    assert sorted(line for line in text.splitlines() if "\N{REPLACEMENT CHARACTER}" not in line) == sorted(
        wanted
    )
    for clone in clones:
        assert not {"shared 6", "shared 7"} & set(texts_of_blocks(clone.store).split("\n"))
    await _edit(clones[0], _lines("later", 2))


async def _merge_ended(clones: tuple[Clone, Clone]) -> Any:
    """As `_merge`, where versions may have been compacted."""
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1], conflict=not clones[0].driver)
    await _edit(clones[0], _look_at_whole)
    clones[0].save()
    clones[1].pull(clones[0])
    found = [await _edit(clone, _look_at_whole) for clone in clones]
    assert found[0] == found[1]
    for clone in clones:
        async with opened(clone.store) as store:
            assert (await store.check_lines())[1] == []
    return found[0]


async def _look_at_whole(block: Block) -> Any:
    history = await block.history()
    return await block.text(), [(await block.at(each.number)).text for each in history if not each.compacted]


@pytest.mark.parametrize("driver", [True])
async def test_a_block_that_cannot_be_merged_is_reported(clones: Any) -> None:
    """A pack of one side cannot be read: a person hears of it, and can settle it."""
    block = await _edit(clones[0], _id)
    pack = Datum(
        pack_id(block, 1, "x"),
        data={"block": block, "first": 1, "last": 1, "state": False},
        content=b"not a pack",
        schema=PACK.name,
        schema_version=1,
    )
    async with dgent.open(f"jsonl:{clones[0].store}") as u:
        await u.for_room(ROOM).commit([Put(pack)])
    await _edit(clones[1], _lines("right", 1))
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1])
    for _ in range(2):
        async with opened(clones[0].store) as store:
            [conflict] = (await store.check_lines())[1]
            assert conflict.id == block
            problems = [each for each in await store.upkeep().inspect() if each.level == "problem"]
            assert [(each.subject, "cannot be merged" in each.message) for each in problems] == [
                ("conflict", True)
            ]
            assert f"jsonl settle {block}" in problems[0].hint
        without_cache(clones[0].store)
    async with opened(clones[0].store) as store:
        await store.settle(block, "ann")
        assert (await store.check_lines())[1] == []


async def _id(block: Block) -> str:
    await _lines("left", 1)(block)
    return block.id


@ROUTES
async def test_undo_and_a_checkpoint_after_a_merge(clones: Any) -> None:
    async def mark(block: Block) -> None:
        await _lines("right", 2)(block)
        await block.checkpoint("mine")
        await block.undo()

    await _edit(clones[0], _lines("left", 3))
    await asyncio.sleep(0.002)
    await _edit(clones[1], mark)
    text, _ = await _merge(clones)
    assert "right 1" not in text and "right 0" in text and "left 2" in text

    async def at(block: Block) -> str:
        return (await block.at((await block.checkpoints())["mine"])).text

    assert "right 1" in await _edit(clones[0], at)


@ROUTES
async def test_a_handle_that_is_open_while_git_merges(clones: Any) -> None:
    await _edit(clones[1], _lines("right", 3))
    clones[1].save()
    async with dgent.open(f"jsonl:{clones[0].store}", author="scout") as u:
        block = await Library(u, agent="scout").get("notes")
        await _lines("left", 2)(block)
        clones[0].save()
        clones[0].pull(clones[1], conflict=not clones[0].driver)
        await block.append("after\n")
        await block.undo()
        await block.append("at last\n")
    text, history = await _contents(clones[0])
    wanted = [*(f"left {n}" for n in range(2)), *(f"right {n}" for n in range(3))]
    assert sorted(text.splitlines()) == sorted(["begin", *wanted, "at last"])
    assert len(history) == 9


@pytest.mark.parametrize("driver", [True])
async def test_a_settlement_that_was_cut_off_is_done_again(clones: Any) -> None:
    """As if the process was killed after the lines of records, and before what decides about them."""
    await _edit(clones[0], _lines("left", 2))
    await _edit(clones[1], _lines("right", 3))
    for clone in clones:
        clone.save()
    clones[0].pull(clones[1])
    marks = clones[0].store / "_commits.jsonl"
    before = marks.read_bytes()
    found = await _contents(clones[0])
    marks.write_bytes(before)
    assert await _contents(clones[0]) == found
    async with opened(clones[0].store) as store:
        assert await odd(store) == []


@ROUTES
@pytest.mark.parametrize(("left", "right"), first([(1, 12), (3, 2), (1, 1), (12, 12)], 2))
async def test_a_redaction_erases_the_lines_that_a_merge_replaced(
    clones: Any, left: int, right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge numbered and packed versions anew: their lines under the old numbers and packs go, too."""
    monkeypatch.setattr(log, "PACK_SIZE", 8)
    monkeypatch.setattr(log, "KEEP", 3)
    await _edit(clones[0], _lines("left", left))
    await _edit(clones[1], _lines("right", right))
    await _merge(clones)

    secrets = (f"right {right - 1}", "left 0")
    for secret in secrets:

        async def redact(block: Block, secret: str = secret) -> None:
            [version] = [each for each in await block.history() if each.message == secret]
            assert (await block.redact(version.number)).erased

        await _edit(clones[0], redact)
        assert f"{secret}\n" not in texts_of_blocks(clones[0].store)
    await _edit(clones[1], _lines("after", 2))
    text, history = await _merge(clones)
    assert "after 1" in text and len(history) == 5 + left + right
    for clone in clones:
        assert not [secret for secret in secrets if f"{secret}\n" in texts_of_blocks(clone.store)]
