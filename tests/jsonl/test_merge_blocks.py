"""Random edits of blocks in two copies: merged both ways, nothing of either side is lost."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import dgent
from dgent.blocks import Block, Library
from dgent.blocks.history import log
from dgent.errors import DgentError
from tests.jsonl.stores import lines, opened, texts_of_blocks
from tests.jsonl.test_merge import _copy, _merge
from tests.scratch import find_memory
from tests.soak import examples

BLANK = "\N{REPLACEMENT CHARACTER}"
_WRITES = ["append", "append", "append", "append", "write"]
_REWRITES = ["redact", "redact", "compact", "compact", "name", "rewrite"]
Steps = list[tuple[str, int]]


def _steps(names: list[str]) -> st.SearchStrategy[Steps]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 4)), max_size=10)


_places = st.lists(st.integers(0, 9), max_size=2)
"""The versions that are redacted after a merge, by their places from the newest."""
_kept = _steps([*_WRITES, "undo", "redo", "fold", "rewrite", "redact"])
_ended = _steps([*_WRITES, *_REWRITES])
_any = _steps([*_WRITES, *_REWRITES, "undo", "redo", "fold"])


class Copy(NamedTuple):
    """What a copy should hold: its lines, each with the step that brought it, and the redacted texts."""

    there: dict[str, tuple[Any, ...]]
    redacted: set[str]


BEGIN = Copy({"begin": ("begin",)}, set())
_numbers = itertools.count()
A = ("append", 0)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and BLANK not in line]


async def _edit(folder: Path, name: str, steps: Steps, before: Copy) -> Copy:
    """Edit the block of a copy. No two lines begin alike: so what a version brought are whole lines."""
    there, redacted = dict(before.there), set(before.redacted)
    async with dgent.open(f"jsonl:{folder}?sync=on_close", author=name) as u:
        block = await Library(u, agent="scout").get("notes")
        for number, (step, place) in enumerate(steps):
            known = set(_lines(await block.text()))
            said = f"{chr(0x4E00 + next(_numbers) % 20_000)} {name} {number}"
            with suppress(DgentError):
                redacted |= await _do(u, block, step, place, said)
            now = set(_lines(await block.text()))
            there = {line: made for line, made in there.items() if line in now}
            there |= {line: (line, name, number) for line in now - known}
            assert there.keys() == now
    return Copy(there, redacted)


async def _do(u: dgent.Universe, block: Block, step: str, place: int, said: str) -> set[str]:
    """Do one step; the text that it redacted."""
    if step == "append":
        await block.append(f"{said}\n", message=said)
    elif step == "write":
        await block.write(f"{said}\n{await block.text()}", message=said)
    elif step == "fold":
        await block._version_log.pack_versions(keep=2)
    elif step == "redact":
        history = await block.history()
        chosen = history[min(place, len(history) - 1)]
        await block.redact(chosen.number)
        return {chosen.message} if chosen.op in ("append", "write") else set()
    elif step == "name":
        await block.checkpoint(said)
    elif step == "compact":
        await block.compact(keep=3)
    elif step == "rewrite":
        await u.backend.rewrite(history=True)  # type: ignore[attr-defined]
    else:
        await getattr(block, step)()
    return set()


class Contents(NamedTuple):
    """What a copy says of its block."""

    versions: list[tuple[Any, ...]]
    texts: list[str]
    checkpoints: dict[str, int]
    disputes: list[tuple[str, ...]]


async def _contents(folder: Path) -> Contents:
    async with opened(folder) as store:
        disputes = [each.fields for each in (await store.check_lines())[1]]
    async with dgent.open(f"jsonl:{folder}") as u:
        block = await Library(u, agent="scout").get("notes")
        history = list(reversed(await block.history()))
        assert [each.number for each in history] == list(range(1, len(history) + 1))
        texts = [(await block.at(each.number)).text for each in history if not each.compacted]
        assert texts[-1] == await block.text()
        named = await block.checkpoints()
        assert all(1 <= number <= len(history) for number in named.values())
        versions = [(each.by, each.op, each.message, each.at) for each in history]
        return Contents(versions, texts, named, disputes)


def _files(folder: Path) -> dict[str, Any]:
    names = [path.name for path in folder.glob("*.jsonl") if path.name != "_schemas.jsonl"]
    return {name: sorted(map(str, lines(folder, name))) for name in names if lines(folder, name)}


async def _begin(base: Path, steps: Steps) -> Copy:
    async with dgent.open(f"jsonl:{base}", author="first") as u:
        await Library(u, agent="scout").create("notes", text="begin\n")
    return await _edit(base, "first", steps, BEGIN)


async def _check_merge(base: Path, one: Path, two: Path, was: Copy, left: Copy, right: Copy) -> Copy:
    """Merge two copies both ways, and check that they come to the same, which is what it should be."""
    before = [await _contents(folder) for folder in (one, two)]
    other, place = _copy(one, one.parent / "one as it was"), Path(tempfile.mkdtemp(dir=one.parent))
    _merge(_copy(base, place / "b1"), one, two)
    _merge(_copy(base, place / "b2"), two, other)
    merged = await _contents(one)
    assert merged == await _contents(two)
    assert merged == await _contents(_copy(one, place / "fresh"))
    assert merged == await _contents(one), "settled once"
    assert _files(one) == _files(two), "settled alike"
    again = _copy(one, place / "again")
    _merge(_copy(base, place / "b3"), again, _copy(two, place / "two again"))
    assert merged == await _contents(again)
    assert _files(again) == _files(one), "nothing to do"

    mine, theirs, both = (set(copy.there.values()) for copy in (left, right, was))
    wanted = (mine & theirs & both) | (mine - both) | (theirs - both)
    assert Counter(_lines(merged.texts[-1])) == Counter(made[0] for made in wanted)
    for each in before:
        assert not Counter(each.versions) - Counter(merged.versions), "a version was lost"
        assert each.checkpoints.keys() <= merged.checkpoints.keys()
    redacted = left.redacted | right.redacted
    _check_erased(merged, redacted, one, two, again)
    return Copy({made[0]: made for made in wanted}, redacted)


def _check_erased(found: Contents, redacted: set[str], *folders: Path) -> None:
    """Check that nothing which was redacted is in a version or in a line."""
    if all(op not in ("undo", "redo") for _, op, *_ in found.versions):  # these bring a text once more
        for text in (*found.texts, *map(texts_of_blocks, folders)):
            assert not [said for said in redacted if said in text]


async def _run(first: Steps, left: Steps, right: Steps, later: list[int]) -> Contents:
    with tempfile.TemporaryDirectory(dir=find_memory()) as temporary:
        base = Path(temporary) / "base"
        was = await _begin(base, first)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        sides = await _edit(one, "left", left, was), await _edit(two, "right", right, was)
        now = await _check_merge(base, one, two, was, *sides)
        merged = await _contents(one)
        now = await _edit(one, "redacting", [("redact", place) for place in later], now)
        _check_erased(await _contents(one), now.redacted, one)
        more = [("append", 0), ("append", 0), ("compact", 0), ("append", 0), ("redact", 1)]
        now = await _edit(one, "after", more, now)
        _check_erased(await _contents(one), now.redacted, one)
        return merged


@settings(max_examples=examples(4))
@example([], [A, A], [A], [0])
@example([], [A], [A, A, A, ("fold", 0), A, A], [0])
@example([A, ("undo", 0)], [("redo", 0)], [("redo", 0)], [])
@given(_kept, _kept, _kept, _places)
def test_no_edit_is_lost(first: Steps, left: Steps, right: Steps, later: list[int]) -> None:
    with patch.object(log, "PACK_SIZE", 4), patch.object(log, "KEEP", 2):
        assert asyncio.run(_run(first, left, right, later)).disputes == []


_GONE_AND_MOVED = (
    [("redact", 0), A, A, A],
    [A, A, A, A, A, ("rewrite", 0), A],
    [A, ("redact", 0), A, A, A, A, A, A, ("rewrite", 0)],
    [0],
)
"""Both compact the record of a deletion: one drops its line, the other moves it to another file."""


@settings(max_examples=examples(6))
@example(*_GONE_AND_MOVED)
@given(_ended, _ended, _ended, _places)
def test_no_edit_is_lost_of_histories_that_were_ended(
    first: Steps, left: Steps, right: Steps, later: list[int]
) -> None:
    with patch.object(log, "PACK_SIZE", 4), patch.object(log, "KEEP", 2):
        assert asyncio.run(_run(first, left, right, later)).disputes == []


async def _run_twice(first: Steps, left: Steps, right: Steps, later: Steps, places: list[int]) -> None:
    """One copy merges the other and redacts; that goes on meanwhile, with the numbers its versions had."""
    with tempfile.TemporaryDirectory(dir=find_memory()) as temporary:
        base = Path(temporary) / "base"
        was = await _begin(base, first)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        await _edit(one, "left", left, was)
        mine = await _edit(two, "right", right, was)
        known = _copy(two, base.parent / "known")
        _merge(_copy(base, base.parent / "b1"), one, two)
        found = _lines((await _contents(one)).texts[-1])
        # Both redid the same: a Copy cannot say that a line is there twice. test_no_edit_is_lost has it.
        assume(len(found) == len(set(found)))
        merged = Copy({line: mine.there.get(line, (line, "left")) for line in found}, mine.redacted)
        after = [("append", 0), *(("redact", place) for place in places)]
        merged = await _edit(one, "after", after, merged)
        _check_erased(await _contents(one), merged.redacted, one)
        await _check_merge(known, one, two, mine, merged, await _edit(two, "later", later, mine))


_ALIKE = (
    [("redact", 1), ("write", 4), A],
    [("redact", 1)],
    [("undo", 0), ("redact", 1), ("rewrite", 0), ("redact", 2)],
    [A, ("write", 1)],
    [],
)
"""Two versions differ in their times alone."""


@settings(max_examples=examples(4))
@example(*_ALIKE)
@given(_any, _any, _any, _steps([*_WRITES, "fold", "rewrite"]), _places)
def test_a_copy_goes_on_while_another_merges_it(
    first: Steps, left: Steps, right: Steps, later: Steps, places: list[int]
) -> None:
    with patch.object(log, "PACK_SIZE", 4), patch.object(log, "KEEP", 2):
        asyncio.run(_run_twice(first, left, right, later, places))


async def _merge_into(folder: Path, *others: Path, base: Path) -> None:
    for other in others:
        place = Path(tempfile.mkdtemp(dir=folder.parent))
        _merge(_copy(base, place / "base"), folder, _copy(other, place / "other"))
        await _contents(folder)


async def _check_redaction(folder: Path, redacting: Path, base: Path, place: int) -> None:
    """Redact a version in one copy, and merge that into another, which has it under its own numbers."""
    done = await _edit(redacting, "redacting", [("redact", place)], await _copy_of(redacting))
    assert done.redacted
    _check_erased(await _contents(redacting), done.redacted, redacting)
    await _merge_into(folder, redacting, base=base)
    _check_erased(await _contents(folder), done.redacted, folder)


async def _copy_of(folder: Path) -> Copy:
    return Copy({line: (line,) for line in _lines((await _contents(folder)).texts[-1])}, set())


async def test_a_redaction_reaches_lines_that_earlier_merges_replaced(tmp_path: Path) -> None:
    """One copy numbered a version anew three times and packed it, before another one redacts it."""
    base = tmp_path / "base"
    was = await _begin(base, [])
    one, *others, last = (_copy(base, tmp_path / name) for name in ("one", "two", "three", "last"))
    for folder in (*reversed(others), one, last):
        await _edit(folder, folder.name, [A], was)
    with patch.object(log, "KEEP", 2):
        await _merge_into(one, last, *others, base=base)
        await _edit(one, "after", [A, ("fold", 0)], await _copy_of(one))
        await _check_redaction(one, last, base, 0)


async def test_a_redaction_reaches_a_copy_that_merged_the_same_apart(tmp_path: Path) -> None:
    """Both numbered a version alike, in lines that are not the same: one of them merged a checkpoint, too."""
    base = tmp_path / "base"
    was = await _begin(base, [])
    one, other = (_copy(base, tmp_path / name) for name in ("one", "other"))
    await _edit(one, "one", [A], was)
    known = await _edit(other, "other", [A], was)
    two = _copy(one, tmp_path / "two")
    await _merge_into(one, other, base=base)
    await _edit(other, "other", [("name", 0)], known)
    await _merge_into(two, other, base=base)
    await _check_redaction(two, one, base, 0)
