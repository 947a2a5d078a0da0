"""Events as a person sees them: one line for a tool call, nothing that moves the cursor from a tool."""

from __future__ import annotations

import io
import re

import pytest

from dgent.doors.cli.style import Paint
from dgent.doors.cli.turn_view import TurnView, describe_arguments
from dgent.runtime import event as events

STARTED = events.ToolStarted(call="1", name="block", arguments={"operation": "append", "text": "a\nb" * 500})


def shown(*seen: events.Event, terminal: bool = True, verbose: bool = False) -> tuple[str, str]:
    out, side = io.StringIO(), io.StringIO()
    where = out if terminal else side
    view = TurnView(out, where, Paint(False, width=80, terminal=terminal), verbose=verbose)
    for event in seen:
        view.show(event)
    view.close()
    return out.getvalue(), side.getvalue()


def test_a_tool_call_is_one_line() -> None:
    out, _ = shown(STARTED, events.ToolFinished(call="1", name="block", text="x" * 900, ms=12.3))
    started, _, finished = out.partition("\x1b[1A\r\x1b[K")
    assert started.startswith("  … block append text=a b")
    assert finished.startswith("  ✓ block append text=a b") and finished.endswith("12 ms\n")
    assert max(len(started), len(finished)) <= 81, "with the line end"
    assert "x" * 20 not in out


def test_a_line_is_only_replaced_if_it_is_the_last() -> None:
    other = events.ToolStarted(call="2", name="web", arguments={})
    out, _ = shown(STARTED, other, events.ToolFinished(call="1", name="block", text="", ms=1))
    assert "\x1b" not in out
    assert [line.split()[0] for line in out.splitlines()] == ["…", "…", "✓"]


def test_verbose_shows_arguments_and_results() -> None:
    result = events.ToolFinished(call="1", name="block", text="long " * 2000, ms=1)
    out, _ = shown(STARTED, result, verbose=True)
    assert "\\nb" in out and "long long" in out
    assert "… and 6,000 characters more" in out


def test_the_answer_alone_goes_into_a_pipe() -> None:
    out, side = shown(
        *(events.Thinking(text="hm"), events.Text(text="Hel"), events.Text(text="lo")),
        *(STARTED, events.ToolFinished(call="1", name="block", text="", ms=1)),
        *(events.Notice(text="careful"), events.Done(text="Hello")),
        terminal=False,
    )
    assert out == "Hello\n"
    assert "block append" in side and "careful" in side and "hm" not in side


@pytest.mark.parametrize(
    "event",
    [
        events.ToolStarted(call="1", name="a\x1b[2J", arguments={"x\x1b]0;y\x07": "\x1b[2J"}),
        events.ToolStarted(call="1", name="a", arguments="\x1b[2J"),
        events.ToolFinished(call="1", name="a\x1b[2J", text="\x1b[2J\r\n\x9b1A", error=True),
        events.Notice(text="\x1b[2J\nsecond"),
        events.Failed(code="x", message="\x1b[2J", hint="\x1b]52;c;AAAA\x07"),
        events.Text(text="\x1b[2J\x1b]52;c;AAAA\x07"),
        events.Thinking(text="\x1b[2J\u202e"),
    ],
)
@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_from_others_moves_the_cursor(event: events.Event, verbose: bool, terminal: bool) -> None:
    said = "".join(shown(event, terminal=terminal, verbose=verbose)).replace("\x1b[1A\r\x1b[K", "")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said), said


def test_failures_and_cut_answers_are_said() -> None:
    out, _ = shown(events.Failed(code="x", message="no key", hint="set one"), events.Done(finish="length"))
    assert out.splitlines() == ["error: no key", "hint:  set one", "  the answer ended early: length"]


def test_arguments_in_one_line() -> None:
    assert describe_arguments(None) == ""
    assert describe_arguments({"label": "notes", "operation": "view", "n": 3}) == "view label=notes n=3"
