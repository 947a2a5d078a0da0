"""Fields, items, entries, nodes and sections: each edit one version, judged, bounded, and merged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dgent.blocks import Block, Field, Library, SectionShape, Shape, Template, errors
from dgent.errors import InputError, VersionConflict
from tests.blocks.agents import before_commit
from tests.blocks.conftest import Rival

MANY = Template(
    "many",
    Shape(
        "map",
        (
            Field("name", required=True),
            Field("born", read_only=True, default="here"),
            Field("tags", "list", items="text", max_items=3),
            Field("mood", "counter", default=5),
            Field("size", "number", default=1),
            Field("note"),
        ),
    ),
)
PARTS = Template(
    "parts",
    Shape(
        "composite",
        sections=(
            SectionShape("notes", Shape("text")),
            SectionShape("facts", MANY.shape),
            SectionShape("steps", Shape("list", items="text", max_items=2)),
            SectionShape("seen", Shape("log")),
            SectionShape("count", Shape("counter")),
            SectionShape("map", Shape("tree")),
            SectionShape("rules", Shape("text"), read_only=True),
        ),
    ),
)


async def many(lib: Library, label: str = "many") -> Block:
    return await lib.create(label, template=MANY, value={"name": "x"})


async def test_fields_are_set_and_cleared_each_in_one_version(lib: Library) -> None:
    block = await many(lib)
    await block.set_field("note", "hello")
    await block.set_field("tags", ["a", "b"])
    await block.append_to_field("tags", "c")
    await block.remove_from_field("tags", 0)
    await block.increment("mood", -2)
    await block.set_field("size", 2.5)
    assert block.version == 7
    assert await block.value() == {
        "name": "x",
        "born": "here",
        "tags": ["b", "c"],
        "mood": 3,
        "size": 2.5,
        "note": "hello",
    }
    for name in ("note", "tags", "mood", "size"):
        await block.clear_field(name)
    assert await block.value() == {"name": "x", "born": "here", "tags": [], "mood": 5, "size": 1}
    assert [each.op for each in await block.history()][:5] == ["clear_field"] * 4 + ["set_field"]


async def test_a_field_that_is_set_to_a_counter_or_a_list_is_seen(quick: Library) -> None:
    block = await many(quick)
    await block.set_field("mood", 9)
    await block.set_field("tags", ["z"])
    assert "mood: 9" in await block.text() and "- z" in await block.text()


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("set_field", ("born", "there"), errors.TemplateError),
        ("clear_field", ("born",), errors.TemplateError),
        ("clear_field", ("name",), errors.TemplateError),
        ("set_field", ("name", None), errors.TemplateError),
        ("set_field", ("size", "big"), errors.TemplateError),
        ("set_field", ("tags", ["a", "b", "c", "d"]), errors.LimitExceeded),
        ("append_to_field", ("name", "y"), errors.WrongKind),
        ("append_to_field", ("tags", 3), errors.TemplateError),
        ("remove_from_field", ("tags", 0), errors.NoMatch),
        ("remove_from_field", ("tags", "a"), errors.NoMatch),
        ("increment", ("size", 1), errors.WrongKind),
        ("increment", ("mood", 0.5), InputError),
        ("increment", ("mood", 2**53), InputError),
        ("increment", (None, 1), errors.WrongKind),
        ("set_item", (0, "x"), errors.WrongKind),
        ("append", ("x",), errors.WrongKind),
        ("write", ("x",), errors.WrongKind),
        ("add_node", ({"a": 1},), errors.WrongKind),
        ("log", ("x",), errors.WrongKind),
    ],
)
async def test_what_the_shape_does_not_allow_changes_nothing(
    quick: Library, method: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    block = await many(quick)
    before = await block.value()
    with pytest.raises(error):
        await getattr(block, method)(*arguments)
    assert (await block.value(), block.version) == (before, 1)


async def test_the_limit_is_that_of_the_rendered_text(quick: Library) -> None:
    block = await quick.create("m", document="map", limit=20)
    await block.set_field("a", "x" * 17)
    with pytest.raises(errors.LimitExceeded):
        await block.set_field("b", "")
    assert await block.text() == "a: " + "x" * 17


async def test_a_map_without_a_shape_takes_any_field(quick: Library) -> None:
    block = await quick.create("m", document="map", value={"b": [1, {"c": None}]})
    await block.set_field("a", True)
    assert await block.value() == {"a": True, "b": [1, {"c": None}]}
    assert await block.text() == "a: true\nb: [1, {c: }]"
    await block.clear_field("b")
    assert await block.value() == {"a": True}


# -- lists ----------------------------------------------------------------------------------------


async def test_items_are_inserted_set_moved_and_deleted(lib: Library) -> None:
    block = await lib.create("l", document="list", value=["a", "b"])
    await block.insert_item("first", 0)
    await block.append("last")
    await block.set_item(-1, {"any": 1})
    await block.move_item(0, 2)
    await block.delete_item(0)
    assert (await block.value())["items"] == ["b", "first", {"any": 1}]
    assert block.version == 6
    for place in (3, -4, "0", True):
        with pytest.raises(errors.NoMatch):
            await block.delete_item(place)  # type: ignore[arg-type]


async def test_an_item_with_fields_is_changed_field_by_field(quick: Library) -> None:
    block = await quick.create(
        "t", template="task_list", value=[{"title": "sleep", "due": "2026-01-01T00:00Z"}]
    )
    await block.set_item(0, {"done": True, "due": None})
    assert (await block.value())["items"] == [{"title": "sleep", "done": True, "priority": 3}]
    for wrong in ({"title": None}, {"done": "yes"}, {"colour": "red"}, {"colour": None}, "sleep"):
        with pytest.raises(InputError):
            await block.set_item(0, wrong)
    assert await block.text() == "1. [x] sleep; priority: 3"


async def test_two_change_different_fields_of_one_item(lib: Library, rival: Rival) -> None:
    mine = await lib.create("t", template="task_list", value=[{"title": "sleep"}, {"title": "eat"}])
    theirs = await (await rival()).get("t")
    await theirs.value()

    async def others() -> None:
        await theirs.set_item(0, {"priority": 1})
        await theirs.move_item(0, 1)

    before_commit(mine, others)
    await mine.set_item(0, {"done": True})
    assert (await mine.value())["items"] == [
        {"title": "eat", "done": False, "priority": 3},
        {"title": "sleep", "done": True, "priority": 1},
    ]
    assert await mine.text() == await theirs.text()


async def test_there_are_never_more_items_than_may_be_however_many_add_some(
    lib: Library, rival: Rival
) -> None:
    mine = await lib.create("l", template=Template("few", Shape("list", items="text", max_items=3)))
    theirs = await (await rival()).get("l")
    done: list[Any] = await asyncio.gather(
        *(block.append(f"{n}") for n in range(3) for block in (mine, theirs)), return_exceptions=True
    )
    refused = [each for each in done if isinstance(each, errors.LimitExceeded)]
    assert len(refused) == 3 and len((await mine.value())["items"]) == 3


async def test_counting_adds_up_and_fields_merge(lib: Library, rival: Rival) -> None:
    mine = await many(lib)
    theirs = await (await rival()).get("many")
    await asyncio.gather(
        *(block.increment("mood") for _ in range(5) for block in (mine, theirs)),
        mine.set_field("note", "mine"),
        theirs.append_to_field("tags", "theirs"),
    )
    value = await mine.value()
    assert (value["mood"], value["note"], value["tags"]) == (15, "mine", ["theirs"])
    assert value == await theirs.value() and mine.version == 13


async def test_an_edit_that_expects_another_version_is_refused(quick: Library) -> None:
    block = await many(quick)
    await block.increment("mood")
    with pytest.raises(VersionConflict):
        await block.set_field("note", "late", expect=1)
    assert "note" not in await block.value()


# -- counters, logs, trees --------------------------------------------------------------------------


async def test_a_counter_counts(quick: Library) -> None:
    block = await quick.create("c", document="counter", value=40)
    await block.increment(amount=3)
    await block.increment(amount=-1)
    assert (await block.value(), await block.text()) == ({"count": 42}, "42")
    await block.undo()
    assert await block.text() == "43"


async def test_an_entry_is_stamped_and_cannot_stamp_itself(quick: Library) -> None:
    block = await quick.create("o", template="observation_log")
    await block.log("it rains", by="scout")
    await block.log({"observation": "it pours", "context": "outside"})
    entries = (await block.value())["entries"]
    assert [(each["agent"], each["observation"]) for each in entries] == [
        ("scout", "it rains"),
        ("scout", "it pours"),
    ]
    assert all(each["at"].endswith("Z") for each in entries)
    for wrong in (
        {"observation": "x", "at": "then"},
        {"observation": "x", "agent": "you"},
        {"context": "y"},
        3,
    ):
        with pytest.raises(errors.TemplateError):
            await block.log(wrong)
    with pytest.raises(errors.LimitExceeded):
        await block.log("x" * 20_001)
    first, second = (await block.text()).split("\n")
    assert first.endswith("(scout) it pours; context: outside") and second.endswith("(scout) it rains")


async def test_a_tree_grows(lib: Library) -> None:
    block = await lib.create(
        "t", template=Template("tree", Shape("tree", (Field("title", required=True), Field("n", "number"))))
    )
    plan = await block.add_node({"title": "plan"})
    step = await block.add_node({"title": "step"}, plan)
    await block.add_node({"title": "before"}, plan, 0)
    await block.set_node(step, {"n": 2})
    other = await block.add_node({"title": "other"})
    await block.move_node(step, other)
    assert await block.text() == "- plan\n  - before\n- other\n  - step; n: 2"
    await block.move_node(other, None, 0)
    await block.delete_node(plan)
    assert await block.text() == "- other\n  - step; n: 2"
    for edit in (
        lambda: block.move_node(other, step),
        lambda: block.move_node(other, other),
        lambda: block.set_node(step, {"title": None}),
        lambda: block.set_node(step, {"colour": 1}),
        lambda: block.set_node(plan, {"n": 1}),
        lambda: block.add_node({"title": "x"}, "9@9"),
        lambda: block.add_node({"title": "x"}, None, 7),
        lambda: block.add_node("x"),  # type: ignore[arg-type]
        lambda: block.delete_node("nonsense"),
    ):
        version = block.version
        with pytest.raises(InputError):
            await edit()
        assert await block.text() == "- other\n  - step; n: 2" and block.version == version


# -- sections -------------------------------------------------------------------------------------


async def test_sections_are_documents_of_their_own(lib: Library) -> None:
    block = await lib.create("p", template=PARTS, value={"facts": {"name": "x"}, "rules": "Be kind."})
    await block.section("notes").append("one two")
    await block.section("notes").replace("two", "three")
    await block.section("facts").append_to_field("tags", "t")
    await block.section("steps").append("go")
    await block.section("seen").log("a bird")
    await block.section("count").increment(amount=7)
    await block.section("map").add_node({"name": "root"})
    assert block.version == 8
    assert await block.section("notes").text() == "one three"
    value = await block.value()
    assert (
        value["facts"]["tags"] == ["t"]
        and value["steps"] == {"items": ["go"]}
        and value["count"] == {"count": 7}
    )
    assert value["seen"]["entries"][0]["message"] == "a bird"
    text = await block.text()
    assert text.startswith("=== notes ===\none three\n\n=== facts ===\nname: x\n")
    assert text.endswith("=== map ===\n- root\n\n=== rules [read-only] ===\nBe kind.")
    assert (await block.section("facts").value())["mood"] == 5


async def test_sections_refuse_what_they_must(quick: Library) -> None:
    block = await quick.create("p", template=PARTS, value={"facts": {"name": "x"}, "steps": ["a", "b"]})
    with pytest.raises(errors.TemplateError, match="rules is read-only"):
        await block.section("rules").append("Obey.")
    with pytest.raises(errors.TemplateError, match="no section 'note'"):
        block.section("note")
    with pytest.raises(errors.WrongKind, match="composite"):
        await block.append("where to?")
    with pytest.raises(errors.LimitExceeded):
        await block.section("steps").append("c")
    with pytest.raises(errors.LimitExceeded):
        await block.section("notes").write("x" * 20_000)
    assert block.version == 1


async def test_a_composite_goes_back_as_a_whole(quick: Library) -> None:
    block = await quick.create("p", template=PARTS, value={"facts": {"name": "x"}})
    first = await block.text()
    await block.section("notes").append("text")
    await block.section("count").increment(amount=2)
    await block.section("facts").set_field("mood", 1)
    last = await block.text()
    await block.rollback(1)
    assert await block.text() == first
    await block.undo()
    assert await block.text() == last


async def test_an_edit_that_could_not_be_read_again_is_refused(
    quick: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgent.blocks.document.document.MAX_UPDATE_BYTES", 2000)
    block = await quick.create("big", limit=10**9, text="fits")
    with pytest.raises(errors.LimitExceeded, match="2000 bytes"):
        await block.append("".join(map(chr, range(1000, 4000))))
    with pytest.raises(errors.LimitExceeded):
        await quick.create("huge", limit=10**9, text="".join(map(chr, range(1000, 4000))))
    assert await block.text() == "fits"
    assert [each.label for each in await quick.list()] == ["big"]


# -- the gate ---------------------------------------------------------------------------------------

Edit = Callable[[Block], Awaitable[Any]]
EDITS: dict[tuple[str, str], Edit] = {
    ("map", "append"): lambda block: block.append_to_field("tags", "new"),
    ("map", "append up"): lambda block: block.increment("mood"),
    ("map", "overwrite"): lambda block: block.set_field("note", "new"),
    ("map", "overwrite clear"): lambda block: block.clear_field("note"),
    ("map", "overwrite down"): lambda block: block.increment("mood", -1),
    ("map", "delete"): lambda block: block.remove_from_field("tags", 0),
    ("list", "append"): lambda block: block.insert_item("new", 0),
    ("list", "overwrite"): lambda block: block.set_item(0, "new"),
    ("list", "overwrite move"): lambda block: block.move_item(0, 1),
    ("list", "delete"): lambda block: block.delete_item(0),
}
ALLOWED: dict[str, tuple[str, ...]] = {
    "read_only": (),
    "partner": (),
    "append": ("append",),
    "read_write": ("append", "overwrite"),
    "admin": ("append", "overwrite", "delete"),
}


@pytest.mark.parametrize("permission", ALLOWED)
@pytest.mark.parametrize(("kind", "name"), EDITS)
async def test_each_edit_needs_the_permission_of_what_it_does(
    quick: Library, permission: str, kind: str, name: str
) -> None:
    given: Any = {"name": "x", "tags": ["a", "b"], "note": "n"} if kind == "map" else ["a", "b"]
    template = MANY if kind == "map" else Template("", Shape("list"))
    owned = await quick.create("b", template=template, value=given, permission="admin")
    await quick.agents.create("scribe")
    await quick.share("b", with_agent="scribe", permission=permission)
    block = await Library(quick._universe, agent="scribe").get("b")
    if name.partition(" ")[0] in ALLOWED[permission]:
        await EDITS[kind, name](block)
        assert await block.text() != (await owned.at(1)).text
        assert block.version == 2
    else:
        with pytest.raises(errors.PermissionDenied):
            await EDITS[kind, name](block)
        assert (await owned.history())[0].number == 1


@pytest.mark.parametrize(
    "value",
    [10**5000, "\ud800", {"\ud800": 1}, ["\ud800"], float("nan")],
    ids=["number", "text", "key", "item", "nan"],
)
async def test_a_value_that_cannot_be_kept_is_refused(quick: Library, value: Any) -> None:
    block = await quick.create("b", document="map")
    with pytest.raises(InputError):
        await block.set_field("a", value)
    assert block.version <= 1 and await block.value() == {}


async def test_a_value_is_nested_only_so_deep(quick: Library) -> None:
    block = await quick.create("b", document="map")
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    await block.set_field("a", deep)
    assert (await block.value())["a"] == deep
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InputError, match="nested"):
        await block.set_field("a", deep)


async def test_names_that_are_no_unicode_are_refused(quick: Library) -> None:
    block = await quick.create("b", document="map")
    tree = await quick.create("t", document="tree")
    for edit in (
        lambda: block.set_field("\ud800", 1),
        lambda: block.clear_field("\ud800"),
        lambda: tree.delete_node("\ud800"),
    ):
        with pytest.raises(InputError):
            await edit()
