"""Whether a pattern that a model wrote ends: tried in a process of its own, which can be stopped.

Python's patterns can take ages on a text of some hundred characters, and nothing stops them in this process.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys

from dgent.errors import InputError

TIME_S = 2.0
MAX_PATTERN = 1000
_TRIAL = "import json,re,sys;p,t=json.load(sys.stdin);sum(1 for _ in re.finditer(p,t))"


async def check(pattern: str, text: str) -> None:
    """Raise when looking for a pattern in a text takes too long."""
    if len(pattern) > MAX_PATTERN:
        raise InputError(f"a pattern has at most {MAX_PATTERN} characters", field="old")
    try:
        plain = not re.compile(pattern).groups and not set(pattern) & {*"*+{?"}
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{pattern!r:.80} is no pattern: {error}", field="old") from None
    if not plain and not await asyncio.to_thread(_ends, json.dumps([pattern, text]).encode()):
        raise InputError(
            f"looking for {pattern!r:.80} takes too long", hint="use a simpler pattern", field="old"
        )


def _ends(trial: bytes) -> bool:
    command = [sys.executable, "-I", "-S", "-c", _TRIAL]
    try:
        subprocess.run(
            command,
            input=trial,
            timeout=TIME_S,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError("a pattern cannot be tried here", hint="replace a text instead") from error
    return True
