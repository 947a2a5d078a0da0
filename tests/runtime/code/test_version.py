"""Every change of a file is a version, and its undo reaches the disk, but never over others' changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.errors import Denied, StorageFull, UndoConflict
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.policy import Policy
from dgent.runtime.code.toolset import code_tools
from dgent.runtime.code.version import Versions
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.tool.tool import Toolset
from dgent.universe.gate import Principal
from dgent.universe.history import find_undoable
from dgent.universe.room import Describers
from dgent.universe.universe import Universe


@pytest.fixture
async def u() -> AsyncIterator[Universe]:
    """A store in memory."""
    async with dgent.open("memory:", author="scout") as made:
        yield made


@pytest.fixture
def tools(u: Universe, context: CodeContext) -> Toolset:
    """The tools, with versions."""
    return code_tools(CodeContext(context.workspace, context.policy, recorder=Versions(u, context.workspace)))


async def change(tools: Toolset, old: str, new: str) -> int:
    """Edit the notes, and return the commit."""
    answer = await tools.call("edit", {"path": "notes.txt", "old": old, "new": new})
    assert answer["ok"], answer
    return int(answer["data"]["undo"])


async def test_undo_takes_changes_back_on_the_disk_and_redo_brings_them(
    u: Universe, tools: Toolset, root: Path
) -> None:
    notes = root / "notes.txt"
    notes.chmod(0o640)
    first = await change(tools, "one", "1")
    second = await change(tools, "two", "2")
    assert await find_undoable(u, Describers(u, None)) == second
    undone = await u.undo(second)
    assert notes.read_text() == "1\ntwo\nthree\n"
    await u.undo(first)
    assert notes.read_text() == "one\ntwo\nthree\n"
    assert notes.stat().st_mode & 0o777 == 0o640
    assert await find_undoable(u, Describers(u, None)) is None
    assert undone.seq is not None
    with pytest.raises(UndoConflict):
        await u.undo(second)


async def test_a_patch_of_many_files_is_undone_as_one(u: Universe, tools: Toolset, root: Path) -> None:
    diff = "--- /dev/null\n+++ b/new/x\n@@ -0,0 +1 @@\n+x\n"
    diff += "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-import os\n+import sys\n"
    done = await tools.call("patch", {"diff": diff})
    gone = await tools.call("remove", {"path": "notes.txt"})
    assert not (root / "notes.txt").exists()
    await u.undo(done["data"]["undo"])
    assert not (root / "new/x").exists()
    assert (root / "src/a.py").read_text().startswith("import os")
    await u.undo(gone["data"]["undo"])
    assert (root / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_what_others_changed_is_not_overwritten(u: Universe, tools: Toolset, root: Path) -> None:
    seq = await change(tools, "one", "1")
    (root / "notes.txt").write_text("theirs\n")
    with pytest.raises(UndoConflict, match="changed on the disk"):
        await u.undo(seq)
    assert (root / "notes.txt").read_text() == "theirs\n"
    await u.undo(seq, force=True)
    assert (root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    versions = [each.datum.data["text"] for each in await u.history((await ids(u))[0]) if each.datum]
    assert "theirs\n" in versions


async def test_what_others_changed_between_two_changes_is_a_version(
    u: Universe, tools: Toolset, root: Path
) -> None:
    first = await change(tools, "one", "1")
    (root / "notes.txt").write_text("theirs\n")
    second = await change(tools, "theirs", "ours")
    with pytest.raises(UndoConflict):
        await u.undo(first)
    await u.undo(second)
    assert (root / "notes.txt").read_text() == "theirs\n"


async def test_links_and_other_folders_are_refused(u: Universe, tools: Toolset, root: Path) -> None:
    seq = await change(tools, "one", "1")
    (root / "notes.txt").unlink()
    (root / "notes.txt").symlink_to(root.parent / "secret.txt")
    with pytest.raises(UndoConflict, match="link"):
        await u.undo(seq, force=True)
    (root / "notes.txt").unlink()
    (root / "notes.txt").write_text("1\ntwo\nthree\n")
    (root / ".dgent/workspace").write_text("0" * 32)
    with pytest.raises(UndoConflict, match="not the one"):
        await u.undo(seq, force=True)
    shutil.rmtree(root)
    with pytest.raises(UndoConflict, match="cannot be opened"):
        await u.undo(seq)
    assert (root.parent / "secret.txt").read_text() == "secret"


async def test_a_change_that_stopped_before_the_disk_is_undone(
    u: Universe, tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the commit and the move: the store has the change, the disk has not."""
    seq = await change(tools, "one", "1")
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    await u.undo(seq)
    assert (root / "notes.txt").read_text() == "one\ntwo\nthree\n"

    def fail(*_: object) -> None:
        raise StorageFull("no space left")

    monkeypatch.setattr(Workspace, "place", fail)
    answer = await tools.call("edit", {"path": "notes.txt", "old": "one", "new": "1"})
    assert answer["data"]["code"] == "storage_full"
    monkeypatch.undo()
    assert await find_undoable(u, Describers(u, None)) is None
    assert sorted(os.listdir(root)) == [".dgent", "notes.txt", "src"]


async def test_nobody_below_a_partner_sees_or_undoes_versions(u: Universe, tools: Toolset) -> None:
    seq = await change(tools, "one", "1")
    friend = u.acting(Principal("friend", "friend"))
    friend.rooms.add("code")
    assert await friend.get((await ids(u))[0], raw=True) is None
    with pytest.raises(Denied):
        await friend.undo(seq)


async def test_the_command_line_undoes_files(root: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/u.db"
    async with dgent.open(url, author="scout") as u:
        with Workspace(root) as workspace:
            context = CodeContext(workspace, Policy(write="allow"), Versions(u, workspace))
            await change(code_tools(context), "one", "1")
    command = Path(sys.executable).with_name("dgent")

    def dgent_(*words: str) -> str:
        line = [str(command), *words, "--url", url]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    assert "changed the file ‘notes.txt’" in dgent_("log")
    dgent_("undo")
    assert (root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    dgent_("redo")
    assert (root / "notes.txt").read_text() == "1\ntwo\nthree\n"


async def ids(u: Universe) -> list[str]:
    """Return the ids of the records of files."""
    return [each.id for each in await u.query(schema="code.file", raw=True)]
