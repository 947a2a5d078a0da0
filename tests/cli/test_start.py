"""The first minutes: an empty home, help, mistakes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dgent.verbs.index import MODULES, NOUNS, SHORT
from tests.cli.terminal import Terminal


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_write_says_where_data_lives(dgent_: Terminal) -> None:
    first = dgent_("remember", "ship", "it", "--id", "a")
    assert first.code == 0
    assert first.err == f"dgent keeps this in {dgent_.store}\n"
    assert "ship it" in first.out
    assert dgent_("remember", "again").err == ""
    for folder in (dgent_.store.parent, dgent_.store.parent.parent, dgent_.store.parent.parent.parent):
        assert mode(folder) == 0o700, folder
    assert {mode(file) for file in dgent_.store.parent.iterdir()} == {0o600}


def test_reading_an_empty_home_makes_nothing(dgent_: Terminal) -> None:
    assert dgent_("get", "a").code == 4
    for words in (["doctor"], ["backup"], ["data", "delete", "a"]):
        told = dgent_(*words)
        assert (told.code, told.out) == (4, "")
        assert "nothing is stored in default yet" in told.err and "dgent remember" in told.err
    assert list(dgent_.home.iterdir()) == []


def test_help_names_everything(dgent_: Terminal) -> None:
    told = dgent_("--help")
    assert told.code == 0
    assert all(name in told.out for name in [*SHORT, *NOUNS, "invoke", "demo", "completion"])
    for words in ([], ["data"]):
        bare = dgent_(*words)
        assert bare.code == 0 and bare.out.startswith("Usage: dgent") and not bare.err
    assert dgent_("help", "recall", "x").code == 2
    for words in (["help", "recall"], ["help", "data.query"], ["help", "data", "query"], ["recall", "-h"]):
        assert "--where" in dgent_(*words).out
    assert list(dgent_.home.iterdir()) == []


def test_version(dgent_: Terminal) -> None:
    from importlib.metadata import version

    assert dgent_("--version").out == f"dgent {version('dgent')}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["recal"], "did you mean recall?"),
        (["data", "qery"], "did you mean query?"),
        (["chain"], "did you mean data chain?"),
        (["help", "statsu"], "did you mean status?"),
        (["recall", "--tga", "x"], "--tag"),
        (["config", "set", "colour", "never"], "did you mean color?"),
        (["invoke", "self.data.qery"], "did you mean self.data.query?"),
        (["invoke", "self.data.query", "limti=3"], "did you mean limit?"),
    ],
)
def test_a_typo_names_the_nearest(dgent_: Terminal, words: list[str], hint: str) -> None:
    dgent_("remember", "x")
    told = dgent_(*words)
    assert told.code in (2, 4)
    assert hint in told.err
    assert not told.out


def test_the_doors_options_go_anywhere(dgent_: Terminal) -> None:
    url = f"sqlite:///{dgent_.home / 'other.db'}"
    assert dgent_("--url", url, "remember", "x", "--id", "a", "--json").data["id"] == "a"
    assert dgent_("get", "a", "--url", url, "--json").data["data"] == {"text": "x"}
    assert dgent_("--json", "get", "a", "--url", url).data["id"] == "a"
    assert dgent_("get", "a").code == 4
    assert dgent_("-C", "work", "remember", "y", "--id", "a").code == 0
    assert dgent_("data", "get", "a", "-C", "work", "--json").data["data"] == {"text": "y"}
    assert dgent_("constellation", "list", "--json").data["items"][0]["name"] == "work"


def test_the_author_is_the_agent(dgent_: Terminal) -> None:
    dgent_("remember", "x", "--id", "a", "--agent", "scout")
    assert dgent_("get", "a", "--json").data["author"] == "scout"
    assert dgent_("log", "--json").data["items"][0]["author"] == "scout"


def test_standard_input(dgent_: Terminal) -> None:
    assert dgent_("remember", "-", "--id", "a", stdin='{"n": 1}').code == 0
    assert dgent_("get", "a", "--json").data["data"] == {"n": 1}
    assert dgent_("remember", "-", "--json", stdin="two\nlines\n").data["data"] == {"text": "two\nlines"}


def test_every_verb_by_noun(dgent_: Terminal) -> None:
    for noun in NOUNS:
        told = dgent_(noun, "--help")
        assert told.code == 0
        assert all(id.partition(".")[2] in told.out for id in MODULES if id.startswith(noun + "."))


def test_settings_and_their_source(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dgent_("config", "set", "author", "ann").code == 0
    shown = {each["name"]: each for each in dgent_("config", "--json").data["settings"]}
    assert shown["author"]["value"] == "ann" and shown["author"]["source"].startswith("user ")
    dgent_("remember", "x", "--id", "a")
    assert dgent_("get", "a", "--json").data["author"] == "ann"
    monkeypatch.setenv("DGENT_CONSTELLATION", "work")
    assert "environment DGENT_CONSTELLATION" in dgent_("config").out
    file = dgent_.home / ".config/dgent/config.toml"
    assert mode(file) == 0o600
    file.write_text("author = \n")
    told = dgent_("remember", "y")
    assert told.code == 0
    assert told.err.startswith("warning: ") and "config.toml" in told.err and "line 1" in told.err
    assert dgent_("remember", "y", "--strict").code == 3


def test_completion(dgent_: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    dgent_("remember", "x", "--id", "shoe-1", "-s", "thing")
    for shell in ("bash", "zsh", "fish"):
        script = dgent_("completion", shell)
        assert script.code == 0 and "_DGENT_COMPLETE" in script.out

    def offered(*words: str) -> str:
        process_env = dict(
            os.environ,
            _DGENT_COMPLETE="bash_complete",
            COMP_WORDS=" ".join(["dgent", *words]),
            COMP_CWORD=str(len(words)),
        )
        with monkeypatch.context() as patch:
            for name, value in process_env.items():
                patch.setenv(name, value)
            return dgent_().out

    assert "plain,shoe-1" in offered("get", "sh")
    assert "plain,thing" in offered("recall", "th")
    assert "plain,recall" in offered("rec")
    assert "plain,default" in offered("-C", "de")
    assert "plain,author" in offered("config", "set", "au")
    assert "nobody" not in offered("-C", "nobody", "get", "no")
    assert not (dgent_.store.parent.parent / "nobody").exists(), "completing makes nothing"
