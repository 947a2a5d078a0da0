"""A coding agent fixes a bug: its first attempt fails, is taken back, and teaches the second.

`python examples/coding_agent.py` needs no key: a script plays the model. With one, give
`model="anthropic:claude-sonnet-5-5"` in its place.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import dgent
from dgent.cupboard import Cupboard
from dgent.runtime.code.task import CodingAgent
from dgent.runtime.event import Done, Notice, ToolFinished
from dgent.runtime.model.script import ScriptedModel

TASK = "count() is wrong for two spaces; make check.py pass"
FILES = {
    "words.py": "def count(text):\n    return len(text.split(' '))\n",
    "check.py": "from words import count\n\nassert count('a  b') == 2\nprint('passed')\n",
}
CHECK = f"{sys.executable} -B check.py"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return an answer of the scripted model that calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


SCRIPT = [
    call("plan", steps=["split at commas", "run the check"]),
    call("edit", path="words.py", old="split(' ')", new="split(',')"),
    call("run", command=CHECK),
    call(
        "give_up", reason="the text has no commas", lesson="split() without an argument skips double spaces"
    ),
    call("plan", steps=["split at any space", "run the check"]),
    call("edit", path="words.py", old="split(' ')", new="split()"),
    call("step", number=1, state="done"),
    call("run", command=CHECK),
    call("step", number=2, state="done"),
    {"text": "Fixed: the check passes."},
]


async def main() -> None:
    """Run the agent on a small project, and show what the store has of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in FILES.items():
            (root / name).write_text(text)
        async with dgent.open("memory:", author="ada") as u:
            async with CodingAgent(u, "coder", root, model=ScriptedModel(SCRIPT), mode="auto") as coder:
                async for event in coder.work(TASK):
                    if isinstance(event, ToolFinished):
                        print(f"{'failed' if event.error else 'done':<6}  {event.name}")
                    elif isinstance(event, Notice | Done):
                        print(f"        {event.text}")
            for trail in reversed(await Cupboard(u).trails.fetch()):
                print(f"{trail.state}: {trail.lesson or trail.goal}")
        print((root / "words.py").read_text())


asyncio.run(main())
