"""What is printed: for people, for programs, and when nobody reads on."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import msgspec
import pytest

from dgent import clock
from dgent.doors.cli import style
from dgent.doors.cli.draw.record import draw_record
from dgent.doors.cli.session import line
from dgent.errors import DgentError
from dgent.exchange import folders
from dgent.model.datum import Datum
from dgent.verbs.data.answer import record_of
from dgent.verbs.outcome import TABLE, outcome_of
from tests.cli.terminal import Terminal, on_a_terminal


def test_json_is_one_object_and_errors_go_to_standard_error(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    told = dgent_("get", "a", "--json")
    assert told.out.count("\n") == 1 and told.err == ""
    assert set(msgspec.json.decode(told.out)) == {"ok", "data"}
    wrong = dgent_("get", "b", "--json")
    assert wrong.out == "" and wrong.error["code"] == "not_found" and wrong.code == 4
    assert dgent_("nonsense", "--json").error["code"] == "input"
    assert dgent_("get", "--json").error["code"] == "input"


def test_jsonl_is_one_record_a_line(dgent_: Terminal) -> None:
    for n in range(3):
        dgent_("remember", f"x{n}")
    lines = dgent_("recall", "--jsonl").out.splitlines()
    assert [msgspec.json.decode(each)["data"]["text"] for each in lines] == ["x2", "x1", "x0"]


def test_recall_by_the_time_of_updates(dgent_: Terminal) -> None:
    for id in ("a", "b", "c"):
        dgent_("remember", "x", "--id", id)
    dgent_("remember", "y", "--id", "a")
    newest = dgent_("recall", "--order-by", "updated_at", "--json").data["items"]
    assert [each["id"] for each in newest] == ["a", "c", "b"]
    assert newest[0]["updated_at"] > newest[0]["created_at"]
    last = newest[0]["updated_at"]
    assert [each["id"] for each in dgent_("recall", "--updated-since", last, "--json").data["items"]] == ["a"]
    before = dgent_("recall", "--updated-until", last, "--json").data["items"]
    assert [each["id"] for each in before] == ["c", "b"]
    assert dgent_("data", "count", "--updated-since", "1h", "--json").data["count"] == 3
    assert dgent_("recall", "--updated-since", "soon").code == 2
    assert ", made just now\n" in dgent_("get", "a").out
    assert "updated_at" not in dgent_("diff", "a").out


def test_a_changed_record_shows_when_it_was_changed() -> None:
    long_ago = clock.now() - timedelta(days=3)
    stored = Datum(id="a", created_at=long_ago, rev=2, seq=5, updated_at=clock.now())
    head, *_ = draw_record(record_of(stored), style.Paint(False, 100))
    assert head.startswith("a  rev 2, commit 5, made 3") and head.endswith("ago, changed just now")
    first, *_ = draw_record(record_of(stored.replace(rev=1)), style.Paint(False, 100))
    assert first.endswith("ago")


def test_exit_codes_are_told_apart() -> None:
    def below(kind: type[DgentError]) -> list[type[DgentError]]:
        return [kind, *(each for sub in kind.__subclasses__() for each in below(sub))]

    for kind in below(DgentError):
        error = kind("x")
        assert 1 <= outcome_of(error).exit <= 12
        assert 400 <= outcome_of(error).http <= 599
        assert outcome_of(error).mcp < -32000
    assert outcome_of(ZeroDivisionError()).exit == 70
    assert outcome_of(KeyboardInterrupt()).exit == 130
    kinds = [kind for kind, _ in TABLE]
    for row, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:row]), (
            "a row that can never be reached"
        )


def test_a_destructive_verb_asks(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    told = dgent_("forget", "a")
    assert told.code == 2 and "--yes" in told.err
    assert dgent_("get", "a").code == 0
    assert dgent_("forget", "a", "--dry-run", "--json").data["versions"] == 1
    assert dgent_("get", "a").code == 0
    assert dgent_("forget", "a", "--yes").code == 0
    assert dgent_("get", "a").code == 4


@pytest.mark.parametrize(("answer", "gone"), [(b"n\n", False), (b"y\n", True)])
def test_a_person_is_asked(dgent_: Terminal, answer: bytes, gone: bool) -> None:
    dgent_("remember", "x", "--id", "a")
    code, seen = on_a_terminal(["forget", "a"], answer)
    assert "Erase records and all their versions for good: a?" in seen
    assert code == (0 if gone else 130)
    assert (dgent_("get", "a").code == 4) is gone


def test_a_key_makes_a_retry_safe(dgent_: Terminal) -> None:
    first = dgent_("remember", "once", "--key", "k", "--json").data
    again = dgent_("remember", "once", "--key", "k", "--json").data
    assert again == first
    assert dgent_("data", "count", "--json").data["count"] == 1
    other = dgent_("remember", "twice", "--key", "k", "--json")
    assert other.code != 0 and other.error["code"] == "key_reused"


def test_colours_on_a_terminal_only(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    dgent_("remember", "x", "--id", "a")
    assert "\x1b[" in on_a_terminal(["get", "a"])[1]
    assert "\x1b[" not in dgent_("get", "a").out
    assert "\x1b[" in dgent_("get", "a", "--color", "always").out
    assert "\x1b[" not in on_a_terminal(["get", "a", "--color", "never"])[1]


def test_a_long_answer_goes_through_a_pager(dgent_: Terminal) -> None:
    for n in range(30):
        dgent_("remember", f"x{n}", "--id", f"a{n}")
    code, seen = on_a_terminal(["log", "-n", "30"], size=(10, 100))
    assert code == 0 and "commit 30" in seen and "commit 1\x1b" in seen


def test_the_pager_setting_means_what_it_says(dgent_: Terminal) -> None:
    from dgent.doors.cli import render

    dgent_("remember", "x", "--id", "a")
    assert render._needs_pager("always", 1) and not render._needs_pager("never", 10_000)
    assert render._needs_pager("auto", 10_000) and not render._needs_pager("auto", 1)
    dgent_("config", "set", "pager", "always")
    parted, _, seen = on_a_terminal(["get", "a"])[1].partition("a")
    assert "made" in seen and not parted.strip("\x1b[0123456789;m")


def test_stored_text_cannot_drive_the_terminal(dgent_: Terminal) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \x9b31m"
    dgent_("remember", msgspec.json.encode({"text": evil}).decode(), "--id", "a", "-t", "t\x1b[31m")
    for words in (["get", "a"], ["recall"], ["log"], ["history", "a"], ["get-commit", "1"]):
        told = dgent_(*words, "--color", "never")
        assert told.code == 0
        assert not set(told.out) & set("\x1b\x07\x9b\u202e"), words
    assert dgent_("get", "a", "--json").data["data"]["text"] == evil


def test_nobody_reads_on(dgent_: Terminal) -> None:
    dgent_("remember", "x")
    process = dgent_.start("recall")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(30)


def test_export_is_the_file_and_nothing_else(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    for words in ([], ["--json"]):
        told = dgent_("export", *words)
        lines = [msgspec.json.decode(line) for line in told.out.splitlines()]
        assert lines[0]["dgent"] == "export" and lines[-1]["end"] is True and len(lines) == 3
    assert "1 record as of commit 1" in dgent_("export").err
    file = dgent_.home / "all.jsonl"
    file.write_text(dgent_("export").out)
    assert dgent_("import", str(file), "-C", "new", "--json").data["added"] == 1


def test_the_doctor_finds_what_a_killed_process_left(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    left = dgent_.store.parent.parent / ".twin.making"
    left.mkdir()
    (left / folders.MARKER).touch()
    (left / "membrane.db").write_bytes(b"half")
    told = dgent_("doctor", "--json")
    (found,) = [each for each in told.data["findings"] if each["subject"] == "leftovers"]
    assert (found["level"], found["fixable"], left.exists()) == ("warning", True, True)
    assert "(repaired)" in dgent_("doctor", "--fix").out
    assert not left.exists()
    assert "nothing unfinished" in dgent_("doctor").out


def test_what_is_wrong_is_said_before_a_question(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    assert dgent_("forget", "nobody", "--json").error["code"] == "not_found"
    assert dgent_("restore", "nowhere", "--to", "z", "--json").error["code"] == "not_found"
    assert dgent_("data", "compact", "--json").error["code"] == "input"
    assert dgent_("constellation", "delete", "nobody", "--json").error["code"] == "not_found"


def test_watch_ends_when_nobody_reads(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a")
    process = dgent_.start("watch", "--from-seq", "0")
    assert process.stdout is not None and process.stderr is not None
    assert "commit 1" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) in (0, 141)
    assert process.stderr.read() == ""
    process.stderr.close()


def test_watch_follows_other_processes_until_interrupted(dgent_: Terminal) -> None:
    dgent_("remember", "before", "--id", "a")
    process = dgent_.start("watch", "--from-seq", "0", "--jsonl")
    with process:
        try:
            assert process.stdout is not None and process.stderr is not None
            first = msgspec.json.decode(process.stdout.readline())
            assert first["items"][0]["id"] == "a"
            dgent_("remember", "after", "--id", "b", "-t", "x")
            second = msgspec.json.decode(process.stdout.readline())
            assert (second["seq"], second["items"][0]["record"]["tags"]) == (2, ["x"])
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130
            assert msgspec.json.decode(process.stderr.read())["code"] == "interrupted"
        finally:
            process.kill()


def test_paths_from_the_terminal(dgent_: Terminal) -> None:
    dgent_("remember", '{"n": 3}', "--id", "a", "-s", "thing", "-t", "x", "-t", "y")
    told = dgent_("invoke", "self.data.query", "schema=thing", "tag=x", "tag=y", "where=n>=3", "--json")
    assert [each["id"] for each in told.data["items"]] == ["a"]
    assert dgent_("invoke", "self", "--json").data["items"]
    assert "self.data.query" in dgent_("invoke", "self.data").out
    assert dgent_("invoke", "self.data.forget", "id=a").code == 2, "a path asks before it destroys too"
    assert dgent_("invoke", "self.data.query", "oops").code == 2


def test_two_versions_side_by_side(dgent_: Terminal) -> None:
    dgent_("remember", '{"name": "shoe", "weight": 3}', "--id", "a")
    dgent_("remember", '{"name": "shoe", "weight": 5, "size": 44}', "--id", "a")
    told = dgent_("diff", "a", "--side-by-side")
    (changed,) = [line for line in told.out.splitlines() if '"weight": 3' in line]
    assert '"weight": 3' in changed.partition("|")[0]
    assert any('"weight": 5' in line.partition("|")[2] for line in told.out.splitlines())
    assert any(line.count('"name": "shoe"') == 2 for line in told.out.splitlines())
    assert all(len(line) <= 120 for line in told.out.splitlines())
    assert "+" in dgent_("diff", "a").out


def test_progress_says_how_long() -> None:
    assert (
        line("import", 500, 1000, 2.0)
        == "import ############............  50%  500 of 1,000  250/s  2 s left"
    )
    assert "nearly done" in line("import", 1000, 1000, 2.0)
    assert line("export", 10, None, 0.0) == "export 10  0/s"
    assert "h left" in line("x", 1, 10**6, 1.0)


def test_words_for_times_and_sizes() -> None:
    from datetime import timedelta

    from dgent import clock

    now = clock.now()
    told = {1: "just now", 61: "1 minute ago", 7300: "2 hours ago", 3 * 86400: "3 days ago"}
    assert {seconds: style.ago(now - timedelta(seconds=seconds)) for seconds in told} == told
    assert style.ago(now + timedelta(days=1)) == "in the future"
    assert [style.size(n) for n in (0, 999, 1000, 1234567)] == ["0 B", "999 B", "1.0 KB", "1.2 MB"]


def test_columns_keep_to_the_width() -> None:
    rows = [["a", "日本語" * 40, "z"], ["b" * 10, "short", "y"]]
    lines = style.table(style.Paint(False, 60), ("one", "two", "three"), rows, last=1)
    assert all(style.width(each) <= 60 for each in lines)
    assert style.cut("x\ny  z", 10) == "x y z"


def test_two_processes_and_the_last_word(dgent_: Terminal) -> None:
    started = time.monotonic()
    writers = [dgent_.start("remember", f"from {n}", "--id", f"w{n}") for n in range(6)]
    assert [process.wait(60) for process in writers] == [0] * 6, [
        process.communicate() for process in writers
    ]
    for process in writers:
        process.communicate()
    assert dgent_("data", "count", "--json").data == {"count": 6}
    assert time.monotonic() - started < 60
