"""Edits of texts: exactly the part that is meant, or a clear refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent.blocks import Library, errors
from dgent.blocks.document.diff import compare_lines, show_changed
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


async def test_the_only_match_is_replaced_and_several_are_named(library: Library) -> None:
    block = await library.create("t", text="one\ntwo one\nthree\n")
    with pytest.raises(errors.NoMatch, match="2 times, in lines 1, 2"):
        await block.replace("one", "1", which="only")
    await block.replace("three", "3", which="only")
    assert await block.text() == "one\ntwo one\n3\n"
    with pytest.raises(errors.NoMatch, match="is not there"):
        await block.replace("three", "3", which="only")
    many = await library.create("many", text="x\n" * 40)
    with pytest.raises(errors.NoMatch, match=r"40 times, in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"):
        await many.replace("x", "y", which="only")


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        ("a\nb\n", 0, "new", "new\na\nb\n"),
        ("a\nb\n", 1, "new", "a\nnew\nb\n"),
        ("a\nb\n", 2, "new", "a\nb\nnew"),
        ("a\nb", 2, "new\n", "a\nb\nnew\n"),
        ("a\nb", 1, "x\ny\n", "a\nx\ny\nb"),
        ("", 0, "new", "new"),
    ],
)
async def test_lines_are_inserted_behind_a_line(
    library: Library, before: str, line: int, text: str, after: str
) -> None:
    block = await library.create("t", text=before)
    await block.insert(line, text)
    assert await block.text() == after
    assert [each.op for each in await block.history(1)] == ["insert"]


async def test_a_line_that_is_not_there_is_refused(library: Library) -> None:
    block = await library.create("t", text="a\nb\n")
    for line in (-1, 3, True, "1", None):
        with pytest.raises(errors.NoMatch):
            await block.insert(line, "x")  # type: ignore[arg-type]
    assert len(await block.history()) == 1


async def test_several_edits_are_one_version_or_none(library: Library) -> None:
    block = await library.create("t", text="one\ntwo\nthree\n")
    await block.edit_many(
        [
            {"old": "two", "new": "2"},
            {"line": 0, "text": "zero"},
            {"start": 4, "end": 4, "text": "3"},
            {"old": "e", "new": "E", "all": True},
        ],
        message="tidy",
    )
    assert await block.text() == "zEro\nonE\n2\n3\n"
    newest, first = await block.history()
    assert (newest.op, newest.message, first.number) == ("edit", "tidy", 1)
    with pytest.raises(errors.NoMatch, match="edit 2: 'nothing' is not there"):
        await block.edit_many([{"old": "2", "new": "two"}, {"old": "nothing", "new": "x"}])
    assert await block.text() == "zEro\nonE\n2\n3\n"
    await block.undo()
    assert await block.text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    "edits",
    [
        [],
        "x",
        None,
        [{}],
        [{"old": "a"}],
        [{"old": "a", "new": "b", "line": 1}],
        [1],
        [{"old": "a", "new": 1}],
    ],
)
async def test_what_is_not_an_edit_is_refused(library: Library, edits: object) -> None:
    block = await library.create("t", text="a")
    with pytest.raises(InputError):
        await block.edit_many(edits)  # type: ignore[arg-type]
    assert len(await block.history()) == 1


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a\nb\nc", "a\nB\nc", "1\ta\n2\tB\n3\tc"),
        ("a\nb\nc\nd", "a\nd", "1\ta\n2\td"),
        ("a", "a\nb", "1\ta\n2\tb"),
        ("a", "a", ""),
        ("", "x", "1\tx"),
        ("\n".join("abcdefgh"), "\n".join("aXcdeYgh"), "1\ta\n2\tX\n3\tc\n4\td\n5\te\n6\tY\n7\tg"),
    ],
)
def test_the_changed_lines_are_shown_with_their_numbers(before: str, after: str, shown: str) -> None:
    assert show_changed(before, after) == shown


def test_of_a_long_change_the_first_lines_are_shown() -> None:
    shown = show_changed("", "\n".join(map(str, range(100)))).split("\n")
    assert (len(shown), shown[0], shown[-1]) == (21, "1\t0", "… and 80 more lines")


async def test_a_number_alone_is_the_amount_of_an_increment(library: Library) -> None:
    counter = await library.create("hits", document="counter")
    await counter.increment(10)
    await counter.increment(-3)
    await counter.increment()
    assert await counter.value() == {"count": 8}
