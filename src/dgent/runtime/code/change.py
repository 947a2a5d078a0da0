"""Changes of files: some files of a workspace become something else, all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from dgent.errors import Conflict, DgentError, InputError
from dgent.runtime.code.workspace import FileState, Workspace


class FileChange(msgspec.Struct, frozen=True):
    """One file, as it was read and as it is to become."""

    name: str
    before: FileState
    after: FileState


class Recorder(Protocol):
    """Records changes before they reach the disk; `version.Versions` is one."""

    async def record(self, changes: Sequence[FileChange], note: str) -> int:
        """Record changes durably; returns the number of the commit."""
        ...

    async def withdraw(self, seq: int) -> None:
        """Record that the changes of a commit did not reach the disk."""
        ...


async def apply_changes(
    workspace: Workspace, changes: Sequence[FileChange], note: str, recorder: Recorder | None = None
) -> int | None:
    """Change files, all or none; returns the commit that `undo` takes, None where nothing records.

    The new files are on the disk under other names first, then the commit is made, then they are moved into
    place: whatever stops this half-way, the store knows the contents of before.
    """
    changes = [each for each in changes if each.before.text != each.after.text]
    if not changes:
        raise InputError("this changes nothing: the file has this content already")
    task = asyncio.ensure_future(_apply(workspace, changes, note, recorder))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(DgentError):  # the caller is gone; disk and store still have to agree
            await task
        raise


async def _apply(
    workspace: Workspace, changes: Sequence[FileChange], note: str, recorder: Recorder | None
) -> int | None:
    parts: list[str | None] = []
    seq = None
    try:
        for each in changes:
            staged = each.after.text is not None
            parts.append(await asyncio.to_thread(workspace.stage, each.name, each.after) if staged else None)
        if recorder is not None:
            seq = await recorder.record(changes, note)
        await asyncio.to_thread(_place_all, workspace, changes, parts)
    except DgentError:
        if recorder is not None and seq is not None:
            await recorder.withdraw(seq)
        raise
    finally:
        for part in parts:
            if part is not None:
                workspace.discard(part)
    return seq


def _place_all(workspace: Workspace, changes: Sequence[FileChange], parts: Sequence[str | None]) -> None:
    done: list[FileChange] = []
    try:
        for each, part in zip(changes, parts, strict=True):
            workspace.place(part, each.name, each.before.digest)
            done.append(each)
    except BaseException:
        for each in reversed(done):
            # A file that somebody changed in this very moment stays as they left it.
            with suppress(Conflict):
                put_back(workspace, each)
        raise


def put_back(workspace: Workspace, change: FileChange) -> None:
    """Make a file what it was before a change; Conflict if it is neither that nor what the change made."""
    now = workspace.read(change.name).digest
    if now == change.before.digest:
        return
    if now != change.after.digest:
        raise Conflict(f"{change.name!r} was changed meanwhile by others", hint="look at it and decide")
    part = None if change.before.text is None else workspace.stage(change.name, change.before)
    try:
        workspace.place(part, change.name, now)
    finally:
        if part is not None:
            workspace.discard(part)
