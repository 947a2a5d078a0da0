"""Odd input at the terminal: a clear error, one JSON object, the right code, and nothing half-done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.cli.terminal import Terminal

COMMAND = [sys.executable, "-c", "from dgent.doors.cli.main import main; main()"]
DIGITS = "9" * 5000


def run(words: list[str | bytes], redirect: str = "", stdin: bytes = b"", **env: str) -> tuple[int, str, str]:
    """Run `dgent` as a process, maybe with a stream closed or full."""
    given = [word.encode() if isinstance(word, str) else word for word in words]
    command = ["sh", "-c", f'"$@" {redirect}', "sh", *COMMAND, *given] if redirect else [*COMMAND, *given]
    done = subprocess.run(command, input=stdin, capture_output=True, env=dict(os.environ, **env), timeout=180)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["get-commit", "²"], 2),
        (["get-commit", DIGITS], 2),
        (["get-commit", "٣"], 2),
        (["get", "a", "--as-of", DIGITS], 2),
        (["recall", "--since", DIGITS + "s"], 2),
        (["data", "compact", "--days", "nan", "-y"], 2),
        (["data", "compact", "--days", "inf", "-y"], 2),
        (["data", "compact", "--days", "-1", "-y"], 2),
        (["data", "upgrade", "x", "-c", ""], 2),
        (["data", "upgrade", "x", "-c", ".rel"], 2),
        (["export", "-o", "/nope/x"], 10),
        (["export", "-o", "/proc/x"], 10),
        (["restore", "nowhere", "--to", "", "--replace", "-y"], 2),
        (["log", "--before", "9" * 18], 0),
        (["undo", "1", "--dry-run"], 5),
        (["undo", "1", "--only", "nope", "--dry-run"], 4),
        (["data", "put", "{}", "-s", "dgent.association"], 6),
        (["remember", "x", "--id", "a", "--expect", "7"], 5),
    ],
)
def test_no_fault(dgent_: Terminal, words: list[str], code: int) -> None:
    dgent_("remember", "x", "--id", "a")
    dgent_("remember", "y", "--id", "a")
    told = dgent_(*words, "--json")
    assert told.code == code, told.err
    if code:
        assert told.out == "" and told.error["error"]
        assert told.err.count("\n") == 1
    assert "Traceback" not in dgent_(*words).err


@pytest.mark.parametrize(
    "words",
    [
        [b"diff", b"a", b"\xff"],
        [b"import", b"/nope\xff"],
        [b"get", b"\xff"],
        [b"data", b"upgrade", b"x", b"-c", b"\xff"],
        [b"export", b"-o", b"x\xff"],
        [b"remember", b"\xff"],
    ],
)
def test_bytes_that_are_no_text(dgent_: Terminal, words: list[str | bytes]) -> None:
    dgent_("remember", "x", "--id", "a")
    code, out, err = run([*words, b"--json"])
    assert code in (2, 4) and out == ""
    assert msgspec.json.decode(err)["ok"] is False
    code, _, err = run(words)
    assert code in (2, 4) and "Traceback" not in err


def test_json_in_any_encoding(dgent_: Terminal) -> None:
    dgent_("remember", "ö", "--id", "ö")
    utf8 = {"LC_ALL": "C.UTF-8"}  # of the arguments; the streams' encoding is what this is about
    code, _, err = run(["get", "nopeö", "--json"], PYTHONIOENCODING="ascii", **utf8)
    assert code == 4 and "nopeö" in msgspec.json.decode(err)["error"]
    assert run(["get", "ö"], PYTHONIOENCODING="ascii", **utf8)[0] == 0
    assert run(["remember", "-", "--json"], stdin="ü".encode(), PYTHONIOENCODING="ascii")[0] == 0
    code, _, err = run(["remember", "-", "--json"], stdin=b"\xff")
    assert code == 2 and "UTF-8" in msgspec.json.decode(err)["error"]
    deep = b'{"a":' + b"[" * 100_000
    assert run(["remember", "-", "--json"], stdin=deep)[0] == 2


def test_closed_and_full_streams(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    assert run(["get", "a"], ">&-")[0] == 0
    assert run(["get", "a"], "2>&-")[0] == 0
    assert run(["get", "nope"], "2>&-")[0] == 4
    code, _, err = run(["remember", "-"], "<&-")
    assert code == 2 and "closed" in err
    assert run(["forget", "a"], "<&-")[0] == 2
    for words in (["get", "a"], ["--help"], ["status"], ["export"], ["get", "a", "--json"]):
        code, _, err = run(list(words), ">/dev/full")
        assert code == 74 and "Traceback" not in err and "cannot be written" in err, (words, err)


def test_a_failing_command_makes_no_store(dgent_: Terminal) -> None:
    for words in (
        ["undo"],
        ["data", "delete", "x"],
        ["data", "associate", "a", "b"],
        ["data", "upgrade", "x"],
        ["remember", "{"],
        ["remember", '{"a": 1e999}'],
        ["import", "nowhere"],
        ["doctor", "--fix"],
        ["watch"],
    ):
        assert dgent_("-C", "typo", *words).code != 0
        assert not list(dgent_.home.rglob("membrane.db")), words
    told = dgent_("-C", "fresh", "remember", "x", "--json")
    assert told.err == "" and told.data["rev"] == 1


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://u:hunter2@h/x",
        "memory://u:hunter2@h",
        "sqlite:////nope/x?password=hunter2",
        "postgres:u:hunter2@h",
        "postgresql://u:hunter2@127.0.0.1:1/db",
        "sqlite:///u:hunter2@h/x",
    ],
)
def test_no_password_is_ever_printed(dgent_: Terminal, url: str) -> None:
    for words in (
        ["status"],
        ["get", "a"],
        ["remember", "x"],
        ["config"],
        ["config", "get", "url"],
        ["doctor"],
    ):
        for more in ([], ["--json"]):
            told = dgent_("--url", url, *words, *more)
            assert "hunter2" not in told.out + told.err, (words, more)
    told = dgent_("config", "set", "url", url)
    assert "hunter2" not in told.out + told.err


def test_nobody_forges_a_commit_in_the_log(dgent_: Terminal) -> None:
    forged = "bob\n\ncommit 99  admin  just now\n  + secret  rev 1  approved"
    dgent_("remember", "x", "--id", "a", "--agent", forged, "-m", forged.replace("99", "98"))
    for words in (["log"], ["status"], ["get-commit", "1"], ["history", "a"]):
        lines = dgent_(*words).out.splitlines()
        assert not [line for line in lines if line.startswith(("commit 9", "  + secret"))], words


def test_export_takes_no_others_place(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    precious = dgent_.home / "precious"
    precious.write_text("mine")
    (dgent_.home / "y.jsonl.partial").symlink_to(precious)
    (dgent_.home / "link.jsonl").symlink_to(precious)
    assert dgent_("export", "-o", "y.jsonl").code == 0
    for taken in ("precious", "link.jsonl"):
        assert dgent_("export", "-o", taken).code == 2
    assert precious.read_text() == "mine" and not (dgent_.home / "y.jsonl").is_symlink()
    assert [path for path in dgent_.home.iterdir() if path.name.endswith(".partial")] == [
        dgent_.home / "y.jsonl.partial"
    ]


def test_a_home_whose_name_is_no_text(tmp_path: Path) -> None:
    home = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(home)
    for words in (["remember", "x"], ["config"], ["constellation", "list"], ["status"]):
        for more in ([], ["--json"]):
            done = subprocess.run(
                [*COMMAND, *words, *more],
                env={**os.environb, b"HOME": home},
                capture_output=True,
                timeout=180,
            )
            assert b"Traceback" not in done.stderr, (words, done.stderr)
            if more and done.returncode:
                assert msgspec.json.decode(done.stderr)["ok"] is False


def test_words_behind_two_dashes_are_data(dgent_: Terminal) -> None:
    told = dgent_("get", "--", "--json")
    assert told.code == 4 and told.err.startswith("error:")
