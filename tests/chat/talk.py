"""A chat on a real terminal: what is typed, what is shown, and signals."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from tests.command import dgent

STYLE = re.compile(r"\x1b\[[0-9;?]*[mhlKJA]|\r")
PROMPT = re.compile(r"(> |… |: )$")
PATIENCE_S = 60.0


class Talk:
    """One chat on a terminal of its own."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path) -> None:
        self._parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=env, cwd=folder, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(child)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def shown(self) -> str:
        """All that was shown, without styles."""
        return STYLE.sub("", self.raw)

    def type(self, text: str) -> None:
        """Type some text."""
        os.write(self._parent, text.encode())

    def say(self, line: str) -> None:
        """Type a line once it is asked for: what is typed before is echoed in the middle of an answer."""
        end = time.monotonic() + PATIENCE_S
        while not PROMPT.search(self.shown):
            if time.monotonic() > end or not self._read(1.0):
                raise AssertionError(f"no line is asked for after:\n{self.shown}")
        at = self.mark()
        self.type(line + "\n")
        self.wait(line[:20], at)

    def wait(self, text: str, after: int = 0) -> str:
        """Wait until a text is shown behind a place; return all that is shown."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.shown[after:]:
            if time.monotonic() > end or not self._read(1.0):
                raise AssertionError(f"{text!r} is not in:\n{self.shown}")
        return self.shown

    def mark(self) -> int:
        """The place where what is shown next begins."""
        return len(self.shown)

    def _read(self, wait_s: float) -> bool:
        """Read what came; False when the terminal was closed."""
        ready, _, _ = select.select([self._parent], [], [], wait_s)
        if not ready:
            return True
        try:
            part = os.read(self._parent, 65536)
        except OSError:
            return False
        self.raw += self._decoder.decode(part)  # a read may end inside a character
        return bool(part)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self._read(0.2) and time.monotonic() < end:
            pass
        return self.process.wait(PATIENCE_S)

    def press(self, key: str, text: str, after: int = 0) -> None:
        """Press a key until a text is shown behind a place, or the chat ends.

        Python notices a signal that comes between the prompt and its wait for input only with the next key.
        """
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and text not in self.shown[after:] and time.monotonic() < end:
            self.type(key)
            pause = time.monotonic() + 3.0
            while time.monotonic() < pause and text not in self.shown[after:] and self._read(0.2):
                pass

    def leave(self, key: str) -> int:
        """Press a key until the chat ends; return the exit code."""
        self.press(key, "\0 is never shown")
        return self.end()

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.end()  # the forked program has ended when nobody has the terminal

    def close(self) -> None:
        """End it if it has not ended."""
        if self.process.poll() is None:
            self.kill()
        os.close(self._parent)


def _take_terminal() -> None:
    """Make the terminal that of the process, so that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Talker:
    """Begins chats in one home."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        for name in [name for name in os.environ if name.startswith(("XDG_", "DGENT_"))]:
            monkeypatch.delenv(name)
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        self.env = {**os.environ, "HOME": str(self.home), "TERM": "xterm"}
        self._open: list[Talk] = []

    def write_script(self, *steps: Any, name: str = "script.jsonl") -> str:
        """Write the script of a model; return its name for --model."""
        path = self.folder / name
        path.write_text("".join(json.dumps(step) + "\n" for step in steps))
        return f"script:{path}"

    def __call__(self, *words: str, agent: str = "scout") -> Talk:
        """Begin a chat on a terminal."""
        made = Talk([dgent(), "chat", "--agent", agent, *words], self.env, self.folder)
        self._open.append(made)
        return made

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of dgent without a terminal."""
        return subprocess.run(
            [dgent(), *words], input=stdin or "", env=self.env, cwd=self.folder, capture_output=True,
            text=True, timeout=PATIENCE_S,
        )  # fmt: skip

    def close(self) -> None:
        """End all chats."""
        for each in self._open:
            each.close()
