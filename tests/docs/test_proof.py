"""The table of the bridges' suites names tests that exist, and is written where the page has its marks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs import pages
from tools import proof

_ROW = re.compile(r"^\| [^|]+ \| \[`([^`]+)`\]\(([^)]+)\) \| [\d,]+ [^|]+ \| [\d,]+ \|$", re.MULTILINE)


def has_test(test: str) -> bool:
    """Return whether a file, or a function in it, is there."""
    path, _, function = test.partition("::")
    if not function:
        return (pages.ROOT / path).exists()
    tree = ast.parse((pages.ROOT / path).read_text(encoding="utf-8"))
    return function in [
        each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_rows_name_tests_that_exist() -> None:
    written = _ROW.findall(proof.PAGE.read_text(encoding="utf-8"))
    assert [test for test, _ in written] == [row.test for row in proof.ROWS]
    assert all(has_test(test) for test, _ in written)
    assert not has_test("tests/bridges/test_one_place.py::test_nothing")


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{proof.BEGIN}\nold\n{proof.END}\ntail\n", encoding="utf-8")
    row = proof.ROWS[1]
    run = proof.Run(Counter({row.test: 1}), Counter({row.test: 1}), {row.test: (24, 1)})
    proof.write(proof.draw(run), page)
    text = page.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("head\n") and text.endswith("\ntail\n")
    assert f"| 25 {row.unit} | 24 |" in text


@pytest.mark.parametrize(
    "line",
    [
        "    - 12 passing, 0 failing, and 1 invalid test cases",
        "    - 12 passing examples, 0 failing examples",
    ],
)
def test_statistics_are_read(line: str) -> None:
    assert proof.read_examples(f"tests/a.py::test_b:\n\n{line}\n") == {"tests/a.py::test_b": (12, 0)}
