"""Making git merge the files of a store line by line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import msgspec

from dgent.errors import NotFound, StorageError, Unsupported
from dgent.system.files import disk_errors

DRIVER = "dgent"
ATTRIBUTES = f"*.jsonl merge={DRIVER} -text\n"


class GitSetup(msgspec.Struct, frozen=True):
    """What git was told, and where."""

    repository: str
    attributes: str
    driver: str
    changed: bool


def git_setup(folder: str) -> GitSetup:
    """Tell git, in the folder and in its repository's own configuration, how to merge lines.

    The folder's attributes go with the repository; the command of the driver is set in each clone.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise NotFound(f"{folder} is in no git repository", hint="git init, or give the folder of a clone")
    command = f"{_own()} jsonl merge-driver %O %A %B %P"
    before = _git(folder, "config", "--get", f"merge.{DRIVER}.driver")
    _told(folder, "config", f"merge.{DRIVER}.name", "lines of a dgent store")
    _told(folder, "config", f"merge.{DRIVER}.driver", command)
    path = os.path.join(folder, ".gitattributes")
    added = _add(path)
    return GitSetup(top, path, command, added or before != command)


def is_set_up(folder: str) -> bool | None:
    """Whether git would merge lines; None where there is no git repository."""
    if not shutil.which("git") or _git(folder, "rev-parse", "--show-toplevel") is None:
        return None
    told = _git(folder, "check-attr", "merge", "x.jsonl") or ""
    return told.endswith(f": {DRIVER}") and bool(_git(folder, "config", "--get", f"merge.{DRIVER}.driver"))


def _own() -> str:
    """The command that runs this very dgent."""
    found = os.path.join(os.path.dirname(sys.executable), "dgent")
    if os.access(found, os.X_OK):
        return shlex.quote(found)
    return f"{shlex.quote(sys.executable)} -c 'from dgent.doors.cli.main import main; main()'"


def _add(path: str) -> bool:
    with disk_errors(path):
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
        if ATTRIBUTES in text:
            return False
        with open(path, "a", encoding="utf-8") as file:
            file.write(("\n" if text and not text.endswith("\n") else "") + ATTRIBUTES)
        return True


def _git(folder: str, *words: str) -> str | None:
    """What git answers; None when it fails."""
    if shutil.which("git") is None:
        raise Unsupported("git is not installed here")
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _told(folder: str, *words: str) -> None:
    if _git(folder, *words) is None:
        raise StorageError(f"git {' '.join(words)} failed in {folder}")
