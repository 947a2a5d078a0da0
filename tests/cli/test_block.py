"""Blocks at the terminal: history, differences and trees worth looking at, consent, and nothing hostile."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, on_a_terminal

GREEN, RED, OFF = "\x1b[32m", "\x1b[31m", "\x1b[0m"


@pytest.fixture
def notes(dgent_: Terminal) -> Terminal:
    """A home with a block `notes` that has some versions."""
    dgent_("config", "set", "author", "ann")
    for words in (
        ["create", "notes", "one\ntwo\n", "-d", "What I note."],
        ["append", "notes", "three\n", "-m", "one more"],
        ["undo", "notes"],
        ["replace", "notes", "two", "zwei"],
    ):
        assert dgent_("block", *words).code == 0
    return dgent_


def test_the_history_is_a_table(notes: Terminal) -> None:
    lines = notes("block", "history", "notes").out.splitlines()
    assert lines[0].split() == ["version", "when", "by", "what", "size", "change", "why"]
    assert [line.split()[0] for line in lines[1:]] == ["4", "3", "2", "1"]
    assert re.search(r"2 +(?:just now|\d+ seconds? ago) +ann +append +14 +\+6 -0 \++ +one more", lines[3])
    assert "undo to 1" in lines[2]
    assert notes("block", "history", "notes", "-n", "1").out.splitlines()[-1] == "and 3 older versions"
    told = notes("block", "history", "notes", "--json").data
    assert told["total"] == 4 and [each["version"] for each in told["items"]] == [4, 3, 2, 1]
    assert notes("block", "history", "notes", "--jsonl").out.count("\n") == 4


def test_a_difference_is_coloured(notes: Terminal) -> None:
    told = notes("block", "diff", "notes", "1", "4", "--color", "always").out
    assert f"{RED}-two{OFF}" in told and f"{GREEN}+zwei{OFF}" in told
    assert "\n-two\n+zwei\n" in notes("block", "diff", "notes", "1").out
    assert "two" in notes("block", "diff", "notes", "1", "--side-by-side").out.splitlines()[2]
    assert "no difference" in notes("block", "diff", "notes", "1", "1").out
    notes("block", "write", "notes", "one\nzwei")
    assert "\\ no newline at the end" in notes("block", "diff", "notes").out, "it is all that differs"
    notes("block", "append", "notes", "!")
    assert "no newline" not in notes("block", "diff", "notes").out, "nothing about it differs"


def test_the_tree_of_edits_is_drawn(notes: Terminal) -> None:
    told = re.sub(r"\d+ seconds? ago", "just now", notes("block", "branches", "notes").out)
    assert told.splitlines() == [
        "ann/notes",
        "`- 1  1 edit by ann  just now",
        "   |- 2  1 edit by ann  just now",
        "   `- 4  1 edit by ann  just now  <- here",
    ]
    notes("block", "append", "notes", "x")
    notes("block", "undo", "notes")
    assert "4-5" in (told := notes("block", "branches", "notes").out) and "<- here, at 4" in told


def test_found_words_are_marked(notes: Terminal) -> None:
    told = notes("block", "search", "zwei", "--color", "always").out
    assert f"{GREEN}\x1b[1mzwei{OFF}" in told
    assert "nothing found" in notes("block", "search", "nowhere").out


def test_a_block_is_named_in_three_ways(notes: Terminal) -> None:
    id = notes("block", "info", "notes", "--json").data["card"]["id"]
    notes("agent", "create", "bea")
    notes("block", "share", "notes", "-w", "bea")
    for words in ([id], ["ann/notes"], ["notes"], ["notes", "--owner", "ann"]):
        assert notes("block", "get", *words, "--agent", "bea").out == "one\nzwei\n\n"
    assert notes("block", "append", id, "x", "--agent", "bea").code == 0
    assert notes("block", "write", id, "x", "--agent", "bea", "--json").error["code"] == "permission_denied"
    told = notes("block", "notices", "--mark").out
    assert "ann/notes  bea  version 4 -> 5" in told and "\n+x\n" in told
    assert "nobody else" in notes("block", "notices").out
    missing = notes("block", "get", "nots")
    assert missing.code == 4 and "did you mean 'notes'?" in missing.err


def test_long_texts_come_from_files_and_standard_input(notes: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "text.md"
    file.write_text("from a file\n")
    assert notes("block", "write", "notes", "--file", str(file)).code == 0
    assert notes("block", "append", "notes", "-", stdin="from a pipe\n").code == 0
    assert notes("block", "get", "notes", "--json").data["text"] == "from a file\nfrom a pipe"
    patch = "@@ -1 +1 @@\n-from a file\n+patched\n"
    assert notes("block", "patch", "notes", "-", stdin=patch).code == 0
    assert notes("block", "edit", "notes", "2", "2", "-f", str(file)).code == 0
    assert notes("block", "get", "notes", "--json").data["text"] == "patched\nfrom a file\n"
    file.write_bytes(b"\xff")
    for words, told in (
        (["-f", str(file)], "not UTF-8"),
        (["-f", str(tmp_path / "none")], "cannot be read"),
        (["-f", str(tmp_path)], "cannot be read"),
        (["words", "-f", str(file)], "given twice"),
        ([], "it needs `text`"),
    ):
        failed = notes("block", "write", "notes", *words)
        assert failed.code == 2 and told in failed.err


def test_other_documents(dgent_: Terminal) -> None:
    dgent_("block", "create", "todo", "-t", "task_list")
    dgent_("block", "append", "todo", '{"title": "write"}')
    assert dgent_("block", "set-item", "todo", "1", '{"done": true}').code == 0
    assert dgent_("block", "get", "todo").out == "1. [x] write; priority: 3\n"
    dgent_("block", "create", "seen", "-t", "observation_log")
    assert dgent_("block", "append", "seen", "it rains").code == 0
    assert "it rains" in dgent_("block", "get", "seen").out
    dgent_("block", "create", "tree", "--document", "tree")
    node = dgent_("block", "add-node", "tree", '{"name": "top"}', "--json").data["node"]
    assert dgent_("block", "set-node", "tree", node, '{"name": "root"}').code == 0
    assert dgent_("block", "get", "tree").out == "- root\n"
    dgent_("block", "create", "count", "--document", "counter")
    dgent_("block", "increment", "count", "--amount", "3")
    assert dgent_("block", "get", "count", "--json").data["value"] == {"count": 3}
    assert "did you mean set-item?" in dgent_("block", "set-itm", "todo").err
    assert "--field" in dgent_("block", "delete-item", "todo", "1", "--field", "x").err


def test_the_archive_by_id(dgent_: Terminal) -> None:
    id = dgent_("archive", "insert", "The kettle is on.", "-t", "tea", "--json").data["id"]
    told = dgent_("archive", "get", id).out
    assert "#tea" in told and "The kettle is on." in told
    assert dgent_("archive", "search", "kettle", "-t", "tea", "--json").data["items"][0]["id"] == id
    assert dgent_("archive", "get", id, "--agent", "eve").code == 4
    assert dgent_("archive", "delete", id).code == 0, "history has it still, so nobody is asked"
    again = dgent_("archive", "insert", "gone for good", "--json").data["id"]
    asked = dgent_("archive", "delete", again, "--forget")
    assert asked.code == 2 and "--yes" in asked.err
    assert dgent_("archive", "delete", again, "--forget", "--yes").code == 0
    assert dgent_("archive", "get", again).code == 4


def test_what_is_erased_is_asked_for_and_told(notes: Terminal) -> None:
    asked = notes("block", "redact", "notes", "2")
    assert asked.code == 2 and "cannot be undone" in asked.err
    assert "redacted version 2" in notes("block", "redact", "notes", "2", "--yes").out
    rows = notes("block", "history", "notes", "--json").data["items"]
    assert [each["lost"] for each in rows if each["version"] == 2] == ["redacted"]
    assert "append, redacted" in notes("block", "history", "notes").out
    blank = "\N{REPLACEMENT CHARACTER}" * 5
    assert notes("block", "at", "notes", "2").out == f"one\ntwo\n{blank}\n\n", "lines stay lines"
    notes("block", "checkpoint", "notes", "now")
    assert "removed checkpoint now  version" in notes("block", "drop-checkpoint", "notes", "now", "-y").out


# -- consent ------------------------------------------------------------------------------------


@pytest.fixture
def rules(dgent_: Terminal) -> Terminal:
    """A home with a block that the partner must agree to change."""
    dgent_("config", "set", "author", "ann")
    assert dgent_("block", "create", "rules", "Be kind.", "-p", "partner").code == 0
    return dgent_


def test_without_a_terminal_somebody_must_have_agreed(rules: Terminal) -> None:
    told = rules("block", "append", "rules", "x")
    assert told.code == 6 and "the partner must agree to append" in told.err
    assert "use --yes to agree" in told.err
    assert rules("block", "append", "rules", "x", "--json").error["code"] == "consent_refused"
    assert rules("block", "append", "rules", "x", "--yes").code == 0
    refused = rules("block", "describe", "rules", "-p", "admin")
    assert refused.code == 6 and "allow admin instead of partner" in refused.err
    assert rules("block", "get", "rules").out == "Be kind.x\n"
    told = rules("block", "refusals").out.splitlines()
    assert len(told) == 4 and "describe" in told[1] and "the partner must agree to append" in told[3]


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 6), (b"y\n", 0)])
def test_a_person_is_asked_to_agree(rules: Terminal, answer: bytes, code: int) -> None:
    ended, seen = on_a_terminal(["block", "append", "rules", "x"], answer)
    assert "ann wants to append 'rules': the partner must agree to append. Do you agree?" in seen
    assert ended == code
    assert rules("block", "get", "rules").out == ("Be kind.x\n" if code == 0 else "Be kind.\n")


# -- what somebody hostile wrote ------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eabc\r\x9b31m"


def test_control_characters_are_spelled_out_wherever_they_are(dgent_: Terminal) -> None:
    label = f"x{HOSTILE}"
    assert dgent_("block", "create", label, HOSTILE, "-d", HOSTILE, "-k", "core").code == 0
    dgent_("block", "append", label, f"\n{HOSTILE}", "-m", HOSTILE)
    dgent_("block", "checkpoint", label, HOSTILE)
    dgent_("agent", "create", HOSTILE, "-d", HOSTILE)
    dgent_("group", "create", HOSTILE, "-d", HOSTILE)
    dgent_("group", "join", HOSTILE, HOSTILE, "-c", HOSTILE)
    dgent_("block", "share", label, "-w", HOSTILE)
    dgent_("archive", "insert", f"abc {HOSTILE}", "-t", HOSTILE)
    outputs = [
        dgent_(*words)
        for words in (
            *(["block", verb] for verb in ("list", "activity", "render", "shares")),
            *(
                ["block", verb, label]
                for verb in ("get", "info", "history", "diff", "branches", "checkpoints")
            ),
            ["block", "notices", "--agent", HOSTILE],
            ["block", "list", "-s", "--agent", HOSTILE],
            ["block", "search", "abc"],
            ["agent", "list"],
            ["group", "list"],
            ["block", "get", f"{HOSTILE}?"],
            ["block", "delete", label],
            ["block", "list"],
        )
    ]
    for each in outputs:
        assert "\\x1b[2J" in each.out + each.err, each
    passage = dgent_("archive", "search", "abc")  # which has spaces in their place
    assert "abc  [2J" in passage.out
    for each in (*outputs, passage):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", each.out + each.err), each


def test_a_terminal_is_not_flooded(dgent_: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_text("word " * 100_000)
    dgent_("block", "create", "long", "-f", str(file), "--limit", "1000000")
    code, seen = on_a_terminal(["block", "get", "long"], size=(50, 200))
    assert code == 0 and len(seen) < 260_000 and "300,000 more characters" in seen
    assert len(dgent_("block", "get", "long").out) == 500_001, "a file gets all of it"
    assert len(dgent_("block", "history", "long").out) < 500
    dgent_("block", "write", "long", "short")
    assert len(on_a_terminal(["block", "diff", "long"], size=(50, 200))[1]) < 260_000


def test_a_pattern_that_never_ends_is_refused(dgent_: Terminal) -> None:
    dgent_("block", "create", "t", "a" * 60 + "!")
    told = dgent_("block", "replace", "t", "(a+)+$", "b", "--regex")
    assert told.code == 2 and "takes too long" in told.err
    assert dgent_("block", "replace", "t", "a+", "b", "-r").code == 0
    assert dgent_("block", "get", "t").out == "b!\n"


def test_hostile_versions_and_numbers(notes: Terminal) -> None:
    for words in (
        ["at", "notes", "9" * 5000],
        ["at", "notes", "²"],
        ["at", "notes", ""],
        ["rollback", "notes", "0"],
        ["visit", "notes", "99"],
        ["diff", "notes", "-1"],
        ["history", "notes", "-n", "9" * 5000],
        ["edit", "notes", "x", "1"],
        ["append", "notes", "x", "--expect", "one"],
        ["replace", "notes", "x", "y", "--nth", "9" * 5000],
        ["render", "-b", "-1"],
        ["search", "x", "-n", "-1"],
        ["activity", "--since", "soon"],
        ["get", "\0"],
    ):
        told = notes("block", *words)
        assert told.code in (2, 4), (words[:2], told)
        assert "a fault in dgent" not in told.err


def test_completion_offers_labels_and_names(notes: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    notes("agent", "create", "bea")
    notes("block", "create", "bad\x1b[2J")

    def offered(*words: str) -> str:
        wanted = dict(
            os.environ,
            _DGENT_COMPLETE="bash_complete",
            COMP_WORDS=" ".join(["dgent", *words]),
            COMP_CWORD=str(len(words)),
        )
        with monkeypatch.context() as patch:
            for name, value in wanted.items():
                patch.setenv(name, value)
            return notes().out

    assert "plain,notes" in offered("block", "get", "no")
    assert "plain,bea" in offered("agent", "get", "be")
    assert "bad" not in offered("block", "get", "ba"), "a shell prints what it is given"
    assert "notes" not in offered("--agent", "eve", "block", "get", "no")
