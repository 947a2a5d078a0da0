"""Tools for agents: flat schemas, every operation, and answers in place of exceptions."""

from __future__ import annotations

from typing import Any

import pytest

import dgent
from dgent.blocks import TEMPLATES, Library, errors
from dgent.blocks.kind import BLOCK_KINDS, PERMISSIONS
from dgent.doors.tools.tool import tool_of
from dgent.errors import Busy
from dgent.tools import Toolbox
from tests.blocks.agents import Open, library, scout, scribe, u
from tests.toolbox.tooling import minimal, no, ok

__all__ = ["library", "scout", "scribe", "u"]

NAMES = ["block", "block_edit", "archive", "search"]


def test_the_choices_offered_are_those_there_are() -> None:
    block = tool_of("block").parameters
    named = {each for each in TEMPLATES if each in block["template"].description}
    assert named == set(TEMPLATES) - {"rolling_log"}, "a rolling log is the system's"
    assert block["kind"].choices == BLOCK_KINDS
    assert block["permission"].choices == PERMISSIONS
    assert tool_of("search").parameters["kind"].choices == (*BLOCK_KINDS, "entry")


# -- the tool block ---------------------------------------------------------------------------------


async def test_a_life_of_a_block(scout: Library) -> None:
    box = Toolbox(scout)
    made = await ok(
        box, "block", "create", label="notes", text="one\n", description="What I note.", limit=100
    )
    assert made["document"] == "text" and made["limit"] == 100 and made["owner"] == "scout"
    assert [each["label"] for each in (await ok(box, "block", "list"))["items"]] == ["notes", "persona"]
    await ok(box, "block_edit", "append", label="notes", text="two\n")
    loaded = await ok(box, "block", "get", label=made["id"])
    assert loaded["text"] == "one\ntwo\n" and loaded["version"] == 2
    assert (await ok(box, "block", "pin", label="notes"))["pinned"] is True
    assert (await ok(box, "block", "unpin", label=made["id"]))["pinned"] is False
    assert (await ok(box, "block", "archive", label="notes"))["kind"] == "archival"
    assert (await ok(box, "block", "describe", label="notes", kind="working", limit=200))["limit"] == 200
    assert (await ok(box, "block", "rename", label="notes", to="diary"))["label"] == "diary"
    about = await ok(box, "block", "info", label="diary")
    assert about["size"] == 8 and about["version"] == 2 and about["shares"] == []
    await ok(box, "block", "delete", label="diary")
    assert (await ok(box, "block", "list"))["deleted"] == ["diary"]
    assert (await ok(box, "block", "restore", label="diary", to="journal"))["label"] == "journal"
    await ok(box, "block", "view", label="journal", start=2, lines=1)
    assert (await ok(box, "block", "describe", label="journal", template="persona"))["template"] == "persona"
    await no(box, "block", "wrong_kind", "describe", label="journal", template="task_list")
    assert "core" in await no(box, "block", "wrong_kind", "archive", label=(await _core(box))), (
        "the persona of an agent is not put away by mistake"
    )


async def _core(box: Toolbox) -> str:
    await ok(box, "block", "create", label="me", template="persona", text="Me.")
    return "me"


async def test_versions(scout: Library) -> None:
    box = Toolbox(scout)
    assert (await ok(box, "block", "checkpoint", label="persona", name="first"))["version"] == 1
    await ok(box, "block_edit", "replace", label="persona", old="short", new="plain", message="why not")
    rows = (await ok(box, "block", "history", label="persona"))["items"]
    assert [each["version"] for each in rows] == [2, 1]
    assert rows[0]["message"] == "why not" and rows[0]["by"] == "scout" and rows[0]["op"] == "replace"
    found = await ok(box, "block", "diff", label="persona")
    assert "-I like short answers." in found["text"] and "+I like plain answers." in found["text"]
    assert (await ok(box, "block", "at", label="persona", version="first"))["text"] == "I like short answers."
    assert (await ok(box, "block", "at", label="persona", version=2))["text"] == "I like plain answers."
    await ok(box, "block", "undo", label="persona")
    await ok(box, "block", "redo", label="persona", expect=3)
    assert "not 3" in await no(box, "block", "version_conflict", "undo", label="persona", expect=3)
    done = await ok(box, "block", "rollback", label="persona", version="first")
    assert done["version"]["version"] == 5
    await ok(box, "block", "visit", label="persona", version=2)
    assert len((await ok(box, "block", "branches", label="persona"))["items"]) == 1
    names = (await ok(box, "block", "checkpoints", label="persona"))["items"]
    assert names == [{"name": "first", "version": 1}]
    assert "first" in await no(box, "block", "version_not_found", "at", label="persona", version="frist")
    assert "needs version" in await no(box, "block", "input", "rollback", label="persona")
    assert "takes no name" in await no(box, "block", "input", "at", label="persona", version=1, name="first")
    await no(box, "block", "version_not_found", "at", label="persona", version=99)


async def test_what_others_have(scout: Library, scribe: Library) -> None:
    box, other = Toolbox(scout), Toolbox(scribe)
    await no(box, "block", "agent_not_found", "share", label="persona", with_agent="scribbe")
    assert "with_agent" in await no(box, "block", "input", "share", label="persona")
    await ok(box, "block", "share", label="persona", with_agent="scribe")
    id = (await ok(other, "block", "info", label="scout/persona"))["card"]["id"]
    await ok(other, "block_edit", "append", label=id, text=" Yes.")
    assert "append does not allow" in await no(
        other, "block_edit", "permission_denied", "write", label=id, text="Mine."
    )
    (told,) = (await ok(box, "block", "notices"))["items"]
    assert told["by"] == ["scribe"] and "+I like short answers. Yes." in told["diff"]
    assert (await ok(box, "block", "notices"))["items"] == [], "told once"
    await ok(box, "block", "unshare", label="persona", with_agent="scribe")
    for operation in ("get", "info", "history"):
        await no(other, "block", "block_not_found", operation, label=id)


async def test_a_block_by_its_id_is_only_for_who_may_see_it(scout: Library, scribe: Library) -> None:
    persona = await scout.get("persona")
    assert (await scout.get_by_id(persona.id)).label == "persona"
    with pytest.raises(errors.BlockNotFound) as unseen:
        await scribe.get_by_id(persona.id)
    with pytest.raises(errors.BlockNotFound) as missing:
        await scribe.get_by_id("nothing")
    assert str(unseen.value).replace(persona.id, "nothing") == str(missing.value), "no telling them apart"
    entry = await scout.archive("not a block")
    for id in (entry.id, f"{persona.id}/u/1", "block.agent/scout"):
        with pytest.raises(errors.BlockNotFound):
            await scout.get_by_id(id)
    await scout.share("persona", with_agent="scribe", permission="read_only")
    assert (await scribe.get_by_id(persona.id)).permission == "read_only"
    await scout.delete("persona")
    with pytest.raises(errors.BlockNotFound):
        await scout.get_by_id(persona.id)


# -- the tool block_edit ------------------------------------------------------------------------------


async def test_texts(scout: Library) -> None:
    box = Toolbox(scout)

    async def edit(operation: str, **given: Any) -> str:
        await ok(box, "block_edit", operation, label="t", **given)
        return str((await ok(box, "block", "get", label="t"))["text"])

    await ok(box, "block", "create", label="t", text="a a a a\nb\n")
    assert "4 times, in lines 1" in await no(
        box, "block_edit", "no_match", "replace", label="t", old="a", new="x"
    )
    assert await edit("replace", old="a", new="x", nth=1) == "x a a a\nb\n"
    assert await edit("replace", old="a", new="y", nth=2) == "x a y a\nb\n"
    assert await edit("replace", old="a", new="", all=True) == "x  y \nb\n"
    assert await edit("replace", old=r"(\w)  (\w)", new=r"\2 \1", regex=True) == "y x \nb\n"
    assert await edit("edit_range", start=2, end=2, text="B") == "y x \nB\n"
    assert await edit("patch", patch="@@ -2 +2 @@\n-B\n+C\n") == "y x \nC\n"
    assert await edit("append", text="D") == "y x \nC\nD"
    assert await edit("insert", line=1, text="new") == "y x \nnew\nC\nD"
    assert await edit("edit_many", edits=[{"old": "new", "new": "NEW"}, {"line": 0, "text": "top"}]) == (
        "top\ny x \nNEW\nC\nD"
    )
    assert await edit("write", text="E", expect=10) == "E"
    assert "all and nth" in await no(
        box, "block_edit", "input", "replace", label="t", old="E", new="", nth=1, all=True
    )
    assert "not there" in await no(box, "block_edit", "no_match", "replace", label="t", old="Z", new="")
    assert "not a valid pattern" in await no(
        box, "block_edit", "input", "replace", label="t", old="(", new="", regex=True
    )


async def test_everything_else(scout: Library) -> None:
    box = Toolbox(scout)

    async def edit(label: str, operation: str, **given: Any) -> Any:
        await ok(box, "block_edit", operation, label=label, **given)
        return (await ok(box, "block", "get", label=label))["value"]

    await ok(box, "block", "create", label="p", template="partner_profile", value={"name": "Ann"})
    assert (await edit("p", "set_field", field="current_focus", value="dgent"))["current_focus"] == "dgent"
    assert (await edit("p", "set_field", field="energy_level", value="7"))["energy_level"] == 7
    assert (await edit("p", "append_to_field", field="preferences", value="tea"))["preferences"] == ["tea"]
    assert (await edit("p", "remove_from_field", field="preferences", place=1))["preferences"] == []
    assert (await edit("p", "increment", field="energy_level", amount=-2))["energy_level"] == 5
    assert "current_focus" not in await edit("p", "clear_field", field="current_focus")
    await ok(box, "block", "create", label="todo", template="task_list")
    assert len((await edit("todo", "append", value={"title": "one"}))["items"]) == 1
    assert (await edit("todo", "insert_item", value='{"title": "two"}', place=1))["items"][0][
        "title"
    ] == "two"
    assert (await edit("todo", "set_item", place=2, value={"done": True}))["items"][1]["done"] is True
    assert (await edit("todo", "move_item", place=-1, to=1))["items"][0]["title"] == "one"
    assert len((await edit("todo", "delete_item", place=1))["items"]) == 1
    assert "from 1" in await no(box, "block_edit", "no_match", "delete_item", label="todo", place=0)
    await ok(box, "block", "create", label="seen", template="observation_log")
    (entry,) = (await edit("seen", "append", text="rain"))["entries"]
    assert entry["observation"] == "rain" and entry["agent"] == "scout"
    assert len((await edit("seen", "append", value={"observation": "sun"}))["entries"]) == 2
    await ok(box, "block", "create", label="n", document="counter")
    assert await edit("n", "increment") == {"count": 1}
    await ok(box, "block", "create", label="tree", document="tree")
    node = (await ok(box, "block_edit", "add_node", label="tree", value={"title": "root"}))["node"]
    below = (await ok(box, "block_edit", "add_node", label="tree", value={"t": 1}, parent=node))["node"]
    assert (await edit("tree", "set_node", node=node, value={"title": "top"}))["nodes"][0]["data"] == {
        "title": "top"
    }
    assert len((await edit("tree", "move_node", node=below, place=1))["nodes"]) == 2
    assert len((await edit("tree", "delete_node", node=node))["nodes"]) == 1


async def test_sections(scout: Library) -> None:
    schema = {
        "properties": {
            "who": {"type": "object", "properties": {"name": {"type": "string"}}},
            "rules": {"type": "object", "readOnly": True, "properties": {"max": {"type": "integer"}}},
        }
    }
    await scout.create("card", template=schema, value={"rules": {"max": 3}})
    box = Toolbox(scout)
    await ok(box, "block_edit", "set_field", label="card", section="who", field="name", value="Ann")
    assert (await ok(box, "block", "get", label="card", section="who"))["text"] == "name: Ann"
    sections = (await ok(box, "block", "info", label="card"))["sections"]
    assert [(each["name"], each.get("read_only", False)) for each in sections] == [
        ("who", False),
        ("rules", True),
    ]
    given = {"label": "card", "section": "rules", "field": "max", "value": 4}
    assert "read" in await no(box, "block_edit", "template", "set_field", **given)
    assert "who" in await no(box, "block", "template", "get", label="card", section="nope")


# -- the archive, and search ----------------------------------------------------------------------------


async def test_the_archive(scout: Library, scribe: Library) -> None:
    box = Toolbox(scout)
    made = await ok(box, "archive", "insert", text="The tea house opens at nine.", tag=["tea"])
    assert (await ok(box, "archive", "get", id=made["id"]))["text"] == "The tea house opens at nine."
    found = (await ok(box, "archive", "search", query="nine", tag=["tea"]))["items"]
    assert [each["id"] for each in found] == [made["id"]]
    assert (await ok(box, "search", query="tea house", limit=5))["items"][0]["kind"] == "entry"
    assert (await ok(box, "search", query="tea", kind="core"))["items"] == []
    await no(Toolbox(scribe), "archive", "entry_not_found", "get", id=made["id"])
    assert "limit" in await no(box, "search", "input", query="tea", limit=51)
    await ok(box, "archive", "delete", id=made["id"])
    await no(box, "archive", "entry_not_found", "delete", id=made["id"])


# -- the gate ---------------------------------------------------------------------------------------------


async def test_no_way_around_the_gate(scout: Library, library: Open) -> None:
    for trust, reads, appends, writes in (
        ("friend", True, True, True),
        ("conversant", True, True, False),
        ("untrusted", False, False, False),
    ):
        box = Toolbox(library("scout", trust=trust))
        for may, tool, given in (
            (reads, "block", {"operation": "get"}),
            (reads, "block", {"operation": "history"}),
            (appends, "block_edit", {"operation": "append", "text": " x"}),
            (writes, "block_edit", {"operation": "replace", "old": "I", "new": "I"}),
            (writes, "block", {"operation": "pin"}),
            (writes, "block", {"operation": "undo"}),
        ):
            answer = await box.call(tool, {**given, "label": "persona"})
            assert answer["ok"] is may, (trust, given, answer)
            assert may or answer["data"]["code"] == "denied"
    for name in NAMES:
        box = Toolbox(library("scout", trust="untrusted"))
        for operation in tool_of(name).operations:
            given = minimal(name, operation)
            answer = await box.call(name, given)
            assert answer["data"]["code"] == "denied", (given, answer)


async def test_consent_is_asked_and_what_is_refused_is_kept(library: Open) -> None:
    asked: list[str] = []
    answers = [False, True]

    def consent(request: Any) -> bool:
        asked.append(request.what)
        return answers.pop(0)

    lib = library("scout", trust="friend", consent=consent)
    await lib.create("rules", text="Be kind.", permission="partner")
    box = Toolbox(lib)
    given = {"label": "rules", "text": " Be brief."}
    assert "must agree" in await no(box, "block_edit", "consent_refused", "append", **given)
    await ok(box, "block_edit", "append", **given)
    assert asked == ["append", "append"]
    assert [each.what for each in await lib.refusals()] == ["append"]


async def test_trouble_of_the_store_is_told_and_faults_are_raised(
    scout: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Toolbox(scout)

    async def busy(*_: Any, **__: Any) -> None:
        raise Busy("another process is writing")

    monkeypatch.setattr(scout, "list", busy)
    answer = await box.call("block", {"operation": "list"})
    assert answer["data"] == {"code": "busy", "hint": Busy.hint, "retryable": True}

    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(scout, "list", broken)
    with pytest.raises(RuntimeError):
        await box.call("block", {"operation": "list"})


async def test_a_toolbox_on_a_closed_store_says_so() -> None:
    async with dgent.open("memory:") as u:
        lib = Library(u, agent="scout")
        await lib.create("persona")
    answer = await Toolbox(lib).call("block", {"operation": "list"})
    assert answer["data"]["code"] == "closed"
