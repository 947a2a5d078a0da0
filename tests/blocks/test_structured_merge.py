"""Structured documents that are edited apart: whatever the order they meet in, they end up the same."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dgent.blocks.document.default import fill
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import contents, render_document
from dgent.blocks.document.shape import Field, SectionShape, Shape, container, field_container
from dgent.blocks.document.validate import check_record, measure
from dgent.blocks.errors import NoMatch
from dgent.errors import InputError

TASKS = Shape("list", (Field("title", required=True), Field("done", "boolean", default=False)), max_items=5)
FACTS = Shape("map", (Field("name", default="x"), Field("tags", "list"), Field("mood", "counter", default=5)))
SHAPE = Shape(
    "composite",
    sections=(
        SectionShape("notes", Shape("text")),
        SectionShape("tasks", TASKS),
        SectionShape("facts", FACTS),
        SectionShape("seen", Shape("log")),
        SectionShape("tree", Shape("tree")),
    ),
)
TAGS, MOOD = (field_container("facts", FACTS.field(name)) for name in ("tags", "mood"))
PLACES = ("tasks.items", "facts.fields", "seen.entries", "tree.nodes")
NAMES = {name: container(*name.split(".")) for name in PLACES}


def edit(document: Document, kind: int, a: int, b: int) -> None:
    """One edit, wherever there is room for it."""
    tasks, nodes = NAMES["tasks.items"], NAMES["tree.nodes"]
    count = document.count_items(tasks)
    known = [each["id"] for each in document.nodes(nodes)]
    if kind == 0:
        document.insert_map(a % (count + 1), check_record(TASKS, {"title": f"t{b}"}), tasks)
    elif kind == 1 and count:
        document.set_item_fields(a % count, {"done": bool(b % 2), "title": f"u{b}"}, tasks)
    elif kind == 2 and count:
        document.move_item(a % count, b % count, tasks)
    elif kind == 3 and count:
        document.delete_item(a % count, tasks)
    elif kind == 4:
        document.write_items([f"{n}" for n in range(a % 4)] + [f"{b}"], TAGS)
    elif kind == 5:
        document.increment(a - b, MOOD)
    elif kind == 6:
        document.set_field("name", f"n{a}", NAMES["facts.fields"])
    elif kind == 7:
        document.append_entry({"message": f"{a}.{b}"}, NAMES["seen.entries"])
    elif kind == 8:
        document.add_node(known[a % len(known)] if known and b % 2 else None, {"n": a}, nodes)
    elif kind == 9 and known:
        document.delete_node(known[a % len(known)], nodes)
    elif kind == 10:
        document.splice(0, 0, f"{a} ", container("notes", "content"))


EDITS = st.tuples(st.integers(0, 2), st.integers(0, 10), st.integers(0, 9), st.integers(0, 9), st.booleans())


def state(document: Document) -> tuple[str, dict[str, Any], Any]:
    return render_document(SHAPE, document), contents(SHAPE, document), measure(SHAPE, document)


@given(st.lists(EDITS, max_size=30), st.permutations(range(3)))
def test_copies_that_meet_in_any_order_are_the_same(
    edits: list[tuple[int, int, int, int, bool]], order: list[int]
) -> None:
    first = Document()
    fill(SHAPE, first)
    copies = [first, *(Document.load(first.snapshot()) for _ in range(2))]
    for who, kind, a, b, meet in edits:
        edit(copies[who], kind, a, b)
        if meet:
            copies[who].merge(copies[(who + 1) % 3].snapshot())
    updates = [each.snapshot() for each in copies]
    for copy in copies:
        for place in (*order, *reversed(order)):
            copy.merge(updates[place])
    assert state(copies[0]) == state(copies[1]) == state(copies[2])
    assert state(Document.load(copies[0].snapshot())) == state(copies[0])


@given(st.lists(EDITS, max_size=20), st.lists(EDITS, max_size=20))
def test_going_back_brings_back_everything(before: list[Any], after: list[Any]) -> None:
    document = Document()
    fill(SHAPE, document)
    for _, kind, a, b, _ in before:
        edit(document, kind, a, b)
    wanted, frontiers = render_document(SHAPE, document), document.frontiers
    for _, kind, a, b, _ in after:
        edit(document, kind, a, b)
    document.revert_to(frontiers)
    assert render_document(SHAPE, document) == wanted


def told(found: Any) -> list[dict[str, Any]]:
    """A tree as the library under the document tells it."""
    return [{"id": each["id"], "data": each["meta"], "children": told(each["children"])} for each in found]


MOVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)), max_size=40)


@given(MOVES)
def test_a_tree_is_read_in_its_order(moves: list[tuple[int, int, int]]) -> None:
    document, ids = Document(), list[str]()
    for kind, a, b in moves:
        with suppress(InputError, NoMatch):
            if kind < 2 or not ids:
                parent = ids[a % len(ids)] if ids and a % 3 else None
                ids.append(document.add_node(parent, {"n": b}, place=0 if b % 2 else None))
            elif kind == 2:
                document.move_node(ids[a % len(ids)], ids[b % len(ids)] if b % 4 else None)
            else:
                document.delete_node(ids[a % len(ids)])
    assert document.nodes() == told(document._doc.get_tree("nodes").get_value_with_meta())
