"""Whatever is done on both sides: then both agree, and nothing that was written is lost or there twice."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.blocks import Block, Field, Library, Shape
from dgent.blocks.document.default import fill
from dgent.blocks.document.document import Document
from dgent.blocks.document.splice import find_splices
from dgent.blocks.folder import format
from dgent.blocks.folder.edits import FileEdits
from tests.blocks.agents import library, scout, u
from tests.soak import examples

__all__ = ["library", "scout", "u"]

words = st.text(st.sampled_from("ab \n\r.é🦀"), max_size=60)


@given(words, words)
def test_the_difference_of_two_texts_makes_one_of_the_other(before: str, after: str) -> None:
    made = before
    for each in reversed(find_splices(before, after)):
        made = made[: each.start] + each.text + made[each.start + each.length :]
    assert made.replace("\r\n", "\n") == after.replace("\r\n", "\n")


def test_a_difference_is_as_small_as_what_was_changed() -> None:
    before = "".join(f"line {number} has some words\n" for number in range(300))
    after = before.replace("line 7 has", "line 7 had").replace("line 200 has some", "line 200 has no")
    after = after.replace("line 100 has some words\n", "")
    assert [(each.length, each.text) for each in find_splices(before, after)] == [
        (3, "had"),
        (24, ""),
        (4, "no"),
    ]


RECORDS = Shape("list", (Field("title", required=True), Field("done", "boolean"), Field("size", "any")))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=5,
)
records = st.fixed_dictionaries(
    {"title": st.sampled_from("abcde")},
    optional={"done": st.booleans(), "size": values.filter(lambda each: each is not None)},
)
cases = st.one_of(
    st.tuples(st.just(Shape("list")), st.lists(values, max_size=8), st.lists(values, max_size=8)),
    st.tuples(st.just(RECORDS), st.lists(records, max_size=8), st.lists(records, max_size=8)),
    st.tuples(
        st.just(Shape("map")),
        *(st.dictionaries(st.sampled_from("abcd"), values.filter(lambda v: v is not None)) for _ in range(2)),
    ),
    st.tuples(st.just(Shape("counter")), st.integers(-99, 99), st.integers(-99, 99)),
)


@settings(max_examples=examples(150), deadline=None)
@given(cases)
def test_the_difference_of_two_values_makes_one_of_the_other(case: tuple[Shape, Any, Any]) -> None:
    shape, before, after = case
    document = Document()
    fill(shape, document, before)
    copy = document.fork_at(document.frontiers)
    difference = FileEdits(copy)
    difference.apply(shape, before, after)
    assert format.is_same(format.value_of(shape, copy), after)
    document.join(copy)
    assert all(each.settle(document) for each in difference.values)
    assert format.is_same(format.value_of(shape, document), after)


def shuffled(nodes: list[Any], dice: random.Random) -> list[Any]:
    """Some other tree of these nodes and new ones."""
    flat: list[dict[str, Any]] = []

    def gather(some: list[Any]) -> None:
        for node in some:
            flat.append({"id": node["id"], "data": node["data"], "children": []})
            gather(node["children"])

    gather(nodes)
    flat = [node for node in flat if dice.random() < 0.8]
    flat += [{"data": {"name": f"new {number}"}, "children": []} for number in range(dice.randrange(3))]
    dice.shuffle(flat)
    made: list[Any] = []
    placed: list[Any] = []
    for node in flat:
        if dice.random() < 0.3:
            node["data"] = {"name": dice.choice("xyz")}
        (dice.choice(placed)["children"] if placed and dice.random() < 0.6 else made).append(node)
        placed.append(node)
    return made


def bare(nodes: list[Any]) -> list[Any]:
    return [(node["data"], bare(node.get("children", []))) for node in nodes]


@pytest.mark.parametrize("seed", range(30))
def test_the_difference_of_two_trees_makes_one_of_the_other(seed: int) -> None:
    dice = random.Random(seed)
    document, known = Document(), [None]
    for number in range(dice.randrange(10)):
        known.append(document.add_node(dice.choice(known), {"name": str(number)}))
    before = document.nodes()
    after = shuffled(before, dice)
    copy = document.fork_at(document.frontiers)
    FileEdits(copy).apply(Shape("tree"), before, after)
    assert bare(copy.nodes()) == bare(after)


def token(number: int) -> str:
    """A word of one letter, which no other word begins or ends with."""
    return chr(0x4E00 + number)


def tokens(text: str) -> Counter[str]:
    return Counter(re.findall(r"[\u4e00-\u9fff]", text))


@pytest.mark.parametrize("seed", range(12))
async def test_random_edits_of_both_sides_are_all_there(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        block = await lib.create("notes", text="", limit=10**6)
        await lib.sync(tmp_path)
        file, made, gone = tmp_path / "notes.md", 0, set()
        for _ in range(60):
            what = dice.random()
            if what < 0.15:
                report = await lib.sync(tmp_path)
                assert not report.refused and not report.conflicts
                continue
            on_disk = what < 0.6
            text = file.read_text() if on_disk else await block.text()
            there = list(tokens(text))
            if there and dice.random() < 0.3:
                gone.add(word := dice.choice(there))
                text = text.replace(word, "", 1)
            else:
                made += 1
                place = dice.choice([0, len(text), *(text.index(each) for each in there)])
                text = f"{text[:place]} {token(made)}{dice.choice([' ', chr(10), ', '])}{text[place:]}"
            if on_disk:
                file.write_text(text)
            else:
                await block.write(text)
        await lib.sync(tmp_path)
        assert not await lib.sync(tmp_path)
        text = await block.text()
        assert format.is_same_text(text, file.read_text())
        assert tokens(text) == Counter({token(number) for number in range(1, made + 1)} - gone)


async def edit_items(dice: random.Random, block: Block, number: int, made: set[str], gone: set[str]) -> None:
    items = (await block.value())["items"]
    step = dice.random()
    if not items or step < 0.4:
        made.add(f"w{number}")
        await block.insert_item({"title": f"w{number}"}, dice.randrange(len(items) + 1))
    elif step < 0.6:
        place = dice.randrange(len(items))
        gone.add(items[place]["title"])
        await block.delete_item(place)
    elif step < 0.8:
        await block.move_item(dice.randrange(len(items)), dice.randrange(len(items)))
    else:
        await block.set_item(dice.randrange(len(items)), {"priority": number})


def edit_lines(dice: random.Random, file: Path, number: int, made: set[str], gone: set[str]) -> None:
    items = json.loads(file.read_text())
    step = dice.random()
    if not items or step < 0.4:
        made.add(f"w{number}")
        items.insert(dice.randrange(len(items) + 1), {"title": f"w{number}"})
    elif step < 0.6:
        gone.add(items.pop(dice.randrange(len(items)))["title"])
    elif step < 0.8:
        items.insert(dice.randrange(len(items)), items.pop(dice.randrange(len(items))))
    else:
        dice.choice(items)["priority"] = number
    file.write_text(json.dumps(items))


@pytest.mark.parametrize("seed", range(8))
async def test_random_edits_of_a_list_are_all_there(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    async with dgent.open("memory:") as universe:
        lib = Library(universe, agent="scout")
        block = await lib.create("tasks", template="task_list", limit=10**6)
        await lib.sync(tmp_path)
        gone: set[str] = set()
        made: set[str] = set()
        for number in range(50):
            if dice.random() < 0.2:
                assert not (await lib.sync(tmp_path)).refused
            elif dice.random() < 0.5:
                await edit_items(dice, block, number, made, gone)
            else:
                edit_lines(dice, tmp_path / "tasks.json", number, made, gone)
        await lib.sync(tmp_path)
        assert not await lib.sync(tmp_path)
        items = (await block.value())["items"]
        assert format.is_same(items, json.loads((tmp_path / "tasks.json").read_text()))
        titles = Counter(each["title"] for each in items)
        assert not [title for title, count in titles.items() if count > 1]
        assert not made - gone - titles.keys()
