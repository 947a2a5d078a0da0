"""Edits of texts: exactly the part that is meant, or a clear refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.blocks import Library, errors
from dgent.blocks.document.diff import compare_lines
from dgent.blocks.edit.text import apply_patch
from dgent.errors import InputError


@pytest.fixture
async def library() -> AsyncIterator[Library]:
    async with dgent.open("memory:") as u:
        yield Library(u, agent="scout")


async def test_replacing_first_all_nth_and_by_pattern(library: Library) -> None:
    block = await library.create("t", text="a b a b a")
    await block.replace("a", "x")
    assert await block.text() == "x b a b a"
    await block.replace("b", "éé", which="all")
    assert await block.text() == "x éé a éé a"
    await block.replace("a", "c", which=2)
    assert await block.text() == "x éé a éé c"
    await block.replace(r"(\w) é", r"<\1>é", regex=True)
    assert await block.text() == "<x>éé a éé c"
    for wrong in (3, 0, -1):
        with pytest.raises(errors.NoMatch):
            await block.replace("éé", "x", which=wrong)
    with pytest.raises(errors.NoMatch):
        await block.replace("nothing", "x")
    for old, new in (("(", "x"), ("x", r"\9")):
        with pytest.raises(InputError):
            await block.replace(old, new, regex=True)
    with pytest.raises(InputError):
        await block.replace("", "x")
    assert await block.text() == "<x>éé a éé c"
    assert len(await block.history()) == 5


async def test_lines_are_replaced_by_their_numbers(library: Library) -> None:
    block = await library.create("t", text="one\ntwo\nthree\n")
    await block.edit_range(2, 2, "TWO")
    assert await block.text() == "one\nTWO\nthree\n"
    await block.edit_range(1, 2, "")
    assert await block.text() == "three\n"
    for start, end in ((0, 1), (2, 2), (2, 1)):
        with pytest.raises(errors.NoMatch):
            await block.edit_range(start, end, "x")


async def test_a_patch_whose_context_is_not_there_is_refused(library: Library) -> None:
    block = await library.create("t", text="one\ntwo\nthree\n")
    patch = compare_lines("one\ntwo\nthree\n", "one\n2\nthree\n", ("a", "b"))
    await block.patch(patch)
    assert await block.text() == "one\n2\nthree\n"
    with pytest.raises(errors.NoMatch, match="nowhere"):
        await block.patch(patch)
    with pytest.raises(errors.NoMatch):
        await block.patch("no patch")
    assert len(await block.history()) == 2


TEXT = st.lists(st.sampled_from(["a", "b", "c", "", "a b", "é"]), max_size=12).map("\n".join)


@given(TEXT, TEXT)
def test_the_difference_of_two_texts_patches_one_into_the_other(before: str, after: str) -> None:
    before, after = before + "\n", after + "\n"
    patch = compare_lines(before, after, ("before", "after"))
    assert (apply_patch(before, patch) if patch else before) == after


async def test_a_lock_step_of_two_handles_keeps_labels_unique(library: Library) -> None:
    await library.create("t")
    with pytest.raises(errors.LabelTaken):
        await library.create("t")
    await library.rename("t", "u")
    await library.create("t")
    with pytest.raises(errors.LabelTaken):
        await library.rename("t", "u")
    await library.delete("u")
    await library.create("u", text="another")
    assert [block.label for block in await library.list()] == ["t", "u"]
    with pytest.raises(errors.BlockNotFound):
        await library.get("gone")
    other = Library(library._universe, agent="other")
    await other.create("t", text="its own")
    assert await (await library.get("t")).text() == ""
