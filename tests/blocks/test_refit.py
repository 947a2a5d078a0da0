"""Giving a block another template: the same kind of document, and only what its content fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dgent.blocks import Field, Library, Request, SectionShape, Shape, Template, errors
from dgent.blocks.document.document import Document
from dgent.blocks.history.log import VersionLog
from dgent.errors import Conflict
from dgent.universe.transaction import Transaction
from tests.blocks.conftest import Rival


def template(shape: Shape) -> Template:
    return Template("new", shape)


def fields(*some: Field, document: str = "map", **rest: Any) -> Shape:
    return Shape(document, some, **rest)


GOAL = Field("goal")
STEPS = Field("steps", "list", items="text")

# What a block is, what is in it, another shape, and why it does not fit; nothing when it does.
CASES: dict[str, tuple[Shape, Any, Shape, str]] = {
    "one more field": (fields(GOAL), {"goal": "x"}, fields(GOAL, STEPS), ""),
    "one field less": (fields(GOAL, STEPS), {"goal": "x"}, fields(GOAL), ""),
    "a field that says something": (fields(GOAL, STEPS), {"steps": ["a"]}, fields(GOAL), "no field 'steps'"),
    "another type": (fields(GOAL), {"goal": "x"}, fields(Field("goal", "number")), "goal must be a number"),
    "a wider type": (fields(GOAL), {"goal": "x"}, fields(Field("goal", "any")), ""),
    "a list of its own": (
        fields(Field("goal", "any")),
        {"goal": ["x"]},
        fields(Field("goal", "list")),
        "cannot become list",
    ),
    "a counter": (
        fields(Field("n", "number")),
        {"n": 3},
        fields(Field("n", "counter")),
        "cannot become counter",
    ),
    "required and there": (fields(GOAL), {"goal": "x"}, fields(replace(GOAL, required=True)), ""),
    "required, not there": (
        fields(GOAL),
        {},
        fields(replace(GOAL, required=True)),
        "goal is required",
    ),
    "other choices": (fields(GOAL), {"goal": "x"}, fields(replace(GOAL, choices=("y",))), "cannot be 'x'"),
    "any fields": (fields(GOAL), {"goal": "x"}, Shape("map"), ""),
    "any fields, with a list": (fields(STEPS), {"steps": ["a"]}, Shape("map"), "cannot become any"),
    "fields out of any": (Shape("map"), {"goal": "x"}, fields(GOAL), ""),
    "too many items": (Shape("list"), [1, 2, 3], Shape("list", max_items=2), "limit is 2"),
    "items of a type": (Shape("list"), ["a", 2], Shape("list", items="text"), "must be a text"),
    "items with fields": (Shape("list"), [{"goal": "x"}], fields(GOAL, document="list"), "no fields"),
    "no items yet": (Shape("list"), [], fields(GOAL, document="list"), ""),
    "one more field of items": (
        fields(GOAL, document="list"),
        [{"goal": "x"}],
        fields(GOAL, Field("done", "boolean", default=False), document="list"),
        "",
    ),
    "another kind": (Shape("list"), [], Shape("map"), "is a list, and the template has a map"),
    "a text": (Shape(), "x", Shape(), ""),
}


@pytest.mark.parametrize("case", CASES)
async def test_content_must_fit(quick: Library, case: str) -> None:
    old, value, new, problem = CASES[case]
    block = await quick.create("b", template=Template("old", old), value=value, description="mine", limit=99)
    before = await block.value()
    if problem:
        with pytest.raises((errors.TemplateError, errors.WrongKind), match=problem):
            await quick.describe("b", template=template(new))
        assert (await quick.get("b")).template == "old"
    else:
        done = await quick.describe("b", template=template(new))
        assert (done.template, done.shape, done.description, done.limit) == ("new", new, "mine", 99)
    after = await (await quick.get("b")).value()
    assert {name: each for name, each in after.items() if each} == {
        name: each for name, each in before.items() if each
    }


async def test_logs_trees_and_sections_must_fit(quick: Library) -> None:
    log = await quick.create("log", document="log")
    await log.log({"message": "hm"})
    with pytest.raises(errors.TemplateError, match="no field 'message'"):
        await quick.describe("log", template=template(fields(Field("event"), document="log")))
    await quick.describe("log", template=template(fields(Field("message"), document="log", keep=3)))
    tree = await quick.create("tree", document="tree")
    await tree.add_node({"title": "x"})
    with pytest.raises(errors.TemplateError, match="count is required"):
        needs = fields(Field("title"), Field("count", "number", required=True), document="tree")
        await quick.describe("tree", template=template(needs))
    plan = template(
        Shape("composite", sections=(SectionShape("a", Shape("list")), SectionShape("b", Shape())))
    )
    block = await quick.create("plan", template=plan, value={"a": [1]})
    shorter = Shape("composite", sections=(SectionShape("b", Shape()),))
    with pytest.raises(errors.TemplateError, match="no section 'a'"):
        await quick.describe("plan", template=template(shorter))
    await block.section("a").delete_item(0)
    assert (await quick.describe("plan", template=template(shorter))).shape == shorter
    with pytest.raises(errors.WrongKind, match="the section b is a text"):
        await quick.describe(
            "plan", template=template(Shape("composite", sections=(SectionShape("b", Shape("list")),)))
        )


async def test_what_was_read_only_needs_consent_to_be_writable(quick: Library) -> None:
    locked = fields(GOAL, Field("name", read_only=True))
    await quick.create("b", template=Template("old", locked), value={"name": "Ada"})
    with pytest.raises(errors.ConsentRefused, match="changes of name"):
        await quick.describe("b", template=template(fields(GOAL, Field("name"))))
    asked: list[Request] = []
    careful = Library(quick._universe, agent="scout", consent=lambda request: not asked.append(request))
    block = await careful.describe("b", template=template(fields(GOAL, Field("name"))))
    await block.set_field("name", "Bea")
    assert [each.operation for each in asked] == ["manage"]


async def test_a_handle_follows_the_new_template(lib: Library, rival: Rival) -> None:
    block = await lib.create("b", template=Template("old", fields(GOAL)), value={"goal": "x"})
    other = await rival()
    theirs = await other.get("b")
    await other.describe("b", template=template(fields(GOAL, STEPS)))
    with pytest.raises(Conflict, match="another template"):
        await block.set_field("goal", "y")  # it was judged by what the block was
    await block.set_field("goal", "y")
    await block.append_to_field("steps", "one")
    assert await theirs.value() == {"goal": "y", "steps": ["one"]}
    assert [each.number for each in await block.history()] == [3, 2, 1]


async def test_an_edit_at_the_same_moment_is_judged_too(
    lib: Library, rival: Rival, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = await lib.create("b", document="list", value=["text"])
    theirs = await (await rival()).get("b")
    real, late = VersionLog.newest, [7]

    async def newest(chain: VersionLog, tx: Transaction) -> Document:
        found = await real(chain, tx)
        if late:
            await theirs.append(late.pop())
        return found

    monkeypatch.setattr(VersionLog, "newest", newest)
    with pytest.raises(errors.TemplateError, match="must be a text"):
        await lib.describe("b", template=template(Shape("list", items="text")))
    assert await block.value() == {"items": ["text", 7]}


@pytest.mark.parametrize("permission", ("read_write", "partner"))
async def test_an_edit_for_the_old_template_is_never_stored(
    lib: Library, rival: Rival, permission: str
) -> None:
    agreeing = Library(lib.universe, lib.agent, consent=lambda request: True)
    block = await agreeing.create("b", document="map", limit=20, permission=permission)
    number = template(fields(Field("goal", "number")))
    await (await rival()).describe("b", template=number, limit=5000)
    with pytest.raises(Conflict, match="another template"):
        await block.set_field("goal", "a text that is longer than the old limit")
    assert await block.value() == {}
    await block.set_field("goal", 3)
    assert await block.value() == {"goal": 3}


async def test_a_required_field_with_a_default_is_had_by_blocks_from_before(quick: Library) -> None:
    old, new = fields(GOAL), fields(GOAL, Field("done", "boolean", required=True, default=False))
    await quick.create("m", template=Template("old", old), value={"goal": "x"})
    block = await quick.describe("m", template=template(new))
    assert await block.value() == {"goal": "x", "done": False}
    assert await block.text() == "goal: x\ndone: false"
    await block.set_field("done", True)
    assert await block.value() == {"goal": "x", "done": True}

    items = await quick.create("l", template=Template("old", replace(old, document="list")))
    await items.append({"goal": "a"})
    items = await quick.describe("l", template=template(replace(new, document="list")))
    await items.set_item(0, {"goal": "b"})
    await items.append({"goal": "c", "done": True})
    assert await items.value() == {"items": [{"goal": "b", "done": False}, {"goal": "c", "done": True}]}
