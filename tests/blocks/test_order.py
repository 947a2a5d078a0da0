"""Edits of one block by several handles: one that was made after another sees it, and edits at once merge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.blocks import Block, Field, Library, Shape, Template, errors
from dgent.blocks.history import log
from tests.blocks.agents import before_commit
from tests.blocks.conftest import Rival
from tests.soak import examples

TIMES = 8


async def pair(lib: Library, rival: Rival, label: str) -> tuple[Block, Block]:
    """Two handles on one block, as two programs have them, both with the document in memory."""
    mine, theirs = await lib.get(label), await (await rival()).get(label)
    await mine.text()
    await theirs.text()
    return mine, theirs


async def test_the_later_value_of_a_field_stands(lib: Library, rival: Rival) -> None:
    await lib.create("facts", document="map")
    handles = await pair(lib, rival, "facts")
    for number in range(TIMES):
        for name, handle in zip("ab", handles, strict=True):
            await handle.set_field("k", f"{name}{number}")
        fresh = await lib.get("facts")  # the two others do not look
        assert (await fresh.value())["k"] == f"b{number}"


async def test_the_later_of_two_texts_stands(lib: Library, rival: Rival) -> None:
    await lib.create("notes")
    a, b = await pair(lib, rival, "notes")
    for number in range(TIMES):
        await a.write(f"the first text has number {number}")
        await b.write(f"another one, number {number}, stands")
        assert await a.text() == f"another one, number {number}, stands"
        await b.append("!")
        await a.append("?")
        assert (await b.text()).endswith("stands!?")


async def test_items_are_where_the_edit_before_left_them(lib: Library, rival: Rival) -> None:
    await lib.create("tasks", document="list", value=["one", "two", "three"])
    a, b = await pair(lib, rival, "tasks")
    await a.set_item(0, "1")
    await b.set_item(0, "first")
    assert (await a.value())["items"] == ["first", "two", "three"]
    await a.delete_item(2)
    with pytest.raises(errors.NoMatch):
        await b.set_item(2, "last")
    await a.move_item(0, 1)
    await b.set_item(0, "2")
    await a.delete_item(0)
    await b.delete_item(0)
    with pytest.raises(errors.NoMatch):
        await a.delete_item(0)
    assert (await a.value())["items"] == (await b.value())["items"] == []


async def test_what_is_gone_cannot_be_changed_any_more(lib: Library, rival: Rival) -> None:
    await lib.create("plan", document="tree")
    a, b = await pair(lib, rival, "plan")
    node = await a.add_node({"name": "x"})
    await b.set_node(node, {"name": "y"})
    await a.delete_node(node)
    with pytest.raises(errors.NoMatch):
        await b.set_node(node, {"name": "z"})


async def test_edits_made_at_once_merge(lib: Library, rival: Rival) -> None:
    await lib.create("notes", text="one two three")
    a, b = await pair(lib, rival, "notes")
    before_commit(b, lambda: a.replace("one", "1"))
    await b.replace("three", "3")
    assert await a.text() == await b.text() == "1 two 3"
    before_commit(b, lambda: a.append(" 4"))
    await b.write("9 two 3")
    assert await a.text() == await b.text() == "9 two 3 4"
    await asyncio.gather(*(each.append("!") for each in (a, b) for _ in range(TIMES)))
    assert await a.text() == "9 two 3 4" + "!" * 2 * TIMES


async def _edit_beside(mine: Block, theirs: Block, *edits: Callable[[], Awaitable[object]]) -> None:
    """Have the edits of one handle stored, and the history before them compacted, as the other one edits."""

    async def work() -> None:
        for edit in edits:
            await edit()
        await theirs.compact(1)

    before_commit(mine, work)


async def test_an_item_is_the_one_that_was_meant_when_the_history_is_compacted_meanwhile(
    quick: Library,
) -> None:
    value = [{"title": title} for title in ("one", "two", "three")]
    mine = await quick.create("tasks", template="task_list", value=value)
    theirs = await quick.get("tasks")

    def mix() -> list[Callable[[], Awaitable[object]]]:
        return [lambda: theirs.move_item(0, 2), *[lambda: theirs.set_item(0, {"priority": 1})] * 4]

    async def titles() -> list[tuple[str, bool]]:
        return [(each["title"], each["done"]) for each in (await mine.value())["items"]]

    await _edit_beside(mine, theirs, *mix())
    await mine.set_item(0, {"done": True})
    assert await titles() == [("two", False), ("three", False), ("one", True)]
    await _edit_beside(mine, theirs, *mix())
    await mine.delete_item(-1)
    assert await titles() == [("three", False), ("two", False)]
    more = partial(theirs.append, {"title": "x"})
    await _edit_beside(mine, theirs, partial(theirs.delete_item, 0), *[more] * 4)
    with pytest.raises(errors.NoMatch):
        await mine.set_item(0, {"done": True})
    assert not any(done for _, done in await titles())


async def test_a_plain_item_is_the_one_that_was_meant_when_the_history_is_compacted_meanwhile(
    quick: Library,
) -> None:
    mine = await quick.create("words", document="list", value=["one", "two", "three"])
    theirs = await quick.get("words")
    await _edit_beside(mine, theirs, *(partial(theirs.insert_item, f"{n}", 0) for n in range(4)))
    await mine.set_item(1, "2")
    assert (await mine.value())["items"] == ["3", "2", "1", "0", "one", "2", "three"]
    await _edit_beside(mine, theirs, *[lambda: theirs.move_item(0, 5)] * 4)
    with pytest.raises(errors.NoMatch):  # moved: which of the others it is now cannot be proven
        await mine.delete_item(0)
    assert len((await mine.value())["items"]) == 7


async def test_no_text_is_lost_when_the_history_is_compacted_meanwhile(quick: Library) -> None:
    mine = await quick.create("notes", text="one\ntwo\nthree\n")
    theirs = await quick.get("notes")
    await _edit_beside(mine, theirs, *(partial(theirs.append, f"{n}\n") for n in range(4, 8)))
    done = await mine.write("one\n2\nthree\n")
    assert await mine.text() == await theirs.text() == "one\n2\nthree\n4\n5\n6\n7\n"
    assert (done.added, done.removed, done.size) == (1, 3, 20)
    await _edit_beside(mine, theirs, lambda: theirs.edit_range(1, 1, ""), *[lambda: theirs.append("!")] * 4)
    await mine.edit_range(3, 3, "3")
    assert await mine.text() == "2\n3\n4\n5\n6\n7\n!!!!"
    await _edit_beside(mine, theirs, *[lambda: theirs.append("?")] * 4)
    await mine.append(".")
    assert (await mine.text()).endswith("!!!!????.")


async def test_no_item_of_a_field_is_lost_when_the_history_is_compacted_meanwhile(quick: Library) -> None:
    fields = (Field("tags", "list", items="text"), Field("mood", "counter"), Field("note"))
    template = Template("facts", Shape("map", fields))
    mine = await quick.create("facts", template=template, value={"tags": ["a", "b", "c"]})
    theirs = await quick.get("facts")
    await _edit_beside(mine, theirs, *(partial(theirs.append_to_field, "tags", each) for each in "defg"))
    await mine.set_field("tags", ["a", "B", "c"])
    assert (await mine.value())["tags"] == [*"aBcdefg"]
    await _edit_beside(mine, theirs, *[partial(theirs.remove_from_field, "tags", 0)] * 4)
    await mine.remove_from_field("tags", 5)
    assert (await mine.value())["tags"] == ["e", "g"]
    await _edit_beside(mine, theirs, *[partial(theirs.increment, "mood")] * 4)
    await mine.set_field("note", "x")
    assert (await mine.value())["note"] == "x"


ITEM_EDITS = st.tuples(
    st.sampled_from(["append", "insert_item", "set_item", "move_item", "delete_item"]),
    st.integers(0, 3),
    st.integers(0, 5),
)
LINE_EDITS = st.tuples(
    st.sampled_from(["append", "edit_range", "write"]), st.integers(0, 3), st.integers(0, 5)
)


KEEPING = st.tuples(st.sampled_from(["append", "insert_item", "finish"]), st.integers(0, 3), st.just(0))


@given(KEEPING, st.lists(ITEM_EDITS, min_size=3, max_size=8))
@settings(max_examples=examples(40))
def test_compacting_meanwhile_changes_no_item(mine: Any, theirs: Any) -> None:
    async def run(compacted: bool) -> Any:
        value = [{"title": f"{n}", "priority": 0} for n in range(4)]
        made = await _run_beside(mine, theirs, compacted, _edit_item, template="task_list", value=value)
        return made["items"]

    whole, compacted = asyncio.run(run(False)), asyncio.run(run(True))
    assert sorted(map(repr, whole)) == sorted(map(repr, compacted))


@given(LINE_EDITS, st.lists(LINE_EDITS, min_size=3, max_size=8))
@settings(max_examples=examples(40))
def test_compacting_meanwhile_loses_no_line(mine: Any, theirs: Any) -> None:
    async def run(compacted: bool) -> Any:
        text = "".join(f"line {n}\n" for n in range(4))
        return (await _run_beside(mine, theirs, compacted, _edit_line, text=text))["content"]

    whole, compacted = asyncio.run(run(False)), asyncio.run(run(True))
    assert sorted(whole) == sorted(compacted)


async def _run_beside(mine: Any, theirs: Any, compacted: bool, edit: Any, **fields: Any) -> Any:
    """Make one edit beside others, which are stored first; the value of the block then."""
    async with dgent.open("memory:") as u:
        lib = Library(u, agent="scout")
        block, other = await lib.create("b", **fields), await lib.get("b")

        async def others() -> None:
            for each in theirs:
                await edit(other, *each)
            if compacted:
                await other.compact(1)

        before_commit(block, others)
        await edit(block, *mine)
        return await block.value()


async def _edit_item(block: Block, op: str, place: int, number: int) -> None:
    count = len((await block.value())["items"])
    with suppress(errors.NoMatch):  # it was deleted meanwhile
        if op in ("append", "insert_item"):
            item = {"title": f"new {number}"}
            await (block.append(item) if op == "append" else block.insert_item(item, place % (count + 1)))
        elif op in ("set_item", "finish"):
            await block.set_item(place, {"priority": number} if op == "set_item" else {"done": True})
        elif op == "move_item":
            await block.move_item(place, number % max(count, 1))
        else:
            await block.delete_item(place)


async def _edit_line(block: Block, op: str, place: int, number: int) -> None:
    lines = (await block.text()).splitlines(keepends=True)
    if op == "append" or not lines:
        await block.append(f"new {number}\n")
    elif op == "edit_range":
        await block.edit_range(
            place % len(lines) + 1, place % len(lines) + 1, f"edited {number}\n" * (number % 3)
        )
    else:
        lines[place % len(lines)] = f"written {number}\n"
        await block.write("".join(lines))


# -- any program of edits, one after the other, against plain values --------------------------------

WORDS = st.sampled_from(["a", "bc", "d e", "f\n", "é"])
TEXT_EDITS = st.tuples(st.sampled_from(["write", "append", "replace", "edit_range"]), WORDS, WORDS)
LIST_EDITS = st.tuples(
    st.sampled_from(["append", "insert_item", "set_item", "move_item", "delete_item"]),
    st.integers(0, 4),
    WORDS,
)
MAP_EDITS = st.tuples(st.sampled_from(["set_field", "clear_field"]), st.sampled_from("klm"), WORDS)


def programs(edits: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Edits by three handles, some of which look away for a while."""
    return st.lists(st.tuples(st.integers(0, 2), edits), max_size=25)


@given(programs(TEXT_EDITS), programs(LIST_EDITS), programs(MAP_EDITS))
@settings(max_examples=25)
def test_any_edits_one_after_the_other_are_those_of_one_writer(texts: Any, items: Any, fields: Any) -> None:
    asyncio.run(run_programs(texts, items, fields))


async def run_programs(texts: Any, items: Any, fields: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
            patch.setattr(log, name, value)
        async with dgent.open("memory:") as u:
            lib = Library(u, agent="scout")
            for label, document in (("t", "text"), ("l", "list"), ("m", "map")):
                await lib.create(label, document=document)
            text, plain, known = "", list[str](), dict[str, str]()
            writers = {label: [await lib.get(label) for _ in range(3)] for label in "tlm"}
            for who, (what, first, second) in texts:
                text = await edit_text(writers["t"][who], text, what, first, second)
            for who, (what, place, word) in items:
                await edit_list(writers["l"][who], plain, what, place, word)
            for who, (what, name, word) in fields:
                await edit_map(writers["m"][who], known, what, name, word)
            for handle in range(3):
                assert await writers["t"][handle].text() == text
                assert (await writers["l"][handle].value()).get("items", []) == plain
                assert await writers["m"][handle].value() == known


async def edit_text(block: Block, text: str, what: str, first: str, second: str) -> str:
    if what == "replace":
        if first not in text:
            with pytest.raises(errors.NoMatch):
                await block.replace(first, second)
            return text
        await block.replace(first, second)
        return text.replace(first, second, 1)
    if what == "edit_range":
        await block.edit_range(1, 1, first + "\n")
        return first + "\n" + "".join(text.splitlines(keepends=True)[1:])
    await getattr(block, what)(first)
    return first if what == "write" else text + first


async def edit_list(block: Block, plain: list[str], what: str, place: int, word: str) -> None:
    if what == "append":
        await block.append(word)
        plain.append(word)
    elif what == "insert_item":
        await block.insert_item(word, min(place, len(plain)))
        plain.insert(place, word)
    elif place >= len(plain):
        with pytest.raises(errors.NoMatch):
            await getattr(block, what)(
                *((place, 0) if what == "move_item" else (place, word)[: 1 + (what == "set_item")])
            )
    elif what == "set_item":
        await block.set_item(place, word)
        plain[place] = word
    elif what == "move_item":
        await block.move_item(place, 0)
        plain.insert(0, plain.pop(place))
    else:
        await block.delete_item(place)
        del plain[place]


async def edit_map(block: Block, known: dict[str, str], what: str, name: str, word: str) -> None:
    if what == "set_field":
        await block.set_field(name, word)
        known[name] = word
    else:
        await block.clear_field(name)
        known.pop(name, None)
