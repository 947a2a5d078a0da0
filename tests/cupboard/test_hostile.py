"""Hostile names and values, large things, and clocks that jump."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.cupboard import Category, Crumb, Cupboard, Link, Metadata, Property, Stash, Trail, errors
from dgent.cupboard.builtin import CATEGORIES
from dgent.cupboard.record import PRIORITY
from dgent.store.backend import EVERY_ROOM
from dgent.universe.gate import Principal
from tests.cupboard.conftest import Hours
from tests.cupboard.conftest import few_engines as engine

__all__ = ["engine"]

NAMES = [
    "a\0b",
    "'; DROP TABLE crumbs; --",
    '"',
    "\\",
    "%",
    "_",
    "$in",
    "properties.x",
    "../../etc/passwd",
    "x" * 100_000,
    "日本語 🎉 é",
    "\u202e\u0000\uffff",
    " ",
    "\n",
    "null",
    "priority",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_names_are_only_names(cupboard: Cupboard, name: str) -> None:
    crumb = await cupboard.add(name, state="ready", properties={"owner": name, "labels": [name]})
    trail = await cupboard.start(name, name)
    stash = await cupboard.stashes.create(name, "context", {name: name}, trail=trail.id)
    entry = await cupboard.comment(crumb, name)
    assert [c.id for c in await cupboard.crumbs.fetch(name=name)] == [crumb.id]
    assert [c.id for c in await cupboard.crumbs.fetch(properties={"owner": name, "labels": name})] == [
        crumb.id
    ]
    assert [t.id for t in await cupboard.trails.fetch(name=name)] == [trail.id]
    assert [s.id for s in await cupboard.stashes.fetch(name=name, value={name: name})] == [stash.id]
    assert [m.id for m in await cupboard.metadata.fetch(content=name)] == [entry.id]
    assert [m.id for m in await cupboard.metadata.fetch(content_contains=name)] == [entry.id]
    taken = await cupboard.take(name[:100])
    assert taken is not None and (taken.name, taken.holder) == (name, name[:100])
    await cupboard.abandon(trail, reason=name, lesson=name)
    assert [t.name for t in await cupboard.lessons(name)] == [name]
    if name != "priority":
        wanted = Property(name, "categorical")
        await cupboard.properties.set(None, wanted)
        await wanted.define_category(cupboard, name, 0)
        crumb = await cupboard.crumbs.get(crumb.id)
        crumb.set_property(name, name)
        await cupboard.crumbs.set(crumb.id, crumb)
        assert [c.id for c in await cupboard.crumbs.fetch(properties={name: name})] == [crumb.id]


@pytest.mark.parametrize("id", ["a.b.c", "a/b", "$where", "ü🎉", " ", "x" * 490, "'", "%"])
async def test_ids_are_only_ids(cupboard: Cupboard, id: str) -> None:
    await cupboard.crumbs.set(id, Crumb("x", "ready"))
    child = await cupboard.add("child", state="ready", parents=[id])
    await cupboard.properties.set(id + "p", Property("dotted", "integer"))
    child.set_property("owner", "me")
    await cupboard.crumbs.set(child.id, child)
    found = await cupboard.crumbs.get(id)
    found.set_property(id + "p", 7)
    await cupboard.crumbs.set(id, found)
    assert [c.id for c in await cupboard.crumbs.fetch(properties={id + "p": 7})] == [id]
    assert [c.id for c in await cupboard.crumbs.fetch(properties={"dotted": 0})] == [child.id]
    assert [c.id for c in await cupboard.crumbs.fetch(parent_id=id)] == [child.id]
    taken = await cupboard.take("me")
    assert taken is not None and taken.id == id
    await cupboard.heartbeat(id, "me")
    await cupboard.done(id, agent="me")
    assert [c.id for c in await cupboard.ready()] == [child.id]
    await cupboard.crumbs.delete(id)


BAD: list[Any] = [5, 5.5, True, b"x", ["x"], {"a": 1}, object(), "\ud800", float("nan"), {1: 2}]


async def test_wrong_types_store_nothing(quick: Cupboard) -> None:
    """Every field of every entity, with everything that it cannot be: our errors, and nothing is stored."""
    await quick.add("c")
    trail = await quick.start("t")
    before = await quick.universe.seq()
    fields: list[tuple[str, Any, list[str]]] = [
        (
            "crumbs",
            lambda: Crumb("x"),
            ["name", "state", "defer_until", "properties", "created_at", "updated_at"],
        ),
        (
            "trails",
            lambda: Trail("x"),
            ["name", "goal", "state", "reason", "lesson", "properties", "created_at"],
        ),
        ("properties", lambda: Property("x", "text"), ["name", "value_type", "description", "scope"]),
        ("categories", lambda: Category("", "x"), ["name", "property_id", "ordinal", "created_at"]),
        ("links", lambda: Link("child_of", trail.id, trail.id), ["link_type", "from_id", "to_id"]),
        (
            "stashes",
            lambda: Stash("x", "lock"),
            ["name", "stash_type", "changed_by", "properties", "created_at"],
        ),
        (
            "metadata",
            lambda: Metadata("", "comments", "x"),
            ["crumb_id", "table_name", "content", "property_id"],
        ),
    ]
    for table, make, names in fields:
        for field in [*names, "extra"]:
            for value in BAD:
                if field == "extra" and value == {"a": 1}:
                    continue
                entity = make()
                setattr(entity, field, value)
                with pytest.raises(dgent.DgentError):
                    await quick.table(table).set(None, entity)
                    pytest.fail(f"{table}.{field} took {value!r}")
                assert entity.id == "" and getattr(entity, field) is value
    for value in (object(), float("nan"), {1: 2}, "\ud800"):
        with pytest.raises(dgent.DgentError):
            await quick.stashes.set(None, Stash("x", "context", value))
    assert await quick.universe.seq() == before


@pytest.mark.parametrize("value", [(1, 2), {"a": ("b",)}, {"at": datetime(2024, 1, 1, tzinfo=UTC)}, b"x"])
async def test_an_entity_says_what_was_stored(quick: Cupboard, value: Any) -> None:
    stash = Stash("s", "context", value, extra={"x": value})
    await quick.stashes.set(None, stash)
    assert await quick.stashes.get(stash.id) == stash
    assert await quick.stashes.set_value(stash.id, [value]) == await quick.stashes.get(stash.id)


@pytest.mark.parametrize("thing", [None, 5, "", "nothing", b"x", ["x"], Crumb("not stored"), object()])
async def test_calls_with_what_is_no_crumb_or_trail(quick: Cupboard, thing: Any) -> None:
    made = await quick.add("x")
    before = await quick.universe.seq()
    for call in (
        lambda: quick.done(thing),
        lambda: quick.drop(thing),
        lambda: quick.release(thing),
        lambda: quick.heartbeat(thing, "me"),
        lambda: quick.explain(thing),
        lambda: quick.complete(thing),
        lambda: quick.abandon(thing),
        lambda: quick.comment(thing, "x"),
        lambda: quick.add("y", parents=[thing]),
        lambda: quick.add("y", parents=[made, thing]),
        lambda: quick.start("y", branches_from=thing if thing is not None else "nothing"),
    ):
        with pytest.raises(dgent.DgentError):
            await call()
    assert await quick.universe.seq() == before


async def test_a_large_trail(quick: Cupboard) -> None:
    """More crumbs than a usual transaction may read: added, completed or abandoned in one commit."""
    size = 1500
    for how in ("complete", "abandon"):
        trail = await quick.start(how)
        crumbs = [Crumb(f"c{n}", "ready") for n in range(size)]
        await quick.add_many(crumbs, [("child_of", n, n // 2) for n in range(1, size)], trail=trail)
        assert len(await quick.ready(trail_id=trail.id)) == 1
        before = await quick.universe.seq()
        ended = await getattr(quick, how)(trail)
        assert await quick.universe.seq() == before + 1 and len(ended.crumbs) == size
        if how == "complete":
            assert len(await quick.links.fetch(limit=0)) == size - 1
            assert (await quick.origin(crumbs[77])).id == trail.id
    assert len(await quick.crumbs.fetch()) == size


async def test_a_long_chain_and_a_wide_fan(quick: Cupboard) -> None:
    chain = await quick.add_many(
        [f"c{n}" for n in range(600)], [("child_of", n, n - 1) for n in range(1, 600)]
    )
    with pytest.raises(errors.Cycle):
        await quick.links.set(None, Link("child_of", chain[0].id, chain[-1].id))
    hub = await quick.add("hub")
    await quick.add_many(
        [Crumb(f"f{n}", "ready") for n in range(600)], [("child_of", n, hub.id) for n in range(600)]
    )
    assert len(await quick.blocked()) == 599 + 600
    await quick.done(hub)
    assert len(await quick.ready()) == 600
    await quick.crumbs.delete(hub.id)
    assert len(await quick.links.fetch()) == 599


async def test_a_clock_that_jumps(quick: Cupboard, hours: Hours) -> None:
    rng = random.Random(5)
    crumb = await quick.add("x", state="ready")
    lock = await quick.stashes.create("l", "lock")
    tokens, last = [], crumb.updated_at
    for n in range(30):
        hours.set_clock(rng.choice((-10_000, -1, 0, 1, 10_000)))
        crumb = await quick.crumbs.get(crumb.id)
        crumb.set_property("owner", f"o{n}")
        await quick.crumbs.set(crumb.id, crumb)
        assert crumb.updated_at >= last and crumb.updated_at >= crumb.created_at
        last = crumb.updated_at
        tokens.append(await quick.stashes.acquire(lock.id, f"h{n}", lease_s=10))
        hours.set_clock(rng.choice((-10_000, 0, 5, 10_000)))
        with pytest.raises(errors.LockHeld):
            await quick.stashes.acquire(lock.id, "other")
        await quick.stashes.release(lock.id, f"h{n}")
    assert tokens == sorted(set(tokens))
    versions = [entry.version for entry in await quick.stashes.history(lock.id)]
    assert versions == list(range(1, 62))
    taken = await quick.take("me")
    assert taken is not None and taken.id == crumb.id
    assert (await quick.audit()).findings == ()


async def test_times_at_the_edge_of_the_calendar(quick: Cupboard) -> None:
    last = datetime.max.replace(tzinfo=UTC)
    first = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
    far = await quick.add("far", state="ready", defer_until=last)
    near = await quick.add("near", state="ready", defer_until=first)
    assert [c.id for c in await quick.ready()] == [near.id]
    assert (await quick.crumbs.get(far.id)).defer_until == last
    old = Crumb("old", created_at=first)
    await quick.crumbs.set(None, old)
    assert (await quick.crumbs.fetch())[-1].id == old.id


PLANTED = (
    *("cupboard/catalog", "cupboard/turn", "cupboard/schema/comments", "cupboard/line/x"),
    *(PRIORITY, next(iter(CATEGORIES))),
)


@pytest.mark.parametrize("id", PLANTED)
async def test_what_is_planted_before_the_first_use_is_not_in_the_way(url: str, id: str) -> None:
    async with dgent.open(url) as u:
        for handle in (u, u.acting(Principal("eve", "conversant")), u.for_room("blocks")):
            with pytest.raises(dgent.Denied):
                await handle.put(dgent.Datum(id, data={"n": 1}), expect=0)
        await u.for_room(EVERY_ROOM).put(dgent.Datum(id, data={"holder": "x", "name": 3}))
        cupboard = Cupboard(u)
        crumb = await cupboard.add("work", state="ready", properties={"priority": "high"})
        await cupboard.comment(crumb, "a word")
        taken = await cupboard.take("eve", lease_s=60)
        assert taken is not None and taken.id == crumb.id
        await cupboard.done(crumb.id, agent="eve")
        assert not (await cupboard.audit()).findings
