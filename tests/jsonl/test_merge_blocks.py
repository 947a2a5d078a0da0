"""Random edits of blocks in two copies: merged both ways, nothing of either side is lost."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.blocks import Block, Library
from dgent.blocks.history import log
from dgent.errors import DgentError
from tests.jsonl.stores import opened
from tests.jsonl.test_merge import _copy, _merge
from tests.soak import times

_steps = st.lists(
    st.sampled_from(["append", "append", "append", "write", "undo", "redo", "fold", "rewrite", "redact"]),
    max_size=12,
)
_ending_steps = st.lists(
    st.sampled_from(
        ["append", "append", "append", "fold", "rewrite", "redact", "name", "compact", "compact"]
    ),
    max_size=10,
)


async def _edit(folder: Path, name: str, steps: list[str]) -> list[str]:
    """Edit the block of a copy; the messages of the versions that were made."""
    said: list[str] = []
    async with dgent.open(f"jsonl:{folder}?sync=on_close", author=name) as u:
        block = await Library(u, agent="scout").get("notes")
        for number, step in enumerate(steps):
            said += await _do(u, block, step, f"{name} {number}")
    return said


async def _do(u: dgent.Universe, block: Block, step: str, said: str) -> list[str]:
    if step == "append":
        await block.append(f"{said}\n", message=said)
        return [said]
    if step == "write":
        await block.write(f"{said}\n{await block.text()}", message=said)
        return [said]
    with suppress(DgentError):
        if step == "fold":
            await block._version_log.pack_versions(keep=2)
        elif step == "redact":
            await block.redact(max(1, (await block.history())[0].number - 1))
        elif step == "name":
            await block.checkpoint(said)
        elif step == "compact":
            await block.compact(keep=3)
        elif step == "rewrite":
            await u.backend.rewrite(history=True)  # type: ignore[attr-defined]
        else:
            await getattr(block, step)()
    return []


async def _contents(folder: Path, disputes: list[Any] | None = None) -> Any:
    async with opened(folder) as store:
        found = (await store.check_lines())[1]
        assert found == [] or disputes is not None
        if disputes is not None:
            disputes[:] = found
    async with dgent.open(f"jsonl:{folder}") as u:
        block = await Library(u, agent="scout").get("notes")
        history = list(reversed(await block.history()))
        assert [each.number for each in history] == list(range(1, len(history) + 1))
        whole = [each for each in history if not each.compacted]
        texts = [(await block.at(each.number)).text for each in whole]
        assert texts[-1] == await block.text()
        assert all(1 <= number <= len(history) for number in (await block.checkpoints()).values())
        redacted = {each.message for each in history if each.redacted}
        if all(each.op not in ("undo", "redo") for each in history):  # these bring a text once more
            assert not [text for text in texts for said in redacted if said and f"{said}\n" in text]
        return [(each.by, each.op, each.message, each.at) for each in history], texts


async def _run(first: list[str], left: list[str], right: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "base"
        async with dgent.open(f"jsonl:{base}", author="first") as u:
            await Library(u, agent="scout").create("notes", text="begin\n")
        await _edit(base, "first", first)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        said = await _edit(one, "left", left) + await _edit(two, "right", right)
        before = [await _contents(folder) for folder in (base, one, two)]
        other = _copy(one, base.parent / "one as it was")
        _merge(_copy(base, base.parent / "b1"), one, two)
        _merge(_copy(base, base.parent / "b2"), two, other)
        merged = await _contents(one)
        assert merged == await _contents(two)
        assert merged == await _contents(_copy(one, base.parent / "fresh"))
        assert merged == await _contents(one), "settled once"
        again = _copy(one, base.parent / "again")
        _merge(_copy(base, base.parent / "b3"), again, _copy(two, base.parent / "two again"))
        written = {path.name: path.read_bytes() for path in again.glob("*.jsonl")}
        assert merged == await _contents(again)
        # Where both made the record of redactions and one dropped its older lines, copies see it differently.
        same = {path.name: path.read_bytes() for path in again.glob("*.jsonl")} == written
        assert same or {"redact", "rewrite"} <= {*left, *right}, "settled alike"
        for versions, _ in before:
            assert all(each in merged[0] for each in versions), "a version was lost"
        assert len(merged[0]) == len(before[1][0]) + len(before[2][0]) - len(before[0][0])
        # A text that is written anew may be made of letters that are redacted later.
        undone = {"undo", "redo", "redact"} & {*left, *right}
        assert undone or all(line in merged[1][-1] for line in said)


@settings(max_examples=times(8))
@given(_steps, _steps, _steps)
def test_no_edit_is_lost(first: list[str], left: list[str], right: list[str]) -> None:
    with patch.object(log, "PACK_SIZE", 4), patch.object(log, "KEEP", 2):
        asyncio.run(_run(first, left, right))


async def _run_ending(first: list[str], left: list[str], right: list[str]) -> None:
    """Merge histories that were ended: what cannot be merged is in dispute, and what is there is whole."""
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "base"
        async with dgent.open(f"jsonl:{base}", author="first") as u:
            await Library(u, agent="scout").create("notes", text="begin\n")
        await _edit(base, "first", first)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        said = await _edit(one, "left", left) + await _edit(two, "right", right)
        other = _copy(one, base.parent / "one as it was")
        _merge(_copy(base, base.parent / "b1"), one, two)
        _merge(_copy(base, base.parent / "b2"), two, other)
        disputes: list[Any] = []
        merged = await _contents(one, disputes)
        assert merged == await _contents(two, disputes)
        known = list(disputes)
        assert merged == await _contents(_copy(one, base.parent / "fresh"), disputes)
        assert [each.id for each in disputes] == [each.id for each in known]
        redacted = "redact" in {*left, *right}
        assert known or redacted or all(line in merged[1][-1] for line in said)
        await _edit(one, "after", ["append", "append", "compact", "append"])
        await _contents(one, disputes)


@settings(max_examples=times(8))
@given(_ending_steps, _ending_steps, _ending_steps)
def test_what_is_left_of_ended_histories_is_whole(
    first: list[str], left: list[str], right: list[str]
) -> None:
    with patch.object(log, "PACK_SIZE", 4), patch.object(log, "KEEP", 2):
        asyncio.run(_run_ending(first, left, right))
