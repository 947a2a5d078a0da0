"""Properties: every crumb, trail and stash has a value for each that is defined for it, always."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dgent
from dgent.cupboard import Category, Crumb, Cupboard, Property, Stash, Trail, errors
from dgent.cupboard.tables.filter import Filter
from tests.cupboard.conftest import Rival
from tests.cupboard.conftest import few_engines as engine

__all__ = ["engine"]

MOMENT = datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
BIG = 2**63 - 1
NUMBERS = itertools.count()

TYPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    # type: its default, values it takes, values it does not
    "categorical": (None, ["red", None], ["blue", "", "Red", 5, True, ["red"]]),
    "text": ("", ["", "x", "ünï\n\0"], [5, None, True, ["x"], b"x", {}]),
    "integer": (0, [0, -1, BIG, -BIG - 1], [1.0, "1", None, True, BIG + 1, -BIG - 2, [1]]),
    "boolean": (False, [True, False], [0, 1, "true", None, []]),
    "timestamp": (
        None,
        [MOMENT, None, "2024-05-01T12:30:15.123456Z", MOMENT.astimezone(timezone(timedelta(hours=3)))],
        [5, "yesterday", datetime(2024, 1, 1), "2024-01-01", True, [], ""],
    ),
    "list": ([], [[], ["a", "b"], ("a",), ["a", "a"]], ["a", [5], [None], None, {"a": 1}, 5, [["a"]]]),
}
SCOPES = ("crumb", "trail", "stash")
every_type = pytest.mark.parametrize("value_type", list(TYPES))
every_scope = pytest.mark.parametrize("scope", SCOPES)


def entity(scope: str, **fields: Any) -> Any:
    return {
        "crumb": lambda: Crumb("x", **fields),
        "trail": lambda: Trail("x", **fields),
        "stash": lambda: Stash(f"x{next(NUMBERS)}", "context", {}, **fields),
    }[scope]()


def table(cupboard: Cupboard, scope: str) -> Any:
    return cupboard.table({"crumb": "crumbs", "trail": "trails", "stash": "stashes"}[scope])


async def defined(cupboard: Cupboard, value_type: str, scope: str = "crumb") -> Property:
    made = Property("p", value_type, scope=scope)
    await cupboard.properties.set(None, made)
    if value_type == "categorical":
        await made.define_category(cupboard, "red", 1)
    return made


def native(value: Any) -> Any:
    """A value as it is read again."""
    if isinstance(value, str) and value.startswith("2024-05"):
        return MOMENT
    return list(value) if isinstance(value, tuple) else value


@every_type
@every_scope
async def test_a_value_at_every_moment(cupboard: Cupboard, scope: str, value_type: str) -> None:
    """Those made before the property have the default, those made after it too, and what is set is read."""
    default, right, _ = TYPES[value_type]
    rows, before = table(cupboard, scope), entity(scope)
    await rows.set(None, before)
    wanted = await defined(cupboard, value_type, scope)
    assert (await rows.get(before.id)).get_property("p") == default
    after = entity(scope)
    await rows.set(None, after)
    assert after.get_property("p") == after.get_property(wanted.id) == default
    for n, value in enumerate(right):
        after.set_property("p" if n % 2 else wanted.id, value)
        await rows.set(after.id, after)
        found = await rows.get(after.id)
        expected = native(value)
        shown = found.readable()["p"]
        assert shown == expected and type(shown) is type(expected)
        assert set(found.get_properties()) >= {wanted.id}
        ids = {each.id for each in await rows.fetch(properties={"p": value})}
        assert ids == ({before.id, after.id} if expected == default else {after.id})
        assert await rows.fetch(properties={wanted.id: value}) == await rows.fetch(
            {"Properties": {"p": value}}
        )
    after.clear_property("p")
    after.clear_property(wanted.id)
    await rows.set(after.id, after)
    assert (await rows.get(after.id)).get_property("p") == default
    assert len(await rows.fetch(properties={"p": default})) == 2
    given = entity(scope, properties={"p": right[1]})
    await rows.set(None, given)
    assert given.readable()["p"] == native(right[1])


@every_type
@every_scope
async def test_a_value_of_another_type_is_refused_everywhere(
    quick: Cupboard, scope: str, value_type: str
) -> None:
    _, right, wrong = TYPES[value_type]
    wanted = await defined(quick, value_type, scope)
    rows, made = table(quick, scope), entity(scope)
    made.set_property("p", right[0])
    await rows.set(None, made)
    before = await rows.get(made.id)
    for value in wrong:
        is_text = value_type == "categorical" and isinstance(value, str)
        error = errors.InvalidCategory if is_text else errors.TypeMismatch
        for key in ("p", wanted.id):
            with pytest.raises(error):
                made.set_property(key, value)
            with pytest.raises(error):
                await rows.set(None, entity(scope, properties={key: value}))
            changed = await rows.get(made.id)
            changed.properties[key] = value
            with pytest.raises(error):
                await rows.set(made.id, changed)
        if not (value_type == "list" and isinstance(value, str)):  # which asks for lists that have it
            with pytest.raises(errors.InvalidFilter):
                await rows.fetch(properties={"p": value})
    assert await rows.fetch() == [before]


@every_scope
async def test_a_property_of_another_scope_or_of_nobody(quick: Cupboard, scope: str) -> None:
    other = SCOPES[SCOPES.index(scope) - 1]
    await defined(quick, "text", other)
    rows, made = table(quick, scope), entity(scope)
    await rows.set(None, made)
    for key in ("p", "nothing", "", 5, None, ["p"]):
        for call in (
            lambda key=key: made.set_property(key, "x"),
            lambda key=key: made.get_property(key),
            lambda key=key: made.clear_property(key),
        ):
            with pytest.raises(errors.PropertyNotFound):
                call()
    for key in ("p", "nothing"):
        with pytest.raises(errors.PropertyNotFound):
            await rows.set(None, entity(scope, properties={key: "x"}))
        with pytest.raises(errors.PropertyNotFound):
            await rows.fetch(properties={key: "x"})
    assert len(await rows.fetch()) == 1


async def test_on_a_crumb_that_is_not_stored_yet(quick: Cupboard) -> None:
    crumb = Crumb("x")
    with pytest.raises(errors.PropertyNotFound):
        crumb.get_property("owner")
    with pytest.raises(errors.PropertyNotFound):
        crumb.clear_property("owner")
    crumb.set_property("priority", "high")
    crumb.set_property("owner", "ann")
    assert crumb.get_property("owner") == "ann"
    crumb.clear_property("owner")
    await quick.crumbs.set(None, crumb)
    assert crumb.readable() == {
        "priority": "high",
        "type": None,
        "description": "",
        "owner": "",
        "labels": [],
    }


async def test_values_are_found_by_name_in_the_map_too(quick: Cupboard) -> None:
    crumb = await quick.add("x", properties={"owner": "ann"})
    priority = (await quick.properties.fetch(name="priority"))[0].id
    assert crumb.properties["owner"] == "ann" and "owner" in crumb.properties
    crumb.properties["owner"] = "bob"
    crumb.properties.update(priority="low", labels=["a"])
    assert set(crumb.properties) == {p.id for p in await quick.properties.fetch()}
    await quick.crumbs.set(crumb.id, crumb)
    assert crumb.readable() | {"owner": "bob", "priority": "low", "labels": ["a"]} == crumb.readable()
    assert crumb.properties.pop("owner") == "bob"
    del crumb.properties["labels"]
    await quick.crumbs.set(crumb.id, crumb)
    assert (crumb.get_property("owner"), crumb.get_property("labels")) == ("", [])
    category = crumb.get_property(priority)
    assert (await quick.categories.get(category)).name == "low"
    assert [c.id for c in await quick.crumbs.fetch(properties={"priority": category})] == [crumb.id]


async def test_filters_by_several_values(cupboard: Cupboard) -> None:
    for n in range(12):
        await cupboard.add(
            f"c{n}",
            properties={
                "priority": ("high", "low")[n % 2],
                "type": ("task", "bug", "epic")[n % 3],
                "labels": [f"l{n % 4}", "all"],
                "owner": "" if n < 6 else "ann",
            },
        )
    fetch = cupboard.crumbs.fetch
    both = await fetch(properties={"priority": "high", "type": "bug"})
    assert {c.name for c in both} == {"c4", "c10"}
    assert {c.name for c in await fetch(properties={"labels": "l1", "owner": "ann"})} == {"c9"}
    assert {c.name for c in await fetch(properties={"labels": ["l1", "all"]})} == {"c1", "c5", "c9"}
    assert await fetch(properties={"labels": ["all"]}) == []
    assert len(await fetch(properties={"owner": "", "priority": "high"})) == 3
    assert len(await fetch(properties={})) == 12
    assert len(await fetch(properties={"owner": "ann"}, state="draft", limit=4)) == 4
    assert await fetch(properties={"owner": "ann"}, state="ready") == []


async def test_what_is_wrong_with_a_definition(quick: Cupboard) -> None:
    for name in ("", None, 5, ["x"]):
        with pytest.raises(errors.InvalidName):
            await quick.properties.set(None, Property(name, "text"))  # type: ignore[arg-type]
    for value_type in ("", "string", "TEXT", None, 5, ["text"]):
        with pytest.raises(errors.InvalidValueType):
            await quick.properties.set(None, Property("x", value_type))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidData):
        await quick.properties.set(None, Property("x", "text", scope="link"))
    for scope in SCOPES:
        with pytest.raises(errors.DuplicateName):
            await quick.properties.set(None, Property("owner", "text", scope=scope))
    assert len(await quick.properties.fetch()) == 5


async def test_changing_and_deleting_definitions(cupboard: Cupboard) -> None:
    made = await defined(cupboard, "integer")
    crumb = await cupboard.add("x", properties={"p": 5})
    made.name, made.description = "estimate", "in hours"
    await cupboard.properties.set(made.id, made)
    assert (await cupboard.crumbs.get(crumb.id)).get_property("estimate") == 5
    for field, value in (("value_type", "text"), ("scope", "trail")):
        changed = await cupboard.properties.get(made.id)
        setattr(changed, field, value)
        with pytest.raises(errors.InvalidValueType):
            await cupboard.properties.set(made.id, changed)
    await cupboard.properties.delete(made.id)
    found = await cupboard.crumbs.get(crumb.id)
    assert len(found.get_properties()) == 5
    with pytest.raises(errors.PropertyNotFound):
        found.get_property("estimate")
    # One under the same id starts anew, whatever its type.
    await cupboard.properties.set(made.id, Property("again", "list"))
    assert (await cupboard.crumbs.get(crumb.id)).get_property("again") == []


async def test_what_is_built_in_stays(quick: Cupboard) -> None:
    for found in await quick.properties.fetch():
        with pytest.raises(errors.InvalidData):
            await quick.properties.delete(found.id)
        found.name = "other"
        with pytest.raises(errors.InvalidData):
            await quick.properties.set(found.id, found)
    for category in await quick.categories.fetch():
        with pytest.raises(errors.InvalidData):
            await quick.categories.delete(category.id)
    await quick.properties.define_category("type", "rite", 9)  # this may be added
    assert len(await quick.properties.get_categories("type")) == 8


async def test_categories(cupboard: Cupboard) -> None:
    colour, size = Property("colour", "categorical"), Property("size", "categorical")
    for each in (colour, size):
        await cupboard.properties.set(None, each)
    assert await colour.get_categories(cupboard) == []
    made = await colour.define_category(cupboard, "red", 2)
    assert (made.name, made.ordinal, made.property_id) == ("red", 2, colour.id) and made.category_id
    for name, ordinal in (("blue", 2), ("green", -5), ("Red", 0)):
        await cupboard.properties.define_category("colour", name, ordinal)
    await cupboard.properties.define_category(size, "red", 0)  # of another property
    assert [c.name for c in await cupboard.properties.get_categories("colour")] == [
        "green",
        "Red",
        "blue",
        "red",
    ]
    assert [c.name for c in await cupboard.categories.fetch(property_id=size.id)] == ["red"]
    assert [c.name for c in await cupboard.categories.fetch(property_id=colour.id, limit=2, offset=1)] == [
        "Red",
        "blue",
    ]
    with pytest.raises(errors.DuplicateName):
        await colour.define_category(cupboard, "red", 7)
    with pytest.raises(errors.InvalidName):
        await colour.define_category(cupboard, "", 7)
    for ordinal in ("1", None, 1.5, True, 2**60):
        with pytest.raises(errors.InvalidData):
            await colour.define_category(cupboard, "x", ordinal)  # type: ignore[arg-type]
    for call in (
        cupboard.properties.define_category("owner", "x", 1),
        cupboard.properties.get_categories("labels"),
        cupboard.categories.set(None, Category((await cupboard.properties.fetch(name="owner"))[0].id, "x")),
    ):
        with pytest.raises(errors.InvalidValueType):
            await call
    with pytest.raises(errors.InvalidID):
        await cupboard.categories.set(None, Category("", "x"))
    with pytest.raises(errors.EntityNotFound):
        await cupboard.categories.set(None, Category("nothing", "x"))
    for call in (cupboard.properties.define_category("nothing", "x"), cupboard.properties.get_categories("")):
        with pytest.raises(errors.PropertyNotFound):
            await call
    assert len(await cupboard.categories.fetch()) == 12 + 5


@every_scope
async def test_a_category_in_use_stays(quick: Cupboard, scope: str) -> None:
    made = await defined(quick, "categorical", scope)
    red = (await made.get_categories(quick))[0]
    thing = entity(scope, properties={"p": "red"})
    await table(quick, scope).set(None, thing)
    with pytest.raises(dgent.errors.Conflict):
        await quick.categories.delete(red.id)
    thing.clear_property("p")
    await table(quick, scope).set(thing.id, thing)
    await quick.categories.delete(red.id)
    assert await made.get_categories(quick) == []


async def test_another_program_learns_at_once(cupboard: Cupboard, rival: Rival) -> None:
    other = await rival()
    crumb = await cupboard.add("x")
    assert len((await other.crumbs.get(crumb.id)).get_properties()) == 5
    made = await defined(cupboard, "integer")
    assert (await other.crumbs.get(crumb.id)).get_property("p") == 0
    theirs = await other.add("y", properties={"p": 7})
    assert (await cupboard.crumbs.get(theirs.id)).get_property(made.id) == 7
    assert [c.id for c in await cupboard.crumbs.fetch(properties={"p": 7})] == [theirs.id]
    await other.properties.delete(made.id)
    with pytest.raises(errors.PropertyNotFound):
        await cupboard.add("z", properties={"p": 7})
    await cupboard.add("z")


async def test_more_properties_than_are_indexed(cupboard: Cupboard) -> None:
    for n in range(20):
        await cupboard.properties.set(None, Property(f"n{n}", "integer"))
    crumb = await cupboard.add("x", properties={f"n{n}": n for n in range(20)})
    await cupboard.add("y")
    assert len(crumb.get_properties()) == 25
    for n in range(1, 20):
        assert [c.id for c in await cupboard.crumbs.fetch(properties={f"n{n}": n})] == [crumb.id]
    assert [c.name for c in await cupboard.crumbs.fetch(properties={"n0": 0, "n19": 0})] == ["y"]


async def test_crumbs_are_found_by_an_index_on_their_values() -> None:
    async with dgent.open("memory:") as u:
        cupboard = Cupboard(u)
        await cupboard.properties.define("size", "integer")
        crumbs = [Crumb(f"c{n}", properties={"labels": [f"l{n}", "all"], "size": n}) for n in range(300)]
        await cupboard.add_many(crumbs)
        await u.indexed()
        for name, value, way in (("labels", "l7", "schema, item"), ("size", 7, "schema, field")):
            (found,) = await cupboard.crumbs.fetch(properties={name: value})
            assert found.name == "c7"
            wanted = await cupboard.crumbs._where(Filter({"properties": {name: value}}, None, 0))
            page = await u.page(dgent.Query(schema="cupboard.crumb", where=wanted))
            assert page.explain == way
