"""One store for each project: made in one step, found from any folder below, shared by git if wanted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, on_a_terminal


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def project(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository, with a folder below in which the terminal is."""
    folder = dgent_.home / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    git(folder, "init", "-q", ".")
    monkeypatch.chdir(folder / "src" / "deep")
    return folder


def test_a_store_that_git_shares(dgent_: Terminal, project: Path) -> None:
    made = dgent_("init", "--git")
    assert made.code == 0, made.err
    assert str(project / ".dgent" / "data") in made.out and "commit the folder .dgent" in made.out
    # Found from below, and nothing goes to the user's own store.
    assert dgent_("remember", "x", "--id", "a").code == 0
    assert '"id":"a"' in (project / ".dgent/data/_none.jsonl").read_text().replace(" ", "")
    assert not dgent_.store.exists()
    git(project, "add", "-A")
    kept = git(project, "ls-files", "--cached").split()
    assert {".dgent/config.toml", ".dgent/data/.gitattributes", ".dgent/data/_none.jsonl"} <= {*kept}
    assert not [name for name in kept if ".cache" in name or ".lock" in name]
    again = dgent_("init", "--git", "--json").data
    assert again["changed"] is False and "merge-driver" in again["driver"]


def test_two_clones_merge(dgent_: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dgent_("init", "--git")
    dgent_("remember", "x", "--id", "a")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    clone = dgent_.home / "clone"
    git(dgent_.home, "clone", "-q", str(project), str(clone))
    monkeypatch.chdir(clone)
    joined = dgent_("init", "--json").data  # the settings came with the clone, the driver did not
    assert joined["changed"] is True and joined["url"] == "jsonl:.dgent/data"
    for folder, id in ((clone, "b"), (project, "c")):
        monkeypatch.chdir(folder)
        dgent_("remember", id, "--id", id)
        git(folder, "commit", "-qam", id)
    monkeypatch.chdir(clone)
    git(clone, "pull", "-q", "--no-rebase", "--no-edit")
    assert {each["id"] for each in dgent_("recall", "--json").data["items"]} == {"a", "b", "c"}


def test_a_private_file(dgent_: Terminal, project: Path) -> None:
    assert dgent_("init").code == 0
    assert dgent_("remember", "x", "--id", "a").code == 0
    assert (project / ".dgent/memory.db").exists() and not dgent_.store.exists()
    git(project, "add", "-A")
    assert [name for name in git(project, "ls-files", "--cached").split() if "memory.db" in name] == []
    refused = dgent_("init", "--git", "--json")
    assert refused.code != 0 and "memory.db" in refused.error["error"] and "copy" in refused.error["hint"]


def test_outside_of_git(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = dgent_.home / "plain"
    plain.mkdir()
    at_home = dgent_("init", "--json")
    assert at_home.code == 2 and "home folder" in at_home.error["error"]
    monkeypatch.chdir(plain)
    refused = dgent_("init", "--git", "--json")
    assert refused.code == 4 and "git init" in refused.error["hint"] and not (plain / ".dgent").exists()
    assert dgent_("init", "--json").data["folder"] == str(plain)
    assert not (dgent_.home / ".dgent").exists()


@pytest.mark.parametrize(("answer", "place"), [(b"y\n", "data"), (b"n\n", "memory.db")])
def test_a_person_is_asked(dgent_: Terminal, project: Path, answer: bytes, place: str) -> None:
    code, seen = on_a_terminal(["init"], answer)
    assert code == 0 and "text files" in seen, seen
    assert (project / ".dgent" / place).exists()
