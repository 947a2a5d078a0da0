"""The command line with a store on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.remote.host import find_host


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Terminal, str, str]]:
    """A terminal, the URL of a store on a server, and a token of scout."""
    host = find_host()
    url, token = asyncio.run(host.serve_one(f"sqlite:///{tmp_path / 'store.db'}", "scout"))
    yield Terminal(tmp_path / "home", monkeypatch), url, token
    asyncio.run(host.remove(url.rpartition("/")[2]))


def test_everyday_commands(served: tuple[Terminal, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    dgent_, url, token = served
    monkeypatch.setenv("DGENT_TOKEN", token)
    monkeypatch.setenv("DGENT_URL", url)
    assert dgent_("remember", "the lake is north").code == 0
    found = dgent_("search", "lake")
    assert found.code == 0 and "the lake is north" in found.out
    assert dgent_("block", "create", "persona", "I am a scout.").code == 0
    assert "I am a scout." in dgent_("block", "get", "persona").out
    assert dgent_("crumb", "new", "find", "the", "boat").code == 0
    assert "find the boat" in dgent_("ready").out
    log = dgent_("log", "--json")
    assert {each["author"] for each in log.data["items"]} == {"scout"}
    assert dgent_("undo").code == 0
    assert "find the boat" not in dgent_("ready").out
    assert dgent_("status").code == 0
    assert dgent_("recall", "--json", "--where", '{"text": "the lake is north"}').data["items"] != []
    exported = dgent_("export")
    assert exported.code == 0 and "the lake is north" in exported.out
    assert not dgent_.store.exists(), "nothing is kept here"


def test_without_a_token_and_with_a_wrong_one(
    served: tuple[Terminal, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dgent_, url, token = served
    refused = dgent_("--url", url, "search", "lake")
    assert refused.code == 6 and "DGENT_TOKEN" in refused.err
    monkeypatch.setenv("DGENT_TOKEN", token[:-3] + "abc")
    refused = dgent_("--url", url, "search", "lake")
    assert refused.code == 6 and token[:-3] not in refused.err + refused.out


def test_the_token_of_the_settings_does_not_show(served: tuple[Terminal, str, str]) -> None:
    dgent_, url, token = served
    assert dgent_("config", "set", "url", url).code == 0
    assert dgent_("config", "set", "token", token).code == 0
    assert token not in dgent_("config").out + dgent_("config", "--json").out
    assert dgent_("remember", "x").code == 0
    (project := dgent_.home / "project" / ".dgent").mkdir(parents=True)
    (project / "config.toml").write_text('token = "dgent_theirs"\n')
    said = dgent_("config", "get", "token")
    assert token not in said.out + said.err


def test_what_works_with_files_says_so(
    served: tuple[Terminal, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dgent_, url, token = served
    monkeypatch.setenv("DGENT_TOKEN", token)
    for words in (
        ("store", "doctor"),
        ("token", "create", "--agent", "mallory"),
        ("backup", "x.zip"),
        ("serve", "--port", "0"),
    ):
        said = dgent_("--url", url, *words)
        assert said.code in (2, 6, 7), (words, said)
        assert said.err.count("\n") < 8 and "Traceback" not in said.err


def test_nobody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dgent_ = Terminal(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("DGENT_TOKEN", "dgent_x")
    said = dgent_("--url", "http://127.0.0.1:9", "status")
    assert said.code == 10 and "cannot be reached" in said.err
