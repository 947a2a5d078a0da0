"""The reference is what the code says, and the other pages name only what the code has."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import dgent
from dgent import blocks, cupboard, errors, membrane
from tests.docs import pages


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    sys.path.insert(0, str(pages.DOCS))  # as `python docs/generate.py` has it
    spec = importlib.util.spec_from_file_location("docs_generate", pages.DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(pages.DOCS))


def test_reference_is_not_stale(generate: ModuleType) -> None:
    made = generate.pages()
    there = {page.name for page in (pages.DOCS / "reference").glob("*.md")}
    assert there == made.keys()
    for name, text in made.items():
        stored = (pages.DOCS / "reference" / name).read_text(encoding="utf-8")
        assert stored == text, f"docs/reference/{name} is stale: run `python docs/generate.py`"


def test_every_operator_is_described(generate: ModuleType) -> None:
    with pytest.raises(errors.QueryError) as caught:
        dgent.Query(where={"field": {"$unknown": 1}})
    known = set(re.findall(r"\$\w+", caught.value.hint))
    assert known == generate.OPERATORS.keys()
    text = (pages.DOCS / "concepts" / "queries.md").read_text(encoding="utf-8")
    for operator in [*generate.OPERATORS, *generate.COMBINING]:
        assert f"`{operator}`" in text


def test_every_error_is_in_the_tree_and_the_table(generate: ModuleType) -> None:
    text = (pages.DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    tree, table = text.split("```text", 1)[1].split("```", 1)
    found = generate.every_error()
    assert len({error.code for error in found}) == len(found), "codes are unique"
    for error in found:
        assert re.search(rf"\b{error.__name__}\b", tree), f"{error.__name__} is not in the drawn tree"
        assert f"`{error.code}`" in table


def test_every_public_name_has_a_docstring() -> None:
    for package in (dgent, cupboard, blocks, membrane):
        for name in package.__all__:
            assert inspect.getdoc(getattr(package, name)), name


@pytest.mark.parametrize("room", [cupboard, blocks], ids=["cupboard", "blocks"])
def test_every_name_and_error_of_a_room_is_described(room: ModuleType) -> None:
    name = room.__name__.rpartition(".")[2]
    text = (pages.DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    for each in set(room.__all__) - {"errors", "TEMPLATES"}:
        assert f"\n## {each}\n" in text
    for error in vars(room.errors).values():
        if inspect.isclass(error) and error.__module__ == room.errors.__name__:
            assert f"| `{error.__name__}` |" in text


def test_every_name_of_the_membrane_is_described() -> None:
    text = (pages.DOCS / "reference" / "membrane.md").read_text(encoding="utf-8")
    assert [each for each in membrane.__all__ if f"\n## {each}\n" not in text] == []


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_errors_that_a_page_names_exist(page: pages.Path) -> None:
    """A capitalised word in backticks that looks like one of our errors is one."""
    named = set(
        re.findall(r"`([A-Z]\w*(?:Error|Conflict|Gone|Reused|Invalid|Failed|TooNew))`", pages.prose(page))
    )
    for name in named - {"KeyError", "ValueError"}:
        assert any(hasattr(each, name) for each in (errors, cupboard.errors, blocks.errors)), name
