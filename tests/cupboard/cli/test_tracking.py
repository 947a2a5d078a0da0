"""Tracking work as people and agents do, with the words that they know from elsewhere."""

from __future__ import annotations

import pytest

from tests.cupboard.cli.shelf import Shelf


def add(shelf: Shelf, *words: str) -> str:
    return str(shelf.ask("crumb", "add", *words)["id"])


def ready(shelf: Shelf, *words: str) -> list[str]:
    return [each["name"] for each in shelf.ask("ready", *words)["items"]]


def test_make_and_show(shelf: Shelf) -> None:
    made = shelf.ask("crumb", "add", "Demo", "--type", "task", "--description", "Test", "--state", "open")
    assert made["id"] and made["name"] == "Demo" and made["state"] == "ready"
    assert made["properties"]["type"] == "task" and made["properties"]["description"] == "Test"
    assert [each["name"] for each in shelf.ask("crumb", "list")["items"]] == ["Demo"]
    told = shelf("crumb", "get", made["id"])
    assert told.code == 0
    assert all(part in told.out for part in ("Demo", "task", "ready", "Test", made["short_id"]))
    assert shelf.ask("crumb", "get", made["id"])["properties"] == made["properties"]
    for command in ("get", "delete", "history", "explain"):
        assert shelf.fails("crumb", command, "nobody") == (4, "entity_not_found")
    epic = shelf.ask("crumb", "add", "Big", "--type", "epic", "-l", "code", "-l", "infra")
    assert epic["properties"]["labels"] == ["code", "infra"]
    assert epic["properties"]["priority"] is None and epic["state"] == "draft"


def test_nothing_there(shelf: Shelf) -> None:
    assert shelf.ask("crumb", "list") == {"items": []}
    assert ready(shelf) == [] and shelf.ask("ready")["explain"] == "there is no unfinished work"
    for words in (["crumb", "list"], ["ready"], ["board"], ["trail", "list"], ["link", "list"], ["lessons"]):
        told = shelf(*words)
        assert told.code == 0 and told.out.startswith("no"), told.out
    assert shelf.fails("take") == (4, "not_found")
    add(shelf, "a thought")
    assert "1 draft" in shelf("ready").out and "crumb state ID ready" in shelf("take").err


def test_ready_work(shelf: Shelf) -> None:
    for name, kind in (("one", "task"), ("two", "task"), ("three", "task"), ("big", "epic")):
        add(shelf, name, "--type", kind, "-s", "open")
    assert ready(shelf, "--type", "task") == ["one", "two", "three"]
    assert len(ready(shelf, "-n", "2")) == 2
    assert ready(shelf, "-P", "type=epic") == ["big"]
    shelf.ask("crumb", "set", "two", "--priority", "highest")
    assert ready(shelf)[0] == "two"
    shelf.ask("crumb", "state", "two", "in_progress")
    assert shelf.ask("crumb", "get", "two")["state"] == "taken"
    assert ready(shelf, "--type", "task") == ["one", "three"]
    for name in ("one", "three"):
        shelf.ask("crumb", "set", name, "--state", "in_progress")
    assert ready(shelf, "--type", "task") == []
    explained = shelf.ask("ready", "--explain")["items"]
    assert explained[0]["reasons"] == ["it waits for nothing", "it has no priority"]


def test_close_straight_from_open(shelf: Shelf) -> None:
    add(shelf, "Demo", "-s", "open")
    assert shelf.ask("done", "Demo")["state"] == "pebble"
    assert "pebble" in shelf("crumb", "get", "Demo").out
    assert ready(shelf) == []
    assert shelf.fails("done", "nobody") == (4, "entity_not_found")
    assert shelf.ask("crumb", "list", "--state", "closed")["items"][0]["name"] == "Demo"
    assert shelf.ask("crumb", "list", "--state", "open") == {"items": []}


def test_comments(shelf: Shelf) -> None:
    add(shelf, "Demo")
    for words in ("the first", "and another"):
        assert shelf.ask("metadata", "comment", "Demo", *words.split())["content"] == words
    assert shelf.fails("metadata", "comment", "nobody", "x") == (4, "entity_not_found")
    told = shelf("crumb", "get", "Demo").out
    assert "the first" in told and "and another" in told
    assert [each["content"] for each in shelf.ask("metadata", "comments", "Demo")["items"]] == [
        "the first",
        "and another",
    ]
    assert len(shelf.ask("metadata", "list", "--contains", "ANOTHER")["items"]) == 1
    assert shelf("metadata", "comment", "Demo", "-", stdin="two\nlines").code == 0
    assert shelf.ask("metadata", "list", "Demo", "-n", "9")["items"][-1]["content"] == "two\nlines"


def test_agents_take_turns(shelf: Shelf) -> None:
    for name in ("a", "b"):
        add(shelf, name, "-s", "ready")
    taken = shelf.ask("take", "--agent", "scout", "--lease", "300")
    assert (taken["name"], taken["holder"], taken["state"], taken["token"]) == ("a", "scout", "taken", 1)
    assert shelf.ask("take", "--agent", "other")["name"] == "b"
    assert shelf.fails("take", "--agent", "third") == (4, "not_found")
    beat = shelf.ask("crumb", "heartbeat", "a", "--agent", "scout", "--lease", "600")
    assert beat["until"] > taken["lease_until"]
    assert shelf.fails("crumb", "heartbeat", "a", "--agent", "other") == (5, "not_lock_holder")
    assert shelf.fails("done", "a", "--token", "9") == (5, "not_lock_holder")
    assert shelf.ask("release", "a", "--token", "1")["state"] == "ready"
    assert shelf.ask("take", "--agent", "other")["token"] == 2
    assert shelf.fails("done", "a", "--token", "1") == (5, "not_lock_holder")
    assert shelf.ask("done", "a", "--token", "2")["holder"] is None
    assert shelf.fails("drop", "b") == (5, "not_lock_holder")
    assert shelf.ask("drop", "b", "--agent", "other")["state"] == "dust"
    versions = shelf.ask("crumb", "history", "a")["items"]
    assert [each["crumb"]["state"] for each in versions] == ["pebble", "taken", "ready", "taken", "ready"]
    assert versions[1]["author"] == "other"


def test_another_agent_finishes_a_crumb_only_by_force(shelf: Shelf) -> None:
    for name in ("a", "b", "c", "d"):
        add(shelf, name, "-s", "ready")
        assert shelf.ask("take", "--agent", "scout")["lease_until"] is None
    ways = (
        ("done", "a"),
        ("drop", "b"),
        ("crumb", "state", "c", "closed"),
        ("crumb", "set", "d", "-s", "open"),
    )
    for way in ways:
        assert shelf.fails(*way, "--agent", "other") == (5, "not_lock_holder")
        assert "scout" in shelf(*way, "--agent", "other").err
        assert shelf.ask(*way, "--agent", "other", "--force")["holder"] is None


def test_a_drop_says_who_waits_for_it(shelf: Shelf) -> None:
    add(shelf, "first", "-s", "ready")
    for name, state in (("second", "ready"), ("third", "draft"), ("fourth", "dust")):
        add(shelf, name, "-s", state, "--parent", "first")
    told = shelf.ask("drop", "first")
    assert [(each["name"], each["state"]) for each in told["waiting"]] == [
        ("second", "ready"),
        ("third", "draft"),
    ]
    text = shelf("drop", "first").out
    assert "still waits for it" in text and "second" in text and "link remove" in text
    assert shelf.ask("crumb", "explain", "second")["items"][0]["waits_for"] == [told["id"]]


def test_what_waits_and_what_is_put_off(shelf: Shelf) -> None:
    first = add(shelf, "first", "-s", "ready")
    add(shelf, "second", "-s", "ready", "--parent", "first")
    add(shelf, "later", "-s", "ready", "--defer-until", "2h")
    assert ready(shelf) == ["first"]
    waiting = shelf.ask("crumb", "blocked")["items"]
    assert [(each["name"], each["waits_for"]) for each in waiting] == [("second", [first])]
    assert not shelf.ask("crumb", "explain", "later")["items"][0]["ready"]
    assert "put off for 2 hours" in shelf("crumb", "get", "later").out
    shelf.ask("crumb", "set", "later", "--defer-until", "never")
    shelf.ask("done", "first")
    assert ready(shelf) == ["second", "later"]


def test_short_ids_and_names(shelf: Shelf) -> None:
    one, two = add(shelf, "same"), add(shelf, "same")
    same = next(place for place in range(36) if one[place] != two[place])
    assert shelf.ask("crumb", "get", one[: same + 1])["id"] == one
    code, kind = shelf.fails("crumb", "get", one[:same])
    assert (code, kind) == (12, "ambiguous")
    assert "more than one" in shelf("crumb", "get", one[:same]).err
    assert "more than one" in shelf("crumb", "get", "same").err
    assert shelf.fails("crumb", "get", "") == (2, "invalid_id")
    trail = shelf.ask("explore", "try", "redis")["id"]
    assert shelf.ask("trail", "get", "try redis")["id"] == trail
    assert shelf.fails("crumb", "get", trail) == (4, "entity_not_found")


def test_properties_by_name(shelf: Shelf) -> None:
    add(shelf, "a", "-P", "priority=high", "-P", "labels=x, y", "-P", "owner=true")
    assert shelf.ask("property", "get", "a", "priority")["value"] == "high"
    assert shelf("property", "get", "a", "owner").out == "true\n"
    assert shelf.ask("property", "get", "a", "labels")["value"] == ["x", "y"]
    shelf.ask("property", "define", "estimate", "--type", "integer")
    assert shelf.ask("property", "get", "a", "estimate")["value"] == 0
    assert shelf.ask("property", "set", "a", "estimate", "5")["value"] == 5
    assert shelf.fails("property", "set", "a", "estimate", "many") == (2, "type_mismatch")
    assert [each["name"] for each in shelf.ask("crumb", "list", "-P", "estimate=5")["items"]] == ["a"]
    assert shelf.ask("property", "clear", "a", "estimate")["value"] == 0
    shelf.ask("property", "define", "risk", "--scope", "trail", "--category", "low", "--category", "high")
    shelf.ask("explore", "t", "-P", "risk=high")
    assert shelf.ask("property", "get", "t", "risk")["value"] == "high"
    added = shelf.ask("property", "category", "risk", "deadly")
    assert added["ordinal"] == 2
    assert [each["name"] for each in shelf.ask("property", "categories", "risk")["items"]] == [
        "low",
        "high",
        "deadly",
    ]
    shelf.ask("property", "define", "due", "-t", "timestamp")
    assert shelf.ask("property", "set", "a", "due", "2026-01-31")["value"] == "2026-01-31T00:00:00Z"
    told = "".join(
        shelf(*words).out for words in (["crumb", "get", "a"], ["crumb", "list"], ["board"], ["log"])
    )
    category = shelf.list("categories", "name=high")[0]["CategoryID"]
    assert "high" in told and category not in shelf("crumb", "get", "a").out
    assert category not in shelf("crumb", "list").out + shelf("crumb", "history", "a").out


def test_stashes(shelf: Shelf) -> None:
    shelf.ask("explore", "t")
    shelf.ask("stash", "create", "n", "-t", "counter", "--trail", "t")
    assert shelf.ask("stash", "increment", "n", "5")["value"] == {"value": 5}
    assert shelf.ask("stash", "increment", "n", "--", "-2")["value"] == {"value": 3}
    assert [each["operation"] for each in shelf.ask("stash", "history", "n")["items"]] == [
        "create",
        "increment",
        "increment",
    ]
    assert shelf.fails("stash", "set", "n", "1", "--expect", "1") == (5, "version_conflict")
    assert shelf.ask("stash", "list", "--trail", "t")["items"][0]["name"] == "n"
    shelf.ask("stash", "create", "l", "-t", "lock")
    held = shelf.ask("stash", "acquire", "l", "--holder", "scout")
    assert held["holder"] == "scout" and held["until"]
    assert shelf.fails("stash", "acquire", "l", "--holder", "other") == (5, "lock_held")
    assert shelf.fails("stash", "delete", "l") == (5, "lock_held")
    assert shelf.ask("stash", "heartbeat", "l", "--agent", "scout")["until"] > held["until"]
    assert "held by scout" in shelf("stash", "get", "l").out
    assert shelf.fails("stash", "release", "l", "--holder", "other") == (5, "not_lock_holder")
    assert shelf.ask("stash", "release", "l", "--holder", "scout")["value"] is None
    assert shelf.ask("stash", "acquire", "l", "--lease", "0")["until"] is None
    assert shelf.ask("stash", "create", "c", "--value", '{"x": 1}')["value"] == {"x": 1}


@pytest.mark.parametrize("end", ["complete", "abandon"])
def test_a_trail_from_start_to_end_and_back(shelf: Shelf, end: str) -> None:
    shelf.ask("explore", "try", "redis", "--goal", "a faster cache")
    first = add(shelf, "install", "--trail", "try redis", "-s", "ready")
    add(shelf, "measure", "--trail", "try redis", "--parent", "install")
    shown = shelf("trail", "get", "try redis").out.splitlines()
    assert [line.split()[:3] for line in shown[-2:]] == [
        ["`-", "ready", "install"],
        ["`-", "draft", "measure"],
    ]
    assert shown[-1].startswith("   `-"), "the second is below the first"
    words = ["-r", "too slow", "-l", "redis does not help here"] if end == "abandon" else []
    ended = shelf.ask("trail", end, "try redis", *words)
    assert first in ended["crumbs"] and len(ended["crumbs"]) == 2
    left = [each["name"] for each in shelf.ask("crumb", "list")["items"]]
    if end == "complete":
        assert left == ["measure", "install"]
        assert shelf.ask("crumb", "get", "install")["origin"]["name"] == "try redis"
        assert "install" in shelf("trail", "get", "try redis").out
    else:
        assert left == []
        assert shelf.ask("lessons", "redis")["items"][0]["lesson"] == "redis does not help here"
        assert "does not help" in shelf("lessons").out
        assert "2 crumbs of it removed" in shelf("trail", "get", "try redis").out
    assert shelf.fails("crumb", "add", "x", "--trail", "try redis") == (2, "invalid_state")
    assert shelf("undo", str(ended["seq"])).code == 0
    assert len(shelf.ask("crumb", "list", "--trail", "try redis")["items"]) == 2


def test_two_trails_side_by_side(shelf: Shelf) -> None:
    for name in ("redis", "memory"):
        shelf.ask("explore", name)
        add(shelf, f"try {name}", "--trail", name)
    shelf.ask("trail", "abandon", "redis", "-r", "slow")
    told = shelf.ask("trail", "compare", "redis", "memory")
    assert told["a"]["counts"]["draft"] == told["b"]["counts"]["draft"] == 1
    shown = shelf("trail", "compare", "redis", "memory").out
    assert "try redis" in shown and "try memory" in shown and "slow" in shown


def test_the_graph_and_the_audit(shelf: Shelf) -> None:
    add(shelf, "a")
    add(shelf, "b", "--parent", "a")
    assert shelf("cupboard", "graph").out.startswith("flowchart TD")
    assert shelf("cupboard", "graph", "--form", "dot").out.startswith("digraph")
    found = shelf.ask("cupboard", "audit")
    assert found["healthy"] and found["orphan"] == 2
    assert shelf.fails("link", "add", "child_of", "a", "b") == (5, "cycle")
    assert shelf.fails("link", "add", "child_of", "b", "a") == (5, "duplicate_link")
    link = shelf.ask("link", "list", "--from-id", "b")["items"][0]
    assert (link["from_name"], link["type"], link["to_name"]) == ("b", "child_of", "a")
    shelf.ask("link", "delete", link["id"])
    assert shelf.ask("link", "list") == {"items": []}


def test_completion(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    crumb = add(shelf, "a crumb")
    trail = shelf.ask("explore", "a trail")["id"]

    def offered(*words: str) -> str:
        with monkeypatch.context() as patch:
            patch.setenv("_DGENT_COMPLETE", "bash_complete")
            patch.setenv("COMP_WORDS", " ".join(["dgent", *words]))
            patch.setenv("COMP_CWORD", str(len(words)))
            return shelf().out

    assert f"plain,{crumb}" in offered("done", crumb[:6]) and trail not in offered("done", crumb[:6])
    assert f"plain,{trail}" in offered("crumb", "add", "--trail", trail[:6])
    assert "plain,priority" in offered("property", "categories", "pri")
    assert "plain,crumbs" in offered("cupboard", "list", "cr")
    assert "plain,'a trail'" in offered("crumb", "add", "--trail", "a"), "bash inserts what it is given"
    assert "plain,a trail\n" in offered("crumb", "add", "--trail", "'a"), "and closes a quote by itself"
    twins = [shelf.ask("crumb", "add", "twin")["id"] for _ in range(2)]
    assert [f"plain,{each}" in offered("done", "twi") for each in twins] == [True, True]
