"""A folder of files that agrees with the blocks: both sides change, and both changes stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dgent
from dgent.blocks import Field, Library, SectionShape, Shape, Template, errors
from dgent.errors import InputError
from tests.blocks.agents import Open, library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def names(folder: Path) -> list[str]:
    found = [each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()]
    return sorted(name for name in found if not name.startswith(".blocks/"))


async def test_each_kind_of_document_is_a_file_one_can_read(scout: Library, folder: Path) -> None:
    tasks = await scout.create("tasks", template="task_list", value=[{"title": "é", "done": True}])
    await scout.create("profile", template="partner_profile", value={"name": "Ada", "preferences": ["tea"]})
    await scout.create("count", document="counter", value=3)
    tree = await scout.create("tree", document="tree")
    node = await tree.add_node({"name": "root"})
    log = await scout.create("seen", template="observation_log")
    await log.log("rain")
    report = await scout.sync(folder)
    assert [each.file for each in report.written] == [
        *("count.json", "persona.md", "profile.json", "seen.jsonl", "tasks.json", "tree.json")
    ]
    assert (folder / "persona.md").read_text() == "I like short answers.\n"
    assert (folder / "count.json").read_text() == "3\n"
    assert (folder / "tasks.json").read_text() == (
        '[\n  {\n    "done": true,\n    "priority": 3,\n    "title": "é"\n  }\n]\n'
    )
    assert (
        '"name": "root"' in (folder / "tree.json").read_text() and node in (folder / "tree.json").read_text()
    )
    assert '"observation": "rain"' in (folder / "seen.jsonl").read_text()
    assert 'template = "task_list"' in (folder / "tasks.toml").read_text()
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    assert not await scout.sync(folder)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before
    assert (await tasks.history())[0].number == 1


async def test_edits_of_both_sides_merge_as_one_version(scout: Library, folder: Path) -> None:
    block = await scout.create("notes", text="one\ntwo\nthree\n")
    await scout.sync(folder)
    (folder / "notes.md").write_text("one and a half\ntwo\nthree\nfour\n")
    await block.replace("two", "TWO")
    report = await scout.sync(folder)
    assert await block.text() == "one and a half\nTWO\nthree\nfour\n" == (folder / "notes.md").read_text()
    assert [each.why for each in report.taken] == ["edited, and merged with 1 other version"]
    newest = (await block.history())[0]
    assert (newest.number, newest.op, newest.message, newest.diffstat) == (
        3,
        "sync",
        "from notes.md",
        "+16 -0",
    )
    await block.undo()
    await scout.sync(folder)
    assert (folder / "notes.md").read_text() == "one\nTWO\nthree\n"


async def test_an_edit_can_be_in_the_name_of_a_person(scout: Library, folder: Path) -> None:
    await scout.sync(folder)
    (folder / "persona.md").write_text("I am plain.\n")
    await scout.sync(folder, by="ada")
    assert (await (await scout.get("persona")).history())[0].by == "ada"


async def test_how_lines_end_makes_no_version(scout: Library, folder: Path) -> None:
    block = await scout.create("notes", text="one\r\ntwo\nthree")
    tasks = await scout.create("tasks", document="list", value=[1.0, {"b": 1, "a": 2}])
    await scout.sync(folder)
    file = folder / "notes.md"
    for given in (b"one\r\ntwo\r\nthree\r\n", b"\xef\xbb\xbfone\ntwo\nthree", b"one\ntwo\nthree\n"):
        file.write_bytes(given)
        assert not await scout.sync(folder)
        assert file.read_bytes() == given
    (folder / "tasks.json").write_text('[1, {"a":2,\t"b":1}]')
    assert not await scout.sync(folder)
    assert (block.version, tasks.version) == (1, 1)
    file.write_bytes(b"one\r\ntwo\r\nthree and four\r\n")
    await scout.sync(folder)
    assert await block.text() == "one\r\ntwo\nthree and four"


async def test_fields_items_and_counters_merge_by_what_changed(scout: Library, folder: Path) -> None:
    profile = await scout.create("profile", template="partner_profile", value={"name": "Ada"})
    tasks = await scout.create(
        "tasks", template="task_list", value=[{"title": title} for title in ("a", "b", "c")]
    )
    await scout.sync(folder)
    text = (folder / "profile.json").read_text()
    (folder / "profile.json").write_text(text.replace("5", "7").replace("[]", '["tea"]'))
    text = (folder / "tasks.json").read_text()
    (folder / "tasks.json").write_text(text.replace('"b"', '"B"'))
    await profile.set_field("current_focus", "rest")
    await profile.append_to_field("preferences", "rain")
    await profile.increment("energy_level", -1)
    await tasks.set_item(1, {"done": True})
    await tasks.move_item(1, 0)
    await tasks.insert_item({"title": "d"})
    assert not (await scout.sync(folder)).conflicts
    value = await profile.value()
    assert (value["energy_level"], value["current_focus"]) == (6, "rest")
    assert sorted(value["preferences"]) == ["rain", "tea"]
    items = (await tasks.value())["items"]
    assert [(each["title"], each["done"]) for each in items] == [
        *(("B", True), ("a", False), ("c", False), ("d", False))
    ]


async def test_of_two_values_for_one_field_the_file_s_counts_and_both_are_told(
    scout: Library, folder: Path
) -> None:
    block = await scout.create("facts", document="map", value={"city": "Ulm", "age": 3})
    tasks = await scout.create("tasks", template="task_list", value=[{"title": "a"}, {"title": "b"}])
    await scout.sync(folder)
    (folder / "facts.json").write_text('{"city": "Bonn", "age": 3}')
    (folder / "tasks.json").write_text(
        '[{"title": "a", "done": false, "priority": 1}, {"title": "b", "done": true}]'
    )
    for step in range(5):  # the later edits of a document would otherwise win
        await block.set_field("city", f"Kiel {step}")
        await tasks.set_item(0, {"priority": 4 + step})
    await tasks.delete_item(1)
    report = await scout.sync(folder)
    assert await block.value() == {"city": "Bonn", "age": 3}
    items = (await tasks.value())["items"]
    assert [(each["title"], each["priority"], each["done"]) for each in items] == [
        ("a", 1, False),
        ("b", 3, True),
    ]
    assert sorted((each.file, each.why) for each in report.conflicts) == [
        ("facts.json", "city became 'Kiel 4' in the database; the file's 'Bonn' counts"),
        ("tasks.json", "priority of the item 'a' became 8 in the database; the file's 1 counts"),
        ("tasks.json", "the item 'b' was deleted in the database; it is there again, as the file has it"),
    ]
    assert (await block.at(6)).value["city"] == "Kiel 4"


async def test_nodes_are_edited_by_their_ids(scout: Library, folder: Path) -> None:
    tree = await scout.create("plan", document="tree")
    a = await tree.add_node({"name": "a"})
    b = await tree.add_node({"name": "b"}, a)
    c = await tree.add_node({"name": "c"}, a)
    await scout.sync(folder)
    wanted = [
        {"data": {"name": "new"}, "children": [{"id": c, "data": {"name": "C"}}]},
        {"id": a, "data": {"name": "a"}, "children": []},
    ]
    (folder / "plan.json").write_text(json.dumps(wanted))
    await tree.set_node(c, {"note": "kept"})
    report = await scout.sync(folder)
    assert not report.conflicts and not report.refused
    nodes = (await tree.value())["nodes"]
    assert [each["data"]["name"] for each in nodes] == ["new", "a"]
    assert nodes[0]["children"][0]["data"] == {"name": "C", "note": "kept"}
    assert nodes[0]["children"][0]["id"] == c and b not in (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(json.dumps([{"id": "9@9", "data": {}}]))
    assert "leave out" not in (await scout.sync(folder)).refused[0].why
    assert len((await tree.value())["nodes"]) == 2


async def test_a_composite_is_edited_by_its_sections(scout: Library, folder: Path) -> None:
    shape = Shape(
        "composite",
        sections=(
            SectionShape("about", Shape()),
            SectionShape(
                "facts", Shape("map", (Field("name", required=True), Field("born", read_only=True)))
            ),
        ),
    )
    value = {"about": "first\nlast\n", "facts": {"name": "Ada", "born": "1815"}}
    block = await scout.create("who", template=Template("who", shape), value=value)
    await scout.sync(folder)
    (folder / "who.json").write_text(json.dumps({**value, "about": "first\nmiddle\nlast\n"}))
    await block.section("about").append("end\n")
    await block.section("facts").set_field("name", "Ada L.")
    await scout.sync(folder)
    assert (await block.value())["about"] == {"content": "first\nmiddle\nlast\nend\n"}
    assert (await block.value())["facts"]["name"] == "Ada L."
    now = json.loads((folder / "who.json").read_text())
    for wrong in ({"facts": {"name": "Ada", "born": "1900"}}, {"facts": {"born": "1815"}}, {"more": 1}):
        (folder / "who.json").write_text(json.dumps({**now, **wrong}))
        report = await scout.sync(folder)
        assert len(report.refused) == 1 and "stays as it is" in report.refused[0].why
        assert json.loads((folder / "who.json").read_text()) == {**now, **wrong}


async def test_a_file_that_cannot_be_read_spoils_no_other(scout: Library, folder: Path) -> None:
    await scout.create("tasks", document="list", value=[1])
    await scout.create("events", document="log")
    await scout.sync(folder)
    odd = {
        "tasks.json": (b"[\n  1,\n  2\n", "line 4 is not valid JSON"),
        "events.jsonl": (b'{"message": "a"}\n{"message": }\n', "line 2 is not valid JSON"),
        "new.md": (b"ok\n\xff\xfe\n", "line 2 is not UTF-8"),
        "twice.json": (b'{"a": 1, "a": 2}', "'a' is there twice"),
        "nan.json": (b"[NaN]", "NaN is not a number"),
        "deep.json": (b"[" * 100_000, "is not JSON"),
        "big.json": (b"[" + b"9" * 5000 + b"]", "is not JSON"),
        "bool.json": (b"true", "a block cannot be a bool"),
    }
    for name, (given, _) in odd.items():
        (folder / name).write_bytes(given)
    (folder / "persona.md").write_text("I am plain.")
    report = await scout.sync(folder)
    why = {each.file: each.why for each in report.refused}
    assert why.keys() == odd.keys()
    for name, (given, said) in odd.items():
        assert said in why[name] and (folder / name).read_bytes() == given
    assert await (await scout.get("persona")).text() == "I am plain."
    assert await (await scout.get("tasks")).value() == {"items": [1]}


async def test_what_is_too_long_stays_in_the_file(scout: Library, folder: Path) -> None:
    block = await scout.create("short", limit=10, text="12345")
    await scout.sync(folder)
    (folder / "short.md").write_text("12345678901")
    await block.append("6")
    for _ in range(2):
        report = await scout.sync(folder)
        assert "its limit is 10" in report.refused[0].why and not report.written
        assert (folder / "short.md").read_text() == "12345678901"
    (folder / "short.md").write_text("x 12345")
    await scout.sync(folder)
    assert await block.text() == "x 123456"


async def test_what_may_not_be_changed_is_kept_beside(scout: Library, folder: Path) -> None:
    rules = await scout.create("rules", text="be kind\n", permission="read_only")
    more = await scout.create("more", text="a\n", permission="append")
    await scout.log_event("start")
    await scout.sync(folder)
    log = (folder / "log.jsonl").read_text()
    (folder / "rules.md").write_text("be rude\n")
    (folder / "more.md").write_text("a\nb\n")
    (folder / "log.jsonl").write_text(log + '{"event": "forged"}\n')
    report = await scout.sync(folder)
    assert sorted(each.file for each in report.refused) == ["log.jsonl", "rules.md"]
    assert (folder / "rules.md").read_text() == "be kind\n" == await rules.text()
    assert (folder / "rules.md.mine").read_text() == "be rude\n"
    assert (folder / "log.jsonl").read_text() == log
    assert await more.text() == "a\nb\n"
    (folder / "more.md").write_text("b\n")
    (folder / "rules.md").write_text("be loud\n")
    await scout.sync(folder)
    assert (folder / "more.md.mine").read_text() == "b\n" and await more.text() == "a\nb\n"
    assert (folder / "rules.md.mine-2").read_text() == "be loud\n"
    assert not await scout.sync(folder)
    assert len(await scout.refusals()) == 4


async def test_consent_is_asked_for_an_edit_of_a_file(library: Open, folder: Path) -> None:
    asked = []

    def consent(request: object) -> bool:
        asked.append(request)
        return len(asked) > 1

    scout = library("scout", consent=consent)
    block = await scout.create("vows", text="a", permission="human")
    await scout.sync(folder)
    (folder / "vows.md").write_text("b")
    assert "a human must agree" in (await scout.sync(folder, dry_run=True)).taken[0].why and not asked
    assert (await scout.sync(folder)).refused and await block.text() == "a"
    (folder / "vows.md").write_text("b")
    assert (await scout.sync(folder)).taken and await block.text() == "b"


async def test_a_log_is_added_to_and_never_changed(scout: Library, folder: Path) -> None:
    log = await scout.create("seen", template="observation_log")
    await log.log("rain")
    await scout.sync(folder)
    file = folder / "seen.jsonl"
    first = file.read_text()
    file.write_text(first + '{"observation": "sun"}\n"wind"\n')
    await log.log("hail")
    report = await scout.sync(folder)
    assert [each.version for each in report.taken] == [4]
    assert [each["observation"] for each in await log.entries()] == ["wind", "sun", "hail", "rain"]
    assert file.read_text().count("\n") == 4 and not await scout.sync(folder)
    file.write_text(file.read_text().replace("rain", "storm"))
    assert "never changed" in (await scout.sync(folder)).refused[0].why
    assert "storm" in (folder / "seen.jsonl.mine").read_text() and "rain" in file.read_text()
    file.write_text(file.read_text() + '{"observation": "x", "agent": "ada"}\n')
    assert "stamped" in (await scout.sync(folder)).refused[0].why
    assert len(await log.entries()) == 4


async def test_new_files_become_blocks(scout: Library, folder: Path) -> None:
    folder.mkdir()
    (folder / "ideas.md").write_text("fly\n")
    (folder / "a%2Fb.md").write_text("")
    (folder / "list.json").write_text('["x"]')
    (folder / "map.json").write_text('{"a": 1}')
    (folder / "count.json").write_text("7")
    (folder / "events.jsonl").write_text('{"message": "first"}\n')
    (folder / "todo.json").write_text('[{"title": "swim"}]')
    (folder / "todo.toml").write_text('template = "task_list"\nlabel = "tasks"\npinned = true\nlimit = 900\n')
    (folder / "plan.json").write_text(
        '[{"data": {"name": "root"}, "children": [{"data": {"name": "leaf"}}]}]'
    )
    (folder / "plan.toml").write_text('document = "tree"\n')
    (folder / "wrong.json").write_text("[]")
    (folder / "wrong.toml").write_text('document = "text"\n')
    for name in (".hidden.md", "notes.txt", "#x.md", "~x.md", "x.md~", ".#x.md"):
        (folder / name).write_text("no")
    report = await scout.sync(folder)
    labels = [block.label for block in await scout.list()]
    assert labels == ["a/b", "count", "events", "ideas", "list", "map", "persona", "plan", "tasks"]
    assert "ends with .md" in report.refused[0].why and len(report.refused) == 1
    assert await (await scout.get("ideas")).text() == "fly"
    assert (await (await scout.get("events")).entries())[0]["message"] == "first"
    tasks = await scout.get("tasks")
    assert (tasks.template, tasks.pinned, tasks.limit) == ("task_list", True, 900)
    assert (await tasks.value())["items"][0]["priority"] == 3 and '"priority": 3' in (
        folder / "todo.json"
    ).read_text()
    assert await (await scout.get("plan")).text() == "- root\n  - leaf"
    again = await scout.sync(folder)
    assert not again.taken and not again.written and again.refused == report.refused


async def test_what_describes_a_block_is_edited_beside_it(scout: Library, folder: Path) -> None:
    await scout.create("notes", text="x")
    await scout.sync(folder)
    card = folder / "notes.toml"
    text = card.read_text()
    edited = text.replace('label = "notes"', 'label = "my notes"').replace("limit = 20000", "limit = 70")
    card.write_text(edited.replace('description = ""', 'description = "what I \\u0022note\\u0022\\n"'))
    await scout.describe("notes", kind="core")
    report = await scout.sync(folder)
    block = await scout.get("my notes")
    assert (block.description, block.limit, block.kind) == ('what I "note"\n', 70, "core")
    assert [each.why.split(" ")[0] for each in report.taken] == ["description", "label", "limit"]
    assert names(folder) == ["my notes.md", "my notes.toml", "persona.md", "persona.toml"]
    assert not await scout.sync(folder)
    card = folder / "my notes.toml"
    good = card.read_text()
    for given, said in (
        (good.replace("limit = 70", "limit = 0"), "limit"),
        (good.replace("limit = 70", "limit ="), "not valid TOML"),
        (good.replace("pinned = true", 'pinned = "yes"'), "pinned"),
        (good.replace('label = "my notes"', 'label = "persona"'), "already"),
    ):
        card.write_text(given)
        report = await scout.sync(folder)
        assert said in report.refused[0].why and card.read_text() == given
    card.write_text(good.replace('owner = "scout"', 'owner = "ada"') + "colour = 1\n")
    assert len((await scout.sync(folder)).refused) == 2
    assert (await scout.get("my notes")).owner == "scout" and card.read_text() == good
    card.write_text("# a remark\n" + good)
    assert not await scout.sync(folder) and card.read_text().startswith("# a remark")
    await scout.describe("my notes", description="changed")
    assert [(each.file, each.why) for each in (await scout.sync(folder)).written] == [
        ("my notes.toml", "the header of the block has changed")
    ]
    assert 'description = "changed"' in card.read_text()


async def test_renamed_files_rename_their_blocks(scout: Library, folder: Path) -> None:
    first = await scout.create("one", text="first text")
    second = await scout.create("two", text="second text")
    third = await scout.create("three", text="third text")
    await scout.sync(folder)
    (folder / "one.md").rename(folder / "uno.md")
    for suffix in (".md", ".toml"):
        (folder / f"two{suffix}").rename(folder / f"dos{suffix}")
    (folder / "dos.md").write_text("second and changed text")
    await scout.rename("three", "tres")
    report = await scout.sync(folder)
    assert not report.deleted and not report.conflicts and not report.refused
    assert {block.id: block.label for block in await scout.list() if block.label != "persona"} == {
        first.id: "uno",
        second.id: "dos",
        third.id: "tres",
    }
    assert await (await scout.get("dos")).text() == "second and changed text"
    expected = [f"{stem}{end}" for stem in ("dos", "persona", "tres", "uno") for end in (".md", ".toml")]
    assert names(folder) == expected
    assert not await scout.sync(folder)


async def test_deleting_goes_both_ways_unless_the_other_side_changed(scout: Library, folder: Path) -> None:
    for label in ("a", "b", "c", "d"):
        await scout.create(label, text=f"text of {label}")
    await scout.sync(folder)
    (folder / "a.md").unlink()
    (folder / "b.md").unlink()
    await (await scout.get("b")).append("!")
    await scout.delete("c")
    await scout.delete("d")
    (folder / "d.md").write_text("text of d, edited")
    report = await scout.sync(folder)
    assert sorted(each.label for each in report.deleted) == ["a", "c"]
    assert sorted(each.label for each in report.conflicts) == ["b", "d"]
    assert names(folder) == ["b.md", "b.toml", "d.md", "d.toml", "persona.md", "persona.toml"]
    assert (folder / "b.md").read_text() == "text of b!\n"
    assert await scout.list_deleted() == ["a", "d", "c"]
    assert [each.label for each in (await scout.sync(folder)).conflicts] == ["d"]
    block = await scout.restore("d")
    await scout.sync(folder)
    assert await block.text() == "text of d, edited"
    await scout.restore("a")
    await scout.sync(folder)
    assert (folder / "a.md").read_text() == "text of a\n"


async def test_a_folder_that_was_emptied_deletes_nothing(scout: Library, folder: Path) -> None:
    await scout.create("notes", text="x")
    await scout.sync(folder)
    for name in names(folder):
        (folder / name).unlink()
    report = await scout.sync(folder)
    assert len(report.refused) == 2 and not report.deleted
    assert names(folder) == ["notes.md", "notes.toml", "persona.md", "persona.toml"]


async def test_blocks_of_others_are_edited_as_far_as_they_allow(
    scout: Library, scribe: Library, folder: Path
) -> None:
    plan = await scribe.create("plan", text="a\n")
    await scribe.create("secret", text="s")
    await scribe.share("plan", with_agent="scout", permission="append")
    await scout.create("charter", text="all", owner="_constellation_")
    await scout.sync(folder)
    place = folder / "shared" / "scribe" / "plan.md"
    assert place.read_text() == "a\n" and (folder / "shared/_constellation_/charter.md").exists()
    place.write_text("a\nb\n")
    (folder / "shared/_constellation_/charter.md").write_text("all and one\n")
    await scout.sync(folder)
    assert await plan.text() == "a\nb\n" and (await plan.history())[0].by == "scout"
    place.write_text("b\n")
    place.with_name("new.md").write_text("n")
    report = await scout.sync(folder)
    assert len(report.refused) == 2 and await plan.text() == "a\nb\n"
    place.unlink()
    assert (await scout.sync(folder)).refused and place.read_text() == "a\nb\n"
    await scribe.unshare("plan", with_agent="scout")
    report = await scout.sync(folder)
    assert [each.label for each in report.deleted] == ["plan"] and not place.exists()


async def test_a_trial_changes_nothing(scout: Library, folder: Path) -> None:
    report = await scout.sync(folder, dry_run=True)
    assert [each.why for each in report.written] == ["new here"] and not folder.exists()
    await scout.create("rules", text="r", permission="read_only")
    await scout.create("old", text="o")
    await scout.sync(folder)
    (folder / "persona.md").write_text("I am plain.")
    (folder / "rules.md").write_text("none")
    (folder / "new.md").write_text("n")
    (folder / "old.md").unlink()
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    seq = await scout._universe.seq()
    report = await scout.sync(folder, dry_run=True)
    assert report.dry_run
    assert [each.file for each in report.taken] == ["new.md", "persona.md"]
    assert [each.file for each in report.refused] == ["rules.md"]
    assert [each.file for each in report.deleted] == ["old.md"]
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before
    assert await scout._universe.seq() == seq


async def test_a_folder_is_of_one_agent_and_one_store(
    scout: Library, scribe: Library, folder: Path, tmp_path: Path
) -> None:
    await scout.sync(folder)
    with pytest.raises(InputError, match="blocks of 'scout'"):
        await scribe.sync(folder)
    async with dgent.open("memory:") as other:
        with pytest.raises(InputError, match="another store"):
            await Library(other, agent="scout").sync(folder)
    assert (folder / "persona.md").exists()
    with pytest.raises(errors.PermissionDenied):
        await Library(scout._universe, agent="scout", trust="untrusted").sync(tmp_path / "x")


async def test_a_folder_whose_state_is_lost_is_matched_by_content(scout: Library, folder: Path) -> None:
    block = await scout.get("persona")
    other = await scout.create("other", text="o")
    await scout.sync(folder)
    await block.append(" And tea.")
    shutil.rmtree(folder / ".blocks")
    (folder / "other.md").write_text("edited meanwhile")
    report = await scout.sync(folder)
    assert (folder / "persona.md").read_text() == "I like short answers. And tea.\n"
    assert [each.file for each in report.conflicts] == ["other.md"]
    assert (folder / "other.md.mine").read_text() == "edited meanwhile"
    assert await other.text() == "o" and (folder / "other.md").read_text() == "o\n"
    assert not await scout.sync(folder)


async def test_what_was_redacted_does_not_come_back_from_a_file(scout: Library, folder: Path) -> None:
    block = await scout.create("notes", text="one\n")
    other = await scout.create("other", text="one\n")
    for each in (block, other):
        await each.append("secret\n")
    await scout.sync(folder)
    (folder / "notes.md").write_text("one\nsecret\nmore\n")
    for each in (block, other):
        await each.redact(2)
    report = await scout.sync(folder)
    assert [each.file for each in report.conflicts] == ["notes.md"]
    assert "redacted" in report.conflicts[0].why
    for name in ("notes", "other"):
        assert "secret" not in await (await scout.get(name)).text()
        assert "secret" not in (folder / f"{name}.md").read_text()
    assert "more" in (folder / "notes.md.mine").read_text()
    assert not await scout.sync(folder)


async def test_a_file_that_is_older_than_what_was_compacted(scout: Library, folder: Path) -> None:
    block = await scout.create("notes", text="one\n")
    for number in range(4):
        await block.append(f"{number}\n")
    await scout.sync(folder)
    (folder / "notes.md").write_text("zero\n" + (folder / "notes.md").read_text())
    for number in range(4, 8):
        await block.append(f"{number}\n")
    await block.compact(keep=2)
    await scout.sync(folder)
    text = await block.text()
    assert text == (folder / "notes.md").read_text() and text.endswith("6\n7\n")
    kept = text + "".join(each.read_text() for each in folder.glob("*.mine"))
    assert "zero\n" in kept and text.count("5\n") == 1
    assert not await scout.sync(folder)


async def test_a_folder_agrees_with_every_engine(lib: Library, folder: Path) -> None:
    block = await lib.create("notes", text="one\ntwo\n")
    log = await lib.create("seen", template="observation_log")
    await lib.sync(folder)
    (folder / "notes.md").write_text("zero\none\ntwo\n")
    (folder / "seen.jsonl").write_text('{"observation": "rain"}\n')
    (folder / "new.json").write_text('{"a": 1}')
    await block.append("three\n")
    report = await lib.sync(folder)
    assert len(report.taken) == 3 and not report.refused and not report.conflicts
    assert await block.text() == "zero\none\ntwo\nthree\n" == (folder / "notes.md").read_text()
    assert [each["observation"] for each in await log.entries()] == ["rain"]
    (folder / "new.json").unlink()
    await lib.sync(folder)
    assert await lib.list_deleted() == ["new"] and not await lib.sync(folder)


async def test_only_the_partner_writes_in_another_name(library: Open, folder: Path) -> None:
    friend = library("scout", trust="friend")
    block = await friend.create("notes", text="one")
    await friend.sync(folder)
    (folder / "notes.md").write_text("two")
    with pytest.raises(errors.PermissionDenied):
        await friend.sync(folder, by="ada")
    assert (folder / "notes.md").read_text() == "two" and await block.text() == "one"
    await friend.sync(folder)
    assert await block.text() == "two"
