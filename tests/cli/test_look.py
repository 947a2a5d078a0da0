"""The look of answers: what fits, what is never cut, and what speaks to people."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgent.doors.cli.style import Paint, many, table, width
from dgent.verbs.index import MODULES, SHORT
from tests.cli.terminal import Terminal, on_a_terminal

LONG = "a long text of many words " * 40


def test_piped_output_is_never_cut(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    dgent_("remember", LONG.strip(), "--id", "a", "--tag", "x")
    for words in (["recall"], ["history", "a"], ["log"], ["data", "list"]):
        assert LONG.strip() in dgent_(*words).out, words


def test_on_a_terminal_it_fits(dgent_: Terminal) -> None:
    dgent_("remember", LONG, "--tag", "x", "--schema", "witness.mark")
    for words in (["recall"], ["log"], ["data", "list"], ["data", "schemas"]):
        code, seen = on_a_terminal([*words, "--color", "never"], size=(24, 60))
        assert code == 0 and max(map(len, seen.splitlines())) <= 60, seen


def test_ids_shrink_first_and_names_last() -> None:
    id, name = "01a1ea13-a540-7000-8894-852b494c27da", "a name that should be seen"
    rows = [[id, "ready", "2 minutes ago", name]]
    heads = ("id", "state", "made", "name")
    assert id in table(Paint(False, 100), heads, rows)[1]
    for columns in (80, 62):
        line = table(Paint(False, columns), heads, rows)[1]
        assert id not in line and line.startswith("01a1ea13") and name in line and width(line) <= columns
    narrow = table(Paint(True, 48), heads, [[Paint(True)(id, fg="yellow"), *rows[0][1:]]])[1]
    assert width(narrow) <= 48 and narrow.count("\x1b[33m") == 1 and "\x1b[0m" in narrow


def test_texts_of_several_lines_are_lines(dgent_: Terminal) -> None:
    dgent_("remember", '{"title": "t", "body": "one\\ntwo\\n\\u001b[31mthree"}', "--id", "a")
    out = dgent_("get", "a").out
    assert "body:\n  one\n  two\n  \\x1b[31mthree\n" in out and '"title": "t"' in out


def test_the_whole_url_is_shown(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = dgent_.home / ("deep" * 20) / ("deeper" * 20)
    monkeypatch.setenv("DGENT_URL", f"sqlite:///{deep}/m.db")
    assert f"sqlite:///{deep}/m.db" in dgent_("config").out
    monkeypatch.setenv("DGENT_URL", "postgresql://ann:hunter2@db.example.org/memory")
    out = dgent_("config").out
    assert "postgresql://ann:***@db.example.org/memory" in out and "hunter2" not in out


@pytest.mark.parametrize("flags", ["", "FX", "-R"])
def test_colours_survive_the_pager(
    dgent_: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    pager = tmp_path / "less"
    pager.write_text('#!/bin/sh\necho "flags: $LESS"\ncat\n')
    pager.chmod(0o755)
    for number in range(3):
        dgent_("remember", "x", "--id", str(number))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if flags:
        monkeypatch.setenv("LESS", flags)
    else:
        monkeypatch.delenv("LESS", raising=False)
    monkeypatch.setenv("DGENT_PAGER", "always")
    code, seen = on_a_terminal(["log"], pager="less")
    (line,) = [each for each in seen.splitlines() if each.startswith("flags: ")]
    assert code == 0 and "R" in line and "\x1b[33m" in seen


def test_singular_and_plural() -> None:
    assert [many(1, "record"), many(2, "record"), many(0, "entry"), many(1, "entry")] == [
        "1 record",
        "2 records",
        "0 entries",
        "1 entry",
    ]
    assert [many(2, "stash"), many(2, "day"), many(1, "stash")] == ["2 stashes", "2 days", "1 stash"]


def test_every_column_has_a_header() -> None:
    import re

    from dgent.doors.cli import draw

    for file in Path(str(draw.__file__)).parent.glob("*.py"):
        for heads in re.findall(r"table\(\s*paint,\s*\(([^)]*)\)", file.read_text(encoding="utf-8")):
            assert '""' not in heads, (file.name, heads)


@pytest.mark.parametrize("name", ["recall", "undo", "forget", "remember"])
def test_help_speaks_to_people(dgent_: Terminal, name: str) -> None:
    text = dgent_(name, "--help").out
    assert "its effect" not in text and "Programs call it by the path self." in text
    assert SHORT[name][0] in MODULES
