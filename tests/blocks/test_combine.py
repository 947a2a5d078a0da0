"""Documents without a common history, combined by the operations that brought what they hold."""

from __future__ import annotations

from typing import Any

import pytest

from dgent.blocks.document.combine import Combined, combine, remove_redacted
from dgent.blocks.document.document import Document
from dgent.blocks.document.operations import build_document, find_needed, parse_frontiers, read_operations

PEER = 77
BLANK = "\N{REPLACEMENT CHARACTER}"


def _pair(**parts: Any) -> tuple[Document, Document]:
    """Two copies of a document, of which only the state is left."""
    first = Document()
    first.splice(0, 0, "one\ntwo\nthree\n")
    for name, value in parts.items():
        getattr(first, name)(*value)
    state = first.state()
    return Document.load(state), Document.load(state)


def _combine(*documents: Document, updates: tuple[bytes, ...] = (), length: int = 0) -> Combined:
    ended = [Document.load(each.state()) for each in documents]
    made = combine(ended, updates, length, (), PEER)
    assert made.document.value() == combine(ended[::-1], updates, length, (), PEER).document.value()
    return made


def test_edits_and_deletions_of_both_are_in_the_result() -> None:
    left, right = _pair()
    left.splice(4, 4, "")
    left.splice(left.length(), 0, "left\n")
    right.splice(0, 0, "right\n")
    made = _combine(left, right)
    assert made.document.text() == "right\none\nthree\nleft\n" and made.sure


def test_what_is_blank_in_one_copy_is_blank() -> None:
    left, right = _pair()
    letters = [
        (id, BLANK if 4 <= place < 7 else value)
        for place, (id, value) in enumerate(left.elements("content", "Text"))
    ]
    left = build_document(left.operations(), {"content": letters}, PEER + 1)
    right.splice(right.length(), 0, "right\n")
    assert _combine(left, right).document.text() == f"one\n{BLANK * 3}\nthree\nright\n"
    assert remove_redacted(right, [left]) and "two" not in right.text()


def test_letters_keep_their_ids_so_that_a_third_copy_can_follow() -> None:
    left, right = _pair()
    third = Document.load(left.state())
    left.splice(0, 0, "left\n")
    right.splice(0, 0, "right\n")
    third.splice(third.length(), 0, "third\n")
    text = _combine(_combine(left, right).document, third).document.text()
    assert sorted(text.split()) == ["left", "one", "right", "third", "three", "two"]


@pytest.mark.parametrize(("place", "length"), [(0, 19), (14, 19), (4, 0)])
def test_an_update_to_a_text_that_is_gone(place: int, length: int) -> None:
    left, right = _pair()
    left.splice(0, 0, "left\n")
    right.mark_saved()
    right.splice(place, 0, "more\n")
    made = _combine(left, updates=(right.take_update(),), length=length)
    start, end = made.document.text().startswith("more\n"), made.document.text().endswith("more\n")
    assert (start, end) == (place == 0, place > 0)
    assert made.sure == (place != 4)


def test_operations_are_read_without_their_document() -> None:
    left, right = _pair()
    left.mark_saved()
    before = parse_frontiers(left.frontiers)
    left.splice(0, 3, "1")
    update = left.take_update()
    assert find_needed(update) == before
    gone, came = (each.content for each in read_operations(update))
    assert gone["type"] == "delete" and gone["start"] == right.elements("content", "Text")[0][0]
    assert came["type"] == "insert" and came["text"] == "1"


def test_other_parts_lose_nothing_and_are_not_sure() -> None:
    left, right = _pair(
        set_field=("k", "v"), insert_item=(0, "item"), append_entry=({"n": 0},), add_node=(None, {"n": 0})
    )
    left.set_field("left", 1)
    left.insert_item(0, "left")
    left.append_entry({"n": 1})
    left.add_node(None, {"n": 1})
    right.set_field("right", 2)
    right.insert_item(1, "right")
    right.append_entry({"n": 2})
    right.add_node(None, {"n": 2})
    made = _combine_any(left, right)
    assert not made.sure
    document = made.document
    assert document.fields() == {"k": "v", "left": 1, "right": 2}
    assert sorted(document.items()) == ["item", "left", "right"]
    assert sorted(each["n"] for each in document.entries()) == [0, 1, 2]
    assert sorted(each["data"]["n"] for each in document.nodes()) == [0, 1, 2]


def _combine_any(*documents: Document) -> Combined:
    return combine([Document.load(each.state()) for each in documents], (), 0, (), PEER)


def test_redacted_values_of_other_parts_do_not_come_back() -> None:
    left, right = _pair(set_field=("k", "secret"), add_node=(None, {"n": "secret"}))
    left.set_field("k", "[redacted]")
    left.set_node(left.nodes()[0]["id"], {"n": "[redacted]"})
    right.set_field("other", 1)
    for made in (_combine_any(left, right), _combine_any(right, left)):
        assert made.document.fields() == {"k": "[redacted]", "other": 1}
        assert made.document.nodes()[0]["data"] == {"n": "[redacted]"}
