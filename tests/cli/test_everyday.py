"""Everyday views: the user's things, what happened in words, undo and redo, a place with no store yet."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal


def fill(dgent_: Terminal) -> None:
    """Store a record, a crumb that is finished, a block that is edited, and a counter."""
    for words in (
        ["remember", "ship it", "--id", "release"],
        ["crumb", "add", "Fix crash", "-s", "ready"],
        ["take", "--agent", "scout"],
        ["done", "Fix crash", "--agent", "scout"],
        ["block", "create", "persona", "I am terse."],
        ["block", "append", "persona", " And kind.", "-m", "after the review"],
        ["stash", "create", "k", "--type", "counter"],
    ):
        assert dgent_(*words).code == 0, words


def test_views_show_the_users_things(dgent_: Terminal) -> None:
    fill(dgent_)
    assert [each["id"] for each in dgent_("recall", "--json").data["items"]] == ["release"]
    assert dgent_("data", "count").out == "1\n"
    status = dgent_("status").out
    assert "1 record, 1 block, 1 crumb, 1 stash," in status
    log = dgent_("log").out
    for text in (status, log, dgent_("recall").out):
        assert "cupboard." not in text and "block." not in text, text
    # Asked for, everything is there.
    schemas = {each["schema"] for each in dgent_("recall", "--all", "-n", "100", "--json").data["items"]}
    assert {None, "cupboard.crumb", "cupboard.catalog", "block.version"} <= schemas
    assert "cupboard.catalog" in dgent_("status", "--all").out
    assert "cupboard.catalog" in dgent_("log", "--all", "-n", "100").out
    assert len(dgent_("recall", "cupboard.crumb", "--json").data["items"]) == 1
    assert int(dgent_("data", "count", "--all").out) == len(
        dgent_("recall", "--all", "-n", "100", "--json").data["items"]
    )


def test_the_log_says_what_happened(dgent_: Terminal) -> None:
    fill(dgent_)
    assert dgent_("stash", "increment", "k", "-3").code == 0
    assert dgent_("metadata", "comment", "Fix crash", "well done").code == 0
    log = dgent_("log").out
    for sentence in (
        "scout took ‘Fix crash’",
        "scout finished ‘Fix crash’",
        "system created the block persona",
        "system edited persona: after the review",
        "system set the stash ‘k’ to -3",
        "system commented on ‘Fix crash’: well done",
    ):
        assert f"    {sentence}\n" in log, log
    last = dgent_("log", "-n", "1", "--json").data["items"][0]
    assert last["summary"] == ["system commented on ‘Fix crash’: well done"] and last["items"] == []


def test_packed_versions_are_still_described(dgent_: Terminal) -> None:
    import asyncio

    import dgent
    from dgent.blocks import Library

    async def edit() -> None:
        async with dgent.open(f"sqlite:///{dgent_.home}/m.db") as u:
            notes = await Library(u, agent="scribe").create("notes")
            for number in range(150):
                await notes.append(f"{number}\n", message=f"note {number}")

    asyncio.run(edit())
    log = dgent_("--url", "sqlite:///m.db", "log", "-n", "200").out
    assert "scribe edited notes: note 3\n" in log and "block." not in log


def test_undo_goes_back_step_by_step_and_redo_forth(dgent_: Terminal) -> None:
    for text in ("one", "two", "three"):
        dgent_("remember", text, "--id", "a")
    seen = []
    for verb in ("undo", "undo", "redo", "undo", "redo", "redo"):
        assert dgent_(verb).code == 0
        seen.append(dgent_("get", "a", "--json").data["data"]["text"])
    assert seen == ["two", "one", "two", "one", "two", "three"]
    nothing = dgent_("redo", "--json")
    assert (nothing.code, nothing.error["error"]) == (4, "there is nothing to redo")
    for _ in range(3):
        assert dgent_("undo").code == 0
    assert dgent_("get", "a").code == 4
    assert dgent_("undo", "--json").error["error"] == "there is nothing to undo"
    # Something new ends what can be done again.
    assert dgent_("remember", "four", "--id", "b").code == 0
    assert dgent_("redo").code == 4


def test_undo_says_what_came_back(dgent_: Terminal) -> None:
    dgent_("crumb", "add", "Fix crash", "-s", "ready")
    dgent_("done", "Fix crash", "--force")
    assert "put ‘Fix crash’ back to ready" in dgent_("undo").out
    dgent_("crumb", "delete", "Fix crash", "-y")
    assert "brought back ‘Fix crash’" in dgent_("undo").out
    dgent_("remember", "x", "--id", "a")
    dgent_("data", "delete", "a")
    assert "brought back a" in dgent_("undo").out
    assert "took back a" in dgent_("undo").out
    # The commit that set up the cupboard is not the user's.
    assert "took back ‘Fix crash’" in dgent_("undo").out
    assert dgent_("undo").code == 4


def test_an_edit_of_a_block_names_its_own_undo(dgent_: Terminal) -> None:
    fill(dgent_)
    dgent_("block", "append", "persona", "!")
    told = dgent_("undo", "--json")
    assert told.code != 0 and "system edited persona: append" in told.error["error"]
    assert "`dgent block undo persona`" in told.error["hint"]
    number = told.error["hint"].partition("`dgent undo ")[2].partition("`")[0]
    assert "took back the stash ‘k’" in dgent_("undo", number).out


@pytest.mark.parametrize("number", ["-3", "-0.5", "-1e3", "-.5"])
def test_negative_numbers_are_values(dgent_: Terminal, number: str) -> None:
    told = dgent_("remember", "it", "is", number, "--id", "a", "--json")
    assert told.data["data"] == {"text": f"it is {number}"}
    assert dgent_("remember", "x", "-3x").code == 2
    assert dgent_("remember", "x", "--tagg", "-3").code == 2


def test_a_negative_step_of_a_counter(dgent_: Terminal) -> None:
    dgent_("stash", "create", "k", "--type", "counter")
    assert dgent_("stash", "increment", "k", "-3", "--json").data["value"] == {"value": -3}


@pytest.mark.parametrize(
    "words",
    [
        *(["recall"], ["status"], ["log"], ["data", "count"], ["crumb", "list"], ["block", "list"]),
        *(["board"], ["search", "x"], ["ready"], ["trail", "list"], ["data", "schemas"], ["prime"]),
        ["import", "--dry-run"],
    ],
    ids=" ".join,
)
def test_reading_where_nothing_is_yet(dgent_: Terminal, words: list[str]) -> None:
    if words[0] == "import":
        elsewhere = dgent_.home / "elsewhere"
        dgent_("--url", f"sqlite:///{elsewhere}.db", "remember", "x", "--id", "a")
        dgent_("--url", f"sqlite:///{elsewhere}.db", "export", "-o", "out.jsonl")
        words = [*words, "out.jsonl"]
    told = dgent_(*words)
    assert told.code == 0, told.err
    assert told.err == "nothing is stored in default yet; `dgent remember something` makes it\n"
    quiet = dgent_(*words, "--json")
    assert (quiet.code, quiet.err) == (0, "") and quiet.data is not None
    assert not dgent_.store.exists()


def test_status_where_nothing_is_yet_names_the_place(dgent_: Terminal) -> None:
    found = dgent_("status", "--json").data
    assert (found["engine"], found["place"], found["records"]) == ("sqlite", str(dgent_.store), 0)


@pytest.mark.parametrize("noun", [[], ["beads"], ["cupboard"], ["graph"]], ids=str)
def test_a_failed_import_makes_no_store(dgent_: Terminal, noun: list[str]) -> None:
    assert dgent_(*noun, "import", "nowhere.jsonl").code == 4
    (dgent_.home / "folder.jsonl").mkdir()
    told = dgent_(*noun, "import", "folder.jsonl/")
    assert (told.code != 0 or noun == ["cupboard"]) and (told.code == 0) == dgent_.store.exists(), told


def test_a_damaged_import_makes_no_store(dgent_: Terminal) -> None:
    dgent_("--url", "sqlite:///other.db", "remember", "x", "--id", "a")
    dgent_("--url", "sqlite:///other.db", "export", "-o", "cut.jsonl")
    file = dgent_.home / "cut.jsonl"
    whole = file.read_bytes()
    for part in (b"no export", whole[: len(whole) // 2]):
        file.write_bytes(part)
        assert dgent_("import", "cut.jsonl").code != 0 and not dgent_.store.parent.exists()
    file.write_bytes(whole)
    assert dgent_("import", "cut.jsonl").out == "1 added\n" and dgent_.store.exists()
