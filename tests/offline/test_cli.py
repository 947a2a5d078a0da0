"""The command line on a store that is away: every command says so, answers carry it, the outbox is shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.terminal import Terminal


class Town:
    """A home whose settings allow a store to be away."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dgent = Terminal(base / "home", monkeypatch)
        self.server = base / "server"
        self.server.mkdir()
        for name, value in {"url": f"sqlite:///{self.server}/s.db", "degrade": "yes"}.items():
            assert self.dgent("config", "set", name, value).code == 0

    def leave(self) -> None:
        self.server.rename(self.server.with_name("away"))

    def come_back(self) -> None:
        self.server.with_name("away").rename(self.server)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(tmp_path, monkeypatch)


def test_every_command_says_that_the_store_is_away(town: Town) -> None:
    dgent = town.dgent
    assert dgent("remember", "before", "--id", "a").code == 0
    assert "degraded" not in dgent("status").err
    town.leave()
    for words in (["remember", "meanwhile", "--id", "b"], ["recall"], ["status"], ["data", "count"]):
        said = dgent(*words)
        assert said.code == 0, said.err
        assert said.err.count("degraded: ") == 1 and said.err.startswith("degraded: sqlite:///")
    status = dgent("status")
    assert ", degraded" in status.out and "1 commit waiting" in status.out
    told = msgspec.json.decode(dgent("recall", "--json").out)
    assert told["degraded"]["pending"] == 1 and "is gone from" in told["degraded"]["reason"]
    assert told["data"]["partial"] is True
    assert [each["id"] for each in told["data"]["items"]] == ["b"]
    refused = dgent("log", "--json")
    assert refused.code == 10 and refused.error["code"] == "unavailable"
    for words in (["data", "get", "a"], ["get-commit", "1"]):
        refused = dgent(*words, "--json")
        assert refused.code == 10 and refused.error["code"] == "unavailable", "not: there is no such record"
    assert dgent("data", "get", "b", "--json").data["data"] == {"text": "meanwhile"}
    listed = dgent("outbox", "list")
    assert "put b" in listed.out and "the store is unavailable" in listed.out
    assert dgent("outbox", "replay").code == 10
    deleted = dgent("data", "delete", "a", "--json").data
    assert deleted["pending"] is True and deleted["seq"] is None
    town.come_back()
    after = dgent("recall", "--json")
    assert "degraded" not in after.err and "degraded" not in msgspec.json.decode(after.out)
    assert [each["id"] for each in after.data["items"]] == ["b"]
    assert "nothing waits" in dgent("outbox", "list").out


def test_a_conflict_is_shown_and_let_go(town: Town) -> None:
    dgent = town.dgent
    assert dgent("config", "set", "degrade", "optimistic").code == 0
    assert dgent("remember", "first", "--id", "a").code == 0
    town.leave()
    assert dgent("remember", "mine", "--id", "a", "--expect", "7").code == 0
    town.come_back()
    said = dgent("status")
    assert "1 of the pending commits conflict" in said.err and "1 conflict" in said.out
    shown = dgent("outbox", "list")
    assert '"text":"mine"' in shown.out and '"text":"first"' in shown.out
    (conflict,) = dgent("outbox", "list", "--json").data["conflicts"]
    assert conflict["code"] == "version_conflict" and conflict["theirs"][0]["rev"] == 1
    assert dgent("outbox", "discard", conflict["id"][:12], "--dry-run").code == 0
    assert len(dgent("outbox", "list", "--json").data["conflicts"]) == 1
    assert dgent("outbox", "discard", conflict["id"][:12], "--yes").code == 0
    assert dgent("outbox", "list", "--json").data["conflicts"] == []
    assert dgent("outbox", "discard", conflict["id"], "--yes").code == 4


def test_a_store_that_never_was_is_not_made_by_a_look(town: Town) -> None:
    assert town.dgent("recall").code == 0
    assert not (town.server / "s.db").exists()
