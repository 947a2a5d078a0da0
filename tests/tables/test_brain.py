"""Brain: each crystal is a datum that search finds and a row that SQL counts, both or neither."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from dgent.errors import Denied, InputError
from dgent.tables import connect
from dgent.tables.brain import Brain
from dgent.tables.migrate import run_migrations
from dgent.tables.models import BrainSettings, Crystal, Tag
from dgent.universe.gate import Principal

NOW = timedelta(0)


@pytest.fixture
async def brain(universe, place) -> Brain:
    await run_migrations(place, "002")
    return Brain(universe, place)


async def test_a_crystal_is_on_both_tracks_and_comes_back_whole(universe, place, brain) -> None:
    text = "The kettle boils at 92 degrees in Bogotá: " + "x" * 300
    made = await brain.capture(
        text, ["tea", "height", "tea"], source_type="talk", source_ref="day 3", metadata={"pages": [1, 2]}
    )
    assert made.tags == ("height", "tea")
    assert made.content == text
    assert made.summary == text[:200]
    assert made.content_hash == hashlib.sha256(text.encode()).hexdigest()

    found = await brain.get(made.id, touch=False)
    assert found == made
    assert (found.source_type, found.source_ref, found.metadata) == ("talk", "day 3", {"pages": [1, 2]})
    assert found.captured_at.utcoffset() == NOW

    datum = (await universe.get(made.id)).datum
    assert (datum.data["content"], datum.tags, datum.schema) == (text, {"tea", "height"}, "brain.content")
    assert datum.created_at == made.captured_at
    async with place.sessions() as session:
        row = (await session.scalars(select(Crystal))).one()
        tags = (await session.scalars(select(Tag.tag).order_by(Tag.tag))).all()
    assert (row.id, row.datum_id, row.tags, tags) == (made.id, made.id, ["height", "tea"], ["height", "tea"])


async def test_search_and_lists_give_ids_that_get_and_delete_take(universe, brain) -> None:
    kept = [
        await brain.capture(f"note {n} about {what}", [what]) for n, what in enumerate(("tea", "rain", "tea"))
    ]
    found = await brain.search("tea")
    assert {each.id for each in found} == {kept[0].id, kept[2].id}
    assert found[0].score == 1.0
    assert [each.id for each in await brain.search("note", tags=["rain"])] == [kept[1].id]
    assert [each.id for each in await brain.list_recent(2)] == [kept[2].id, kept[1].id]
    assert [each.id for each in await brain.list_by_tag("tea")] == [kept[2].id, kept[0].id]
    assert {hit.id for hit in await universe.search("tea")} == {kept[0].id, kept[2].id}

    assert await brain.delete(kept[0].id)
    assert not await brain.delete(kept[0].id)
    assert await brain.get(kept[0].id) is None
    assert await universe.get(kept[0].id) is None
    assert [each.id for each in await brain.list_by_tag("tea")] == [kept[2].id]
    status = await brain.status()
    assert (status.crystals, status.texts, status.tags) == (2, 2, 2)
    assert (status.first, status.last) == (kept[1].captured_at, kept[2].captured_at)


async def test_each_access_counts_once_and_changes_nothing_else(brain, place) -> None:
    made = await brain.capture("counted")
    for count in (1, 2):
        found = await brain.get(made.id)
        assert found.access_count == count
        assert found.last_accessed is not None
    await brain.search("counted")
    assert (await brain.get(made.id, touch=False)).access_count == 2
    async with place.sessions() as session:
        assert (await session.get(Crystal, made.id)).updated_at == made.captured_at


async def test_what_surfaces_is_related_and_rests_afterwards(brain) -> None:
    old = await brain.capture("tea with ginger")
    new = await brain.capture("tea with mint")
    await brain.capture("a stone")
    first = await brain.surface("tea", entropy=0)
    assert (first.id, first.access_count) == (old.id, 1)
    assert (await brain.surface("tea", entropy=0)).id == new.id
    assert await brain.surface("tea") is None, "both were seen a moment ago"
    assert (await brain.surface("tea", rest=NOW, seed=5)).id in (old.id, new.id)
    assert await brain.surface("submarine") is None


async def test_a_refused_row_takes_its_datum_along(universe, place, brain) -> None:
    async with place.engine.begin() as connection:
        await connection.execute(sa.text("DROP TABLE brain_crystal_tags"))
    before = await universe.seq()
    with pytest.raises(InputError, match="brain_crystal_tags"):
        await brain.capture("half of it", ["a"])
    assert await universe.seq() == before
    assert await universe.count(schema="brain.content") == 0
    assert (await brain.capture("no tags, no problem")).content == "no tags, no problem"


async def test_settings_add_tags_and_bad_texts_are_refused(place, brain) -> None:
    async with place.sessions.begin() as session:
        session.add(BrainSettings(default_tags=["home"]))
    assert (await brain.capture("with a default", ["own"])).tags == ("home", "own")
    for wrong in ("", "  ", None):
        with pytest.raises(InputError, match="text"):
            await brain.capture(wrong)


async def test_forgetting_erases_both(universe, brain) -> None:
    made = await brain.capture("a secret")
    assert await brain.forget(made.id)
    assert await brain.get(made.id) is None
    assert await universe.history(made.id) == []
    assert not await brain.forget(made.id)


async def test_a_deleted_crystal_can_be_forgotten(universe, brain) -> None:
    made = await brain.capture("a secret")
    assert await brain.delete(made.id)
    assert await brain.forget(made.id)
    assert await universe.history(made.id) == []


async def test_the_same_text_twice_is_two_crystals(brain) -> None:
    one, two = await brain.capture("again"), await brain.capture("again")
    assert one.id != two.id
    assert one.content_hash == two.content_hash


async def test_friends_find_texts_and_have_no_rows(universe, place, brain) -> None:
    made = await brain.capture("ginger tea")
    friend = universe.acting(Principal("bob", "friend"))
    assert [hit.record.id for hit in await friend.search("ginger")] == [made.id]
    with pytest.raises(Denied):
        await connect(friend)
