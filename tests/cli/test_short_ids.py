"""Short ids are understood by every verb, and are what people see."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.terminal import Terminal

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")


def added(dgent_: Terminal, name: str, *words: str) -> str:
    short: str = dgent_("add", name, *words, "--json").data["items"][0]["short_id"]
    assert re.fullmatch(r"dg-[0-9a-z]{4}(\.\d+)?", short)
    return short


def test_data_verbs_take_short_ids(dgent_: Terminal) -> None:
    short = added(dgent_, "Fix crash")
    trail = dgent_("trail", "start", "a try", "--json").data["short_id"]
    for words in (["data", "get", short], ["data", "history", short], ["data", "chain", short]):
        said = dgent_(*words)
        assert said.code == 0, said.err
    assert dgent_("data", "get", short, "--json").data["data"]["name"] == "Fix crash"
    assert dgent_("data", "get", trail, "--json").data["schema"] == "cupboard.trail"
    assert dgent_("data", "get", "dg-zzzz", "--json").error["code"] == "not_found"
    dgent_("remember", "a note", "--id", "dg-note")  # an id of a record wins
    assert dgent_("data", "get", "dg-note", "--json").data["data"] == {"text": "a note"}


def test_comments_are_shown_with_the_short_id(dgent_: Terminal) -> None:
    short = added(dgent_, "Fix crash")
    said = dgent_("comment", short, "seen", "on", "Linux").out
    assert said.splitlines()[0] == short and "seen on Linux" in said and not UUID.search(said)
    listed = dgent_("metadata", "comments", short, "--json").data["items"]
    assert [each["crumb_short_id"] for each in listed] == [short]
    assert dgent_("metadata", "comments", short).out.startswith(short)


def test_beads_files_have_short_ids_and_come_back(dgent_: Terminal, tmp_path: Path) -> None:
    epic = added(dgent_, "Epic")
    part = added(dgent_, "Part", "--part-of", epic)
    other = added(dgent_, "Other", "--needs", part)
    dgent_("comment", part, "half done")
    file = tmp_path / "issues.jsonl"
    assert dgent_("beads", "export", str(file)).code == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(each["id"] for each in lines) == sorted([epic, part, other]) and part == f"{epic}.1"
    by_id = {each["id"]: each for each in lines}
    assert by_id[other]["dependencies"][0]["depends_on_id"] == part
    assert by_id[part]["dependencies"][0]["depends_on_id"] == epic
    assert all(not UUID.match(each["id"]) and UUID.match(each["dgent_id"]) for each in lines)

    done = dgent_("beads", "import", str(file), "--json").data
    assert (done["added"], done["changed"]) == (0, 0), "the same crumbs"
    assert len(dgent_("crumb", "list", "--json").data["items"]) == 3
    for each in lines:  # as a program writes it that does not know the key
        del each["dgent_id"]
    by_id[part]["title"], by_id[part]["updated_at"] = "Part, renamed", "2199-01-01T00:00:00Z"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert dgent_("beads", "import", str(file)).code == 0
    assert dgent_("data", "get", part, "--json").data["data"]["name"] == "Part, renamed"
    assert len(dgent_("crumb", "list", "--json").data["items"]) == 3
    again = tmp_path / "again.jsonl"
    dgent_("beads", "export", str(again))
    assert sorted(json.loads(line)["id"] for line in again.read_text().splitlines()) == sorted(by_id)


def test_one_line_is_kept_as_it_is(dgent_: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "issues.jsonl"
    file.write_text('{"id": "bd-1", "title": "t"}\n{"title": "no id"}\n')
    assert "1 line kept as it is, because no record can hold it" in dgent_("beads", "import", str(file)).out
    file.write_text('{"title": "another"}\n{"title": "and this"}\n')
    assert "2 lines kept as they are, because no record can" in dgent_("beads", "import", str(file)).out


def test_what_a_first_walk_stumbled_over(dgent_: Terminal, tmp_path: Path) -> None:
    """Neighbours that wait are blocked, empty lists name what they list, hints say how to begin."""
    first = added(dgent_, "Fix crash")
    second = added(dgent_, "Write docs", "--needs", first)
    assert f"{second}  blocked  Write docs" in dgent_("show", first).out
    assert f"still waits for it: {second}  blocked" in dgent_("drop", first, "-m", "no").out
    assert dgent_("lessons").out.strip() == "no lessons yet"
    assert "no trails" in dgent_("trail", "list").out
    assert "`dgent stash create k` makes one" in dgent_("stash", "increment", "k", "-3").err
    said = dgent_("beads", "export", str(tmp_path / "issues.jsonl")).out
    assert said.splitlines()[0].endswith("issues.jsonl: 2 lines")
