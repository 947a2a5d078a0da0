"""Random histories of one block, by several handles that may be behind, over many folds."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import dgent
from dgent.blocks import Block, Library, Redaction
from dgent.blocks.document import document
from dgent.blocks.errors import NoMatch, VersionNotFound
from dgent.blocks.history import log
from dgent.errors import InputError
from tests.soak import times

HISTORIES = times(6)
STEPS = 60
LETTERS = "abcdefgh \n"


async def step(rng: random.Random, block: Block, texts: dict[int, str]) -> str:
    """One change by a handle; what it was."""
    what = rng.choice(["append", "append", "splice", "write", "undo", "redo", "rollback", "visit"])
    word = "".join(rng.choices(LETTERS, k=rng.randint(1, 6)))
    if what == "append":
        await block.append(word)
    elif what == "splice":
        await block.replace(rng.choice(LETTERS), word, which=rng.choice(("first", "all")))
    elif what == "write":
        await block.write(texts[max(texts)][: rng.randint(0, 20)] + word)
    elif what == "rollback":
        await block.rollback(rng.choice(list(texts)))
    elif what == "visit":
        await block.visit(rng.choice(list(texts)))
    else:
        await getattr(block, what)()
    return what


async def redact(rng: random.Random, handles: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out what some versions brought: by one handle, by several at once, or without the erasing."""
    newest = max(handle.version for handle in handles)
    numbers = [rng.randint(1, newest) for _ in range(rng.choice((1, 1, 3)))]
    calls = [rng.choice(handles).redact(number, clear_messages=rng.random() < 0.2) for number in numbers]
    with monkeypatch.context() as patch:
        if rng.random() < 0.3:  # as if it were killed between the commit and the erasing
            patch.setattr(dgent.Universe, "forget", _die)
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert error is None or isinstance(error, Redaction | InputError | InterruptedError)


async def _die(*_: Any, **__: Any) -> None:
    raise InterruptedError


async def keep_some(rng: random.Random, block: Block, named: dict[str, int]) -> None:
    """Name the present version or take a name away, now and then; compact, and all that is named is there."""
    if rng.random() < 0.15:
        name = f"c{len(named)}-{rng.random()}"
        named[name] = await block.checkpoint(name)
    if named and rng.random() < 0.03:
        name = rng.choice(list(named))
        assert await block.drop_checkpoint(name) == named.pop(name)
    if rng.random() < 0.08:
        before = {number: (await block.at(number)).text for number in named.values()}
        await block.compact(keep=rng.randint(1, 12))
        assert {number: (await block.at(number)).text for number in named.values()} == before


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_every_version_is_what_it_was(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for name, value in (("PACK_SIZE", rng.randint(2, 9)), ("KEEP", rng.randint(1, 4)), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    monkeypatch.setattr(document, "MAX_REVERTED", rng.choice((0, 10, 4_000)))
    monkeypatch.setattr(document, "PIECE", rng.choice((2, 1_000)))
    async with dgent.open("memory:") as u:
        library = Library(u, agent="scout")
        first = await library.create("notes", text="begin", limit=10**6)
        handles = [first, await library.get("notes"), await Library(u, agent="scout").get("notes")]
        texts = {1: "begin"}
        named: dict[str, int] = {}
        for _ in range(STEPS):
            block = rng.choice(handles)
            try:
                await step(rng, block, texts)
            except (NoMatch, VersionNotFound):
                continue  # nothing to undo or redo, nothing like that in the text, or it was compacted
            await keep_some(rng, block, named)
            fresh = await Library(u, agent="scout").get("notes")
            if rng.random() < 0.12:
                await redact(rng, handles, monkeypatch)
                found = [each for each in await fresh.history() if not each.compacted]
                texts |= {each.number: (await fresh.at(each.number)).text for each in found}
            text = await fresh.text()
            for number in range(max(texts) + 1, fresh.version + 1):
                texts[number] = (await fresh.at(number)).text if number < fresh.version else text
            if rng.random() < 0.5:
                assert await rng.choice(handles).text() == text
        versions = (await first.history())[::-1]
        assert [each.number for each in versions] == list(range(1, max(texts) + 1))
        assert not versions[-1].compacted
        assert await first.checkpoints() == named
        assert not [number for number in named.values() if versions[number - 1].compacted]
        for each in (each for each in versions if not each.compacted):
            for handle in (rng.choice(handles), await library.get("notes")):
                assert (await handle.at(each.number)).text == texts[each.number], each
            assert each.size == len(texts[each.number])
        assert {await handle.text() for handle in handles} == {texts[max(texts)]}
        for branch in await first.branches():
            assert branch.fork < branch.tip and branch.length >= 1
        assert "<block:notes" in await library.render(referenced="notes")


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_every_version_is_what_is_left_of_its_lines(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are only appended: each version has those before it, without what was redacted."""
    rng = random.Random(seed)
    for name, value in (("PACK_SIZE", rng.randint(2, 9)), ("KEEP", rng.randint(1, 4)), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)
    async with dgent.open("memory:") as u:
        library = Library(u, agent="scout")
        handles = [await library.create("notes", limit=10**6), await library.get("notes")]
        brought: dict[int, str] = {}
        named: dict[str, int] = {}
        for number in range(STEPS):
            block = rng.choice(handles)
            what = rng.choice(["append"] * 6 + ["redact"] * 3 + ["fold", "keep", "keep"])
            if what == "append":
                brought[(await block.append(f"line {number}\n")).number] = f"line {number}\n"
            elif what == "fold":
                await block._version_log.refresh()
                await block._version_log.pack_versions(keep=rng.randint(1, 3))
            elif what == "keep":
                await keep_some(rng, block, named)
            else:
                await redact_lines(rng, block, brought)
        fresh = await library.get("notes")
        for each in await fresh.history():
            if not each.compacted:
                wanted = "".join(line for made, line in brought.items() if made <= each.number)
                assert (await fresh.at(each.number)).text == wanted, each


async def redact_lines(rng: random.Random, block: Block, brought: dict[int, str]) -> None:
    """Redact some versions that follow each other, if none of them was compacted."""
    await block.text()
    first = rng.randint(1, block.version)
    last = min(block.version, first + rng.choice((0, 0, 2)))
    try:
        await block.redact(first, last)
    except InputError:
        return
    for made in brought.keys() & set(range(first, last + 1)):
        brought[made] = "\N{REPLACEMENT CHARACTER}" * (len(brought[made]) - 1) + "\n"
