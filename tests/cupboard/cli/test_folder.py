"""A cupboard in a folder of text files: the files are the truth, the cache can go at any time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.cupboard.cli.shelf import Shelf

Folder = tuple[Path, Callable[[], Shelf]]


def lines(path: Path) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in (path / "cupboard.crumb.jsonl").read_bytes().splitlines()]


def forget_the_cache(path: Path) -> None:
    shutil.rmtree(path / ".cache")
    assert not (path / ".cache").exists()


def names(shelf: Shelf, *filters: str) -> list[str]:
    return sorted(row["Name"] for row in shelf.list("crumbs", *filters))


def test_files_hold_what_was_said(folder: Folder) -> None:
    path, come = folder
    crumb = come().set("crumbs", Name="Persisted crumb")["CrumbID"]
    assert (path / ".cache").exists()
    come().set("crumbs", crumb, State="taken")
    first, last = lines(path)
    assert first["id"] == last["id"] == crumb
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", crumb)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(first["created_at"]))
    assert isinstance(last["data"], dict) and isinstance(first["data"], dict)
    assert (first["data"]["name"], first["data"]["state"], last["data"]["state"]) == (
        "Persisted crumb",
        "draft",
        "taken",
    )


def test_the_cache_is_made_anew_from_the_files(folder: Folder) -> None:
    path, come = folder
    for name, state in (("a", "draft"), ("b", "ready"), ("c", "taken"), ("d", "pebble")):
        come().set("crumbs", Name=name, State=state)
    come().ask("crumb", "set", "a", "--priority", "high")
    for _ in range(2):
        forget_the_cache(path)
        assert names(come()) == ["a", "b", "c", "d"]
        assert (path / ".cache").exists()
        for name, state in (("a", "draft"), ("b", "ready"), ("c", "taken"), ("d", "pebble")):
            assert names(come(), f"State={state}") == [name]
        assert come().ask("crumb", "get", "a")["properties"]["priority"] == "high"
        assert [each["name"] for each in come().ask("ready")["items"]] == ["b"]


def test_a_long_day_with_git(folder: Folder) -> None:
    path, come = folder

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    for name in ("one", "two"):
        come().ask("crumb", "add", name)
    git("init", "-q")
    git("add", ".")
    staged = git("status", "--short")
    assert "cupboard.crumb.jsonl" in staged and ".cache" not in staged
    git("commit", "-qm", "begin")
    for state in ("taken", "pebble"):
        forget_the_cache(path)
        assert len(names(come())) == 2
        come().ask("crumb", "state", "one", state)
        forget_the_cache(path)
        assert come().ask("crumb", "get", "one")["state"] == state
    assert names(come(), "State=draft") == ["two"]
    assert "cupboard.crumb.jsonl" in git("status", "--short")


def test_all_gone_and_begun_again(folder: Folder) -> None:
    path, come = folder
    come().ask("crumb", "add", "a")
    shutil.rmtree(path)
    assert come()("ready").code == 0 and not path.exists()
    assert come()("cupboard", "init").code == 0
    assert names(come()) == [] and (path / "cupboard.property.jsonl").exists()
    come().ask("crumb", "add", "b")
    assert names(come()) == ["b"]
