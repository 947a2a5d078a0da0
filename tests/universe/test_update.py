"""The time of a version, as a universe and its transactions show it; and changes of single fields."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass

import pytest

import dgent
from dgent.errors import InputError, VersionConflict
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, Mark, MarkV1, mark

# -- updated_at -----------------------------------------------------------------------------


async def test_what_a_write_returns_has_the_time_of_its_commit(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), id="a")
    assert kept.updated_at == kept.datum.updated_at == (await u.history("a"))[0].at
    again = await u.remember(mark(), id="a")
    assert (again.rev, again.updated_at) == (1, kept.updated_at)
    await asyncio.sleep(0.002)
    changed = await u.store(again.replace(value=mark("wait")))
    assert changed.updated_at > kept.updated_at
    assert changed.created_at == kept.created_at
    for found in (await u.get("a"), (await u.get_many(["a"]))[0], (await u.recall(schema="witness.mark"))[0]):
        assert found.datum == changed.datum
    raw = await u.put(dgent.Datum(id="b"))
    assert [raw] == await u.list("b")
    first, second = await u.put_many([dgent.Datum(id="c"), dgent.Datum(id="b", data={"n": 1})])
    assert await u.get_many(["c", "b"]) == [first, second]
    assert first.updated_at == second.updated_at > raw.updated_at
    seq = kept.seq
    assert seq is not None
    assert (await u.get("a", as_of=seq)).updated_at == kept.updated_at
    async for change in u.watch(since=0):
        assert {item.datum.updated_at for item in change.items} == {change.at}
        if change.seq == await u.seq():
            break


async def test_a_caller_cannot_set_the_time_of_a_version(u: dgent.Universe) -> None:
    kept = await u.put(dgent.Datum(id="a"))
    ahead = kept.replace(updated_at=kept.created_at.replace(year=2999), data={"n": 1})
    assert dgent.Datum(id="new").updated_at is None
    stored = await u.put(ahead)
    assert stored.updated_at is not None and stored.updated_at.year < 2999
    assert (await u.get("a")).updated_at == stored.updated_at
    same = await u.put(stored.replace(updated_at=ahead.updated_at))
    assert (same.rev, same.updated_at) == (2, stored.updated_at)


async def test_datums_with_another_time_differ_and_can_be_copied(u: dgent.Universe) -> None:
    kept = await u.put(dgent.Datum(id="a"))
    assert kept != kept.replace(updated_at=None)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert kept.replace(tags=frozenset("t")).updated_at == kept.updated_at
    assert repr(kept).endswith(f"updated_at={kept.updated_at!r})")


async def test_a_transaction_shows_its_own_writes_as_the_newest(u: dgent.Universe) -> None:
    for id in ("a", "b", "c"):
        await u.remember(mark(id), id=id)
    stored = await u.get("c")
    query = dgent.Query(order_by="updated_at")
    async with u.transaction() as tx:
        changed = await tx.update(await tx.get("a"), action="x")
        new = await tx.remember(mark("new"), id="n")
        assert changed.updated_at is None and new.updated_at is None
        assert (await tx.get("a")).updated_at is None
        found = await tx.query(query)
        assert [each.id for each in found] == ["n", "a", "c", "b"]
        assert [each.id for each in await tx.query(query.replace(descending=False))] == ["b", "c", "a", "n"]
        since = query.replace(updated_since=stored.updated_at)
        assert [each.id for each in await tx.query(since)] == ["n", "a", "c"]
        until = dgent.Query(updated_until=stored.updated_at)
        assert {each.id for each in await tx.query(until)} <= {"b"}
    assert [each.id for each in await u.query(query)] == ["n", "a", "c", "b"]


async def test_pages_by_update_are_of_one_moment(u: dgent.Universe) -> None:
    for n in range(12):
        await u.put(dgent.Datum(id=f"{n:02}"))
    seen = []
    async for datum in u.iterate(dgent.Query(order_by="updated_at", limit=10)):
        seen.append(datum.id)
        await u.put(dgent.Datum(id="00", data={"n": len(seen)}))
    assert seen == [f"{n:02}" for n in range(11, 1, -1)]
    assert (await u.query(order_by="updated_at", limit=1))[0].id == "00"


async def test_a_data_field_called_updated_at_is_a_path(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="a", data={"updated_at": 2}))
    await asyncio.sleep(0.002)
    await u.put(dgent.Datum(id="b", data={"updated_at": 1}))
    assert [each.id for each in await u.query(order_by="updated_at")] == ["b", "a"]
    assert [each.id for each in await u.query(order_by=("updated_at",))] == ["a", "b"]
    assert [each.id for each in await u.query(where={"updated_at": 2})] == ["a"]


# -- update ---------------------------------------------------------------------------------


async def test_update_changes_fields_and_nothing_else(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"}, source="s", content=b"c", author="ann")
    changed = await u.update(kept, action="wait", tags=("x",))
    assert changed == await u.get(kept.id)
    assert (changed.rev, changed.value) == (2, mark("wait", tags=("x",)))
    assert (changed.tags, changed.source, changed.author) == ({"t"}, "s", "ann")
    assert changed.datum.content == b"c"
    assert (await u.update(changed)).rev == 2, "no change is no version"


async def test_update_refuses_to_overwrite_what_it_did_not_see(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), id="a")
    await u.update(kept, action="mine")
    with pytest.raises(VersionConflict, match=r"at rev 2, not 1.*get it again.*expect=None") as refused:
        await u.update(kept, reasoning="late")
    assert refused.value.details["actual"] == 2
    assert (await u.get("a")).value == mark("mine")
    forced = await u.update(kept, expect=None, reasoning="late")
    assert forced.value == Mark("ship", "late", "scout")
    with pytest.raises(VersionConflict):
        await u.update(forced, expect=2, action="x")
    await u.delete("a")
    with pytest.raises(VersionConflict, match="does not exist"):
        await u.update(forced, action="x")


async def test_update_names_wrong_fields(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    with pytest.raises(
        InputError, match=r"Mark has no field acton, reason .did you mean action or reasoning"
    ) as raised:
        await u.update(kept, acton="x", reason="y")
    assert raised.value.details["field"] == "acton"
    with pytest.raises(InputError, match=r"no field weight .it has action, reasoning, author"):
        await u.update(kept, weight=8)
    with pytest.raises(InputError, match="action"):
        await u.update(kept, action=5)
    with pytest.raises(InputError, match=r"takes a Crystal, not str .get the record first"):
        await u.update(kept.id, action="x")  # type: ignore[arg-type]
    assert await u.get(kept.id) == kept


async def test_update_keeps_fields_of_newer_programs(u: dgent.Universe, another: Another) -> None:
    old = await another(MARK_V1)
    kept = await old.remember(MarkV1("ship", "why", "ann"), id="a")
    await u.store((await u.get("a")).datum.replace(data={**kept.datum.data, "future": 1}))
    changed = await old.update(await old.get("a"), action="wait")
    assert changed.datum.data["future"] == 1
    newest = await u.update(await u.get("a"), reasoning="new")
    assert (newest.value.action, newest.value.reasoning) == ("wait", "new")
    assert newest.datum.data["future"] == 1


async def test_update_in_a_transaction(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), id="a")
    async with u.transaction() as tx:
        one = await tx.update(kept, action="one")
        with pytest.raises(VersionConflict, match="changed earlier in this transaction"):
            await tx.update(kept, reasoning="lost")
        two = await tx.update(one.with_tags("t"), reasoning="two")
        three = await tx.update(await tx.get("a"), author="three")
        assert two.value == Mark("one", "two", "scout")
        new = await tx.update(await tx.remember(mark(), id="n"), action="new")
        await tx.update(new, reasoning="newer")
        await tx.delete("other")
    assert (await u.get("a")).value == three.value == Mark("one", "two", "three")
    assert (await u.get("a")).tags == {"t"}
    assert (await u.get("n")).value == Mark("new", "newer", "scout")
    assert (await u.get("a")).rev == 2
    with pytest.raises(InputError, match="has no rev to compare with"):
        await u.update(new, action="x")
    with pytest.raises(VersionConflict):
        async with u.transaction() as tx:
            await tx.update(kept, action="late")
    with pytest.raises(VersionConflict, match="deleted earlier"):
        async with u.transaction() as tx:
            await tx.delete("a")
            await tx.update(await u.get("a"), action="x")


@dataclass(frozen=True)
class Other:
    action: str


async def test_update_in_a_collection(u: dgent.Universe) -> None:
    u.register(dgent.Schema("other", contract=Other))
    marks, kept = u.collection(Mark), await u.remember(mark())
    assert (await marks.update(kept, action="wait")).value == mark("wait")
    with pytest.raises(VersionConflict):
        await marks.update(kept, action="again")
    assert (await marks.update(kept, expect=None, action="again")).rev == 3
    with pytest.raises(InputError, match="not 'other'"):
        await marks.update(await u.remember(Other("x")), action="y")  # type: ignore[arg-type]


async def test_of_many_updates_at_once_one_counts(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    calls = [u.update(kept, action=f"{n}") for n in range(8)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    (changed,) = [each for each in done if isinstance(each, dgent.Crystal)]
    assert await u.get(kept.id) == changed
    assert sum(isinstance(each, VersionConflict) for each in done) == 7
