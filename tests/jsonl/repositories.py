"""Two clones of a repository that holds a store, and real git between them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dgent.store.jsonl.git import DRIVER, set_up_git
from tests.command import make_command

ENV = {
    "GIT_AUTHOR_NAME": "ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    # Else every commit and every merge starts one more git, to see whether there is something to tidy up.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}


def git(folder: Path, *words: str, fails: bool = False) -> str:
    """Run git in a folder; its output."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        env={**os.environ, **ENV},
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout


class Clone:
    """A clone with a store in its folder `memory`."""

    def __init__(self, path: Path, *, driver: bool) -> None:
        self.path, self.driver = path, driver
        self.store = path / "memory"

    def save(self, message: str = "more") -> None:
        """Commit everything."""
        git(self.path, "add", "-A")
        git(self.path, "commit", "-qm", message, "--allow-empty")

    def pull(self, other: Clone, *, conflict: bool = False) -> None:
        """Merge what another clone has."""
        git(self.path, "fetch", "-q", str(other.path), "HEAD")
        git(self.path, "merge", "-q", "-m", "merge", "FETCH_HEAD", fails=conflict)
        if conflict:
            self.save("with markers")


def two_clones(base: Path, *, driver: bool, forked: bool = True) -> tuple[Clone, Clone]:
    """Two clones of the repository `base/one`, which must hold a store in `memory`.

    The driver is `forked` from a process that has loaded it, or started as git does it for a user.
    """
    one, two = Clone(base / "one", driver=driver), Clone(base / "two", driver=driver)
    git(one.path, "init", "-q", "-b", "main")
    if driver:
        set_up_git(str(one.store))
    one.save("begin")
    git(base, "clone", "-q", str(one.path), str(two.path))
    if driver:
        set_up_git(str(two.store))
    if driver and forked:
        make_command(command := base / "dgent")
        for clone in (one, two):
            git(clone.path, "config", f"merge.{DRIVER}.driver", f"{command} jsonl merge-driver %O %A %B %P")
    return one, two
