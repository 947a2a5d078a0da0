"""Agents that keep their own work here, one command after the other, each a process of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.cupboard.cli.shelf import Shelf


def in_a_process(shelf: Shelf, *words: str) -> Any:
    out, err = (process := shelf.terminal.start(*words, "--json")).communicate(timeout=60)
    assert process.returncode == 0, err
    return msgspec.json.decode(out)["data"]


def count(shelf: Shelf, *filters: str) -> int:
    return len(shelf.list("crumbs", *filters))


def test_do_work(shelf: Shelf) -> None:
    crumb = shelf.set("crumbs", Name="implement it", State="draft")["CrumbID"]
    assert count(shelf, "State=draft") == 1
    for state in ("taken", "pebble", "pebble"):
        assert shelf.set("crumbs", crumb, State=state)["State"] == state
        assert count(shelf, "State=draft") == 0 and count(shelf, f"State={state}") == 1
    dropped = shelf.set("crumbs", Name="no")["CrumbID"]
    assert shelf.set("crumbs", dropped, State="dust")["State"] == "dust"
    assert shelf.set("crumbs", dropped, Name="renamed")["Name"] == "renamed"
    assert shelf.get("crumbs", dropped)["State"] == "dust"


def test_make_work(shelf: Shelf) -> None:
    shelf.set("crumbs", Name="first")
    assert count(shelf) == 1
    for name in ("Alpha", "Beta", "Gamma"):
        shelf.set("crumbs", Name=name)
    assert count(shelf) == 4
    assert [row["Name"] for row in shelf.list("crumbs", "Name=Alpha")] == ["Alpha"]


def test_a_new_process_sees_it(shelf: Shelf) -> None:
    made = in_a_process(shelf, "crumb", "add", "Ship it", "-s", "ready", "--priority", "high")
    assert shelf.get("crumbs", made["id"])["Properties"]["priority"] == "high"
    taken = in_a_process(shelf, "take", "--agent", "scout")
    assert taken["id"] == made["id"] and shelf.ask("ready")["items"] == []
    assert in_a_process(shelf, "done", made["id"], "--token", "1")["state"] == "pebble"
    assert count(shelf, "State=pebble") == 1


def test_processes_never_take_the_same(shelf: Shelf) -> None:
    for number in range(4):
        shelf.set("crumbs", Name=f"c{number}", State="ready")
    processes = [shelf.terminal.start("take", "--agent", f"a{n}", "--json") for n in range(4)]
    taken = [msgspec.json.decode(process.communicate(timeout=120)[0])["data"] for process in processes]
    assert len({each["id"] for each in taken}) == 4
    assert {each["holder"] for each in taken} == {"a0", "a1", "a2", "a3"}
