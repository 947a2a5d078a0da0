"""No name, link or race leads out of a workspace; huge, binary and odd files are refused in words."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dgent.errors import Conflict, InputError, NotFound
from dgent.runtime.code.change import FileChange, apply_changes
from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.workspace import FileState, Workspace
from dgent.runtime.tool.tool import Toolset

OUTSIDE = (
    *("../secret.txt", "src/../../secret.txt", "/etc/passwd", "..", "src/..", "./../secret.txt"),
    *("a\0b", "a\nb", "\ud800", "x" * 5000, ".dgent/workspace", ".DGENT/x", "", ".", "src/"),
)


@pytest.mark.parametrize("path", OUTSIDE)
async def test_names_that_lead_outside_are_refused(tools: Toolset, root: Path, path: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": path}),
        ("write", {"path": path, "text": "x"}),
        ("edit", {"path": path, "old": "secret", "new": "x"}),
        ("remove", {"path": path}),
        ("patch", {"diff": f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-secret\n+x\n"}),
    ]
    for name, arguments in calls:
        answer = await tools.call(name, arguments)
        assert answer["ok"] is False, name
        assert answer["data"]["code"] in ("input", "not_found")
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert sorted(each.name for each in root.iterdir()) == ["notes.txt", "src"]


async def test_links_are_not_followed(tools: Toolset, root: Path) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "gone").symlink_to(root.parent / "new.txt")
    for path in ("out/secret.txt", "file"):
        assert "link" in (await tools.call("read", {"path": path}))["message"]
        assert "link" in (await tools.call("edit", {"path": path, "old": "secret", "new": "x"}))["message"]
    for path in ("out/new.txt", "gone", "file"):
        assert not (await tools.call("write", {"path": path, "text": "x"}))["ok"]
    assert not (await tools.call("run", {"command": "pwd", "path": "out"}))["ok"]
    found = await tools.call("grep", {"pattern": "secret"})
    assert found["data"]["lines"] == []
    assert sorted(each.name for each in root.parent.iterdir()) == ["project", "secret.txt"]
    assert (root.parent / "secret.txt").read_text() == "secret"


async def test_an_absolute_path_below_the_root_is_taken(tools: Toolset, root: Path) -> None:
    assert (await tools.call("read", {"path": f"{root}/notes.txt"}))["ok"]
    assert not (await tools.call("read", {"path": f"{root}-other/notes.txt"}))["ok"]


def test_a_folder_that_becomes_a_link_leads_nowhere(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "src", root / "kept")
            with suppress(FileExistsError):  # writing makes the folder again
                os.symlink(outside, root / "src")
                os.unlink(root / "src")
            while (root / "kept").exists():
                with suppress(OSError):
                    shutil.rmtree(root / "src", ignore_errors=True)
                    os.rename(root / "kept", root / "src")
            time.sleep(0.0005)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        with Workspace(root) as workspace:
            seen: list[str | None] = []
            for number in range(100_000):
                try:
                    seen.append(workspace.read("src/a.py").text)  # None while the folder is away
                    part = workspace.stage(f"src/new{number}", FileState("x"))
                    workspace.place(part, f"src/new{number}", None)
                except (InputError, NotFound):
                    continue
                if number > 300 and sum(map(bool, seen)) > 30:
                    break
    finally:
        stop.set()
        swapper.join()
    assert any(seen)
    assert "outside" not in seen
    assert [each.name for each in outside.iterdir()] == ["a.py"]


async def test_files_that_are_no_texts_are_refused(tools: Toolset, root: Path) -> None:
    (root / "binary").write_bytes(b"\x89PNG\0\xff")
    (root / "latin").write_bytes(b"caf\xe9")
    with open(root / "huge", "wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(root / "pipe")
    for path, words in (
        ("binary", "binary"),
        ("latin", "binary"),
        ("huge", "more than"),
        ("pipe", "not a file"),
        ("src", "not a file"),
    ):
        answer = await tools.call("read", {"path": path})
        assert words in answer["message"], path
        assert not (await tools.call("write", {"path": path, "text": "x"}))["ok"], path
    assert "3 files left out" in (await tools.call("grep", {"pattern": "one"}))["message"]
    for text in ("a\0b", "\ud800", "x" * 3_000_000):
        assert not (await tools.call("write", {"path": "new", "text": text}))["ok"]


async def test_odd_names_are_names(tools: Toolset, root: Path) -> None:
    for path in ("-rf", "a b;c.txt", "ü/ñ.txt", "~", "$HOME", "a\\b", "…", "x" * 255, "🜁" * 63):
        answer = await tools.call("write", {"path": path, "text": f"{path}\n"})
        assert answer["ok"], answer
        assert path in (await tools.call("read", {"path": path}))["data"]["text"]
    assert not (await tools.call("write", {"path": "y" * 256, "text": ""}))["ok"]
    os.mkdir(os.fsencode(root) + b"/\xff")
    (root / "\udcff" / "f").write_text("one")
    (root / "two\nlines").write_text("one")
    found = await tools.call("glob", {"pattern": "*"})
    assert "notes.txt" in found["data"]["files"]
    assert not [name for name in found["data"]["files"] if "\n" in name or "\udcff" in name]


async def test_a_file_that_others_changed_is_left_alone(context: CodeContext, root: Path) -> None:
    before = context.workspace.read("notes.txt")
    (root / "notes.txt").write_text("theirs")
    changes = [
        FileChange("new.txt", FileState(None), FileState("new")),
        FileChange("notes.txt", before, FileState("mine")),
    ]
    with pytest.raises(Conflict, match=r"notes\.txt"):
        await apply_changes(context.workspace, changes, "")
    assert (root / "notes.txt").read_text() == "theirs"
    assert sorted(each.name for each in root.iterdir()) == ["notes.txt", "src"]


async def test_hard_links_and_modes_are_kept_apart(tools: Toolset, root: Path) -> None:
    os.link(root.parent / "secret.txt", root / "hard.txt")
    (root / "run.sh").write_text("echo 1\n")
    (root / "run.sh").chmod(0o755)
    assert (await tools.call("write", {"path": "hard.txt", "text": "x"}))["ok"]
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert (await tools.call("edit", {"path": "run.sh", "old": "1", "new": "2"}))["ok"]
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_a_disk_without_links_gets_new_files_too(
    tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert (await tools.call("write", {"path": "new.txt", "text": "new"}))["ok"]
    assert (root / "new.txt").read_text() == "new"
    assert sorted(each.name for each in root.iterdir()) == ["new.txt", "notes.txt", "src"]
