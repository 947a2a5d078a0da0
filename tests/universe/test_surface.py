"""`surface`: something related, old and not recently seen, the same for the same seed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dgent
from dgent.errors import InputError

NOW = datetime(2026, 1, 31, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
async def u():
    async with dgent.open("memory:") as universe:
        for day in range(20):
            text = f"tea number {day}" if day % 2 else f"stone number {day}"
            at = NOW - (20 - day) * DAY
            await universe.put(dgent.Datum(f"note-{day:02}", data={"text": text}, created_at=at))
        yield universe


def ids(found) -> list[str]:
    return [each.id for each in found]


async def test_only_related_records_surface(u) -> None:
    found = await u.surface("tea", k=20, now=NOW)
    assert sorted(ids(found)) == [f"note-{day:02}" for day in range(1, 20, 2)]


async def test_the_oldest_of_equal_fits_comes_first_without_chance(u) -> None:
    assert ids(await u.surface("tea", entropy=0, k=3, now=NOW)) == ["note-01", "note-03", "note-05"]
    assert ids(await u.surface(entropy=0, k=2, now=NOW)) == ["note-00", "note-01"]


async def test_the_same_seed_draws_the_same_and_others_differ(u) -> None:
    draws = {seed: tuple(ids(await u.surface("tea", seed=seed, k=5, now=NOW))) for seed in range(20)}
    assert draws == {seed: tuple(ids(await u.surface("tea", seed=seed, k=5, now=NOW))) for seed in range(20)}
    assert len(set(draws.values())) > 5


async def test_a_record_seen_lately_rests(u) -> None:
    first = ids(await u.surface("tea", entropy=0, now=NOW))[0]
    seen = {first: NOW - DAY / 2}
    assert first not in ids(await u.surface("tea", k=20, seen=seen, now=NOW))
    assert first in ids(await u.surface("tea", k=20, seen=seen, now=NOW + DAY))
    assert first in ids(await u.surface("tea", k=20, seen=seen, now=NOW, rest=DAY / 4))


@pytest.mark.parametrize("text", ["tea", None])
async def test_records_behind_many_that_were_seen_lately_are_found(u, text) -> None:
    many = [dgent.Datum(f"old-{n:03}", data={"text": "tea"}, created_at=NOW - 90 * DAY) for n in range(70)]
    await u.put_many(many)
    seen = {datum.id: NOW for datum in many}
    assert ids(await u.surface(text, seen=seen, now=NOW))[0].startswith("note-")


async def test_never_seen_comes_before_seen_long_ago(u) -> None:
    seen = {f"note-{day:02}": NOW - 5 * DAY for day in range(1, 12, 2)}
    found = ids(await u.surface("tea", entropy=0, k=3, seen=seen, now=NOW))
    assert found == ["note-13", "note-15", "note-17"]


async def test_filters_narrow_it_and_nothing_fits_is_empty(u) -> None:
    assert ids(await u.surface("tea", k=9, prefix="note-0", now=NOW)) != []
    assert all(id < "note-10" for id in ids(await u.surface("tea", k=9, prefix="note-0", now=NOW)))
    assert await u.surface("submarine", now=NOW) == []


async def test_a_collection_surfaces_its_own(u) -> None:
    u.register(dgent.Schema("mood", text={"text": 1}))
    kept = await u.remember({"text": "tea"}, schema="mood")
    assert ids(await u.collection("mood").surface("tea", k=9, rest=0 * DAY)) == [kept.id]


async def test_a_new_record_does_not_change_the_draws_of_others(u) -> None:
    before = ids(await u.surface("tea", seed=7, entropy=1, k=20, now=NOW))
    await u.put(dgent.Datum("note-99", data={"text": "tea number 99"}))
    after = ids(await u.surface("tea", seed=7, entropy=1, k=20, now=NOW))
    assert [id for id in after if id != "note-99"] == before


@pytest.mark.parametrize("wrong", [{"entropy": 1.5}, {"k": 0}, {"colour": "red"}])
async def test_wrong_arguments_are_named(u, wrong) -> None:
    with pytest.raises(InputError) as error:
        await u.surface("tea", **wrong)
    assert next(iter(wrong)) in str(error.value)
