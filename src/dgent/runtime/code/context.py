"""The context of coding tools: a workspace, its rules, and what records changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from dgent.runtime.code.change import FileChange, Recorder, apply_changes
from dgent.runtime.code.policy import Policy
from dgent.runtime.code.workspace import FileState, Workspace
from dgent.runtime.tool.tool import Answer, Call


class Ended(msgspec.Struct, frozen=True):
    """The end of a command: its exit code (negative: the signal), why it was ended, and its output."""

    code: int
    reason: str
    output: str
    seconds: float


Runner: TypeAlias = Callable[[list[str], str, float, Call], Awaitable[Ended]]
"""Runs the words of a command in a folder of the workspace, with a time limit."""


class CodeContext(msgspec.Struct, frozen=True):
    """The workspace, rules and recorder of all coding tools; without a recorder, changes cannot be undone.

    `runner` runs commands elsewhere than in a process of ours, as in a terminal of an editor.
    """

    workspace: Workspace
    policy: Policy = Policy()
    recorder: Recorder | None = None
    environment: Mapping[str, str] | None = None
    runner: Runner | None = None

    async def read(self, tool: str, path: str, call: Call) -> tuple[str, FileState]:
        """Return the name of a file and its text, if the rules allow it; NotFound if it is not there."""
        name = self.workspace.file_name(path)
        self.policy.require_path(tool, "read", name, call)
        return name, await asyncio.to_thread(self.workspace.read_text, name)

    async def look(self, tool: str, path: str, call: Call) -> tuple[str, FileState]:
        """Return the name of a file that is about to be changed, and its state, if the rules allow it."""
        name = self.workspace.file_name(path)
        self.policy.require_path(tool, "write", name, call)
        self.policy.require_path(tool, "read", name, call)  # the diff in the answer shows what was there
        return name, await asyncio.to_thread(self.workspace.read, name)

    async def change(self, tool: str, changes: Sequence[FileChange], call: Call) -> Answer:
        """Change files, which `look` gave, all or none; the answer has the commit for undo."""
        names = ", ".join(each.name for each in changes)
        note = f"{tool} {names}"[:500]
        seq = await apply_changes(self.workspace, changes, note, self.recorder)
        data: dict[str, Any] = {"files": [describe_change(each) for each in changes]}
        if seq is not None:
            data["undo"] = seq
        return {"ok": True, "message": f"changed {names}"[:500], "data": data}


def describe_change(change: FileChange) -> dict[str, Any]:
    """Return the path of a changed file, and its diff, as an editor shows it."""
    import difflib  # only a change needs it

    before, after = (
        [] if each.text is None else each.text.splitlines(keepends=True)
        for each in (change.before, change.after)
    )
    lines: list[str] = []
    if len(before) + len(after) <= MAX_DIFFED:
        made = difflib.unified_diff(before, after, f"a/{change.name}", f"b/{change.name}")
        lines = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made]
    diff = "".join(lines)
    what = "created" if change.before.text is None else "deleted" if change.after.text is None else "changed"
    return {"path": change.name, "what": what, "diff": diff if len(diff) <= MAX_DIFF else ""}


MAX_DIFF = 20_000  # characters of a diff that is shown
MAX_DIFFED = 20_000  # lines; the time that a diff takes grows with their square
