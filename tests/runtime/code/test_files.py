"""Read, write, edit, patch, glob and grep."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgent.runtime.tool.tool import Toolset


async def test_reading_gives_numbered_lines_and_says_how_to_go_on(tools: Toolset, root: Path) -> None:
    answer = await tools.call("read", {"path": "notes.txt", "offset": 2, "limit": 1})
    assert answer["data"]["text"] == "2\ttwo"
    assert answer["message"] == "notes.txt: lines 2 to 2 of 3; go on with offset=3"
    (root / "long").write_text("y" * 50_000 + "\n" + "z\n" * 100_000)
    answer = await tools.call("read", {"path": "long", "limit": 10**9})
    assert len(answer["data"]["text"]) < 90_000
    assert "of 100001; go on with" in answer["message"]
    assert "none from 9 on" in (await tools.call("read", {"path": "notes.txt", "offset": 9}))["message"]


async def test_an_edit_is_exact_and_unique_unless_all(tools: Toolset, root: Path) -> None:
    file = root / "src" / "a.py"
    answer = await tools.call("edit", {"path": "src/a.py", "old": "print", "new": "log"})
    assert "2 times, at the lines 3, 4" in answer["message"]
    answer = await tools.call("edit", {"path": "src/a.py", "old": "print( 1 )", "new": "log"})
    assert answer["message"] == "old is not in 'src/a.py'"
    answer = await tools.call("edit", {"path": "src/a.py", "old": "  print(1)\n", "new": "log"})
    assert "line 3 with other spaces" in answer["data"]["hint"]
    assert not (await tools.call("edit", {"path": "src/a.py", "old": "", "new": "x"}))["ok"]
    answer = await tools.call("edit", {"path": "src/a.py", "old": "print", "new": "log", "all": True})
    assert file.read_text() == "import os\n\nlog(1)\nlog(2)\n"
    assert "-print(1)\n-print(2)\n+log(1)\n+log(2)\n" in answer["data"]["files"][0]["diff"]
    assert (
        "changes nothing"
        in (await tools.call("write", {"path": "src/a.py", "text": file.read_text()}))["message"]
    )


async def test_line_ends_stay_as_they_are(tools: Toolset, root: Path) -> None:
    (root / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    assert (await tools.call("read", {"path": "dos.txt"}))["data"]["text"] == "1\tone\n2\ttwo\n3\tthree"
    assert (await tools.call("edit", {"path": "dos.txt", "old": "one\ntwo", "new": "1\n2"}))["ok"]
    diff = "--- dos.txt\n+++ dos.txt\n@@ -2,2 +2,2 @@\n 2\n-three\n+3\n"
    assert (await tools.call("patch", {"diff": diff}))["ok"]
    assert (root / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n"


PATCH = """--- a/notes.txt
+++ b/notes.txt
@@ -1,2 +1,2 @@
-one
+1
 two
--- a/src/a.py
+++ /dev/null
@@ -1,4 +0,0 @@
-import os
-
-print(1)
-print(2)
--- /dev/null
+++ b/deep/er/new.txt
@@ -0,0 +1,2 @@
+new
+file
\\ No newline at end of file
"""


async def test_a_patch_changes_makes_and_removes_files(tools: Toolset, root: Path) -> None:
    answer = await tools.call("patch", {"diff": PATCH})
    assert [each["what"] for each in answer["data"]["files"]] == ["changed", "deleted", "created"]
    assert (root / "notes.txt").read_text() == "1\ntwo\nthree\n"
    assert (root / "deep/er/new.txt").read_text() == "new\nfile"
    assert not (root / "src/a.py").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("-print(2)", "-print(3)", "hunk 1 (line 1) fits nowhere"),
        (" two", " too", "hunk 1 (line 1) fits nowhere"),
        ("@@ -1,2 +1,2 @@", "@@ -1,3 +1,2 @@", "than its header counts"),
        ("@@ -1,2 +1,2 @@", "@@ -1,1 +1,1 @@", "than its header counts"),
        ("/dev/null\n+++ b/deep", "a/deep/er/new.txt\n+++ b/deep", "there is no file"),
        ("--- /dev/null\n+++ b/deep/er/new.txt", "--- /dev/null\n+++ b/notes.txt", "twice"),
        ("+++ b/notes.txt", "+++ b/other.txt", "renames"),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(
    tools: Toolset, root: Path, old: str, new: str, words: str
) -> None:
    assert old in PATCH
    answer = await tools.call("patch", {"diff": PATCH.replace(old, new, 1)})
    assert words in answer["message"]
    assert (root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert (root / "src/a.py").exists()
    assert not (root / "deep").exists()


async def test_a_hunk_may_have_moved_but_not_be_ambiguous(tools: Toolset, root: Path) -> None:
    (root / "list").write_text("".join(f"{n}\n" for n in range(20)) + "x\ny\nx\ny\n")
    diff = "--- list\n+++ list\n@@ -{},1 +1,1 @@\n-{}\n+new\n"
    assert (await tools.call("patch", {"diff": diff.format(1, 7)}))["ok"]
    assert (root / "list").read_text().split("\n")[7] == "new"
    assert "fits 2 places" in (await tools.call("patch", {"diff": diff.format(1, "y")}))["message"]
    assert (await tools.call("patch", {"diff": diff.format(24, "y")}))["ok"]
    assert (root / "list").read_text().endswith("x\ny\nx\nnew\n")


async def test_finding_leaves_out_what_git_ignores(tools: Toolset, root: Path) -> None:
    for path in ("build/x.py", ".git/config", "src/gen/y.py", "src/keep.log", "src/b.log"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("import os\n")
    (root / ".gitignore").write_text("build/\n*.log\n# no\n")
    (root / "src/.gitignore").write_text("/gen\n!keep.log\n")
    assert (await tools.call("glob", {"pattern": "**"}))["data"]["files"] == [
        *(".gitignore", "notes.txt", "src/.gitignore", "src/a.py", "src/keep.log")
    ]
    found = await tools.call("glob", {"pattern": "**/*.py", "ignored": True})
    assert found["data"]["files"] == ["build/x.py", "src/a.py", "src/gen/y.py"]
    below = await tools.call("glob", {"pattern": "*.log", "path": "src"})
    assert below["data"]["files"] == ["src/keep.log"]
    lines = (await tools.call("grep", {"pattern": "IMPORT", "ignore_case": True, "files": "*.py"}))["data"]
    assert lines == {"lines": [{"path": "src/a.py", "line": 1, "text": "import os"}]}


async def test_grep_is_bounded(tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await tools.call("grep", {"pattern": r"^t\w+", "regex": True, "path": "notes.txt", "limit": 1})
    assert found["data"]["lines"] == [{"path": "notes.txt", "line": 2, "text": "two"}]
    assert "there are more" in found["message"]
    assert "not a valid expression" in (await tools.call("grep", {"pattern": "(", "regex": True}))["message"]
    monkeypatch.setattr("dgent.runtime.code.find.SEARCH_S", 0.5)
    (root / "evil").write_text("a" * 40 + "b")
    answer = await tools.call("grep", {"pattern": "(a+)+$", "regex": True})
    assert "took longer than 0.5 s" in answer["message"]
    (root / "wide").write_text("needle" * 10_000)
    found = await tools.call("grep", {"pattern": "needle"})
    assert len(found["data"]["lines"][0]["text"]) == 400
    # A pattern of many stars takes no longer than others.
    assert (await tools.call("glob", {"pattern": "*a" * 100 + "b", "path": ""}))["data"]["files"] == []
