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
        elif step == "rewrite":
            await u.backend.rewrite(history=True)  # type: ignore[attr-defined]
        else:
            await getattr(block, step)()
    return []


async def _contents(folder: Path) -> Any:
    async with opened(folder) as store:
        assert (await store.oddities())[1] == []
    async with dgent.open(f"jsonl:{folder}") as u:
        block = await Library(u, agent="scout").get("notes")
        history = list(reversed(await block.history()))
        assert [each.number for each in history] == list(range(1, len(history) + 1))
        texts = [(await block.at(each.number)).text for each in history]
        assert texts[-1] == await block.text()
        redacted = {each.message for each in history if each.redacted}
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
        assert {path.name: path.read_bytes() for path in again.glob("*.jsonl")} == written, "settled alike"
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
