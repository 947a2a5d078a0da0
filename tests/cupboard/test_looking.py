"""Whoever only looks at a cupboard writes nothing, and sees what every cupboard starts with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.cupboard import Cupboard, Trail, errors


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
async def cupboard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cupboard]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:{tmp_path}/s"}
    async with dgent.open(urls[request.param], author="ann") as u:
        yield Cupboard(u)


async def test_a_store_without_a_cupboard_stays_so(cupboard: Cupboard) -> None:
    u = cupboard.universe
    await u.put(dgent.Datum("a", data={"n": 1}))
    assert len(await cupboard.properties.fetch()) == 5
    assert [each.name for each in await cupboard.properties.get_categories("type")] == [
        "task",
        "epic",
        "bug",
        "chore",
        "feature",
        "spike",
        "decision",
    ]
    assert [each.name for each in await cupboard.schemas.fetch()] == ["attachments", "comments"]
    priority = (await cupboard.properties.fetch(name="priority"))[0]
    assert (await cupboard.properties.get(priority.id)).value_type == "categorical"
    assert await cupboard.properties.fetch(name="nothing") == []
    assert len(await cupboard.categories.fetch(limit=3)) == 3
    assert await cupboard.crumbs.fetch(states=["ready"], properties={"type": "bug"}) == []
    assert await cupboard.ready() == [] and await cupboard.blocked() == []
    assert await cupboard.lessons("redis") == []
    with pytest.raises(errors.EntityNotFound):
        await cupboard.crumbs.get("a")
    assert await u.seq() == 1
    assert [each.name for each in await u.schemas()] == [""]


async def test_what_was_read_before_the_first_change_is_what_is_written(cupboard: Cupboard) -> None:
    before = {each.id: each.name for each in await cupboard.properties.fetch()}
    labels = (await cupboard.properties.fetch(name="labels"))[0]
    labels.description = "Tags."
    await cupboard.properties.set(labels.id, labels)
    assert {each.id: each.name for each in await cupboard.properties.fetch()} == before
    assert (await cupboard.properties.get(labels.id)).description == "Tags."
    assert len(await cupboard.categories.fetch()) == 12


async def test_definitions_are_those_of_now(cupboard: Cupboard) -> None:
    assert (await cupboard.definitions()).find("crumb", "owner").value_type == "text"
    await cupboard.properties.define("risk", "categorical", scope="trail", categories=("low", "high"))
    risk = (await cupboard.definitions()).find("trail", "risk")
    assert [(each.name, each.ordinal) for each in risk.options] == [("low", 0), ("high", 1)]


async def test_a_property_and_its_categories_are_one_commit(cupboard: Cupboard) -> None:
    await cupboard.add("seeded")
    seq = await cupboard.universe.seq()
    await cupboard.properties.define("size", "categorical", categories=("s", "m", "l"))
    assert await cupboard.universe.seq() == seq + 1
    with pytest.raises(errors.DuplicateName):
        await cupboard.properties.define("mood", "categorical", categories=("good", "good"))
    with pytest.raises(errors.InvalidValueType):
        await cupboard.properties.define("count", "integer", categories=("one",))
    assert await cupboard.universe.seq() == seq + 1
    assert [each.name for each in await cupboard.properties.fetch()][5:] == ["size"]


async def test_a_stash_of_a_trail_is_one_commit_and_its_name_is_free_elsewhere(cupboard: Cupboard) -> None:
    trail = await cupboard.start("try redis")
    await cupboard.stashes.create("n", "counter")
    seq = await cupboard.universe.seq()
    scoped = await cupboard.stashes.create("n", "counter", {"value": 4}, trail=trail.id)
    assert await cupboard.universe.seq() == seq + 1
    assert await cupboard.stashes.increment(scoped.id) == 5
    with pytest.raises(errors.DuplicateName):
        await cupboard.stashes.create("n", "lock", trail=trail.id)
    with pytest.raises(errors.DuplicateName):
        await cupboard.stashes.create("n", "lock")
    with pytest.raises(errors.EntityNotFound):
        await cupboard.stashes.create("m", "lock", trail="nobody")
    assert len(await cupboard.stashes.fetch()) == 2


async def test_versions_tell_what_an_entity_was(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("a", state="ready")
    await cupboard.take("scout")
    await cupboard.done(crumb.id, agent="scout")
    versions = await cupboard.crumbs.versions(crumb.id)
    assert [each.entity.state for each in versions if each.entity] == ["ready", "taken", "pebble"]
    assert versions[1].entity is not None and versions[1].entity.holder == "scout"
    assert [each.author for each in versions] == ["ann"] * 3
    await cupboard.crumbs.delete(crumb.id)
    assert (await cupboard.crumbs.versions(crumb.id))[-1].entity is None
    trail = Trail("t")
    await cupboard.trails.set(None, trail)
    assert await cupboard.crumbs.versions(trail.id) == []
