"""Versions of files: every change that a tool makes is a commit, and its undo reaches the disk.

A record is a file of a workspace, and its history the file's versions. Where the disk has something that the
store does not know, that becomes a version first, marked `found`; no user made that change, and undo passes
over it. `FileUndo` puts a file back only where it is as the store has it, in a workspace that it knows by the
id in its own folder: records of another machine or from a stranger lead to no file here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dgent import clock
from dgent.errors import Conflict, InputError, NotFound, UndoConflict
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.runtime.code.change import FileChange, apply_changes
from dgent.runtime.code.workspace import FileState, Workspace
from dgent.store.backend import Committed, Op, Put, Reverted
from dgent.universe.history import find_changed, refusal, revert_ops
from dgent.universe.universe import Universe

ROOM = "code"


@dataclass(frozen=True)
class FileRecord:
    """One file of a workspace; `text` is None where there is none. `found` means that no tool made it so."""

    workspace: str
    root: str
    path: str
    text: str | None
    mode: int | None = None
    found: bool = False


FILE = Schema("code.file", contract=FileRecord, indexes=("path",), owner=ROOM)
SCHEMAS = (FILE,)


def file_id(workspace: str, name: str) -> str:
    """Return the id of the record of a file."""
    return f"{FILE.name}/{workspace}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


class Versions:
    """Records the changes of a workspace in a universe, as the `recorder` of a `CodeContext`."""

    def __init__(self, universe: Universe, workspace: Workspace) -> None:
        self._universe = universe.for_room(ROOM)
        self._universe.register(*SCHEMAS)
        universe.rooms.add(ROOM)
        self._workspace = workspace

    async def record(self, changes: Sequence[FileChange], note: str) -> int:
        """Record changes durably, and before them what the store did not know; returns the commit."""
        workspace = await asyncio.to_thread(lambda: self._workspace.identity(make=True))
        if workspace is None:
            raise Conflict(f"the workspace {self._workspace.root} cannot be marked as known")
        ids = [file_id(workspace, each.name) for each in changes]
        await self._note_found(workspace, [(each.name, each.before) for each in changes])
        revs = [each.rev for each in await self._universe.get_many(ids, raw=True) if each is not None]
        made = [
            self._put(workspace, each.name, each.after, rev) for each, rev in zip(changes, revs, strict=True)
        ]
        done = await self._universe.commit(made, note=note)
        assert done.seq is not None
        return done.seq

    async def withdraw(self, seq: int) -> None:
        """Put the records of a commit back: its changes did not reach the disk."""
        ops = revert_ops(self._universe, await self._universe.backend.states_before(seq))
        await self._universe.commit(ops, kind="undo", of_seq=seq, note=f"commit {seq} did not reach the disk")

    async def _note_found(self, workspace: str, states: Sequence[tuple[str, FileState]]) -> None:
        """Record files as they are on the disk, where the store has them otherwise or not at all."""
        known = await self._universe.get_many([file_id(workspace, name) for name, _ in states], raw=True)
        ops = [
            self._put(workspace, name, state, datum.rev if datum is not None else 0, found=True)
            for (name, state), datum in zip(states, known, strict=True)
            if datum is None or datum.data.get("text") != state.text
        ]
        if ops:
            await self._universe.commit(ops, note="files as they were found")

    def _put(self, workspace: str, name: str, state: FileState, rev: int, found: bool = False) -> Op:
        record = FileRecord(workspace, str(self._workspace.root), name, state.text, state.mode, found)
        datum = Datum(
            file_id(workspace, name),
            clock.now(),
            dict(vars(record)),
            author=self._universe.author,
            schema=FILE.name,
            schema_version=FILE.version,
        )
        return Put(datum, rev)


class FileUndo:
    """Undoes commits of files, in the store and on the disk."""

    def __init__(self, universe: Universe) -> None:
        self._asked = universe
        self._universe = universe.for_room(ROOM)
        self._universe.register(*SCHEMAS)

    async def undo(self, seq: int, records: list[Reverted], force: bool, dry_run: bool) -> Committed | None:
        """Put files back as they were before a commit.

        Refused where a file changed since, in the store or on the disk. Forced, what is on the disk becomes a
        version before it is replaced.
        """
        if not force and (changed := await find_changed(self._universe, records)):
            raise refusal(seq, changed)
        befores = [each.before for each in records if each.before is not None]
        if len(befores) < len(records):
            raise UndoConflict(
                f"commit {seq} records files as they were found, which changed nothing",
                hint="undo the commit after it",
            )
        now = await self._universe.get_many([each.id for each in befores], raw=True)
        places = {(str(each.data["root"]), str(each.data["workspace"])) for each in befores}
        if len(places) != 1:
            raise UndoConflict(f"commit {seq} is of several workspaces", hint="choose files with only=")
        root, identity = places.pop()
        with _open(root, identity, seq) as workspace:
            changes = [
                _plan(workspace, here, then, seq, force) for here, then in zip(now, befores, strict=True)
            ]
            if dry_run:
                return None
            if force:
                noted = [(each.name, each.before) for each in changes]
                await Versions(self._asked, workspace)._note_found(identity, noted)
                records = await self._refresh(seq, records)
            recorder = _UndoRecorder(self._universe, seq, records)
            if any(each.before.text != each.after.text for each in changes):
                await apply_changes(workspace, changes, f"undo of {seq}", recorder)
            else:
                await recorder.record(changes, f"undo of {seq}")
            return recorder.done

    async def _refresh(self, seq: int, records: Iterable[Reverted]) -> list[Reverted]:
        wanted = {each.id for each in records}
        return [each for each in await self._universe.backend.states_before(seq) if each.id in wanted]


class _UndoRecorder(Versions):
    """Records the undo of a commit in place of a change."""

    def __init__(self, universe: Universe, seq: int, records: Sequence[Reverted]) -> None:
        self._universe, self._seq, self._records = universe, seq, records
        self.done: Committed | None = None

    async def record(self, changes: Sequence[FileChange], note: str) -> int:
        """Commit the undo."""
        ops = revert_ops(self._universe, self._records)
        self.done = await self._universe.commit(ops, kind="undo", of_seq=self._seq, note=note)
        return self.done.seq or 0


def _open(root: str, identity: str, seq: int) -> Workspace:
    try:
        workspace = Workspace(root)
    except InputError as error:
        raise UndoConflict(f"commit {seq} changed files of {root}, which cannot be opened: {error}") from None
    if workspace.identity() != identity:
        workspace.close()
        raise UndoConflict(
            f"commit {seq} changed files of a workspace that is not the one at {root} now",
            hint="undo it on the machine, and in the folder, where it was made",
        )
    return workspace


def _plan(workspace: Workspace, now: Datum | None, then: Datum, seq: int, force: bool) -> FileChange:
    """Return the change that puts a file back; UndoConflict if the disk does not have what the store has."""
    name = str(then.data["path"])
    target = FileState(then.data["text"], then.data.get("mode"))
    try:
        found = workspace.read(workspace.file_name(name))
    except (InputError, NotFound) as error:
        raise UndoConflict(f"commit {seq} cannot be undone: {error.message}", hint="move that away") from None
    known = None if now is None else now.data["text"]
    if not force and found.text not in (known, target.text):
        raise UndoConflict(
            f"{name!r} was changed on the disk since commit {seq}, by others than dgent's tools",
            hint="look at it; force=True puts it back, and keeps what is there as a version",
        )
    return FileChange(name, found, FileState(target.text, found.mode if target.mode is None else target.mode))
