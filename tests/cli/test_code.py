"""The command `dgent code`, in a real process, with a scripted model."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat.talk import Talk
from tests.mcp import host

STEPS = [
    {"calls": [{"name": "edit", "arguments": {"path": "a.txt", "old": "1", "new": "2"}}]},
    {"text": "It is 2 now."},
]
GIVE_UP = [{"calls": [{"name": "give_up", "arguments": {"reason": "no", "lesson": "never"}}]}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("1\n")
    return tmp_path


def words(folder: Path, steps: list[Any], *more: str) -> list[str]:
    script = folder / "script.jsonl"
    script.write_text("\n".join(json.dumps(each) for each in steps))
    store = f"sqlite:///{folder}/store.db"
    root = str(folder / "project")
    given = ("make it 2", "--root", root, "--model", f"script:{script}", *more)
    return host.command("--url", store, "code", *given)


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, env=host.environment(folder), stdin=subprocess.DEVNULL
    )


def test_a_task_is_done_and_undone(folder: Path) -> None:
    done = run(folder, words(folder, STEPS, "--yes"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is 2 now.\n"
    assert "✓ edit path=a.txt old=1 new=2" in done.stderr
    assert (folder / "project" / "a.txt").read_text() == "2\n"
    log = run(folder, host.command("--url", f"sqlite:///{folder}/store.db", "log", "--json"))
    (seq,) = [each["seq"] for each in json.loads(log.stdout)["data"]["items"] if each["note"] == "edit a.txt"]
    back = run(folder, host.command("--url", f"sqlite:///{folder}/store.db", "undo", str(seq), "--yes"))
    assert back.returncode == 0, back.stderr
    assert (folder / "project" / "a.txt").read_text() == "1\n"


def test_without_a_terminal_the_answer_is_no(folder: Path) -> None:
    done = run(folder, words(folder, STEPS, "--json"))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["type"] for each in events if each["type"].startswith("tool")] == [
        "tool_started",
        "tool_finished",
    ]
    assert next(each for each in events if each["type"] == "tool_finished")["error"]
    assert events[-1]["type"] == "done"
    assert (folder / "project" / "a.txt").read_text() == "1\n"


def test_a_person_is_asked(folder: Path) -> None:
    """At a terminal, y allows one change; the answer alone goes to a pipe."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        words(folder, STEPS),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=host.environment(folder),
    ) as process:
        assert process.stderr is not None
        errors = b""
        while b"allow it?" not in errors:
            errors += os.read(process.stderr.fileno(), 4096)
        os.write(control, b"y\n")
        out, _ = process.communicate(timeout=100)
    os.close(control)
    os.close(terminal)
    assert process.returncode == 0, errors
    assert b"wants to call edit in write:a.txt" in errors
    assert out == b"It is 2 now.\n"
    assert (folder / "project" / "a.txt").read_text() == "2\n"


@pytest.fixture
def talk(folder: Path) -> Iterator[Callable[..., Talk]]:
    """Run tasks on a terminal of their own, and end those that a test leaves behind."""
    begun: list[Talk] = []

    def begin(steps: list[Any], *more: str) -> Talk:
        env = {**host.environment(folder), "TERM": "xterm"}
        env.pop("NO_COLOR", None)
        begun.append(Talk(words(folder, steps, *more), env, folder))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def test_work_is_shown_as_in_a_chat(folder: Path, talk: Callable[..., Talk]) -> None:
    """Calls are folded to one line, markdown is drawn, and questions have the answers of a chat."""
    more = {"calls": [{"name": "edit", "arguments": {"path": "a.txt", "old": "2", "new": "3"}}]}
    coder = talk([STEPS[0], more, {"thinking": "a musing", "text": "It is **3** now."}])
    coder.wait("wants to call edit")
    coder.wait("n no: ")
    coder.say("a")
    shown = coder.wait("It is 3 now.")
    assert coder.end() == 0
    assert shown.count("allow it?") == 1
    assert "✓ edit path=a.txt old=2 new=3" in shown
    assert "\x1b[1m3" in coder.raw
    assert "musing" not in shown
    assert (folder / "project" / "a.txt").read_text() == "3\n"


def test_nothing_that_a_model_writes_moves_the_cursor(talk: Callable[..., Talk]) -> None:
    coder = talk([{"text": "evil \x1b[2J\x1b]0;title\x07 text"}])
    assert coder.end() == 0
    assert "\x1b[2J" not in coder.raw and "\x1b]0" not in coder.raw


def test_an_interrupt_ends_it_durably(folder: Path, talk: Callable[..., Talk]) -> None:
    coder = talk([{"text": "one two three four", "pause_s": 300, "piece": 8}])
    coder.wait("one two")
    coder.type("\x03")
    coder.wait("interrupted")
    assert coder.end() == 130
    store = f"sqlite:///{folder}/store.db"
    log = run(folder, host.command("--url", store, "--agent", "coder", "message", "batches", "--json"))
    assert '"interrupted"' in log.stdout, log.stdout + log.stderr


def test_failures_have_a_code(folder: Path) -> None:
    done = run(folder, words(folder, GIVE_UP, "--yes", "--attempts", "1"))
    assert done.returncode == 1, done.stderr
    done = run(folder, words(folder, [{"error": "model_refused"}], "--yes"))
    assert done.returncode == 1
    assert "error:" in done.stderr
    done = run(folder, host.command("--url", f"sqlite:///{folder}/store.db", "code", "x"))
    assert done.returncode == 3
    assert "--model" in done.stderr
