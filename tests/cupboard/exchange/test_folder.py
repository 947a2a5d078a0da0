"""A folder of the original program on its way into a cupboard and out of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.cupboard import Crumb, Cupboard, Property, Stash, builtin
from dgent.errors import Conflict, InputError, NotFound
from dgent.exchange.foreign import export_folder, import_folder
from tests.cupboard.exchange.folders import held, lines, values, write

WHEN = "2026-02-12T08:15:00Z"
PRIORITY: dict[str, Any] = {
    "property_id": "p-prio",
    "name": "priority",
    "description": "how urgent",
    "value_type": "categorical",
    "created_at": WHEN,
}
HIGH = {"category_id": "k-high", "property_id": "p-prio", "name": "high", "ordinal": 1}


def crumb(id: str, **more: Any) -> dict[str, Any]:
    return {
        "crumb_id": id,
        "name": f"crumb {id}",
        "state": "ready",
        "created_at": WHEN,
        "updated_at": WHEN,
        **more,
    }


def value(crumb_id: str, property_id: str, found: Any, value_type: str = "text") -> dict[str, Any]:
    return {"crumb_id": crumb_id, "property_id": property_id, "value_type": value_type, "value": found}


def read(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / f"{name}.jsonl").read_bytes().splitlines()]


def find(path: Path, name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The line of a file with the same id as a row."""
    id = next(iter(row))
    return next(each for each in read(path, name) if each[id] == row[id])


async def test_built_in_properties_are_found_by_name_and_written_under_their_old_ids(
    cupboard: Cupboard, tmp_path: Path
) -> None:
    values = [value("a", "p-prio", '"k-high"', "categorical"), value("b", "p-prio", "high", "categorical")]
    folder = {
        "crumbs": [crumb("a"), crumb("b")],
        "properties": [PRIORITY],
        "categories": [HIGH],
        "crumb_properties": values,
    }
    await import_folder(cupboard, write(tmp_path / "in", folder))
    for id in ("a", "b"):
        assert (await cupboard.crumbs.get(id)).readable()["priority"] == "high"
    assert [each.name for each in await cupboard.ready(properties={"priority": "high"})] == [
        "crumb a",
        "crumb b",
    ]
    assert len(await cupboard.properties.fetch()) == len(builtin.PROPERTIES)
    await export_folder(cupboard, tmp_path / "out")
    assert PRIORITY in read(tmp_path / "out", "properties")
    assert HIGH.items() <= find(tmp_path / "out", "categories", HIGH).items()
    assert value("a", "p-prio", "k-high", "categorical") in read(tmp_path / "out", "crumb_properties")


async def test_all_values_of_a_plain_folder_come_out(quick: Cupboard, tmp_path: Path) -> None:
    folder = {
        "crumbs": [
            crumb("a", colour="red", created_at="2026-02-12T03:15:00-05:00"),
            crumb("b", state="taken"),
        ],
        "trails": [{"trail_id": "t", "state": "active", "created_at": WHEN, "completed_at": None}],
        "links": [
            {"link_id": "l1", "link_type": "child_of", "from_id": "b", "to_id": "a", "created_at": WHEN},
            {"link_id": "l2", "link_type": "belongs_to", "from_id": "b", "to_id": "t", "created_at": WHEN},
        ],
        "metadata": [
            {
                "metadata_id": "m",
                "table_name": "comments",
                "crumb_id": "a",
                "property_id": None,
                "content": "said",
                "created_at": WHEN,
            }
        ],
    }
    done = await import_folder(quick, write(tmp_path / "in", folder))
    assert (done.added, done.odd, done.kept) == (6, 0, 0)
    assert (await quick.crumbs.get("a")).extra["colour"] == "red"
    await export_folder(quick, tmp_path / "out")
    for name, rows in folder.items():
        assert len(read(tmp_path / "out", name)) == len(rows)
        for row in rows:
            assert values(row).items() <= values(find(tmp_path / "out", name, row)).items()
    assert not (tmp_path / "out" / "schemas.jsonl").exists()
    assert (await quick.audit()).ok


@pytest.mark.parametrize(
    ("value_type", "given", "wanted"),
    [
        ("text", "plain", "plain"),
        ("text", '"alice"', "alice"),
        ("text", "null", "null"),
        ("integer", "5", 5),
        ("integer", 5, 5),
        ("boolean", "true", True),
        ("list", "[]", []),
        ("list", '["x"]', ["x"]),
        ("list", None, []),
        ("timestamp", '"2026-02-12T08:15:00Z"', "2026-02-12T08:15:00+00:00"),
        ("timestamp", "null", None),
    ],
)
async def test_values_are_read_natively_or_as_json_in_a_text(
    value_type: str, given: Any, wanted: Any, tmp_path: Path
) -> None:
    async with dgent.open("memory:") as u:
        cupboard = Cupboard(u)
        found = {"property_id": "p", "name": "size", "value_type": value_type, "description": ""}
        folder = {
            "crumbs": [crumb("a")],
            "properties": [found],
            "crumb_properties": [value("a", "p", given, value_type)],
        }
        await import_folder(cupboard, write(tmp_path, folder))
        read_back = (await cupboard.crumbs.get("a")).get_property("size")
        assert (read_back.isoformat() if hasattr(read_back, "isoformat") else read_back) == wanted


async def test_texts_that_look_like_json_stay_what_they_are(quick: Cupboard, tmp_path: Path) -> None:
    tricky = ['"quoted"', "null", "5", '{"value": 1}', '"\\"twice\\""', ""]
    for place, text in enumerate(tricky):
        await quick.crumbs.set(f"c{place}", Crumb("x", properties={"description": text}))
        await quick.stashes.set(f"s{place}", Stash(f"s{place}", "context", text))
    await export_folder(quick, tmp_path / "out")
    async with dgent.open("memory:") as u:
        other = Cupboard(u)
        await import_folder(other, tmp_path / "out")
        for place, text in enumerate(tricky):
            assert (await other.crumbs.get(f"c{place}")).get_property("description") == text
            assert (await other.stashes.get(f"s{place}")).value == text


async def test_pascal_keys_and_missing_times(quick: Cupboard, tmp_path: Path) -> None:
    made_at = "0195a0f3-7c00-7000-8000-00000000000a"
    rows = [{"CrumbID": made_at, "Name": "one", "State": "draft"}, {"crumb_id": "plain", "name": "two"}]
    path = write(tmp_path, {"crumbs": rows})
    os.utime(path / "crumbs.jsonl", (1_700_000_000, 1_700_000_000))
    await import_folder(quick, path)
    one, two = await quick.crumbs.get(made_at), await quick.crumbs.get("plain")
    assert one.created_at is not None and one.created_at.year == 2025
    assert two.created_at is not None and two.created_at.timestamp() == 1_700_000_000
    os.utime(path / "crumbs.jsonl")
    assert (await import_folder(quick, path)).seq is None, "a guessed time is no change"


async def test_odd_lines_are_named_and_kept(quick: Cupboard, tmp_path: Path) -> None:
    folder = {
        "crumbs": [crumb("a"), "no line", {"crumb_id": "b", "name": ""}, "\udcff\udcfe", crumb("c", x=2**70)],
        "crumb_properties": [value("a", "owner", 5), value("z", "owner", "x"), value("a", "odd", "x")],
        "links": [{"link_id": "l", "link_type": "odd", "from_id": "a", "to_id": "a"}],
        "stash_history": [{"history_id": "h", "stash_id": "none", "version": 1}],
    }
    path = write(tmp_path / "in", folder)
    done = await import_folder(quick, path)
    assert (done.added, done.kept, done.odd) == (1, 9, 9)
    assert [(each.file, each.line) for each in done.problems][:3] == [
        ("crumb_properties.jsonl", 1),
        ("crumb_properties.jsonl", 2),
        ("crumb_properties.jsonl", 3),
    ]
    assert {finding.rule for finding in (await quick.audit()).findings} == {"lines"}
    await export_folder(quick, tmp_path / "out")
    for name, given in lines(path).items():
        out = lines(tmp_path / "out")[name]
        assert all(line in out for line in given if line != values(crumb("a")))


async def test_a_kept_line_that_is_right_now_becomes_a_record(quick: Cupboard, tmp_path: Path) -> None:
    folder: dict[str, list[Any]] = {"crumbs": [], "crumb_properties": [value("a", "owner", "ann")]}
    assert (await import_folder(quick, write(tmp_path, folder))).kept == 1
    folder["crumbs"] = [crumb("a")]
    assert (await import_folder(quick, write(tmp_path, folder))).kept == 0
    assert (await quick.crumbs.get("a")).get_property("owner") == "ann"
    assert (await quick.audit()).ok


async def test_what_breaks_the_rules_of_the_graph_is_told_and_kept(quick: Cupboard, tmp_path: Path) -> None:
    link = {"created_at": WHEN}
    folder = {
        "crumbs": [crumb("a"), crumb("b")],
        "trails": [{"trail_id": id, "state": "active", "created_at": WHEN} for id in ("t", "u")],
        "links": [
            {"link_id": "1", "link_type": "child_of", "from_id": "a", "to_id": "b", **link},
            {"link_id": "2", "link_type": "child_of", "from_id": "b", "to_id": "a", **link},
            {"link_id": "3", "link_type": "belongs_to", "from_id": "a", "to_id": "t", **link},
            {"link_id": "4", "link_type": "belongs_to", "from_id": "a", "to_id": "u", **link},
            {"link_id": "5", "link_type": "child_of", "from_id": "a", "to_id": "gone", **link},
            {"link_id": "6", "link_type": "belongs_to", "from_id": "b", "to_id": "a", **link},
        ],
    }
    done = await import_folder(quick, write(tmp_path, folder))
    assert (done.added, done.kept, done.odd) == (10, 0, 6)
    assert len(await quick.links.fetch()) == 6
    assert await quick.ready() == [], "they wait for each other"
    assert not (await quick.audit()).ok


async def test_of_two_lines_the_newer_one_counts(quick: Cupboard, tmp_path: Path) -> None:
    newer = crumb("a", name="newer", updated_at="2026-03-01T00:00:00Z")
    rows = [newer, crumb("a", name="older"), crumb("b", name="first"), crumb("b", name="last")]
    done = await import_folder(quick, write(tmp_path, {"crumbs": rows}))
    assert (done.added, done.odd) == (2, 2)
    assert {each.name for each in await quick.crumbs.fetch()} == {"newer", "last"}


async def test_marks_of_a_merge_are_refused(quick: Cupboard, tmp_path: Path) -> None:
    rows = [crumb("a"), "<<<<<<< HEAD", crumb("b"), "=======", crumb("c"), ">>>>>>> other"]
    with pytest.raises(Conflict, match=r"crumbs\.jsonl, line 2"):
        await import_folder(quick, write(tmp_path, {"crumbs": rows}))
    assert await quick.crumbs.fetch() == []


async def test_long_lines_and_free_locks(quick: Cupboard, tmp_path: Path) -> None:
    lock = {
        "stash_id": "s",
        "name": "l",
        "stash_type": "lock",
        "value": None,
        "version": 1,
        "created_at": WHEN,
    }
    folder = {"crumbs": [crumb("a", name="x" * 200_000)], "stashes": [lock]}
    assert (await import_folder(quick, write(tmp_path, folder))).odd == 0
    assert len((await quick.crumbs.get("a")).name) == 200_000
    assert await quick.stashes.acquire("s", "ann") == 2


async def test_what_is_there_stays_unless_the_folder_is_newer(quick: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path, {"crumbs": [crumb("a")]})
    await import_folder(quick, path)
    mine = await quick.crumbs.get("a")
    mine.name = "mine"
    await quick.crumbs.set("a", mine)
    assert (await import_folder(quick, path)).skipped == 1
    assert (await quick.crumbs.get("a")).name == "mine"
    assert (await import_folder(quick, path, existing="replace")).changed == 1
    assert (await quick.crumbs.get("a")).name == "crumb a"
    later = write(tmp_path, {"crumbs": [crumb("a", state="pebble", updated_at="2999-01-01T00:00:00Z")]})
    assert (await import_folder(quick, later, existing="skip")).skipped == 1
    assert (await import_folder(quick, later)).changed == 1
    assert (await quick.crumbs.get("a")).state == "pebble"


async def test_states_that_come_in_free_what_waited_here(quick: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path, {"crumbs": [crumb("a")]})
    await import_folder(quick, path)
    await quick.add(Crumb("waits", "ready", id="w"), parents=["a"])
    assert [each.id for each in await quick.ready()] == ["a"]
    write(tmp_path, {"crumbs": [crumb("a", state="pebble", updated_at="2999-01-01T00:00:00Z")]})
    await import_folder(quick, path)
    assert [each.id for each in await quick.ready()] == ["w"]
    assert (await quick.audit()).ok


async def test_a_dry_run_says_it_and_does_nothing(quick: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path, {"crumbs": [crumb("a"), "no line"]})
    before = await quick.universe.seq()
    said = await import_folder(quick, path, dry_run=True)
    assert (said.added, said.kept, said.seq, said.dry_run) == (1, 1, None, True)
    assert await quick.universe.seq() - before <= 1, "at most what every cupboard begins with"
    assert await quick.crumbs.fetch() == []


async def test_an_id_of_something_else_is_no_crumbs_id(quick: Cupboard, tmp_path: Path) -> None:
    await quick.universe.put(dgent.Datum(id="a", data={"n": 1}))
    done = await import_folder(quick, write(tmp_path, {"crumbs": [crumb("a"), crumb("b")]}))
    assert (done.added, done.kept) == (1, 1)
    assert (await quick.universe.get("a", raw=True)).data == {"n": 1}


async def test_what_was_forgotten_stays_so(quick: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path, {"crumbs": [crumb("a")]})
    await import_folder(quick, path)
    await quick._universe.forget("a")
    assert (await import_folder(quick, path)).skipped == 1
    assert await quick.crumbs.fetch() == []


async def test_what_was_deleted_here_stays_so(quick: Cupboard, tmp_path: Path) -> None:
    trail = await quick.start("try")
    parent = await quick.add("parent", state="ready", trail=trail)
    child = await quick.add("child", state="ready", parents=[parent])
    await quick.comment(parent, "look")
    cache = await quick.stashes.create("cache", "context", {"a": 1}, trail=trail.id)
    kept = await quick.stashes.create("kept", "counter")
    await export_folder(quick, tmp_path / "out")
    await quick.abandon(trail)
    await quick.stashes.delete(kept.id)
    before = await quick.universe.seq()
    assert (await import_folder(quick, tmp_path / "out")).added == 0
    assert [each.id for each in await quick.crumbs.fetch()] == [child.id]
    assert await quick.stashes.fetch() == [] and (await quick.audit()).ok
    assert await quick.universe.seq() == before
    await import_folder(quick, tmp_path / "out", existing="replace")
    assert {each.id for each in await quick.crumbs.fetch()} == {parent.id, child.id}
    assert {each.id for each in await quick.stashes.fetch()} == {cache.id, kept.id}


async def test_a_crumb_that_comes_back_has_its_links_and_comments(quick: Cupboard, tmp_path: Path) -> None:
    parent, other = await quick.add("parent"), await quick.add("other")
    child = await quick.add("child", parents=[parent, other])
    await quick.comment(child, "look")
    await export_folder(quick, tmp_path / "out")
    (link,) = await quick.links.fetch(to_id=other.id)
    await quick.links.delete(link.id)
    await quick.crumbs.delete(child.id)
    path = tmp_path / "out" / "crumbs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["updated_at"] = "2999-01-01T00:00:00Z"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    await import_folder(quick, tmp_path / "out")
    assert [(each.from_id, each.to_id) for each in await quick.links.fetch()] == [(child.id, parent.id)]
    assert [each.content for each in await quick.metadata.fetch(crumb_id=child.id)] == ["look"]
    assert (await quick.audit()).ok


async def test_places_that_are_no_folder(quick: Cupboard, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await import_folder(quick, tmp_path / "none")
    with pytest.raises(InputError):
        await import_folder(quick, tmp_path)
    path = write(tmp_path, {"crumbs": [crumb("a")], "trails": [{"trail_id": "t"}]})
    await import_folder(quick, path / "crumbs.jsonl")
    assert (len(await quick.crumbs.fetch()), len(await quick.trails.fetch())) == (1, 0)


async def test_an_export_takes_the_place_of_another_only_when_told(quick: Cupboard, tmp_path: Path) -> None:
    out = tmp_path / "out"
    await quick.add("one")
    await export_folder(quick, out)
    before = lines(out)
    await quick.add("two")
    with pytest.raises(Conflict):
        await export_folder(quick, out)
    assert lines(out) == before
    done = await export_folder(quick, out, replace=True)
    assert done.lines["crumbs"] == 2
    assert not [name for name in os.listdir(out) if name.startswith(".")]


async def test_an_own_cupboard_goes_out_and_in_whole(cupboard: Cupboard, tmp_path: Path) -> None:
    await cupboard.properties.set(None, Property("risk", "integer", scope="trail"))
    await cupboard.properties.set(None, Property("kept", "boolean", scope="stash"))
    first = await cupboard.add("first", state="ready", properties={"labels": ["x"], "priority": "high"})
    await cupboard.take("ann")
    trail = await cupboard.start("try", "to see", branches_from=first, properties={"risk": 3})
    await cupboard.add("tried", trail=trail, parents=[first])
    await cupboard.abandon(trail, reason="slow", lesson="measure first")
    kept = await cupboard.start("keep")
    await cupboard.add("done", trail=kept)
    await cupboard.complete(kept)
    await cupboard.register_schema("reviews", "what was found", "json")
    await cupboard.comment(first, "hm")
    stash = Stash("n", "counter", properties={"kept": True})
    await cupboard.stashes.set(None, stash)
    await cupboard.stashes.increment(stash.id, 5, changed_by=first.id)
    await cupboard.stashes.increment(stash.id, 3)
    await export_folder(cupboard, tmp_path / "out")
    async with dgent.open("memory:") as u:
        other = Cupboard(u)
        assert (await import_folder(other, tmp_path / "out")).odd == 0
        assert await held(other) == await held(cupboard)
        assert await other.stashes.history(stash.id) == await cupboard.stashes.history(stash.id)
        assert [each.lesson for each in await other.lessons("measure")] == ["measure first"]
        assert (await other.audit()).ok
        await export_folder(other, tmp_path / "again")
    assert lines(tmp_path / "out") == lines(tmp_path / "again")
