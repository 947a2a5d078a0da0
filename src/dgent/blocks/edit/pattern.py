"""Replace by a regular expression that somebody else wrote: try it first in a process that can be stopped.

A search can take hours on a text of some hundred characters, and Python cannot stop one in this process.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from dgent.blocks.edit.section import Section
from dgent.blocks.history.version import Version
from dgent.errors import InputError, VersionConflict

if TYPE_CHECKING:
    from dgent.blocks.block import Block

TIME_S = 2.0
MAX_PATTERN = 1000
_TRIAL = "import json,re,sys;p,t=json.load(sys.stdin);sum(1 for _ in re.finditer(p,t))"


async def replace(
    part: Block | Section,
    pattern: str,
    new: str,
    which: str | int,
    *,
    message: str = "",
    expect: int | None = None,
    tries: int = 5,
) -> Version:
    """Replace by a pattern in exactly the text that it was tried on; try again when others edit meanwhile."""
    block = part._block if isinstance(part, Section) else part
    tried = expect
    if pattern and part.document_kind == "text":  # anything else is refused anyway
        await check_pattern(pattern, await part.text())
        tried = block.version if expect is None else expect
    try:
        return await part.replace(pattern, new, which=which, regex=True, message=message, expect=tried)
    except VersionConflict:
        if expect is not None or tries == 1:
            raise
    return await replace(part, pattern, new, which, message=message, tries=tries - 1)


async def check_pattern(pattern: str, text: str) -> None:
    """Raise when looking for a pattern in a text takes too long."""
    if len(pattern) > MAX_PATTERN:
        raise InputError(f"a pattern has at most {MAX_PATTERN} characters", field="old")
    try:
        plain = not re.compile(pattern).groups and not set(pattern) & {*"*+{?"}
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{pattern!r:.80} is not a valid pattern: {error}", field="old") from None
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
