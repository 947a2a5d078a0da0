"""Templates: what they make, what they refuse, and that a block keeps the shape it was made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from dgent.blocks import TEMPLATES, Field, Library, SectionShape, Shape, Template, errors
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.template import of_dataclass, of_schema
from dgent.blocks.document.validate import check_shape

FIRST: dict[str, Any] = {
    "organization": {"name": "Acme", "policies": ["be kind"]},
    "partner_profile": {"name": "Ann"},
}


@pytest.mark.parametrize("name", TEMPLATES)
async def test_each_template_makes_a_block_that_is_as_it_says(quick: Library, name: str) -> None:
    template = TEMPLATES[name]
    await quick.create("it", template=name, value=FIRST.get(name))
    block = await quick.get("it")
    assert (block.document_kind, block.kind, block.limit) == (
        template.shape.document,
        template.kind,
        template.limit,
    )
    assert block.description == template.description != ""
    assert (block.template, block.shape) == (name, template.shape)


async def test_what_is_given_comes_before_the_template(quick: Library) -> None:
    block = await quick.create(
        "p", template="persona", kind="working", limit=10, description="Me.", text="I am"
    )
    assert (block.kind, block.limit, block.description, await block.text()) == ("working", 10, "Me.", "I am")


async def test_a_persona_is_a_text(lib: Library) -> None:
    persona = await lib.create("persona", template="persona", description="Who I am.", limit=4000)
    await persona.append("I like short answers.", by="scout")
    await persona.replace("short", "plain", expect=persona.version)
    assert await persona.text() == "I like plain answers."


async def test_defaults_are_there_from_the_start(quick: Library) -> None:
    profile = await quick.create("ann", template="partner_profile", value={"name": "Ann"})
    assert await profile.value() == {"name": "Ann", "preferences": [], "energy_level": 5}
    tasks = await quick.create("tasks", template="task_list", value=[{"title": "rest"}])
    assert (await tasks.value())["items"] == [{"title": "rest", "done": False, "priority": 3}]


async def test_an_organization_cannot_be_changed(quick: Library) -> None:
    block = await quick.create("org", template="organization", value=FIRST["organization"])
    assert await block.text() == "name: Acme\npolicies:\n- be kind"
    again = await quick.get("org")
    with pytest.raises(errors.PermissionDenied):
        await again.append_to_field("policies", "obey")
    assert again.permission == "read_only" and (await again.history())[0].number == 1


@pytest.mark.parametrize(
    ("template", "value", "says"),
    [
        ("partner_profile", None, "name is required"),
        ("partner_profile", {"name": 3}, "name must be a text"),
        ("partner_profile", {"name": "A", "age": 3}, "no field 'age'"),
        ("partner_profile", {"name": "A", "energy_level": 1.5}, "whole number"),
        ("partner_profile", {"name": "A", "energy_level": True}, "whole number"),
        ("partner_profile", {"name": "A", "last_interaction": "yesterday"}, "a time with its zone"),
        ("partner_profile", {"name": "A", "last_interaction": "2026-01-01T00:00:00"}, "a time with its zone"),
        ("partner_profile", {"name": "A", "preferences": "tea"}, "must be a list"),
        ("partner_profile", {"name": "A", "preferences": ["tea", 3]}, "must be a text"),
        ("task_list", [{"done": True}], "title is required"),
        ("task_list", [{"title": "x", "done": 1}], "true or false"),
        ("task_list", {"title": "x"}, "list of items"),
        ("observation_log", [{"observation": "x"}], "begins empty"),
        ("nonsense", None, "not a known template"),
        (3, None, "is not a valid template"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_is_made(
    quick: Library, template: Any, value: Any, says: str
) -> None:
    with pytest.raises(errors.TemplateError, match=says):
        await quick.create("it", template=template, value=value)
    assert await quick.list() == []


async def test_an_unknown_field_is_refused_with_those_there_are(quick: Library) -> None:
    block = await quick.create("ann", template="partner_profile", value={"name": "Ann"})
    with pytest.raises(errors.TemplateError) as caught:
        await block.set_field("nmae", "Anne")
    assert caught.value.details["known"] == [each.name for each in TEMPLATES["partner_profile"].shape.fields]


async def test_a_template_may_not_be_a_different_kind_of_document(quick: Library) -> None:
    with pytest.raises(errors.TemplateError, match="is a list, not a map"):
        await quick.create("it", template="task_list", document="map")


# -- one's own ------------------------------------------------------------------------------------


@dataclass
class Car:
    """A car I look after."""

    plate: str = field(metadata={"read_only": True})
    doors: int = 4
    colour: Literal["red", "blue"] | None = None
    stops: list[str] = field(default_factory=list, metadata={"max_items": 2})
    seen: datetime | None = None
    trips: int = field(default=0, metadata={"counter": True})


@dataclass
class Both:
    car: Car
    other: Car = field(metadata={"read_only": True})


async def test_a_dataclass_is_a_template(quick: Library) -> None:
    block = await quick.create(
        "car", template=Car, value={"plate": "A1", "seen": datetime(2026, 1, 2, tzinfo=UTC)}
    )
    assert (block.description, block.template) == ("A car I look after.", "Car")
    assert await block.value() == {
        "plate": "A1",
        "doors": 4,
        "stops": [],
        "seen": "2026-01-02T00:00:00.000000Z",
        "trips": 0,
    }
    with pytest.raises(errors.TemplateError, match="plate is read-only"):
        await block.set_field("plate", "B2")
    with pytest.raises(errors.TemplateError, match="doors must be a whole number"):
        await block.set_field("doors", 4.5)
    with pytest.raises(errors.TemplateError, match="colour cannot be 'pink'"):
        await block.set_field("colour", "pink")
    with pytest.raises(errors.LimitExceeded, match="3 items"):
        await block.set_field("stops", ["a", "b", "c"])
    assert block.version == 1


async def test_a_dataclass_of_dataclasses_is_a_composite(quick: Library) -> None:
    block = await quick.create("cars", template=Both, value={"car": {"plate": "A"}, "other": {"plate": "B"}})
    await block.section("car").set_field("doors", 2)
    with pytest.raises(errors.TemplateError, match="section other is read-only"):
        await block.section("other").set_field("doors", 2)
    value = await block.value()
    assert (value["car"]["doors"], value["other"]["doors"]) == (2, 4)


async def test_a_json_schema_is_a_template(quick: Library) -> None:
    schema = {
        "title": "recipe",
        "description": "How to cook it.",
        "type": "object",
        "properties": {
            "name": {"type": "string", "readOnly": True},
            "minutes": {"type": "integer", "default": 30},
            "steps": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "course": {"enum": ["main", "sweet"], "type": "string"},
        },
        "required": ["name"],
    }
    block = await quick.create("soup", template=schema, value={"name": "soup"})
    assert (block.template, block.description) == ("recipe", "How to cook it.")
    assert await block.value() == {"name": "soup", "minutes": 30, "steps": []}
    for change in (
        ("name", "stew"),
        ("minutes", "long"),
        ("steps", [1]),
        ("course", "starter"),
        ("wine", "red"),
    ):
        with pytest.raises(errors.TemplateError):
            await block.set_field(*change)


def test_json_schemas_of_lists_texts_and_sections() -> None:
    assert of_schema({"type": "string"}) == Shape("text")
    numbers = {"type": "array", "items": {"type": "number"}, "maxItems": 3}
    assert of_schema(numbers) == Shape("list", items="number", max_items=3)
    item = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    assert of_schema({"type": "array", "items": item}) == Shape(
        "list", (Field("a", "boolean", required=True),)
    )
    parts = of_schema({"type": "object", "properties": {"x": {**item, "readOnly": True}, "y": item}})
    assert [(each.name, each.read_only) for each in parts.sections] == [("x", True), ("y", False)]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "null"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "x+"}}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "email"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}},
        {"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": [1]},
        {"type": "object", "required": ["a"]},
        {"type": "object", "required": "a"},
        {"type": "array", "items": [{"type": "string"}]},
    ],
)
def test_a_schema_that_says_more_than_is_checked_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(errors.TemplateError):
        of_schema(schema)


def test_a_dataclass_of_other_things_is_refused() -> None:
    @dataclass
    class Odd:
        it: dict[str, int]

    with pytest.raises(errors.TemplateError, match="it cannot be of the type"):
        of_dataclass(Odd)


# -- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        Shape("poem"),
        Shape("text", sections=(SectionShape("a", Shape()),)),
        Shape("composite", sections=(SectionShape("a", Shape("composite")),)),
        Shape("composite", sections=(SectionShape("a", Shape()), SectionShape("a", Shape()))),
        Shape("map", (Field("a"), Field("a", "number"))),
        Shape("map", (Field("a b"),)),
        Shape("map", (Field("a", "colour"),)),
        Shape("map", (Field("a", default=3),)),
        Shape("map", (Field("a", "list", items="list"),)),
        Shape("list", (Field("a", "counter"),)),
        Shape("list", max_items=0),
        Shape("log", display=0),
        Shape("log", keep_s=0),
        Shape("map", tuple(Field(f"a{n}") for n in range(201))),
        Shape(  # both would be section_a_list_b_items
            "composite",
            sections=(
                SectionShape("a", Shape("map", (Field("b_items", "list"),))),
                SectionShape("a_list_b", Shape("list")),
            ),
        ),
    ],
)
async def test_a_malformed_shape_is_refused(quick: Library, shape: Shape) -> None:
    with pytest.raises(errors.TemplateError):
        await quick.create("it", template=Template("mine", shape))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda each: each.name)
def test_a_shape_survives_being_stored(template: Template) -> None:
    assert shapes.load_shape(template.shape.document, shapes.dump_shape(template.shape)) == template.shape


def test_a_composite_survives_being_stored_and_a_newer_shape_is_read() -> None:
    shape = check_shape(of_dataclass(Both))
    data = shapes.dump_shape(shape)
    assert shapes.load_shape("composite", data) == shape
    assert shapes.load_shape("composite", {**data, "colour": "blue"}) == shape


async def test_a_block_keeps_its_shape_when_the_template_changes(
    quick: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.create("tasks", template="task_list")
    later = Template("task_list", Shape("list", items="text"))
    monkeypatch.setattr("dgent.blocks.document.template.TEMPLATES", {"task_list": later})
    old = await quick.get("tasks")
    await old.append({"title": "still with fields"})
    new = await quick.create("more", template="task_list")
    await new.append("only a text")
    assert await old.text() == "1. [ ] still with fields; priority: 3"
    assert await new.text() == "1. only a text"
