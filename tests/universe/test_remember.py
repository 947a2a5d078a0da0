"""Typed values go in and come out: remember, recall, get, store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import pytest

import dgent
from dgent.errors import KeyReused, NotFound
from tests.universe.marks import MARK, Mark, mark


async def test_what_is_remembered_is_what_is_read(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"eureka"})
    assert (kept.rev, kept.seq) == (1, await u.seq())
    read = await u.get(kept.id)
    assert isinstance(read, dgent.Crystal)
    assert (read.value, read.datum) == (mark(), kept.datum)
    assert await u.recall(dgent.Query(schema="witness.mark", tags={"eureka"})) == [kept]
    assert read.meta.crystallized_from is None
    assert (read.meta.schema_name, read.meta.schema_version) == ("witness.mark", 3)


async def test_the_envelope_is_kept(u: dgent.Universe) -> None:
    cause = await u.remember(mark("cause"))
    when = datetime(2020, 2, 29, 12, 30, 1, 7, tzinfo=UTC)
    kept = await u.remember(
        mark(),
        id="my own id",
        tags=["b", "a"],
        author="ann",
        source="a test",
        parent=cause,
        content=b"\x00\xff",
        created_at=when,
    )
    datum = (await u.get("my own id")).datum
    assert datum == kept.datum
    assert datum.tags == {"a", "b"}
    assert (datum.author, datum.source, datum.parent_id) == ("ann", "a test", cause.id)
    assert (datum.content, datum.created_at) == (b"\x00\xff", when)


async def test_the_author_of_the_universe_is_the_default(u: dgent.Universe) -> None:
    assert (await u.remember(mark())).author == "scout"
    assert (await u.put(dgent.Datum())).author == "scout"
    assert [d.author for d in await u.put_many([dgent.Datum(), dgent.Datum(author="ann")])] == [
        "scout",
        "ann",
    ]
    with pytest.raises(dgent.InputError, match="author"):
        await u.remember(mark(), author="")


async def test_a_record_of_an_unknown_schema_is_a_raw_datum(u: dgent.Universe) -> None:
    strange = await u.put(dgent.Datum.create({"a": 1}, schema="else.where", schema_version=7))
    assert await u.get(strange.id) == strange
    assert await u.query(dgent.Query(schema="else.where")) == [strange]
    assert await u.recall(dgent.Query(schema="else.where")) == []


async def test_raw_always_works(u: dgent.Universe) -> None:
    assert await u.get("nothing") is None
    assert await u.get("nothing", raw=True) is None
    broken = await u.put(dgent.Datum.create({"action": 7}, schema="witness.mark", schema_version=3))
    with pytest.raises(dgent.Unreadable):
        await u.get(broken.id)
    assert await u.get(broken.id, raw=True) == broken
    kept = await u.remember(mark())
    assert await u.get(kept.id, raw=True) == kept.datum


async def test_a_value_comes_back_as_everyone_will_read_it(u: dgent.Universe) -> None:
    kept = await u.remember(mark(tags=["a", "list"]))
    assert kept.value.tags == ("a", "list")
    again = await u.store(kept.replace(value=mark(tags=["another", "list"])))
    assert again.value.tags == ("another", "list")
    assert again.value == (await u.get(kept.id)).value


async def test_a_type_that_is_not_registered_is_refused(u: dgent.Universe) -> None:
    @dataclass(frozen=True)
    class Stranger:
        a: int

    with pytest.raises(NotFound, match="Stranger"):
        await u.remember(Stranger(1))
    with pytest.raises(dgent.InputError, match="store"):
        await u.remember(await u.remember(mark()))
    with pytest.raises(dgent.InputError, match="Mark"):
        await u.store(mark())


# -- store --------------------------------------------------------------------------------


async def test_store_keeps_everything_that_was_not_changed(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"}, source="s", content=b"c", author="ann")
    stored = await u.store(kept.replace(value=mark("wait")), expect=kept.rev)
    assert stored.datum == (await u.get(kept.id)).datum
    assert stored.updated_at >= kept.updated_at
    given = {"rev": 1, "seq": kept.seq, "updated_at": kept.updated_at}
    assert stored.datum.replace(data=kept.datum.data, **given) == kept.datum
    tagged = await u.store(stored.with_tags("more"))
    assert tagged.tags == {"t", "more"}
    assert tagged.value == mark("wait")


async def test_compare_and_set(u: dgent.Universe) -> None:
    kept = await u.remember(mark())
    await u.store(kept.replace(value=mark("first")), expect=kept.rev)
    seq = await u.seq()
    with pytest.raises(dgent.VersionConflict) as refused:
        await u.store(kept.replace(value=mark("second")), expect=kept.rev)
    assert refused.value.details == {"id": kept.id, "expected": 1, "actual": 2}
    assert (await u.get(kept.id)).value == mark("first")
    with pytest.raises(dgent.VersionConflict):
        await u.remember(mark(), id=kept.id, expect=0)
    assert await u.seq() == seq


async def test_storing_the_same_again_changes_nothing(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), tags={"t"})
    seq = await u.seq()
    again = await u.store(kept, expect=kept.rev)
    assert (again.rev, again.seq, again.datum) == (1, kept.seq, kept.datum)
    assert await u.put(kept.datum) == kept.datum
    assert await u.seq() == seq
    assert len(await u.history(kept.id)) == 1


async def test_writing_over_a_record_tells_when_it_was_made(u: dgent.Universe) -> None:
    first = await u.remember(mark(), id="x")
    for again in (await u.remember(mark("again"), id="x"), await u.put(dgent.Datum(id="x"))):
        assert again.created_at == first.created_at
    assert again == await u.get("x")
    assert await u.put_many([dgent.Datum(id="x", data={"a": 1})]) == [await u.get("x")]


async def test_counting_goes_on_after_a_deletion(u: dgent.Universe) -> None:
    kept = await u.remember(mark(), id="x")
    assert await u.delete("x") is True
    assert await u.delete("x") is False
    assert await u.get("x") is None
    again = await u.remember(mark(), id="x")
    assert again.rev == 3
    with pytest.raises(dgent.VersionConflict):
        await u.store(again, expect=kept.rev)


# -- idempotency keys ---------------------------------------------------------------------


async def test_a_keyed_write_twice_happens_once(u: dgent.Universe) -> None:
    first = await u.remember(mark(), tags={"t"}, key="k1")
    seq = await u.seq()
    second = await u.remember(mark(), tags={"t"}, key="k1")
    assert second == first
    assert second.datum == first.datum
    assert await u.seq() == seq
    assert await u.count() == 1


async def test_a_key_used_for_other_work_is_refused(u: dgent.Universe) -> None:
    await u.remember(mark(), key="k1")
    seq = await u.seq()
    for other in (
        u.remember(mark("else"), key="k1"),
        u.remember(mark(), tags={"t"}, key="k1"),
        u.put(dgent.Datum(), key="k1"),
        u.delete("x", key="k1"),
    ):
        with pytest.raises(KeyReused):
            await other
    assert await u.seq() == seq


async def test_the_outcome_of_a_key(u: dgent.Universe) -> None:
    assert await u.outcome("k1") is None
    kept = await u.remember(mark(), key="k1")
    await u.store(kept.replace(value=mark("later")))
    outcome = await u.outcome("k1")
    assert outcome is not None
    assert (outcome.seq, outcome.written[0].id, outcome.written[0].rev) == (kept.seq, kept.id, 1)
    with pytest.raises(dgent.VersionConflict):
        await u.put(dgent.Datum(id=kept.id), expect=0, key="refused")
    assert await u.outcome("refused") is None


async def test_a_retry_after_later_changes_gets_the_first_answer(u: dgent.Universe) -> None:
    first = await u.remember(mark(), key="k1")
    await u.store(first.replace(value=mark("later")))
    again = await u.remember(mark(), key="k1")
    assert (again.id, again.rev, again.seq, again.value) == (first.id, 1, first.seq, mark())
    assert (await u.get(first.id)).value == mark("later")


async def test_keyed_deletes_and_batches(u: dgent.Universe) -> None:
    batch = [dgent.Datum(id=f"d{n}", data={"n": n}) for n in range(3)]
    first = await u.put_many(batch, key="batch")
    assert await u.put_many(batch, key="batch") == first
    assert await u.delete("d1", key="del") is True
    assert await u.delete("d1", key="del") is True, "the first answer"
    assert await u.count() == 2


async def test_a_retry_after_a_forget_brings_nothing_back(u: dgent.Universe) -> None:
    datum = await u.put(dgent.Datum(id="x"))
    await u.put(datum, key="no-op")
    await u.forget("x")
    with suppress(KeyReused):
        await u.put(datum, key="no-op")
    assert not await u.exists("x")


async def test_a_crystal_of_a_schema_not_known_here_is_refused(u: dgent.Universe, another: object) -> None:
    kept = await u.remember(mark())
    other = await another()  # type: ignore[operator]
    with pytest.raises(dgent.InputError, match=r"witness\.mark"):
        await other.store(kept)
    assert (await other.get(kept.id)).data == kept.datum.data


async def test_registering_twice_is_fine_and_another_contract_is_not(u: dgent.Universe) -> None:
    u.register(MARK)
    u.register(dgent.Schema("witness.mark", version=3, contract=Mark, migrations=MARK.migrations))

    @dataclass(frozen=True)
    class Other:
        action: str

    with pytest.raises(dgent.InputError, match="higher version"):
        u.register(dgent.Schema("witness.mark", version=3, contract=Other, migrations=MARK.migrations))
    with pytest.raises(dgent.InputError, match="already"):
        u.register(dgent.Schema("other.mark", contract=Mark))
    with pytest.raises(dgent.InputError, match="Schema"):
        u.register(Mark)
    assert (await u.remember(mark())).schema_version == 3


T = TypeVar("T")


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T


async def test_a_generic_contract(u: dgent.Universe) -> None:
    u.register(dgent.Schema("test.box", contract=Box[int]))
    kept = await u.remember(Box(3))
    assert (await u.get(kept.id)).value == Box(3)
    assert await u.collection(Box[int]).query() == [kept]
    assert (await u.collection(Box[int]).remember(Box(4))).value == Box(4)
    with pytest.raises(dgent.InputError, match="item"):
        await u.remember(Box("text"))
    with pytest.raises(NotFound):
        u.collection(Box[str])
    with pytest.raises(dgent.InputError, match=r"Box\[int\] is the contract of 'test.box' already"):
        u.register(dgent.Schema("test.other", contract=Box[int]))


async def test_several_generics_of_one_class(u: dgent.Universe) -> None:
    numbers = dgent.Schema("box.number", contract=Box[int], indexes=("item",))
    u.register(numbers, dgent.Schema("box.text", contract=Box[str]))
    number = await u.remember(Box(3), schema="box.number")
    text = await u.remember(Box("a"), schema=Box[str])
    assert (number.schema_name, text.schema_name) == ("box.number", "box.text")
    assert await u.remember(Box(3), schema=numbers, id=number.id) == number
    assert await u.get(number.id) == number and await u.get(text.id) == text
    assert await u.recall(schema="box.number", where={"item": {"$gte": 3}}) == [number]
    assert await u.collection(Box[str]).query() == [text]
    more = await u.collection(Box[str]).remember(Box("b"))
    assert more.schema_name == "box.text"
    changed = await u.store(number.replace(value=Box(4)))
    assert changed.schema_name == "box.number" and changed.rev == 2
    with pytest.raises(
        dgent.InputError, match=r"'box.number' \(Box\[int\]\), 'box.text' \(Box\[str\]\)"
    ) as told:
        await u.remember(Box(5))
    assert "schema='box.number'" in told.value.hint
    with pytest.raises(dgent.InputError, match="several"):
        u.collection(Box)
    with pytest.raises(dgent.InputError, match="item"):
        await u.remember(Box("text"), schema="box.number")
    with pytest.raises(NotFound, match=r"Box\[float\]"):
        u.collection(Box[float])
    with pytest.raises(NotFound, match=r"'box.number' is registered"):
        await u.remember(Box(1), schema=dgent.Schema("box.number", contract=Box[int]))
    async with u.transaction() as tx:
        inside = await tx.remember(Box(6), schema="box.number")
    assert (await u.get(inside.id)).value == inside.value == Box(6)


async def test_values_of_a_class_with_a_schema_of_its_own_need_no_name(u: dgent.Universe) -> None:
    u.register(dgent.Schema("box.number", contract=Box[int]), dgent.Schema("box", contract=Box))
    assert (await u.remember(Box(1))).schema_name == "box"
    assert (await u.remember(Box(1), schema=Box[int])).schema_name == "box.number"
    assert u.schema_for(Box).name == "box"


async def test_a_newer_version_may_change_which_generic_it_holds(u: dgent.Universe) -> None:
    u.register(dgent.Schema("box", contract=Box[int]))
    old = await u.remember(Box(1))
    u.register(
        dgent.Schema("box", 2, Box[str], {1: lambda data: {"item": str(data["item"])}}),
        dgent.Schema("box.number", contract=Box[int]),
    )
    assert (await u.get(old.id)).value == Box("1")
    assert (await u.remember(Box(1), schema=Box[int])).schema_name == "box.number"


async def test_the_parent_may_be_given_by_its_id(u: dgent.Universe) -> None:
    first = await u.remember({"n": 1})
    second = await u.remember({"n": 2}, parent_id=first.id)
    assert second.parent_id == first.id
    with pytest.raises(dgent.InputError, match="cannot be combined"):
        await u.remember({"n": 3}, parent=first, parent_id=first.id)


async def test_records_that_name_their_schema_inside_are_read_as_crystals(u: dgent.Universe) -> None:
    u.register(dgent.Schema("old.mark", contract=OldMark, version=2, migrations={1: _add_weight}))
    await u.put(dgent.Datum("a", data={"_schema": "old.mark", "_version": 1, "action": "ship"}))
    await u.put(dgent.Datum("b", data={"_schema": "nobody.knows", "_version": 1, "action": "ship"}))
    found = await u.get("a")
    assert (found.value, found.schema_name) == (OldMark("ship", 1), "old.mark")
    assert isinstance(await u.get("b"), dgent.Datum)
    assert (await u.get("a", raw=True)).data["_schema"] == "old.mark"


@dataclass(frozen=True)
class OldMark:
    action: str
    weight: int


def _add_weight(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "weight": 1}
