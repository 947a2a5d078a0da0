"""Old records: upgraded on the way out, found by what only the new version has, kept as they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.errors import DecodeFailed, SchemaError, UnreadableRecord, UpgradeFailed
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, MARK_V2, Mark, MarkV1, add_tags, old_mark

MARKS = dgent.Query(schema="witness.mark")


async def test_an_old_record_is_read_in_the_new_version(u: dgent.Universe) -> None:
    first = await u.put(old_mark(1))
    second = await u.put(old_mark(2))
    read = await u.get(first.id)
    assert read.value == Mark("ship", "tests pass", "scout", ("upgraded",), ("ship",))
    assert (await u.get(second.id)).value == Mark("ship", "tests pass", "scout", ("written",), ("ship",))
    assert read.datum == first, "as stored"
    assert (read.meta.crystallized_from, read.meta.stored_version) == (first.id, 1)
    assert (read.schema_version, read.was_upgraded) == (3, True)
    assert [c.value for c in await u.recall(MARKS)] == [(await u.get(i.id)).value for i in (second, first)]
    assert await u.get(first.id) == read, "upgrading again gives the same"


async def test_only_upgraded_records_say_so(u: dgent.Universe) -> None:
    fresh = await u.put(old_mark(3))
    read = await u.get(fresh.id)
    assert read.meta.crystallized_from is None
    assert read.meta.stored_version == 3


async def test_a_field_that_only_the_new_version_has_finds_old_records(u: dgent.Universe) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    versions = [1, 2, 3, 1, 2, 3, 1]
    await u.put_many(
        old_mark(v, f"act{n}", id=f"r{n}", created_at=start + timedelta(days=n))
        for n, v in enumerate(versions)
    )

    async def answers() -> list[Any]:
        by_principle = MARKS.replace(where={"principles.0": "act3"})
        in_order = MARKS.replace(order_by="principles.0", descending=False)
        return [
            [c.id for c in await u.query(by_principle)],
            await u.count(by_principle),
            [c.id for c in await u.query(in_order)],
            [c.id for c in await u.query(in_order.replace(limit=2, offset=3))],
            await u.count(MARKS.replace(where={"principles.0": {"$prefix": "act"}})),
            await u.count(MARKS.replace(where={"tags": {"$contains": "upgraded"}})),
        ]

    expected = [
        ["r3"],
        1,
        ["r0", "r1", "r3", "r4", "r6", "r2", "r5"],
        ["r4", "r6"],
        5,
        3,
    ]
    assert await answers() == expected
    await u.indexed()
    assert await answers() == expected


async def test_records_from_before_the_new_version(another: Another, u: dgent.Universe) -> None:
    """The old program filled the store alone; then the new one opens it."""
    old = await another(MARK_V1)
    for n in range(5):
        await old.remember(MarkV1(f"act{n}", "because", f"agent{n % 2}"))
    found = await u.query(MARKS.replace(where={"principles.0": {"$in": ["act1", "act4"]}}))
    assert [c.value.action for c in found] == ["act4", "act1"]
    assert await u.count(MARKS.replace(where={"author": "agent1"})) == 2
    assert await u.versions("witness.mark") == {1: 5}
    await u.indexed()
    assert await u.query(MARKS.replace(where={"principles.0": {"$in": ["act1", "act4"]}})) == found


async def test_a_step_that_fails_breaks_no_query(u: dgent.Universe) -> None:
    unlucky = await u.put(old_mark(1, "unlucky"))
    lucky = await u.put(old_mark(1, "lucky"))
    with pytest.raises(UpgradeFailed) as failed:
        await u.get(unlucky.id)
    assert failed.value.details["step"] == "1 -> 2"
    assert "no tags for the unlucky" in failed.value.details["reason"]
    assert failed.value.details["id"] == unlucky.id
    assert "1 -> 2" in str(failed.value)

    found = await u.query(MARKS)
    assert found[0].id == lucky.id
    assert isinstance(found[1], dgent.Datum)
    assert found[1].replace(problem=None) == unlucky
    assert "no tags for the unlucky" in (found[1].problem or "")
    with pytest.warns(UnreadableRecord, match="no tags for the unlucky"):
        assert [c.id for c in await u.recall(MARKS)] == [lucky.id]
    assert await u.count(MARKS) == 2

    await u.indexed()
    assert await u.get(unlucky.id, raw=True) == unlucky
    assert [v.rev for v in await u.history(unlucky.id)] == [1]
    assert (await u.query(MARKS.replace(where={"action": "unlucky"})))[0].id == unlucky.id


async def test_data_that_does_not_fit_behaves_the_same(u: dgent.Universe) -> None:
    wrong = {"action": 7, "reasoning": "r", "author": None, "tags": [], "principles": []}
    broken = await u.put(dgent.Datum(data=wrong, schema="witness.mark", schema_version=3))
    with pytest.raises(DecodeFailed) as failed:
        await u.get(broken.id)
    assert set(failed.value.details["fields"]) == {"action", "author"}
    (found,) = await u.query(MARKS)
    assert found.replace(problem=None) == broken
    assert "action" in found.problem and "author" in found.problem
    (again,) = await u.get_many([broken.id])
    assert again == found
    assert await u.get(broken.id, raw=True) == broken


async def test_a_problem_is_not_stored(u: dgent.Universe) -> None:
    await u.put(old_mark(1, "unlucky", id="x"))
    (found,) = await u.query(MARKS)
    mended = await u.put(found.replace(data={**found.data, "action": "mended"}))
    assert mended.problem is None
    assert (await u.get("x")).value.action == "mended"


async def test_an_upgrade_never_touches_what_is_stored(u: dgent.Universe) -> None:
    def clumsy(data: dict[str, Any]) -> dict[str, Any]:
        data["list"].append(2)
        data.pop("gone")
        return data

    @dataclass(frozen=True)
    class Thing:
        list: tuple[int, ...]

    u.register(dgent.Schema("test.thing", version=2, contract=Thing, migrations={1: clumsy}))
    kept = await u.put(dgent.Datum.create({"list": [1], "gone": True}, schema="test.thing", schema_version=1))
    for _ in range(2):
        read = await u.get(kept.id)
        assert read.value == Thing((1, 2))
        assert read.datum.data == {"list": [1], "gone": True}
    assert await u.get(kept.id, raw=True) == kept


async def test_storing_an_upgraded_crystal_writes_the_new_version(u: dgent.Universe) -> None:
    old = await u.put(old_mark(1))
    read = await u.get(old.id)
    stored = await u.store(read.replace(value=Mark("wait", "r", "scout")), expect=read.rev)
    assert (stored.datum.schema_version, stored.rev) == (3, 2)
    assert stored.meta.crystallized_from is None
    assert (await u.get(old.id)).value == Mark("wait", "r", "scout")
    assert (await u.get(old.id, as_of=old.seq)).value == read.value, "history upgrades too"


async def test_unknown_fields_survive_a_read_change_write(u: dgent.Universe) -> None:
    for version in (1, 3):
        made = old_mark(version)
        odd = made.replace(data={**made.data, "extra": {"deep": [1]}, "note": None})
        await u.put(odd)
        read = await u.get(odd.id)
        await u.store(read.replace(value=Mark("changed", "r", "scout")))
        data = (await u.get(odd.id, raw=True)).data
        assert data["action"] == "changed"
        assert (data["extra"], data["note"]) == ({"deep": [1]}, None)


def test_a_gap_is_an_error_when_the_schema_is_made() -> None:
    with pytest.raises(SchemaError, match="2 -> 3"):
        dgent.Schema("witness.mark", version=3, contract=Mark, migrations={1: add_tags})


async def test_a_record_older_than_the_oldest_step_is_unreadable(u: dgent.Universe) -> None:
    @dataclass(frozen=True)
    class Late:
        a: int

    u.register(dgent.Schema("test.late", version=3, oldest=2, contract=Late, migrations={2: lambda d: d}))
    kept = await u.put(dgent.Datum.create({"a": 1}, schema="test.late", schema_version=1))
    with pytest.raises(UpgradeFailed, match="from 2"):
        await u.get(kept.id)
    assert (await u.query(dgent.Query(schema="test.late")))[0].problem


async def test_derived_steps(u: dgent.Universe) -> None:
    @dataclass(frozen=True)
    class One:
        a: int

    @dataclass(frozen=True)
    class Two:
        a: int
        b: tuple[str, ...] = ("x",)

    step = dgent.Schema.derive_step(One, Two)
    u.register(dgent.Schema("test.derived", version=2, contract=Two, migrations={1: step}))
    kept = await u.put(dgent.Datum.create({"a": 1}, schema="test.derived", schema_version=1))
    assert (await u.get(kept.id)).value == Two(1, ("x",))


async def test_versions_says_which_stored_versions_exist(u: dgent.Universe) -> None:
    assert await u.versions("witness.mark") == {}
    await u.put_many([old_mark(1), old_mark(3), old_mark(1), old_mark(7)])
    gone = await u.put(old_mark(2))
    await u.delete(gone.id)
    assert await u.versions("witness.mark") == {1: 2, 3: 1, 7: 1}
    assert await u.versions(Mark) == {1: 2, 3: 1, 7: 1}


async def test_middle_versions_upgrade_from_where_they_are(another: Another, u: dgent.Universe) -> None:
    middle = await another(MARK_V2)
    kept = await middle.put(old_mark(1))
    read = await middle.get(kept.id)
    assert (read.schema_version, read.value.tags) == (2, ("upgraded",))
    await middle.store(read)
    assert await u.versions("witness.mark") == {2: 1}
    assert (await u.get(kept.id)).value.principles == ("ship",)


async def test_recall_tells_what_it_leaves_out_and_warns_once_for_each_version(u: dgent.Universe) -> None:
    for n in range(3):
        await u.put(old_mark(1, "unlucky", id=f"bad{n}"))
    await u.put(old_mark(4, id="newer"))
    await u.put(old_mark(1, id="good"))
    await u.put(dgent.Datum.create({}, id="raw"))
    with pytest.warns(UnreadableRecord) as told:
        found = await u.recall(dgent.Query(limit=None))
    assert len(told) == 2 and any("version 1" in str(each.message) for each in told)
    assert "bad" in "".join(str(each.message) for each in told)
    assert [crystal.id for crystal in found] == ["good"]
    assert sorted(datum.id for datum in found.problems) == ["bad0", "bad1", "bad2", "newer"]
    assert all(datum.problem for datum in found.problems)
    again = await u.recall(dgent.Query(limit=None))  # without a second warning, which would be an error here
    assert len(again.problems) == 4
    assert len((await u.collection(Mark).query()).problems) == 4
    async with u.transaction() as tx:
        assert len((await tx.recall(dgent.Query(schema="witness.mark"))).problems) == 4


@pytest.mark.filterwarnings("ignore::dgent.errors.UnreadableRecord")
async def test_recall_tells_of_records_that_lack_the_field_it_was_asked_for(u: dgent.Universe) -> None:
    """Their upgrade fails, so nobody can say whether they match; what they do have is judged."""
    await u.put_many(old_mark(1, "unlucky", id=f"bad{n}", tags=("t",) if n else ()) for n in range(3))
    await u.put(old_mark(1, id="good"))
    await u.remember(Mark("ship", "why", "ann", ("x",)), id="new")
    moment = await u.seq()

    async def told(where: dict[str, Any], **rest: Any) -> tuple[list[str], list[str]]:
        query = MARKS.replace(where=where, **rest)
        found = await u.recall(query)
        async with u.transaction() as tx:
            again = await tx.recall(query)
        assert (again, again.problems) == (found, found.problems)
        assert all(each.problem for each in found.problems)
        return sorted(each.id for each in found), sorted(each.id for each in found.problems)

    bad = ["bad0", "bad1", "bad2"]
    for _ in range(2):
        assert await told({"tags": {"$contains": "upgraded"}}) == (["good"], bad)
        assert await told({"principles.0": "ship"}) == (["good"], bad)  # by an index
        assert await told({"principles.0": "none"}) == ([], bad)
        assert await told({"principles.0": "none", "author": "scout"}) == ([], bad)
        assert await told({"principles.0": "none", "author": "ann"}) == ([], [])
        assert await told({"author": "ann"}) == (["new"], [])
        assert await told({"$or": [{"author": "ann"}, {"principles.0": "none"}]}) == (["new"], bad)
        assert await told({"$not": {"principles.0": {"$ne": "none"}}}) == ([], bad)
        assert await told({"$not": {"author": "scout"}, "principles": {"$exists": True}}) == (["new"], [])
        assert await told({"principles.0": "none"}, tags={"t"}) == ([], bad[1:])
        assert len((await told({"principles.0": "none"}, limit=2))[1]) == 2
        await u.indexed()
    await u.delete("bad0")
    then = await u.recall(MARKS.replace(where={"principles.0": "none"}), as_of=moment)
    assert sorted(each.id for each in then.problems) == bad
    assert await u.count(MARKS.replace(where={"principles.0": "none"})) == 0
