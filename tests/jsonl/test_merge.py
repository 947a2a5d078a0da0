"""The merge driver by itself: random changes in two copies, merged both ways, come to the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Delete, Keep, Put
from dgent.store.jsonl.git import merge_files
from dgent.testing.contract import STORED, commit, typed_record
from tests.contract import program
from tests.jsonl.stores import opened
from tests.scratch import find_memory
from tests.soak import examples

_IDS = st.sampled_from(["a", "b", "c", "d"])
_puts = st.builds(
    lambda id, n, schema: Put(typed_record(id, n, schema=schema)),
    _IDS,
    st.integers(0, 9),
    st.sampled_from(["note", "tick"]),
)
_ops = st.lists(st.one_of(_puts, _puts, st.builds(Delete, _IDS)), min_size=1, max_size=3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), _ops),
        st.tuples(st.just("commit"), _ops),
        st.tuples(st.just("commit"), _ops),
        st.tuples(st.just("forget"), _IDS),
        st.tuples(st.just("rewrite"), st.booleans()),
        st.tuples(st.just("compact"), st.integers(0, 2)),
    ),
    max_size=6,
)


async def _change(folder: Path, steps: list[tuple[str, Any]], slow: program.SlowClock) -> None:
    async with opened(folder, sync="on_close") as store:
        for name, what in steps:
            slow.tick += 1
            if name == "commit":
                ops = list({op.id: op for op in what}.values())
                await commit(store, *ops)
            elif name == "forget":
                await store.forget([what], "tester", None)
            elif name == "rewrite":
                await store.rewrite(history=what)
            else:
                await store.compact(Keep(versions=what))


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache", ".lock"))
    return target


def _merge(base: Path, ours: Path, theirs: Path) -> set[str]:
    """What git does with a merge driver; a file that one side lacks is an empty one."""
    disputed: set[str] = set()
    for name in sorted({path.name for side in (ours, theirs) for path in side.glob("*.jsonl")}):
        for side in (base, ours, theirs):
            (side / name).touch()
        disputed.update(merge_files(str(base / name), str(ours / name), str(theirs / name), name).conflicts)
    return disputed


async def _contents(folder: Path) -> Any:
    async with opened(folder) as store:
        page = await store.query(Query(limit=None), STORED)
        assert len({datum.id for datum in page.items}) == len(page.items)
        reports, conflicts = await store.check_lines()
        assert reports == []
        return {d.id: (d.schema, d.data) for d in page.items}, sorted(each.id for each in conflicts)


async def _check_keys(folder: Path) -> None:
    """A new record is in the log once: no earlier commit speaks of it."""
    async with opened(folder) as store:
        await commit(store, *(Put(typed_record(f"later {n}", n)) for n in range(3)))
        log = await store.changes((await store.stats()).first_seq - 1, 1000)
        named = [change.seq for change in log for item in change.items if str(item.id).startswith("later")]
        assert named == [log[-1].seq] * 3


async def _run(first: Any, left: Any, right: Any) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as temporary, program.slow_clock() as slow:
        base = Path(temporary) / "base"
        await _change(base, first, slow)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        if left and right:
            await _change(one, [], slow)  # its cache knows what was there before
        await _change(one, left, slow)
        await _change(two, right, slow)
        mine = await _contents(one)
        theirs = await _contents(two)
        other = _copy(one, base.parent / "one as it was")
        _merge(_copy(base, base.parent / "b1"), one, two)
        _merge(_copy(base, base.parent / "b2"), two, other)
        merged = await _contents(one)
        assert merged == await _contents(two)
        assert merged == await _contents(_copy(one, base.parent / "fresh"))
        assert merged == await _contents(one), "settled once"
        await _check_keys(_copy(one, base.parent / "read anew"))
        forgotten = {what for name, what in [*left, *right] if name == "forget"}
        for id in mine[0].keys() | theirs[0].keys():
            assert id in forgotten or merged[0].get(id) in (mine[0].get(id), theirs[0].get(id))


def test_a_commit_stays_whole_that_one_side_moved_and_the_other_removed() -> None:
    a, c = Put(typed_record("a", 0, schema="note")), Put(typed_record("c", 0, schema="note"))
    first = [("commit", [a, c]), ("commit", [Delete("a"), Delete("c")]), ("forget", "a")]
    asyncio.run(_run(first, [("rewrite", False)], [("commit", [c]), ("rewrite", False)]))


def _note(id: str) -> Put:
    return Put(typed_record(id, 0, schema="note"))


@pytest.mark.parametrize(
    ("first", "left"),
    [
        pytest.param(
            [[_note("a")], [Delete("a")]],
            [[_note("a")], [Delete("a")], None, [_note("a")]],
            id="it is not a second opinion",
        ),
        pytest.param(
            [[_note("b")], [_note("a"), Delete("b")]],
            [[_note("b"), Delete("a")], None, [Delete("a")]],
            id="it is not half a commit",
        ),
    ],
)
def test_a_deletion_that_one_side_dropped_does_not_come_back(first: Any, left: Any) -> None:
    """Git merges each file by itself: a compaction may not move what the other copy's compaction drops."""
    sides = [
        [("rewrite", False) if ops is None else ("commit", ops) for ops in side] for side in (first, left)
    ]
    asyncio.run(_run(*sides, [("rewrite", False)]))


def test_edits_that_were_compacted_are_no_dispute_when_the_id_was_forgotten_before() -> None:
    tick = Put(typed_record("b", 0, schema="tick"))
    first = [("commit", [_note("a")]), ("forget", "a"), ("commit", [_note("a"), tick])]
    edits = [("commit", [Put(typed_record("a", n, schema="note"))]) for n in (1, 0)]
    asyncio.run(_run(first, [], [*edits, ("rewrite", False)]))


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("edits", [1, 3, 4])
async def test_an_edit_is_not_passed_over_when_the_other_copy_compacted(
    tmp_path: Path, edits: int, history: bool
) -> None:
    """Its lines between are missing, and its rev is higher: it could be taken for a later version."""

    async def edit(folder: Path, **data: int) -> None:
        async with opened(folder) as store:
            await commit(store, Put(Datum("a", data=data, schema="note", schema_version=1)))

    base = tmp_path / "base"
    await edit(base, x=0, y=0)
    one, two = _copy(base, tmp_path / "one"), _copy(base, tmp_path / "two")
    await edit(one, x=1, y=0)
    for n in range(edits):
        await edit(two, x=0, y=n + 1)
    async with opened(two) as store:
        await store.rewrite(history=history)
    other = _copy(one, tmp_path / "one as it was")
    _merge(_copy(base, tmp_path / "b1"), one, two)
    _merge(_copy(base, tmp_path / "b2"), two, other)
    data = {"x": 1 if history else 0, "y": edits}  # without history the base is gone
    for folder in (one, two, _copy(one, tmp_path / "fresh")):
        assert await _contents(folder) == ({"a": ("note", data)}, [] if history else ["a"])


@settings(max_examples=examples(25))
@given(_steps, _steps, _steps)
def test_two_copies_come_to_the_same(first: Any, left: Any, right: Any) -> None:
    asyncio.run(_run(first, left, right))
