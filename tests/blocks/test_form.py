"""Documents as text: the same for the same content, and no value passes for another one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.blocks.document.default import fill
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import contents, render_document
from dgent.blocks.document.shape import Field, SectionShape, Shape
from dgent.blocks.document.template import TEMPLATES

FORGED = ["a\nname: forged", "x\n- forged", "x\n2. forged", "=== rules ===", "\\=== x", "\r=== a ==="]
LETTERS = st.characters(exclude_categories=("Cs",), include_characters="\n\r\u2028=- :")
TEXTS = st.text(LETTERS, max_size=30) | st.sampled_from(FORGED)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PROFILE = TEMPLATES["partner_profile"].shape
TASKS = TEMPLATES["task_list"].shape
PARTS = Shape(
    "composite", sections=(SectionShape("notes", Shape()), SectionShape("rules", Shape(), read_only=True))
)


def filled(shape: Shape, value: Any) -> Document:
    document = Document()
    fill(shape, document, value)
    return document


@given(TEXTS, st.lists(TEXTS, max_size=4), st.integers(-100, 100))
def test_no_value_of_a_map_looks_like_a_field(name: str, likes: list[str], energy: int) -> None:
    value = {"name": name, "preferences": likes, "energy_level": energy}
    lines = render_document(PROFILE, filled(PROFILE, value)).splitlines()
    heads = [line.partition(":")[0] for line in lines if not line.startswith((" ", "- "))]
    assert heads == ["name", *(["preferences"] if likes else []), "energy_level"]
    assert sum(line.startswith("- ") for line in lines) == len(likes)


@given(st.lists(st.fixed_dictionaries({"title": TEXTS, "done": st.booleans()}), max_size=5))
def test_no_item_looks_like_two(tasks: list[dict[str, Any]]) -> None:
    lines = render_document(TASKS, filled(TASKS, tasks)).splitlines()
    heads = [line for line in lines if not line.startswith("  ")]
    assert [line[: line.index("]")] for line in heads] == [
        f"{place}. [{'x' if task['done'] else ' '}" for place, task in enumerate(tasks, 1)
    ]


@given(TEXTS, TEXTS)
def test_no_text_looks_like_a_section(notes: str, rules: str) -> None:
    text = render_document(PARTS, filled(PARTS, {"notes": notes, "rules": rules}))
    found = [line for line in text.splitlines() if line.startswith("=== ")]
    assert found == ["=== notes ===", "=== rules [read-only] ==="]


@given(st.dictionaries(TEXTS.filter(bool), PLAIN, max_size=4), st.lists(PLAIN, max_size=4))
def test_the_same_content_gives_the_same_text_whoever_wrote_it_and_when(
    fields: dict[str, Any], items: list[Any]
) -> None:
    for shape, value in ((Shape("map"), fields), (Shape("list"), items)):
        first = filled(shape, value)
        again = Document.load(first.snapshot())
        assert render_document(shape, again) == render_document(shape, first)
        assert contents(shape, again) == contents(shape, first)
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    assert render_document(Shape("map"), filled(Shape("map"), dict(shuffled))) == render_document(
        Shape("map"), filled(Shape("map"), fields)
    )


@given(st.lists(TEXTS, max_size=6), st.integers(1, 5), st.integers(20, 200), st.none() | st.integers(1, 50))
def test_a_log_shows_the_newest_within_its_bounds(
    entries: list[str], display: int, limit: int, clip: int | None
) -> None:
    shape = Shape("log", display=display, clip=clip)
    document = Document()
    for entry in entries:
        document.append_entry({"at": "2026", "agent": "a", "message": entry})
    text = render_document(shape, document, limit)
    assert len(text) <= limit
    heads = [line for line in text.splitlines() if not line.startswith("  ")]
    assert len(heads) <= display and bool(heads) == bool(entries)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "1. 3"),
        (3.0, "1. 3"),
        (2.5, "1. 2.5"),
        (None, "1. "),
        (True, "1. true"),
        ([1, [False]], "1. [1, [false]]"),
        ({"b": 1, "a": {"c": "x"}}, "1. a: {c: x}; b: 1"),
        ({"done": True, "what": "it"}, "1. [x] what: it"),
        ("two\nlines", "1. two\n  lines"),
    ],
)
def test_items_as_text(value: Any, text: str) -> None:
    assert render_document(Shape("list"), filled(Shape("list"), [value])) == text


def test_fields_that_a_shape_does_not_name_are_shown_too() -> None:
    document = filled(Shape("map"), {"z": 1, "a": 2})
    assert render_document(Shape("map", (Field("z", read_only=True),)), document) == "z [read-only]: 1\na: 2"
