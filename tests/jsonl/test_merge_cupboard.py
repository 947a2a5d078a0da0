"""Random changes of a cupboard in two copies: merged both ways, its rules hold and nothing is undone."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.cupboard import Cupboard, Link
from dgent.cupboard.kind import FINISHED, LINK_RULES
from dgent.errors import DgentError
from tests.jsonl.stores import opened
from tests.jsonl.test_merge import _copy, _merge
from tests.scratch import find_memory
from tests.soak import examples

NAMES = ["a", "b", "c"]
_names = st.sampled_from(NAMES)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("finish"), _names, st.sampled_from(FINISHED)),
        st.tuples(st.just("label"), _names, st.sampled_from(["x", "y"])),
        st.tuples(st.just("take"), _names, st.just("")),
        st.tuples(st.sampled_from(["child_of", "part_of", "related_to"]), _names, _names),
        st.tuples(st.just("add"), _names, st.just("")),
        st.tuples(st.just("count"), st.just(""), st.integers(-3, 9)),
        st.tuples(st.just("define"), _names, st.just("text")),
        st.tuples(st.just("rewrite"), st.just(""), st.just("")),
    ),
    max_size=7,
)
MERGED_AGAINST = {"acyclic"}  # what two copies may break together, and an audit names


async def _change(folder: Path, steps: list[Any]) -> tuple[set[str], int]:
    """Change a copy; the crumbs whose state was changed, and what was added to the counter."""
    staged: set[str] = set()
    added = 0
    async with dgent.open(f"jsonl:{folder}?sync=on_close") as u:
        cupboard = Cupboard(u)
        for step in steps:
            with suppress(DgentError):
                await _do(cupboard, *step)
                staged |= {step[1]} if step[0] in ("finish", "take") else set()
                added += step[2] if step[0] == "count" else 0
    return staged, added


async def _do(cupboard: Cupboard, what: str, name: str, value: Any) -> None:
    if what == "rewrite":
        await cupboard.universe.backend.rewrite(history=True)  # type: ignore[attr-defined]
    elif what == "count":
        (stash,) = await cupboard.stashes.fetch(name=["count"])
        await cupboard.stashes.increment(stash.id, value)
    elif what == "define":
        await cupboard.properties.define(f"property {name}", value)
    elif what in LINK_RULES:
        child, parent = [(await cupboard.crumbs.fetch(name=[each]))[0].id for each in (name, value)]
        await cupboard.links.set(None, Link(what, child, parent))
    elif what == "add":
        await cupboard.add("part", part_of=await cupboard.crumbs.fetch(name=[name]))
    else:
        (crumb,) = await cupboard.crumbs.fetch(name=[name])
        if what == "label":
            crumb.properties["labels"] = [*crumb.properties["labels"], value]
        else:
            crumb.set_state(value or "taken")
        await cupboard.crumbs.set(crumb.id, crumb)


async def _contents(folder: Path) -> Any:
    async with opened(folder) as store:
        disputed = {field for each in (await store.check_lines())[1] for field in each.fields}
        assert disputed <= {"state", "holder"}
    async with dgent.open(f"jsonl:{folder}") as u:
        cupboard = Cupboard(u)
        assert {each.rule for each in (await cupboard.audit()).findings} <= MERGED_AGAINST
        found = await cupboard.crumbs.fetch()
        assert len({each.short_id for each in found}) == len(found)
        crumbs = {each.name if each.name != "part" else each.id: each for each in found}
        crumbs = {name: (each.state, each.properties["labels"]) for name, each in crumbs.items()}
        (count,) = await cupboard.stashes.fetch(name=["count"])
        ready = [each.name for each in await cupboard.ready()]
        return crumbs, count.value, ready, sorted(each.name for each in await cupboard.properties.fetch())


async def _begin(folder: Path) -> None:
    async with dgent.open(f"jsonl:{folder}") as u:
        for name in NAMES:
            await Cupboard(u).add(name, state="ready")
        await Cupboard(u).stashes.create("count", "counter")


async def _run(first: list[Any], left: list[Any], right: list[Any]) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as temporary:
        base = Path(temporary) / "base"
        await _begin(base)
        await _change(base, first)
        one, two = _copy(base, base.parent / "one"), _copy(base, base.parent / "two")
        staged, added = await _change(one, left)
        staged_too, added_too = await _change(two, right)
        start, mine, theirs = [await _contents(folder) for folder in (base, one, two)]
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
        assert merged[1]["value"] == start[1]["value"] + added + added_too
        assert merged[3] == sorted({*mine[3], *theirs[3]})
        for name in NAMES:
            states = {side[0][name][0] for side in (mine, theirs)}
            if states & {*FINISHED} and name not in staged & staged_too:
                assert merged[0][name][0] in FINISHED or start[0][name][0] in FINISHED
            for side in (mine, theirs):
                assert {*side[0][name][1]} <= {*merged[0][name][1]}


@settings(max_examples=examples(8))
@given(_steps, _steps, _steps)
def test_rules_hold_in_what_is_merged(first: list[Any], left: list[Any], right: list[Any]) -> None:
    asyncio.run(_run(first, left, right))


async def test_both_sides_add_the_same_to_a_counter() -> None:
    await _run([], [("count", "", 1)], [("count", "", 1)])


async def test_three_copies_that_merge_crosswise(tmp_path: Path) -> None:
    """What two of them have by different ways counts once."""
    base = tmp_path / "base"
    await _begin(base)
    sides = [_copy(base, tmp_path / name) for name in "abc"]
    for number, (side, label) in enumerate(zip(sides, "xyz", strict=True)):
        await _change(side, [("count", "", 10**number), ("label", "a", label)])
    a, b, c = sides
    before = [_copy(side, tmp_path / f"{side.name} before") for side in sides]
    _merge(_copy(base, tmp_path / "b1"), a, _copy(before[1], tmp_path / "b for a"))
    _merge(_copy(base, tmp_path / "b2"), b, _copy(before[2], tmp_path / "c for b"))
    _merge(_copy(base, tmp_path / "b3"), c, _copy(before[0], tmp_path / "a for c"))
    for side in sides:
        await _contents(side)
        await _change(side, [("count", "", 1000)])
    _merge(_copy(before[1], tmp_path / "b4"), a, _copy(b, tmp_path / "b again"))
    await _contents(a)
    _merge(_copy(before[0], tmp_path / "b5"), a, _copy(c, tmp_path / "c again"))
    crumbs, count, _, _ = await _contents(a)
    assert count == {"value": 3111}
    assert sorted(crumbs["a"][1]) == ["x", "y", "z"]
