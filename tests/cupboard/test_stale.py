"""An entity that was read and is gone since is not brought back by storing it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from dgent.cupboard import Crumb, Cupboard, Link, Metadata, Property, Stash, Trail, errors
from dgent.errors import Conflict
from tests.cupboard.conftest import Rival

Make = Callable[[Cupboard], Awaitable[Any]]


async def a_crumb(cupboard: Cupboard) -> Crumb:
    return await cupboard.add("work", state="ready")


async def a_trail(cupboard: Cupboard) -> Trail:
    return await cupboard.start("try")


async def a_link(cupboard: Cupboard) -> Link:
    link = Link("child_of", (await cupboard.add("a")).id, (await cupboard.add("b")).id)
    await cupboard.links.set(None, link)
    return link


async def a_stash(cupboard: Cupboard) -> Stash:
    return await cupboard.stashes.create("cache", "context", {"a": 1})


async def an_entry(cupboard: Cupboard) -> Metadata:
    return await cupboard.comment(await cupboard.add("a"), "look")


async def a_property(cupboard: Cupboard) -> Property:
    made = Property("size", "integer")
    await cupboard.properties.set(None, made)
    return made


MAKERS: dict[str, Make] = {
    "crumbs": a_crumb,
    "trails": a_trail,
    "links": a_link,
    "stashes": a_stash,
    "metadata": an_entry,
    "properties": a_property,
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("read", ["made", "read"])
async def test_a_deleted_entity_stays_deleted(quick: Cupboard, name: str, read: str) -> None:
    table = quick.table(name)
    made = await MAKERS[name](quick)
    stale = made if read == "made" else await table.get(made.id)
    await table.delete(made.id)
    with pytest.raises(Conflict, match="was deleted since") as caught:
        await table.set(made.id, stale)
    assert caught.value.hint
    assert await table.fetch(id=made.id) == []
    assert (await quick.audit()).findings == ()


@pytest.mark.parametrize("name", MAKERS)
async def test_also_where_another_program_read_it(cupboard: Cupboard, rival: Rival, name: str) -> None:
    other = await rival()
    made = await MAKERS[name](cupboard)
    await cupboard.table(name).delete(made.id)
    with pytest.raises(Conflict, match="was deleted since"):
        await other.table(name).set(made.id, made)
    assert await other.table(name).fetch(id=made.id) == []


@pytest.mark.parametrize("name", MAKERS)
async def test_one_made_anew_under_its_id_is_another(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    made = await MAKERS[name](quick)
    stale = await table.get(made.id)
    await table.delete(made.id)
    fields = {field: getattr(stale, field) for field in table.entity.OWN if field != "version"}
    await table.set(made.id, table.entity(**fields))
    with pytest.raises(Conflict, match="was deleted since"):
        await table.set(made.id, stale)
    again = await table.get(made.id)  # what is there now can be stored
    await table.set(made.id, again)


async def test_an_abandoned_crumb_stays_gone(quick: Cupboard) -> None:
    trail = await quick.start("try")
    await quick.add("work", state="ready", trail=trail)
    taken = await quick.take("ann")
    assert taken is not None
    await quick.abandon(trail)
    taken.set_property("owner", "ann")
    with pytest.raises(Conflict, match="was deleted since"):
        await quick.crumbs.set(taken.id, taken)
    assert await quick.crumbs.fetch() == []
    with pytest.raises(Conflict, match="was deleted since"):
        await quick.add(taken)
    with pytest.raises(Conflict, match="was deleted since"):
        await quick.add_many([taken])
    with pytest.raises(errors.EntityNotFound):
        await quick.done(taken)


async def test_what_an_undo_brings_back_can_be_stored(quick: Cupboard) -> None:
    crumb = await quick.add("work")
    await quick.crumbs.delete(crumb.id)
    await quick.universe.undo(await quick.universe.seq())
    crumb.name = "renamed"
    await quick.crumbs.set(crumb.id, crumb)
    assert (await quick.crumbs.get(crumb.id)).name == "renamed"


async def test_a_copy_for_another_store_is_made_there(quick: Cupboard) -> None:
    import dgent

    crumb = await quick.add("work")
    async with dgent.open("memory:") as u:
        elsewhere = Cupboard(u)
        await elsewhere.crumbs.set(crumb.id, crumb)
        assert (await elsewhere.crumbs.get(crumb.id)).name == "work"


@pytest.mark.parametrize("name", MAKERS)
async def test_a_copy_by_replace_is_as_stale_as_what_it_was_made_from(quick: Cupboard, name: str) -> None:
    table = quick.table(name)
    made = await MAKERS[name](quick)
    copied = replace(await table.get(made.id))
    assert copied == await table.get(made.id) and copied.seq == made.seq
    await table.set(made.id, replace(copied))
    await table.delete(made.id)
    with pytest.raises(Conflict, match="was deleted since"):
        await table.set(made.id, copied)
    assert await table.fetch(id=made.id) == []


async def test_a_copy_by_replace_keeps_what_others_changed(quick: Cupboard) -> None:
    crumb = await quick.add("work", state="ready")
    stale = await quick.crumbs.get(crumb.id)
    crumb.set_property("owner", "ann")
    await quick.crumbs.set(crumb.id, crumb)
    taken = await quick.take("bea")
    assert taken is not None
    await quick.crumbs.set(crumb.id, replace(stale, name="other"))
    now = await quick.crumbs.get(crumb.id)
    assert (now.name, now.state, now.holder) == ("other", "taken", "bea")
    assert now.get_property("owner") == "ann"
    with pytest.raises(Conflict, match="its state is now 'taken'"):
        await quick.crumbs.set(crumb.id, replace(stale, state="dust"))
    renamed = replace(taken, name="mine")
    assert (renamed.holder, renamed.token) == ("bea", taken.token)
    renamed.set_property("type", "bug")
    assert renamed.readable()["type"] == "bug"
    assert (await quick.done(renamed)).state == "pebble"  # as `take` gave it


async def test_a_copy_with_another_id_is_a_new_entity(quick: Cupboard) -> None:
    trail = await quick.start("try")
    crumb = await quick.add("work", trail=trail)
    await quick.complete(trail)
    assert replace(await quick.trails.get(trail.id)).crumbs == (crumb.id,)
    for id in ("", "other"):
        copied = replace(crumb, id=id)
        assert copied.seq is None
        assert await quick.crumbs.set(id or None, copied) != crumb.id
    assert len(await quick.crumbs.fetch(name="work")) == 3
