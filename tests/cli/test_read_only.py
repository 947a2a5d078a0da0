"""`--read-only`: the store is read, and nothing of it changes."""

from __future__ import annotations

import json

from tests.cli.terminal import Terminal


def test_commands_that_read_answer_and_others_are_refused(dgent_: Terminal) -> None:
    assert dgent_("remember", "tea is ready").code == 0
    folder = dgent_.store.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(dgent_("--read-only", "data", "count", "--json").out)["data"]["count"] >= 1
    assert "tea" in dgent_("search", "tea", "--read-only").out
    refused = dgent_("--read-only", "remember", "more")
    assert refused.code != 0
    assert "read-only" in refused.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_store_is_made(dgent_: Terminal) -> None:
    assert dgent_("--read-only", "remember", "something").code != 0
    assert dgent_("--read-only", "data", "count").code == 0
    assert not dgent_.store.exists()
