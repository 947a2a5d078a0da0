"""Show the events of an agent's turn: text as it comes, each tool call folded to one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

import msgspec

from dgent.doors.cli.markdown import MarkdownStream, clean_lines
from dgent.doors.cli.style import Paint, clean, cut, terminal_size, width
from dgent.runtime import event as events
from dgent.runtime.event import Event

MAX_SHOWN = 4_000  # characters of arguments and results that --verbose shows
_BACK = "\x1b[1A\r\x1b[K"  # to the line above, and clear it


class View(Protocol):
    """Something that shows events."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def close(self) -> None:
        """End what is shown, before anything else is written."""
        ...


class LineView:
    """Writes each event as one line of JSON."""

    def show(self, event: Event) -> None:
        """Write one event."""
        sys.stdout.buffer.write(events.encode(event) + b"\n")
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Do nothing: each line is whole."""


class TurnView:
    """Shows events to a person. The answer goes to `out`; with a pipe there, all else goes to `side`."""

    def __init__(self, out: TextIO, side: TextIO, paint: Paint, *, verbose: bool = False) -> None:
        self._out, self._side, self._paint, self._verbose = out, side, paint, verbose
        self._terminal = paint.terminal
        self._text: MarkdownStream | None = None
        self._calls: dict[str, events.ToolStarted] = {}
        self._last_call = ""  # the call whose line is the last one on the screen
        self._thinking = False

    def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, events.Text):
            self._show_text(event.text)
        elif isinstance(event, events.Thinking):
            self._show_thought(event.text)
        else:
            self.close()
            draw = _DRAWINGS.get(type(event))
            if draw is not None:
                draw(self, event)

    def close(self) -> None:
        """End the text that is being written."""
        if self._text is not None:
            self._text.close()
            self._text = None
        if self._thinking:
            self._thinking = False
            self._side.write("\n" if self._verbose else _BACK if self._terminal else "")
        self._out.flush()
        self._side.flush()

    # -- the answer ---------------------------------------------------------------------------

    def _show_text(self, text: str) -> None:
        if self._thinking:
            self.close()
        if self._text is None:
            draw = self._terminal and self._paint.color
            self._text = MarkdownStream(self._out.write, terminal_size, draw=draw)
        self._last_call = ""
        self._text.add(text)
        self._out.flush()

    def _show_thought(self, text: str) -> None:
        if self._text is not None:
            self.close()
        if self._verbose:
            self._thinking = True
            self._write_dim(text)
        elif self._terminal and not self._thinking:
            self._thinking = True
            self._side.write(self._paint.dim("thinking…") + "\n")
        self._side.flush()

    def _write_dim(self, text: str) -> None:
        lines = clean_lines(text).split("\n")
        self._side.write("\n".join(self._paint.dim(line) for line in lines))

    # -- tools --------------------------------------------------------------------------------

    def _start_tool(self, event: events.ToolStarted) -> None:
        self._calls[event.call] = event
        if not self._terminal and not self._verbose:
            return  # one line in a log is enough, and says more when the call has ended
        self._line(self._fold("…", event.name, event.arguments))
        self._last_call = event.call
        if self._verbose:
            self._block(event.arguments)

    def _finish_tool(self, event: events.ToolFinished) -> None:
        started = self._calls.pop(event.call, None)
        if self._last_call == event.call and self._terminal and not self._verbose:
            self._side.write(_BACK)
        mark = "✗" if event.error else "✓"
        said = f"{event.ms:.0f} ms" + (f": {_find_message(event.text)}" if event.error else "")
        arguments = None if started is None else started.arguments
        self._line(self._fold(mark, event.name, arguments, said))
        self._last_call = ""
        if self._verbose:
            self._block(event.text)

    def _fold(self, mark: str, name: str, arguments: Any, said: str = "") -> str:
        """Return a call as one line that fits the terminal."""
        most = min(self._paint.width, 200) - 4
        color = {"✗": "red", "✓": "green"}.get(mark, "cyan")
        end = _cut_clean(said, most // 2)
        head = _cut_clean(f"{name} {describe_arguments(arguments)}", most - width(end) - 1)
        return f"  {self._paint(mark, fg=color)} {self._paint(head)} {self._paint.dim(end)}".rstrip()

    def _block(self, value: Any) -> None:
        """Write a long value below its line, each of its lines set in."""
        text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
        if text in ("", "null"):
            return
        shown, more = text[:MAX_SHOWN], len(text) - MAX_SHOWN
        for line in clean_lines(shown).split("\n"):
            self._line(f"    {self._paint.dim(line)}")
        if more > 0:
            self._line(f"    {self._paint.dim(f'… and {more:,} characters more')}")

    # -- the rest -----------------------------------------------------------------------------

    def _show_usage(self, event: events.UsageReport) -> None:
        if self._verbose:
            self._line(self._paint.dim(f"  {event.model}: {describe_usage(event.usage)}"))

    def _show_notice(self, event: events.Notice) -> None:
        self._line(f"  {self._paint(event.text, fg='yellow')}")

    def _show_missed(self, event: events.Missed) -> None:
        self._line(self._paint.dim(f"  {event.count} events were left out here"))

    def _show_end(self, event: events.Done) -> None:
        if event.finish not in ("stop", "tool_call"):
            self._line(self._paint(f"  the answer ended early: {event.finish}", fg="yellow"))

    def _show_failure(self, event: events.Failed) -> None:
        self._line(f"{self._paint('error:', fg='red', bold=True)} {self._paint(event.message)}")
        if event.hint:
            self._line(f"{self._paint('hint:', fg='cyan')}  {self._paint(event.hint)}")

    def _line(self, text: str) -> None:
        self._side.write(f"{text}\n")
        self._side.flush()


_DRAWINGS: Mapping[type, Callable[[TurnView, Any], None]] = {
    events.ToolStarted: TurnView._start_tool,
    events.ToolFinished: TurnView._finish_tool,
    events.UsageReport: TurnView._show_usage,
    events.Notice: TurnView._show_notice,
    events.Missed: TurnView._show_missed,
    events.Done: TurnView._show_end,
    events.Failed: TurnView._show_failure,
}


def _find_message(text: str) -> str:
    """Return the sentence in the answer of a tool; the text itself where there is none."""
    try:
        return msgspec.json.decode(text, type=_Said).message or text
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


class _Said(msgspec.Struct):
    message: str = ""


def _cut_clean(text: str, most: int) -> str:
    """Return a text in one line, escaped before it is cut: escapes are longer than what they stand for."""
    return cut(clean(" ".join(text[:2_000].split())), most)


def describe_arguments(arguments: Any) -> str:
    """Return the arguments of a call in one line: the operation, then name=value."""
    if not isinstance(arguments, Mapping):
        return "" if arguments is None else " ".join(str(arguments)[:400].split())
    words = [str(arguments["operation"])] if "operation" in arguments else []
    for name, value in arguments.items():
        if name != "operation":
            text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
            words.append(f"{name}={cut(text[:400], 60)}")
    return " ".join(words)


def describe_usage(usage: Any) -> str:
    """Return tokens and cost in words."""
    cost = "" if not usage.cost else f", ${usage.cost:.4f}"
    kept = f" ({usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
    return f"{usage.input_tokens:,} tokens in{kept}, {usage.output_tokens:,} out{cost}"
