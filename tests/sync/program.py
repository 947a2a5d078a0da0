"""Running a small program of its own, which must end well and say nothing it should not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

LIMIT_S = 120.0  # a busy machine is slow; what hangs takes for ever


def run(code: str, *args: str) -> list[str]:
    """The lines a program prints; it must succeed, print no errors or warnings, and end in time."""
    command = [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c"]
    started = time.monotonic()
    done = subprocess.run(
        [*command, textwrap.dedent(code), *args], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stderr == "", done.stderr
    assert done.returncode == 0, done.returncode
    assert time.monotonic() - started < LIMIT_S / 2
    return done.stdout.splitlines()
