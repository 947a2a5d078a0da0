"""The four operations, the same on every table: their errors, their filters, their order."""

from __future__ import annotations

import re
import tracemalloc
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dgent
from dgent.cupboard import (
    Category,
    Crumb,
    Cupboard,
    Link,
    Metadata,
    MetadataSchema,
    Property,
    Stash,
    Trail,
    errors,
)
from tests.cupboard.conftest import few_engines as engine

__all__ = ["engine"]

Make = Callable[[Cupboard], Awaitable[Any]]


async def a_link(cupboard: Cupboard) -> Link:
    return Link("belongs_to", (await cupboard.add("c")).id, (await cupboard.start("t")).id)


async def a_metadata(cupboard: Cupboard) -> Metadata:
    return Metadata((await cupboard.add("c")).id, "comments", "hello")


async def a_category(cupboard: Cupboard) -> Category:
    return Category((await cupboard.properties.fetch(name="type"))[0].id, "riddle", 7)


def just(thing: Callable[[], Any]) -> Make:
    async def make(_cupboard: Cupboard) -> Any:
        return thing()

    return make


MAKERS: dict[str, Make] = {
    "crumbs": just(lambda: Crumb("a crumb")),
    "trails": just(lambda: Trail("a trail", state="active")),
    "properties": just(lambda: Property("a_property", "text")),
    "categories": a_category,
    "links": a_link,
    "stashes": just(lambda: Stash("a stash", "context", {"a": 1})),
    "metadata": a_metadata,
}
CHANGES: dict[str, tuple[str, Any]] = {
    "crumbs": ("name", "other"),
    "trails": ("name", "other"),
    "properties": ("description", "other"),
    "categories": ("ordinal", 9),
    "links": ("extra", {"note": "other"}),
    "stashes": ("value", {"a": 2}),
    "metadata": ("content", "other"),
}
ALIASES = {
    "crumbs": "crumb_id",
    "trails": "trail_id",
    "properties": "property_id",
    "categories": "category_id",
    "links": "link_id",
    "stashes": "stash_id",
    "metadata": "metadata_id",
}
every_table = pytest.mark.parametrize("name", list(MAKERS))


def pascal(key: str) -> str:
    return "".join(part.upper() if part == "id" else part.title() for part in key.split("_"))


@every_table
async def test_create_read_update_delete(cupboard: Cupboard, name: str) -> None:
    table = cupboard.table(name)
    before = datetime.now(UTC) - timedelta(seconds=5)
    made = await MAKERS[name](cupboard)
    id = await table.set(None, made)
    assert made.id == id == getattr(made, ALIASES[name])
    # Two copies that define the same property or category agree on its id.
    assert uuid.UUID(id).version == (5 if name in ("properties", "categories") else 7)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id)
    assert before < made.created_at < datetime.now(UTC) + timedelta(seconds=5)
    found = await table.get(id)
    assert found == made and found is not made
    assert id in [each.id for each in await table.fetch()]

    field, value = CHANGES[name]
    setattr(found, field, value)
    assert await table.set(id, found) == id
    changed = await table.get(id)
    assert getattr(changed, field) == value and changed.created_at == made.created_at
    assert changed == found

    await table.delete(id)
    for call in (table.get(id), table.delete(id)):
        with pytest.raises(errors.EntityNotFound, match=re.escape(id)):
            await call
    assert id not in [each.id for each in await table.fetch()]


@every_table
@pytest.mark.parametrize("id", ["", None])
async def test_an_empty_id_creates(quick: Cupboard, name: str, id: str | None) -> None:
    table = quick.table(name)
    before = len(await table.fetch())
    assert await table.set(id, await MAKERS[name](quick))
    assert len(await table.fetch()) == before + 1


@every_table
async def test_an_id_that_is_not_there_is_made(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    made = await MAKERS[name](quick)
    assert await table.set("my.own/id", made) == "my.own/id"
    assert (await table.get("my.own/id")) == made
    assert [each.id for each in await table.fetch(id="my.own/id")] == ["my.own/id"]


@every_table
async def test_wrong_ids_and_entities(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    made = await MAKERS[name](quick)
    for id in ("", None, 5, b"x", "x" * 600, "a\0b", "\ud800"):
        for call in (lambda id=id: table.get(id), lambda id=id: table.delete(id)):
            with pytest.raises(errors.InvalidID):
                await call()
    for id in (5, b"x", "x" * 600, "a\0b", "\ud800", made):
        with pytest.raises(errors.InvalidID):
            await table.set(id, made)
    other = MetadataSchema("x") if name != "schemas" else Crumb("x")
    for wrong in (None, {}, {"name": "x"}, "x", 5, other, table.entity):
        with pytest.raises(errors.InvalidData):
            await table.set(None, wrong)
    for id in ("nothing", str(uuid.uuid4())):
        with pytest.raises(errors.EntityNotFound):
            await table.get(id)
        with pytest.raises(errors.EntityNotFound):
            await table.delete(id)


@every_table
async def test_the_id_of_something_else(quick: Cupboard, name: str) -> None:
    """An id of another table, of another schema, or of the room itself is nobody's to take."""
    table = quick.table(name)
    made = await MAKERS[name](quick)
    crumb, trail = await quick.add("other"), await quick.start("other")
    await quick.universe.put(dgent.Datum(id="foreign", data={"x": 1}))
    taken = trail.id if name == "crumbs" else crumb.id
    for id in (taken, "foreign", "cupboard/catalog", "cupboard/lease/x", "cupboard/schema/x"):
        with pytest.raises(errors.InvalidID):
            await table.set(id, made)
        with pytest.raises(errors.EntityNotFound):
            await table.get(id)
        with pytest.raises(errors.EntityNotFound):
            await table.delete(id)
    assert (await quick.universe.get("foreign", raw=True)).data == {"x": 1}


@every_table
async def test_every_column_filters_in_both_spellings(cupboard: Cupboard, name: str) -> None:
    table = cupboard.table(name)
    made = await MAKERS[name](cupboard)
    await table.set(None, made)
    asked = 0
    for column in table.columns:
        value = getattr(made, {"states": "state", "schema": "table_name"}.get(column, column), None)
        if value is None or (column in ("properties", "owner", "parent_id", "trail_id") and name != "trails"):
            continue
        if column == "states":
            value = [value]
        if column == "properties":
            continue
        for key in (column, pascal(column), pascal(column)[0].lower() + pascal(column)[1:]):
            assert made.id in [each.id for each in await table.fetch({key: value})], key
            assert [each.id for each in await table.fetch({key: value, ALIASES[name]: made.id})] == [made.id]
            asked += 1
        if isinstance(value, str) and column not in ("description", "content_contains"):
            assert await table.fetch({column: value + "?"}) == []
    assert asked >= 9


@every_table
async def test_filters_of_the_wrong_type(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    wrong = {
        "text": [5, None, ["x"], {}],
        "texts": [5, None, [5], {"a": 1}, ["x", None]],
        "list": ["ready", 5, None, [5]],
        "whole": ["5", None, 5.5, True],
        "time": [5, None, "yesterday", datetime(2024, 1, 1)],
        "map": [5, None, "x", ["x"], {5: 1}],
        "any": [],
    }
    for column, kind in table.columns.items():
        for value in wrong[kind]:
            with pytest.raises(errors.InvalidFilter):
                await table.fetch({column: value})
            with pytest.raises(errors.InvalidFilter):
                await table.fetch({pascal(column): value})
    for key in ("limit", "offset", "Limit", "Offset"):
        for value in ("5", -1, 1.5, True, [1]):
            with pytest.raises(errors.InvalidFilter):
                await table.fetch({key: value})
    for wrong_filter in (5, "state=ready", ["x"], [("state", "x")], {5: 1}, {None: 1}):
        with pytest.raises(errors.InvalidFilter):
            await table.fetch(wrong_filter)


@every_table
async def test_no_filter_and_unknown_keys(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    await table.set(None, await MAKERS[name](quick))
    everything = await table.fetch()
    assert everything
    for call in (
        table.fetch(None),
        table.fetch({}),
        table.fetch(filter=None),
        table.fetch(filter={}),
        table.fetch({"nothing_known": 5}),
        table.fetch(nothing_known=object()),
        table.fetch(limit=0),
        table.fetch(limit=None, offset=None),
        table.fetch({"offset": 0}),
    ):
        assert await call == everything


async def test_filters_as_a_map_and_by_keywords(quick: Cupboard) -> None:
    one, _ = await quick.add("one", state="ready"), await quick.add("two", state="ready")
    for call in (
        quick.crumbs.fetch({"State": "ready", "name": "one"}),
        quick.crumbs.fetch(state="ready", name="one"),
        quick.crumbs.fetch(State="ready", Name="one"),
        quick.crumbs.fetch({"states": ["ready"]}, name="one"),
        quick.crumbs.fetch(filter={"states": ("ready", "dust")}, name=["one", "three"]),
        quick.crumbs.fetch(crumb_id=one.id, state="ready"),
    ):
        assert [each.id for each in await call] == [one.id]
    assert await quick.crumbs.fetch(state="ready", states=["dust"]) == []
    assert await quick.crumbs.fetch(id=one.id, crumb_id="other") == []
    assert len(await quick.crumbs.fetch(states=[])) == 2  # an empty list filters nothing


@every_table
async def test_limit_and_offset_after_filter_and_order(cupboard: Cupboard, name: str) -> None:
    table = cupboard.table(name)
    start = datetime(2030, 1, 1, tzinfo=UTC)
    for n in range(5):
        made = await MAKERS[name](cupboard)
        if hasattr(made, "name"):
            made.name += str(n)
        made.created_at = start + timedelta(seconds=n)
        await table.set(None, made)
    everything = [each.id for each in await table.fetch()]
    for filters, part in (
        ({"limit": 2}, everything[:2]),
        ({"offset": 2}, everything[2:]),
        ({"limit": 2, "offset": 1}, everything[1:3]),
        ({"limit": 100, "offset": 3}, everything[3:]),
        ({"offset": 10**9}, []),
        ({"offset": 2**70, "limit": 2**70}, []),
    ):
        assert [each.id for each in await table.fetch(filters)] == part, filters


@pytest.mark.parametrize(
    ("name", "newest_first"),
    [("crumbs", True), ("trails", True), ("properties", False), ("stashes", False), ("metadata", False)],
)
async def test_order_is_by_time_of_making(cupboard: Cupboard, name: str, newest_first: bool) -> None:
    """Also when ids come in another order."""
    table = cupboard.table(name)
    start = datetime(2030, 1, 1, tzinfo=UTC)
    crumb = await cupboard.crumbs.set("c", Crumb("first", created_at=start - timedelta(days=1)))
    for n in (3, 0, 4, 1, 2):
        made = Metadata(crumb, "comments", "x") if name == "metadata" else await MAKERS[name](cupboard)
        if hasattr(made, "name"):
            made.name += str(n)
        made.created_at = start + timedelta(seconds=n)
        await table.set(f"{9 - n}-{n}", made)
    numbers = [each.id[2:] for each in await table.fetch() if each.id[1:2] == "-"]
    assert numbers == (["4", "3", "2", "1", "0"] if newest_first else ["0", "1", "2", "3", "4"])


async def test_times_are_utc_whatever_zone_they_came_in(quick: Cupboard) -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    crumb = Crumb("x", created_at=moment, defer_until=moment)
    await quick.crumbs.set(None, crumb)
    assert crumb.created_at == crumb.defer_until == crumb.updated_at == moment
    assert (await quick.crumbs.get(crumb.id)).created_at.utcoffset() == timedelta(0)
    assert len(await quick.crumbs.fetch(created_at="2024-05-01T07:00:00Z")) == 1
    assert len(await quick.crumbs.fetch(CreatedAt=moment)) == 1


async def test_an_expected_version(quick: Cupboard) -> None:
    crumb = await quick.add("x")
    with pytest.raises(dgent.errors.Conflict):
        await quick.crumbs.set(crumb.id, crumb, expected_version=7)
    with pytest.raises(dgent.errors.Conflict):
        await quick.crumbs.delete(crumb.id, expected_version=7)
    with pytest.raises(dgent.errors.Conflict):
        await quick.crumbs.set(None, Crumb("y"), expected_version=1)
    await quick.crumbs.set("new", Crumb("y"), expected_version=0)
    with pytest.raises(dgent.errors.Conflict):
        await quick.crumbs.set("new", Crumb("y"), expected_version=0)
    crumb.name = "z"
    await quick.crumbs.set(crumb.id, crumb, expected_version=1)
    await quick.crumbs.delete(crumb.id, expected_version=2)
    assert [c.name for c in await quick.crumbs.fetch()] == ["y"]


FILTERS: list[dict[str, Any]] = [
    {},
    {"limit": 3},
    {"limit": 2, "offset": 1},
    {"limit": 0},
    {"offset": 10**6},
    {"id": ["none"]},
]


@every_table
async def test_one_by_one_comes_what_fetch_gives(cupboard: Cupboard, name: str) -> None:
    table = cupboard.table(name)
    assert [each async for each in table.iterate()] == await table.fetch()  # also before anything is written
    for n in range(5):
        made = await MAKERS[name](cupboard)
        if hasattr(made, "name"):
            made.name += str(n)
        await table.set(None, made)
    for filters in FILTERS:
        assert [each async for each in table.iterate(filters)] == await table.fetch(filters), filters


async def test_one_by_one_by_links_and_states(quick: Cupboard) -> None:
    trail = await quick.start("t")
    parent = await quick.add("p", state="ready", trail=trail)
    for n in range(4):
        await quick.add(f"c{n}", state="draft" if n % 2 else "ready", trail=trail, parents=[parent])
    for filters in ({"trail_id": trail.id}, {"parent_id": parent.id, "limit": 2}, {"states": ["ready"]}):
        assert [each async for each in quick.crumbs.iterate(filters)] == await quick.crumbs.fetch(filters)


async def test_one_by_one_as_of_one_moment(quick: Cupboard) -> None:
    """What is stored while somebody goes through a table does not come up."""
    await quick.add_many([Crumb(f"c{n}") for n in range(1_100)])
    found = []
    async for each in quick.crumbs.iterate():
        if not found:
            await quick.add_many([Crumb(f"late {n}") for n in range(5)])
        found.append(each.name)
    assert sorted(found) == sorted(f"c{n}" for n in range(1_100))


async def test_large_tables_are_not_held_in_memory(quick: Cupboard) -> None:
    """Going through a table, and an audit, keep a page of records at a time."""
    text, many = "x" * 10_000, 4_000
    for _ in range(4):
        await quick.add_many([Crumb("c", properties={"description": text}) for _ in range(many // 4)])
    await quick._universe.indexed()  # which is done in the background
    tracemalloc.start()
    try:
        number = 0
        async for _ in quick.crumbs.iterate():
            number += 1
        assert (await quick.audit()).ok
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert number == many
    assert peak < many * len(text) * 0.6
