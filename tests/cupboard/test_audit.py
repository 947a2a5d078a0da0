"""What comes past the tables is found, told and put right; and drawings that names cannot break out of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

import dgent
from dgent.cupboard import Cupboard, Link, Property, Stash, Trail
from dgent.cupboard.record import (
    LinkRecord,
    MetadataRecord,
    PropertyRecord,
    StashRecord,
)
from dgent.model.crystal import Crystal


@pytest.fixture
async def cupboard() -> AsyncIterator[Cupboard]:
    async with dgent.open("memory:", author="ann") as u:
        yield Cupboard(u)


async def past(cupboard: Cupboard, value: Any, **fields: Any) -> str:
    """Write a record as a merge or an import could, without asking the rules."""
    tags = (value.link_type,) if isinstance(value, LinkRecord) else ()
    crystal = await cupboard._universe.remember(value, tags=tags, **fields)
    return crystal.id


async def change(cupboard: Cupboard, id: str, **fields: Any) -> None:
    found = await cupboard._universe.get(id)
    assert isinstance(found, Crystal)
    await cupboard._universe.store(found.replace(value=replace(found.value, **fields)))


async def rules(cupboard: Cupboard) -> list[str]:
    return [finding.rule for finding in (await cupboard.audit()).findings]


async def test_a_cupboard_in_use_is_as_its_rules_say(cupboard: Cupboard) -> None:
    trail = await cupboard.start("one")
    a = await cupboard.add("a", trail=trail, state="ready")
    b = await cupboard.add("b", trail=trail, state="ready", parents=[a])
    await cupboard.add("c", parents=[a, b])
    await cupboard.comment(a, "hello")
    assert (await cupboard.audit()).ok
    assert await cupboard.repair() is None


async def test_it_tells_permanent_crumbs_from_orphans(cupboard: Cupboard) -> None:
    trail, other = await cupboard.start("one"), await cupboard.start("two")
    kept = await cupboard.add("kept", trail=trail)
    there = await cupboard.add("there", trail=other)
    alone = await cupboard.add("alone")
    await cupboard.complete(trail)
    found = await cupboard.audit()
    assert (found.permanent, found.on_trail, found.orphan) == ((kept.id,), (there.id,), (alone.id,))


async def test_links_that_lead_nowhere_are_found_and_deleted(cupboard: Cupboard) -> None:
    a = await cupboard.add("a", state="ready")
    await past(cupboard, LinkRecord("child_of", a.id, "gone"))
    await past(cupboard, LinkRecord("belongs_to", a.id, a.id))
    await past(cupboard, LinkRecord("odd", a.id, a.id))
    assert await rules(cupboard) == ["reference"] * 3
    seq = await cupboard.repair()
    assert (await cupboard.audit()).ok
    assert await cupboard.links.fetch() == []
    assert seq is not None


async def test_too_many_links_are_found_and_the_later_ones_deleted(cupboard: Cupboard) -> None:
    one, two = await cupboard.start("one"), await cupboard.start("two")
    a = await cupboard.add("a", trail=one)
    await past(cupboard, LinkRecord("belongs_to", a.id, two.id))
    await past(cupboard, LinkRecord("belongs_to", a.id, one.id))
    assert await rules(cupboard) == ["cardinality"] * 2
    await cupboard.repair()
    (link,) = await cupboard.links.fetch()
    assert (link.from_id, link.to_id) == (a.id, one.id)


async def test_circles_are_found_broken_and_counted_anew(cupboard: Cupboard) -> None:
    a = await cupboard.add("a", state="ready")
    b = await cupboard.add("b", state="ready", parents=[a])
    c = await cupboard.add("c", state="ready", parents=[b])
    newest = await past(cupboard, LinkRecord("child_of", a.id, c.id))
    await past(cupboard, LinkRecord("child_of", a.id, a.id), id="self")
    found = await cupboard.audit()
    circles = [finding for finding in found.findings if finding.rule == "acyclic"]
    assert {finding.ids for finding in circles} == {(newest,), ("self",)}
    assert all(each.id in str([finding.text for finding in circles]) for each in (a, b, c))
    await cupboard.repair()
    assert (await cupboard.audit()).ok
    assert [crumb.name for crumb in await cupboard.ready()] == ["a"]


async def test_wrong_readiness_is_worked_out_anew(cupboard: Cupboard) -> None:
    a = await cupboard.add("a", state="ready", properties={"priority": "high"})
    b = await cupboard.add("b", state="ready", parents=[a])
    await change(cupboard, a.id, queue=None)
    await change(cupboard, b.id, open_parents=0, queue=1)
    assert await rules(cupboard) == ["readiness"] * 2
    await cupboard.repair()
    assert [crumb.name for crumb in await cupboard.ready()] == ["a"]
    assert (await cupboard.audit()).ok


async def test_crumbs_on_an_ended_trail_lose_their_place_there(cupboard: Cupboard) -> None:
    trail = Trail("over", state="completed")
    await cupboard.trails.set(None, trail)
    a = await cupboard.add("a")
    await past(cupboard, LinkRecord("belongs_to", a.id, trail.id))
    assert await rules(cupboard) == ["ended trail"]
    await cupboard.repair()
    assert [crumb.id for crumb in await cupboard.crumbs.fetch()] == [a.id]
    assert (await cupboard.audit()).ok


async def test_names_metadata_and_values(cupboard: Cupboard) -> None:
    a = await cupboard.add("a", properties={"owner": "ann"})
    (owner,) = await cupboard.properties.fetch(name="owner")
    await past(cupboard, PropertyRecord("owner", "text"))
    for _ in range(2):
        await past(cupboard, StashRecord("s", "context", a.created_at))  # type: ignore[arg-type]
    await past(cupboard, MetadataRecord("gone", "comments", "hello"))
    await past(cupboard, MetadataRecord(a.id, "unknown", "hello"))
    found = await cupboard._universe.get(a.id)
    await change(cupboard, a.id, properties={**found.value.properties, owner.id: 7})
    assert sorted(await rules(cupboard)) == ["metadata", "metadata", "names", "names", "values"]
    await cupboard.repair()
    assert (await cupboard.crumbs.get(a.id)).get_property(owner.id) == ""
    left = (await cupboard.audit()).findings
    assert [finding.act for finding in left] == ["look"] * 3


async def test_trails_are_compared_as_they_are_and_as_they_were(cupboard: Cupboard) -> None:
    await cupboard.properties.set(None, Property("approach", "text", scope="trail"))
    root = await cupboard.add("root")
    redis = await cupboard.start("redis", branches_from=root, properties={"approach": "server"})
    sqlite = await cupboard.start("sqlite", properties={"approach": "file"})
    for name, state in (("install", "pebble"), ("measure", "dust")):
        await cupboard.add(name, trail=redis, state=state)
    await cupboard.add("measure", trail=sqlite, state="pebble")
    stash = Stash("p99", "context", 7)
    await cupboard.stashes.set(None, stash)
    await cupboard.links.set(None, Link("scoped_to", stash.id, redis.id))
    during = await cupboard.compare(redis, sqlite)
    assert during.a.counts["pebble"] == during.a.counts["dust"] == 1
    await cupboard.abandon(redis, lesson="no")
    await cupboard.complete(sqlite)
    after = await cupboard.compare(redis, sqlite)
    assert [crumb.name for crumb in after.a.by_state["dust"]] == ["measure"]
    assert after.a.counts == during.a.counts
    assert after.a.branches_from == root.id
    assert after.differences == {"approach": ("server", "file")}
    assert after.stashes == {"p99": (7, None)}
    assert [crumb.name for crumb in after.b.crumbs] == ["measure"]


async def test_drawings_hold_whatever_a_name_holds(cupboard: Cupboard) -> None:
    a = await cupboard.add('"]; click x "javascript:alert(1)"\n--> <b>')
    trail = await cupboard.start("t\\")
    await cupboard.add("b", trail=trail, parents=[a])
    drawn = await cupboard.graph()
    assert {node.kind for node in drawn.nodes} == {"crumb", "trail"}
    mermaid, dot = drawn.mermaid(), drawn.dot()
    assert len(mermaid.splitlines()) == 1 + 3 + 2
    assert '"' not in mermaid.splitlines()[1].removeprefix('    n0["').removesuffix('"]')
    assert "<b>" not in mermaid and "click x #34;" in mermaid
    assert len(dot.splitlines()) == 2 + 3 + 2
    assert '  "' + a.id + '" -> ' in dot
    part = await cupboard.graph(trail)
    assert {node.name for node in part.nodes} >= {"b", "t\\", a.name}


async def test_one_that_is_not_stored_cannot_be_drawn(cupboard: Cupboard) -> None:
    with pytest.raises(dgent.NotFound):
        await cupboard.graph("nothing")
