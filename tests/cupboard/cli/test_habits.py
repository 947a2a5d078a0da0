"""The habits of people who track work with beads, one test each."""

from __future__ import annotations

import json
import re
import time

from tests.cupboard.cli.shelf import Shelf


def add(shelf: Shelf, *words: str) -> str:
    [made] = shelf.ask("add", *words)["items"]
    return str(made["short_id"])


def ready(shelf: Shelf, *words: str) -> list[str]:
    return [each["name"] for each in shelf.ask("ready", *words)["items"]]


def test_ids_are_short_and_understood_everywhere(shelf: Shelf) -> None:
    one = add(shelf, "Fix", "the", "crash")
    assert re.fullmatch(r"dg-[0-9a-z]{4}", one)
    part = add(shelf, "Write a test", "--part-of", one)
    assert part == f"{one}.1"
    trail = shelf.ask("explore", "try")["short_id"]
    for words in (
        ("show", one),
        ("show", one.removeprefix("dg-")),
        ("crumb", "explain", part),
        ("crumb", "history", one),
        ("crumb", "list", "--part-of", one),
        ("comment", one, "hm"),
        ("metadata", "comments", one),
        ("property", "set", one, "owner", "bob"),
        ("property", "get", one, "owner"),
        ("crumb", "state", part, "draft"),
        ("crumb", "set", part, "--name", "x"),
        ("link", "add", "belongs_to", part, trail),
        ("link", "list", "--from-id", part),
        ("trail", "get", trail),
        ("crumb", "list", "--trail", trail),
        ("cupboard", "get", "crumbs", one),
        ("trail", "complete", trail),
        ("take", one),
        ("crumb", "heartbeat", one),
        ("release", one),
        ("done", one, part),
        ("crumb", "delete", part),
    ):
        assert shelf(*words).code == 0, words
    assert one in shelf("crumbs").out and not re.search(r"[0-9a-f]{8}-", shelf("crumbs").out)
    assert shelf.fails("show", f"{one}zz") == (4, "entity_not_found")


def test_an_ambiguous_name_lists_the_candidates(shelf: Shelf) -> None:
    some = [add(shelf, "same"), add(shelf, "same")]
    told = shelf("show", "same")
    assert told.code == 12 and all(each in told.err for each in some)
    assert shelf.fails("show", "same") == (12, "ambiguous")


def test_new_work_is_ready_unless_it_is_a_draft(shelf: Shelf) -> None:
    add(shelf, "now")
    add(shelf, "later", "--draft")
    shelf.ask("crumb", "add", "as in the seed")
    shelf.set("crumbs", Name="the same")
    assert ready(shelf) == ["now"]


def test_one_crumb_is_claimed_and_released(shelf: Shelf) -> None:
    first, second = add(shelf, "first", "--priority", "0"), add(shelf, "second")
    assert shelf.ask("take", second, "--agent", "scout")["holder"] == "scout"
    assert "scout" in shelf("crumbs").out and "taken by scout" in shelf("show", second).out
    assert shelf.ask("take", second, "--agent", "scout")["token"] == 1  # it holds it already
    assert shelf.fails("take", second, "--agent", "other") == (5, "not_lock_holder")
    assert "scout" in shelf("take", second, "--agent", "other").err
    assert shelf.ask("take", "--next", "--agent", "other")["short_id"] == first
    assert shelf.fails("take", "--next") == (4, "not_found")
    assert shelf.ask("release", second, "--agent", "scout")["holder"] is None
    leased = shelf.ask("take", second, "--lease", "0.01", "--agent", "scout")
    assert leased["lease_until"] is not None
    ends = time.monotonic() + 20
    while (after := shelf("take", second, "--agent", "other")).code and time.monotonic() < ends:
        pass
    assert after.code == 0, "after the lease"
    assert shelf.ask("take", second, "--agent", "third", "--force")["holder"] == "third"
    shelf.ask("done", second, "--agent", "third")
    assert shelf.fails("take", second) == (2, "invalid_transition")
    waits = add(shelf, "waits", "--needs", first)
    assert shelf.fails("take", waits) == (5, "conflict")
    assert "first" in shelf("take", waits).err
    assert shelf.ask("take", waits, "--force")["state"] == "taken"


def test_several_are_finished_with_a_reason_and_reopened(shelf: Shelf) -> None:
    one, two, three = (add(shelf, name) for name in ("one", "two", "three"))
    before = len(shelf.ask("log")["items"])
    told = shelf.ask("done", one, two, "-m", "shipped")
    assert [told["state"], *(each["state"] for each in told["others"])] == ["pebble", "pebble"]
    assert len(shelf.ask("log")["items"]) == before + 1, "in one commit"
    assert "shipped" in shelf("show", two).out
    assert shelf.ask("drop", three, "-m", "not worth it")["state"] == "dust"
    assert shelf.fails("done", one, "nobody")[0] == 4
    assert shelf.ask("reopen", one, three, "-m", "it is back")["state"] == "ready"
    assert sorted(ready(shelf)) == ["one", "three"] and "it is back" in shelf("show", one).out
    assert shelf.fails("reopen", one) == (2, "invalid_transition")
    assert "undo" not in shelf("undo").err and sorted(ready(shelf)) == []


def test_priorities_and_types(shelf: Shelf) -> None:
    for name in ("highest", "high", "medium", "low", "lowest"):
        number = ["highest", "high", "medium", "low", "lowest"].index(name)
        for given in (str(number), f"P{number}", f"p{number}", name):
            made = shelf.ask("add", f"{name} {given}", "--priority", given)["items"][0]
            assert made["properties"]["priority"] == name
    assert len(shelf.ask("crumbs", "--priority", "P1")["items"]) == 4
    assert shelf.fails("add", "x", "--priority", "5") == (2, "invalid_category")
    for kind in ("bug", "feature", "task", "epic", "chore", "spike", "decision"):
        add(shelf, kind, "--type", kind)
    assert shelf.fails("add", "x", "--type", "rite") == (2, "invalid_category")
    assert "property category" in shelf("add", "x", "--type", "rite").err
    shelf.ask("property", "category", "type", "rite")
    add(shelf, "x", "--type", "rite")


def test_relations(shelf: Shelf) -> None:
    base, epic = add(shelf, "base"), add(shelf, "epic", "--type", "epic")
    part = add(shelf, "part", "--part-of", epic, "--related", base)
    add(shelf, "gate", "--blocks", epic)
    found = add(shelf, "found", "--discovered-from", base, "--duplicate-of", part, "--supersedes", base)
    late = add(shelf, "late", "--needs", f"{base},{found}")
    assert sorted(ready(shelf)) == ["base", "found", "gate"], "the part of an epic that waits waits"
    told = shelf("show", part).out
    assert f"part of {epic}" in told and f"related to {base}" in told and "waits for 'gate'" in told
    assert f"related to {part}" in shelf("show", base).out
    shelf.ask("done", "gate")
    assert sorted(ready(shelf)) == ["base", "epic", "found", "part"]
    shelf.ask("done", part)
    assert "1 of 1 part done" in shelf("show", epic).out
    told = shelf("show", found).out
    assert all(f"{how} {one}" in told for how, one in (("discovered from", base), ("supersedes", base)))
    shelf.ask("link", "remove", "child_of", late, base)
    assert [each["name"] for each in shelf.ask("show", late)["parents"]] == ["found"]
    assert shelf.fails("crumb", "set", epic, "--needs", part) == (5, "cycle")
    assert shelf.ask("crumb", "set", part, "--related", base)["name"] == "part", "it is there already"


def test_labels(shelf: Shelf) -> None:
    one = add(shelf, "one", "-l", "a,b", "-l", "c")
    labels = lambda told: told["properties"]["labels"]  # noqa: E731
    assert labels(shelf.ask("show", one)) == ["a", "b", "c"]
    assert labels(shelf.ask("crumb", "set", one, "--add-label", "d,e", "--remove-label", "a,c")) == [
        "b",
        "d",
        "e",
    ]
    assert labels(shelf.ask("crumb", "set", one, "-P", "labels=x,y")) == ["x", "y"]
    add(shelf, "two", "-l", "x")
    for words in (("crumbs", "-l", "x,y"), ("ready", "-l", "x", "-l", "y"), ("crumbs", "-P", "labels=x,y")):
        assert [each["name"] for each in shelf.ask(*words)["items"]] == ["one"], words
    assert len(shelf.ask("crumbs", "-l", "x")["items"]) == 2


def test_find_stale_blocked_and_duplicates(shelf: Shelf) -> None:
    crash = add(shelf, "Crash in the parser", "-l", "x", "-d", "when the file is empty")
    other = add(shelf, "Crash in the lexer", "--draft")
    shelf.ask("comment", other, "the empty file again")
    names = lambda *words: [each["name"] for each in shelf.ask("crumbs", *words)["items"]]  # noqa: E731
    assert names("crash", "--state", "ready", "--label", "x", "--since", "2w") == ["Crash in the parser"]
    assert sorted(names("empty")) == ["Crash in the lexer", "Crash in the parser"]
    assert names("crash", "--state", "closed") == [] and names("--since", "2999-01-01") == []
    assert shelf.ask("stale")["items"] == []
    assert len(shelf.ask("stale", "--days", "0")["items"]) == 2
    add(shelf, "fix it", "--needs", crash)
    told = shelf("blocked").out
    assert "blocked" in told and f"({crash}), which is ready" in told
    assert " ready  fix it" not in told
    assert "blocked" in shelf("crumbs").out
    add(shelf, "crash in  the PARSER")
    [group] = shelf.ask("duplicates")["groups"]
    assert sorted(each["name"] for each in group) == ["Crash in the parser", "crash in  the PARSER"]
    shelf.ask("crumb", "set", crash, "--duplicate-of", "crash in  the PARSER")
    assert shelf.ask("duplicates")["groups"] == []


def test_many_at_once(shelf: Shelf) -> None:
    def sent(text: str) -> list[tuple[str, str, str]]:
        told = shelf("--json", "add", "-", stdin=text)
        assert told.code == 0, told.err
        return [(each["name"], each["state"], each["short_id"]) for each in told.data["items"]]

    assert [each[:2] for each in sent("one\n\ntwo\n")] == [("one", "ready"), ("two", "ready")]
    before = len(shelf.ask("log")["items"])
    made = sent("# Plan\nsome words\n- write\n  1. [x] think\n  2. type\n\t* check\n- ship\n")
    assert len(shelf.ask("log")["items"]) == before + 1
    plan = made[0][2]
    ids = [f"{plan}", f"{plan}.1", f"{plan}.1.1", f"{plan}.1.2", f"{plan}.1.2.1", f"{plan}.2"]
    assert [each[2] for each in made] == ids and made[2][1] == "pebble"
    graph = [
        {"key": "a", "title": "first", "priority": 0, "labels": "x,y", "type": "bug"},
        {"name": "second", "needs": ["a"], "parts": ["third", {"name": "fourth", "blocks": "one"}]},
        {"name": "fifth", "related": ["a", "two"], "properties": {"owner": "ann"}, "state": "draft"},
    ]
    assert [each[0] for each in sent(json.dumps(graph))] == ["first", "second", "third", "fourth", "fifth"]
    told = shelf.ask("show", "second")
    assert [each["name"] for each in told["parents"]] == ["first"]
    assert not shelf.ask("show", "one")["ready"] and not shelf.ask("show", "third")["ready"]
    assert [each[0] for each in sent('{"name": "l1"}\n{"name": "l2"}\n')] == ["l1", "l2"]
    assert add(shelf, "[ui] fix the button")
    count = len(shelf.ask("crumbs")["items"])
    for wrong in ('[{"name": "x"}, {"nam": "y"}]', '[{"name": "x", "needs": ["nobody"]}]', "{", "", "[3]"):
        assert shelf("add", "-", stdin=wrong).code != 0, wrong
    assert len(shelf.ask("crumbs")["items"]) == count, "all or none"


def test_comments_have_an_author_and_a_time(shelf: Shelf) -> None:
    one = add(shelf, "one")
    shelf.ask("comment", one, "why?", "--agent", "bob")
    shelf.ask("comment", one, "because", "--agent", "eve")
    told = shelf.ask("show", one)["metadata"]
    assert [(each["author"], each["content"]) for each in told] == [("bob", "why?"), ("eve", "because")]
    out = shelf("show", one).out
    assert re.search(r"bob, .*why\?\n.*eve, .*because", out)


def test_only_lessons_are_lessons(shelf: Shelf) -> None:
    for name, more in (("with", ["--lesson", "learned"]), ("without", ["--reason", "no time"])):
        shelf.ask("explore", name)
        shelf.ask("trail", "abandon", name, *more)
    assert [each["name"] for each in shelf.ask("lessons")["items"]] == ["with"]


def test_letters_of_other_trackers(shelf: Shelf) -> None:
    """`-p` is the priority and `-t` the type, as with bd."""
    shelf.ask("add", "crash", "-p", "P1", "-t", "bug")
    (found,) = shelf.ask("crumbs", "-t", "bug", "-p", "1")["items"]
    assert found["properties"]["priority"] == "high" and found["properties"]["type"] == "bug"
