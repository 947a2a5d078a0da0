"""The command line, called in this process with a home of its own, or as a process."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from dgent.doors.cli.main import main
from tests.command import dgent


class Said(NamedTuple):
    """What a call printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The data of a --json answer."""
        told = msgspec.json.decode(self.out)
        assert told["ok"] is True
        return told["data"]

    @property
    def error(self) -> dict[str, Any]:
        """A --json error."""
        told: dict[str, Any] = msgspec.json.decode(self.err.splitlines()[-1])
        assert told["ok"] is False
        assert set(told) == {"ok", "code", "error", "hint"}
        return told


class _Stream(io.TextIOWrapper):
    """A stream with a buffer, as a real one has."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        """What was written."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


class Terminal:
    """A terminal in a home of its own."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self._monkeypatch = home, monkeypatch
        home.mkdir(exist_ok=True)
        for name in [name for name in os.environ if name.startswith(("XDG_", "DGENT_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(home)

    @property
    def store(self) -> Path:
        """The file of the default constellation."""
        return self.home / ".local/share/dgent/constellations/default/membrane.db"

    def __call__(self, *words: str, stdin: str = "") -> Said:
        """Run `dgent` with these words in this process."""
        out, err = _Stream(), _Stream()
        self._monkeypatch.setattr(sys, "argv", ["dgent", *words])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main(list(words))
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Said(code or 0, out.text(), err.text())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `dgent` as a process."""
        # A shell's background job ignores interrupts, and so would what it starts.
        command = ["env", "--default-signal=INT", dgent(), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on_a_terminal(
    words: list[str], answer: bytes = b"", size: tuple[int, int] = (24, 100), pager: str = "cat"
) -> tuple[int, str]:
    """Run `dgent` on a terminal of its own and answer what it asks."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [dgent(), *words],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**env, "TERM": "xterm", "PAGER": pager},
    )
    os.close(child)
    if answer:
        os.write(parent, answer)
    seen = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(parent)
    return process.wait(30), seen.decode()
