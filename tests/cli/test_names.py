"""Names that nothing has: one place guesses what was meant; several candidates are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dgent
from dgent import errors
from dgent.system.near import ask, find_near
from dgent.verbs.index import MODULES, NOUNS, SHORT
from dgent.verbs.near import MEANT
from tests.cli.terminal import Terminal

SOURCE = Path(dgent.__file__).parent


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["create", "x"], "did you mean remember, crumb add or block create?"),
        (["delete", "x"], "did you mean data delete?"),
        (["close", "x"], "did you mean done?"),
        (["crumb", "close", "x"], "did you mean done?"),
        (["crumb", "lst"], "did you mean list?"),
        (["remembr", "x"], "did you mean remember?"),
        (["invoke", "self.data.querry"], "did you mean self.data.query?"),
        (["config", "get", "Colour"], "did you mean color?"),
        (["recall", "--where", '{"weight": {"$gtt": 3}}'], "did you mean $gt?"),
        (["block", "get", "persona"], "did you mean 'persona-1'?"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_command_that_is_not_there(dgent_: Terminal, words: list[str], hint: str) -> None:
    dgent_("block", "create", "persona-1", "x")
    told = dgent_(*words)
    assert told.code != 0 and hint in told.err, told.err


def test_search_is_a_command(dgent_: Terminal) -> None:
    assert dgent_("search", "x").code == 0


def test_what_is_meant_exists() -> None:
    known = {*SHORT, *NOUNS, *(id.replace(".", " ") for id in MODULES)}
    for word, meant in MEANT.items():
        assert {*meant} <= known, word
    assert [ask(["a"]), ask(["a", "b"]), ask(["a", "b", "c"]), ask([])] == [
        "did you mean a?",
        "did you mean a or b?",
        "did you mean a, b or c?",
        "",
    ]
    assert find_near("COLOR", ["color", "url"]) == ["color"]
    assert find_near("x" * 100_000, ["x"]) == []


def test_names_are_guessed_at_one_place() -> None:
    guessing = [file for file in SOURCE.rglob("*.py") if "get_close_matches" in file.read_text()]
    assert [str(file.relative_to(SOURCE)) for file in guessing] == ["system/near.py"]


def test_an_ambiguous_name_lists_the_candidates(dgent_: Terminal) -> None:
    for id in ("release-1", "release-2"):
        dgent_("remember", "x", "--id", id)
    told = dgent_("get", "release", "--json")
    assert told.code == 12 and told.error["code"] == "ambiguous"
    assert "release-1" in told.error["error"] and "release-2" in told.error["error"]
    assert dgent_("get", "nothing-like-it").code == 4


async def test_a_handle_that_is_not_open_is_named_first() -> None:
    calls = {
        "remember": lambda u: u.remember(object()),
        "store": lambda u: u.store(object()),
        "update": lambda u: u.update(object(), weight=1),
        "put": lambda u: u.put(object()),
        "put_many": lambda u: u.put_many(3),
        "delete": lambda u: u.delete(""),
        "get": lambda u: u.get(""),
        "query": lambda u: u.query(wat=1),
        "page": lambda u: u.page(3),
        "recall": lambda u: u.recall(wat=1),
        "recall a name": lambda u: u.recall("witness.mrk"),
        "search": lambda u: u.search("x", wat=1),
        "count": lambda u: u.count(wat=1),
        "list": lambda u: u.list("", limit=-1),
        "undo": lambda u: u.undo(-1),
        "history": lambda u: u.history(""),
    }
    never = dgent.open("memory:")
    closed = await dgent.open("memory:")
    await closed.close()
    for name, call in calls.items():
        with pytest.raises(errors.Closed, match=r"never opened: .* was not awaited"):
            await call(never)
        with pytest.raises(errors.Closed, match="this universe is closed") as raised:
            await call(closed)
        assert re.search("async with dgent.open", raised.value.hint), name


def test_import_takes_a_noun(dgent_: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memories.json").write_text('[{"id": "m1", "memory": "Likes tea"}, {"id": 5}]')
    (tmp_path / "mem0").write_text("a file with the name of a noun")
    first = dgent_("import", "mem0", "memories.json", "--dry-run")
    assert "would write" in first.out and "memories.json, row 2: left out" in first.out
    assert "memories  2     1        0              1" in dgent_("import", "mem0", "memories.json").out
    found = dgent_("mem0", "import", "memories.json", "--json").data
    assert (found["read"], found["written"], found["already_there"], found["left_out"]) == (2, 0, 1, 1)
    assert "the file was cut" in dgent_("import", "./mem0").err
    assert dgent_("import", "mem0").code != 0
    assert "agent file" in dgent_("import", "letta", "--help").out
