"""What models get wrong, what somebody hostile sends, and how much an answer holds at most."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.edit import text as text_edits
from dgent.doors.tools.tool import tool_of
from dgent.tools import Toolbox
from tests.blocks.agents import library, scout, scribe, u
from tests.toolbox.tooling import minimal, no, ok

__all__ = ["library", "scout", "scribe", "u"]


# -- mistakes ---------------------------------------------------------------------------------------------


async def test_mistakes_say_what_to_change(scout: Library) -> None:
    box = Toolbox(scout)
    assert "did you mean create?" in await no(box, "block", "input", "creat", label="x")
    assert "did you mean block_edit" in await no(box, "block_edt", "input", "append")
    assert "no argument 'lable'" in await no(box, "block", "input", "get", lable="persona")
    assert "label" in await no(box, "block", "input", "get", lable="persona")
    assert "get needs label" in await no(box, "block", "input", "get")
    assert "pin takes no text" in await no(box, "block", "input", "pin", label="persona", text="x")
    assert "replace needs new" in await no(box, "block_edit", "input", "replace", label="persona", old="x")
    assert "a whole number" in await no(box, "block", "input", "view", label="persona", start="2")
    assert "a text, not True" in await no(box, "block", "input", "get", label=True)
    assert "true or false" in await no(box, "block", "input", "list", shared="yes")
    assert "a list of texts" in await no(box, "archive", "input", "insert", text="x", tag=[1])
    assert "use one of core, working" in await no(box, "block", "input", "list", kind="odd")
    assert "operation is needed" in await no(box, "block", "input", label="persona")
    assert "it needs query" in await no(box, "search", "input")
    assert "did you mean 'persona'?" in await no(box, "block", "block_not_found", "get", label="persna")
    assert "leave out expect" in await no(
        box, "block_edit", "input", "append", label=await _log(box), text="x", expect=1
    )
    assert "nothing to change" in await no(box, "block", "input", "describe", label="persona")


async def _log(box: Toolbox) -> str:
    await ok(box, "block", "create", label="seen", template="observation_log")
    return "seen"


async def test_what_is_left_out_may_be_null_or_empty(scout: Library) -> None:
    box = Toolbox(scout)
    known = tool_of("block").parameters
    nothing = dict.fromkeys(known, None) | {"operation": "get", "label": "persona"}
    assert (await ok(box, "block", **nothing))["version"] == 1
    empty = {"owner": "", "kind": "", "with_agent": "", "value": {}, "text": "", "section": ""}
    assert (await ok(box, "block", "get", label="persona", **empty))["version"] == 1
    assert (await ok(box, "block", "at", label="persona", version=1.0))["version"] == 1
    await ok(box, "block", "create", label="todo", template="task_list", text="", value=[{"title": "a"}])
    await ok(box, "block_edit", "append", label="todo", text="", value={"title": "b"})
    await ok(box, "block_edit", "append", label="persona", text=" Always.", value={})
    assert len((await ok(box, "block", "get", label="todo"))["value"]["items"]) == 2
    assert "give one" in await no(
        box, "block_edit", "input", "append", label="todo", text="x", value={"a": 1}
    )
    assert "nothing to add" in await no(box, "block_edit", "input", "append", label="persona")
    await no(box, "block_edit", "input", **dict.fromkeys(tool_of("block_edit").parameters, None))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ('{"operation": "get", "label": "persona"}', None),
        (b'{"operation": "get", "label": "persona"}', None),
        ("[]", "input"),
        ("null", "input"),
        ('"get"', "input"),
        ("{", "input"),
        ("", "input"),
        (None, "input"),
        (b"\xff\xfe", "input"),
        ("\ud800", "input"),
        ("[" * 100_000, "input"),
        ('{"operation": "get", "label": ' + "[" * 5000 + "]" * 5000 + "}", "input"),
        (" " * 1_000_001, "input"),
        (7, "input"),
        ([("operation", "get")], "input"),
        ({1: 2}, "input"),
        ({"operation": ["get"]}, "input"),
        ({"operation": "get", "label": 10**5000}, "input"),
        ({"operation": "at", "label": "persona", "version": 10**5000}, "input"),
        ({"operation": "at", "label": "persona", "version": float("nan")}, "input"),
        ({"operation": "get", "label": "a" * 1_000_000}, "input"),
        ({"operation": "get", "label": "a\0b"}, "input"),
        ({"operation": "get", "label": "\ud800"}, "input"),
        ({"operation": "get", "label": "../../etc/passwd"}, "block_not_found"),
        ({"operation": "get", "label": "'; drop table datum; --"}, "block_not_found"),
        ({"operation": "get", "label": "persona\u202e\x1b[2J"}, "block_not_found"),
        ({"operation": "get", "label": "x" * 10_000}, "input"),
        ({"operation": "create", "label": "", "text": "x"}, "input"),
        ({"operation": "create", "label": "x", "text": "\ud800"}, "input"),
        ({"operation": "create", "label": "x", "text": "x" * 30_000}, "limit_exceeded"),
        ({"operation": "create", "label": "x", "owner": "scribe"}, "input"),
        ({"operation": "create", "label": "x", "document": "map", "value": {"a": 10**5000}}, "input"),
        ({"operation": "create", "label": "x", "document": "map", "value": {"a": float("inf")}}, "input"),
        ({"operation": "create", "label": "x", "document": "map", "value": {"a": "\ud800"}}, "input"),
        ({"operation": "create", "label": "x", "document": "list", "value": {1: 2}}, None),
        ({"operation": "create", "label": "x", "limit": -1}, "input"),
    ],
)
async def test_hostile_arguments(given: Any, code: str | None, scout: Library) -> None:
    answer = await Toolbox(scout).call("block", given)
    assert set(answer) == {"ok", "message", "data"}
    json.dumps(answer, ensure_ascii=False).encode()
    assert len(answer["message"]) <= 2000
    if code is None:
        return
    assert answer["ok"] is False and answer["data"]["code"] == code, answer


@pytest.mark.parametrize("word", ["\ud800", "\0", "x" * 60_000, "\x1b[2J{", "-1"])
async def test_hostile_texts_in_every_argument(word: str) -> None:
    kinds = ("text", "map", "list", "log", "tree", "counter")
    async with dgent.open("memory:") as u:
        box = Toolbox(Library(u, agent="scout"))
        for kind in kinds:
            await ok(box, "block", "create", label=kind, document=kind)
        for name in ("block", "block_edit", "archive"):
            for operation, found in tool_of(name).operations.items():
                plain = [each for each, field in found.fields.items() if not field.choices]
                for label in kinds if name == "block_edit" else kinds[:1]:
                    there = {"label": label} if "label" in found.fields else {}
                    for hostile in plain:
                        given = {**minimal(name, operation), **there, hostile: word}
                        json.dumps(await box.call(name, given), ensure_ascii=False).encode()
        assert set(await box.call("search", {"query": word})) == {"ok", "message", "data"}


@pytest.mark.parametrize("name", ["", "Block", "block ", "\ud800", None, 7, ["block"], "__class__", "call"])
async def test_hostile_names(name: Any, scout: Library) -> None:
    answer = await Toolbox(scout).call(name, {"operation": "list"})
    assert answer["ok"] is False and "block" in answer["data"]["hint"]


async def test_a_deep_value_is_refused(scout: Library) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    box = Toolbox(scout)
    await ok(box, "block", "create", label="list", document="list")
    await no(box, "block_edit", "input", "insert_item", label="list", value=deep)
    assert (await ok(box, "block", "get", label="list"))["value"] == {"items": []}


async def test_a_pattern_that_never_ends_is_refused(scout: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_edits, "TIME_S", 0.3)
    box = Toolbox(scout)
    await ok(box, "block", "create", label="t", text="a" * 60 + "!")
    given = {"label": "t", "old": "(a+)+$", "new": "", "regex": True}
    assert "too long" in await no(box, "block_edit", "input", "replace", **given)
    assert (await ok(box, "block", "info", label="t"))["version"] == 1


async def test_a_pattern_is_used_on_the_text_it_was_tried_on(
    scout: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Toolbox(scout)
    texts: list[str] = []

    async def meanwhile(_given: str, text: str) -> None:
        texts.append(text)
        if len(texts) == 1:
            await (await scout.get("persona")).append(" And long ones.")

    monkeypatch.setattr(text_edits, "check_pattern", meanwhile)
    given = {"label": "persona", "old": "s[a-z]+t", "new": "plain", "regex": True}
    await ok(box, "block_edit", "replace", **given)
    assert texts == ["I like short answers.", "I like short answers. And long ones."]
    await no(box, "block_edit", "version_conflict", "replace", **given, expect=1)


async def test_a_replacement_that_grows_without_bound_is_refused_before_it_is_made(scout: Library) -> None:
    box = Toolbox(scout)
    await ok(box, "block", "create", label="t", text="a" * 4000)
    for regex in (False, True):
        given = {"label": "t", "old": "a", "new": "b" * 900_000, "all": True, "regex": regex}
        await no(box, "block_edit", "limit_exceeded", "replace", **given)
    assert "at once" in await no(box, "block_edit", "input", "write", label="t", text="x" * 1_000_001)
    await ok(box, "block_edit", "replace", label="t", old="a", new="b", all=True)


# -- bounds -----------------------------------------------------------------------------------------------


async def test_long_answers_are_cut_and_say_how_to_go_on(scout: Library) -> None:
    box = Toolbox(scout)
    text = "".join(f"line {n}\n" for n in range(5000))
    block = await scout.create("long", text=text, limit=100_000)
    first = await box.call("block", {"operation": "get", "label": "long"})
    assert len(first["data"]["text"]) == 20_000 and "go on with offset=20000" in first["message"]
    read, offset = first["data"]["text"], 20_000
    while offset < len(text):
        read += (await ok(box, "block", "get", label="long", offset=offset))["text"]
        offset += 20_000
    assert read == text
    assert (await ok(box, "block", "get", label="long", offset=10**9))["text"] == ""
    for n in range(25):
        await block.append(f"{n}\n")
    told = await box.call("block", {"operation": "history", "label": "long"})
    assert len(told["data"]["items"]) == 20 and "offset=20" in told["message"]
    assert len((await ok(box, "block", "history", label="long", offset=20))["items"]) == 6
    await block.write("")
    cut = await box.call("block", {"operation": "diff", "label": "long"})
    assert len(json.dumps(cut)) < 50_000 and "offset" in cut["message"]
    entry = await scout.archive("word " * 10_000)
    assert len((await ok(box, "archive", "get", id=entry.id))["text"]) == 20_000
    assert len(json.dumps(await ok(box, "search", query="word line"))) < 5_000


async def test_many_blocks_are_listed_in_parts(scout: Library) -> None:
    box = Toolbox(scout)
    for n in range(60):
        await scout.create(f"block {n:02}")
    first = await box.call("block", {"operation": "list"})
    assert len(first["data"]["items"]) == 50 and "offset=50" in first["message"]
    assert len((await ok(box, "block", "list", offset=50))["items"]) == 11


async def test_whatever_a_block_is_like_an_answer_has_its_bounds(scout: Library, scribe: Library) -> None:
    box = Toolbox(scout)
    choices = [f"choice {n}" for n in range(20_000)]
    schema = {"properties": {"x": {"type": "string", "enum": choices, "description": "d" * 10_000}}}
    await scout.create("odd", template=schema, description="d" * 100_000, limit=10**6)
    answer = await box.call("block", {"operation": "info", "label": "odd"})
    assert answer["ok"] and "cut" in answer["message"] and len(json.dumps(answer)) < 50_000
    about = await box.call("block", {"operation": "describe", "label": "odd", "kind": "core"})
    assert "cut" in about["message"] and len(about["data"]["description"]) == 20_000
    for n in range(25):
        made = await scribe.create(f"b{n}", text="x" * 4000)
        await scribe.share(made.label, with_agent="scout")
    rows = (await ok(box, "block", "notices"))["items"]
    assert len(rows) == 25 and [len(each["diff"]) for each in rows] == [1000] * 20 + [512] * 5
    assert len(json.dumps(rows)) < 30_000


async def test_notices_are_not_lost_to_a_long_answer(scout: Library, scribe: Library) -> None:
    for n in range(210):
        made = await scribe.create(f"block {n:03} with a label", text="word " * 90)
        await scribe.share(made.label, with_agent="scout")
    answer = await Toolbox(scout).call("block", {"operation": "notices"})
    assert len(answer["data"]["items"]) == 200 and "210 in all" in answer["message"]
    assert len(json.dumps(answer)) < 110_000
