"""`dgent store upgrade`, and a command that opens a store of an older format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgent.store.sqlite import format as storage
from tests.cli.terminal import Terminal
from tests.old_stores.test_old_stores import ANSWERS, unpack


@pytest.fixture
def old(dgent_: Terminal, tmp_path: Path) -> Terminal:
    """A home whose default constellation was written in format 1."""
    dgent_.store.parent.mkdir(parents=True)
    os.rename(unpack("sqlite", tmp_path) / "membrane.db", dgent_.store)
    return dgent_


def test_planned_and_done(old: Terminal) -> None:
    backup = f"{old.store}.format-1.bak"
    planned = old("store", "upgrade", "--dry-run", "--json").data
    assert (planned["from_format"], planned["to_format"]) == (1, storage.FORMAT)
    assert (planned["backup"], planned["dry_run"]) == (backup, True)
    assert os.listdir(old.store.parent) == ["membrane.db"]
    shown = old("store", "upgrade", "--dry-run").out
    assert f"from storage format 1 to {storage.FORMAT}" in shown and backup in shown
    assert all(step["description"] in shown for step in planned["steps"])
    assert old("store", "upgrade", "--no-backup", "--dry-run", "--json").data["backup"] is None

    done = old("store", "upgrade", "--json").data
    assert done == planned | {"dry_run": False}
    assert os.path.exists(backup)
    again = old("store", "upgrade")
    assert "nothing to upgrade" in again.out and again.code == 0


def test_any_command_upgrades_and_says_so_once(old: Terminal) -> None:
    first = old("data", "count")
    assert first.code == 0 and f"from storage format 1 to {storage.FORMAT}" in first.err
    assert f"{old.store}.format-1.bak" in first.err
    assert old("data", "count").err == ""
    assert len(old("log", "--all", "-n", "1000", "--json").data["items"]) == ANSWERS["commits"]
    found = old("doctor", "--deep", "--json").data
    assert found["healthy"] and "backup" in [each["subject"] for each in found["findings"]]


def test_json_says_nothing_else(old: Terminal) -> None:
    assert old("data", "count", "--json").err == ""


def test_where_there_is_nothing(dgent_: Terminal) -> None:
    said = dgent_("store", "upgrade", "--json")
    assert (said.code, said.error["code"]) == (4, "not_found")
    said = dgent_("store", "upgrade", "--json", "--url", "memory:")
    assert (said.code, said.error["code"]) == (7, "unsupported")
