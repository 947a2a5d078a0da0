"""Set up git to merge the files of a store line by line."""

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
    """The git configuration of a folder: repository, attributes file and merge driver command."""

    repository: str
    attributes: str
    driver: str
    changed: bool


def set_up_git(folder: str) -> GitSetup:
    """Set the folder's attributes and its repository's merge driver, so that git merges lines.

    The attributes are committed with the repository; the command of the driver is set in each clone.
    """
    top = _ask_git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise NotFound(
            f"{folder} is not in a git repository", hint="run `git init`, or use a folder in a clone"
        )
    command = f"{_dgent_command()} jsonl merge-driver %O %A %B %P"
    before = _ask_git(folder, "config", "--get", f"merge.{DRIVER}.driver")
    _run_git(folder, "config", f"merge.{DRIVER}.name", "lines of a dgent store")
    _run_git(folder, "config", f"merge.{DRIVER}.driver", command)
    path = os.path.join(folder, ".gitattributes")
    added = _add_attributes(path)
    return GitSetup(top, path, command, added or before != command)


def is_set_up(folder: str) -> bool | None:
    """Check whether git merges the folder's files by lines; None outside a git repository."""
    if not shutil.which("git") or _ask_git(folder, "rev-parse", "--show-toplevel") is None:
        return None
    attribute = _ask_git(folder, "check-attr", "merge", "x.jsonl") or ""
    return attribute.endswith(f": {DRIVER}") and bool(
        _ask_git(folder, "config", "--get", f"merge.{DRIVER}.driver")
    )


def _dgent_command() -> str:
    """Return the command that runs this installation of dgent."""
    found = os.path.join(os.path.dirname(sys.executable), "dgent")
    if os.access(found, os.X_OK):
        return shlex.quote(found)
    return f"{shlex.quote(sys.executable)} -c 'from dgent.doors.cli.main import main; main()'"


def _add_attributes(path: str) -> bool:
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


def _ask_git(folder: str, *words: str) -> str | None:
    """Run git and return its output; None if it fails."""
    if shutil.which("git") is None:
        raise Unsupported("git is not installed here")
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _run_git(folder: str, *words: str) -> None:
    if _ask_git(folder, *words) is None:
        raise StorageError(f"git {' '.join(words)} failed in {folder}")
