"""Documents that were edited apart come together: in any order, with repeats, with gaps filled later."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.blocks.document.document import Document
from dgent.blocks.errors import DocumentCorrupt
from tests.soak import examples

KINDS = ["insert", "delete", "write", "field", "item", "drop_item", "entry", "count", "sync"]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 4),  # who
        st.sampled_from(
            ["insert", "delete", "write", "field", "item", "drop_item", "entry", "count", "sync"]
        ),
        st.integers(0, 30),
        st.text(max_size=6),
    ),
    max_size=25,
)


def edit(document: Document, what: str, place: int, text: str) -> None:
    size = document.length()
    if what == "insert":
        document.splice(min(place, size), 0, text)
    elif what == "delete" and size:
        document.splice(place % size, min(3, size - place % size), "")
    elif what == "write":
        document.write(document.text()[:place] + text)
    elif what == "field":
        document.set_field(f"f{place % 3}", text)
    elif what == "item":
        document.insert_item(min(place, len(document.items())), text)
    elif what == "drop_item" and document.items():
        document.delete_item(place % len(document.items()))
    elif what == "entry":
        document.append_entry({"text": text})
    elif what == "count":
        document.increment(place - 10)


def merged(documents: list[Document]) -> list[dict[str, Any]]:
    snapshots = [document.snapshot() for document in documents]
    for document in documents:
        for snapshot in snapshots:
            document.merge(snapshot)
    return [document.value() for document in documents]


@settings(max_examples=examples(200), deadline=None)
@given(EDITS, st.integers(3, 5), st.randoms(use_true_random=False))
def test_any_order_any_repeats_same_result(edits: list[Any], count: int, rng: Any) -> None:
    documents = [Document() for _ in range(count)]
    sent: list[bytes] = []
    for who, what, place, text in edits:
        document = documents[who % count]
        if what == "sync":
            document.merge(documents[place % count].snapshot())
            document.mark_saved()
            continue
        edit(document, what, place, text)
        if update := document.take_update():
            document.mark_saved()
            sent.append(update)
    values = merged(documents)
    assert all(value == values[0] for value in values)
    # Every update by itself, shuffled, some twice, and what lacked another one again: the same.
    again = [*sent, *rng.sample(sent, len(sent) // 2)]
    rng.shuffle(again)
    other = Document()
    left = again
    while left:
        waiting = []
        for update in left:
            try:
                other.merge(update)
            except DocumentCorrupt:
                waiting.append(update)
        assert len(waiting) < len(left), "nothing more could be taken in"
        left = waiting
    assert other.value() == values[0] or not sent
    # Saved and loaded: the same content, and the same place in the history.
    loaded = Document.load(documents[0].snapshot())
    assert loaded.value() == values[0]
    assert loaded.frontiers == documents[0].frontiers


@given(st.binary(max_size=300))
@settings(max_examples=examples(200), deadline=None)
def test_bytes_that_are_no_document_are_refused(junk: bytes) -> None:
    document = Document()
    document.splice(0, 0, "as it was")
    if junk:
        with pytest.raises(DocumentCorrupt):
            document.merge(junk)
    assert document.text() == "as it was"


@given(st.integers(0, 400), st.integers(0, 7))
@settings(max_examples=examples(200), deadline=None)
def test_one_wrong_bit_is_noticed(place: int, bit: int) -> None:
    source = Document()
    source.splice(0, 0, "some text that is worth keeping " * 5)
    given = bytearray(source.take_update())
    given[place % len(given)] ^= 1 << bit
    document = Document()
    try:
        document.merge(bytes(given))
    except DocumentCorrupt:
        assert document.text() == ""
    else:
        assert document.text() == source.text()  # the bit was of no meaning


def test_too_large_an_update_is_refused_before_it_is_read() -> None:
    with pytest.raises(DocumentCorrupt, match="at most"):
        Document().merge(b"x" * 100, limit=99)


def test_a_long_text_is_read_as_quickly_as_a_short_one() -> None:
    one = Document()
    one.write("".join(f"line {number} has some words in it\n" for number in range(10_000)))
    updates = [one.take_update()]
    one.mark_saved()
    one.splice(0, 0, "first\n")
    updates.append(one.take_update())
    start = time.thread_time()
    assert Document.load(b"", updates[::-1]).text() == Document.load(b"", updates).text() == one.text()
    assert time.thread_time() - start < 1  # as a batch it took four seconds
    with pytest.raises(DocumentCorrupt):
        Document.load(b"", updates[1:])
