"""Encoding many datums column by column gives what encoding each by itself gives, or leaves it to that."""

from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgent
from dgent import Datum
from dgent.errors import InputError
from dgent.store.backend import Commit, Delete, Put
from dgent.store.engine.batch import FEWEST, Batch, encode_batch
from dgent.store.engine.commit import prepare
from dgent.store.engine.row import encode_datum

START = datetime(2026, 1, 1, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


def make_datums(**changes: object) -> list[Datum]:
    """Return enough datums for a batch; the last one has the changes."""
    datums = [
        Datum(
            f"id-{n}",
            START + timedelta(seconds=n),
            {"name": f"note {n}", "n": n, "done": n % 2 == 0, "score": n / 7, "of": None if n % 3 else "x"},
            tags=frozenset((f"even-{n % 2}", "all")),
            schema="note",
            schema_version=1,
        )
        for n in range(FEWEST)
    ]
    return [*datums[:-1], datums[-1].replace(**changes)]


def encode(datums: list[Datum]) -> Batch | None:
    return encode_batch([Put(datum) for datum in datums], "bob")


def test_usual_datums_are_encoded_together() -> None:
    datums = make_datums()
    batch = encode(datums)
    assert batch is not None
    assert [*batch] == batch[:] == [encode_datum(datum, "bob") for datum in datums]
    assert batch[-1] == encode_datum(datums[-1], "bob")
    assert batch.size == sum(len(made.data) for made in batch)


def test_the_data_of_a_batch_stays_when_the_caller_changes_theirs() -> None:
    datums = make_datums()
    batch = encode(datums)
    assert batch is not None
    datums[0].data["name"] = "another"
    assert batch[0].plain["name"] == "note 0"


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "other"},
        {"schema_version": 2},
        {"author": "alice"},
        {"source": "web"},
        {"parent_id": "id-0"},
        {"content": b"x"},
        {"extra": {"a": 1}},
        {"id": "id-0"},
        {"id": "ü"},
        {"id": Colour.RED},
        {"tags": frozenset((Colour.RED,))},
        {"created_at": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
    ],
    ids=repr,
)
def test_a_datum_of_another_kind_is_left_to_the_longer_way(changes: dict[str, object]) -> None:
    assert encode(make_datums(**changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ""},
        {"id": "a\0"},
        {"id": 5},
        {"id": "x" * 513},
        {"created_at": datetime(2026, 1, 1)},
        {"created_at": "today"},
        {"data": {"n": float("nan")}},
        {"data": {"n": 2**63}},
        {"data": {"n": len}},
        {"data": {1: "n"}},
        {"data": {"n": "\ud800"}},
        {"data": []},
        {"tags": frozenset(("",))},
        {"tags": "abc"},
        {"author": ""},
        {"schema": None},
        {"schema_version": True},
        {"schema": []},
    ],
    ids=repr,
)
def test_a_batch_refuses_what_a_datum_alone_is_refused_for(changes: dict[str, object]) -> None:
    datums = make_datums(**changes)
    with pytest.raises(InputError) as alone:
        prepare(Commit([Put(datums[-1])]))
    with pytest.raises(InputError) as together:
        prepare(Commit([Put(datum) for datum in datums]))
    assert (str(together.value), together.value.details) == (str(alone.value), alone.value.details)


def test_other_ops_are_no_batch() -> None:
    puts = [Put(datum) for datum in make_datums()]
    assert encode_batch([*puts, Delete("a")], "bob") is None
    assert encode_batch([*puts[:-1], Put(puts[-1].datum, 0)], "bob") is None


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=2), scalars, max_size=2)
bodies = st.dictionaries(st.sampled_from("abü"), values, max_size=3)


@given(st.lists(bodies, min_size=1, max_size=4), st.lists(st.sets(st.text(max_size=3), max_size=2)))
def test_any_data_is_encoded_as_it_is_alone(data: list[dict[str, object]], tags: list[set[str]]) -> None:
    datums = [
        Datum(f"{n}", START, body, tags=frozenset(tags[n] if n < len(tags) else ()))
        for n, body in enumerate(data)
    ]
    batch = encode(datums)
    try:
        alone = [encode_datum(datum, "bob") for datum in datums]
    except InputError:
        assert batch is None
    else:
        assert batch is not None
        assert [*batch] == alone
        assert [list(made.plain) for made in batch] == [list(made.plain) for made in alone]


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_a_batch_is_found_as_records_put_one_by_one_are(url: str, tmp_path: object) -> None:
    """The same records, once in a batch and once each by itself, and every query answers the same."""
    datums = [
        datum.replace(data=datum.data | {"kind": f"k{n % 3}", "in": {"x": n % 2}})
        for n, datum in enumerate(make_datums())
    ]
    answers = []
    for way in ("batch", "each"):
        place = url if url == "memory:" else f"sqlite:///{tmp_path}/{way}.db"
        async with dgent.open(place) as u:
            u.register(dgent.Schema("note", 1, indexes=("kind", "in.x", "score", "lost")))
            await u.put(datums[0].replace(id="first"))  # so that the schema has records
            if way == "batch":
                await u.put_many(datums)
            else:
                for datum in datums:
                    await u.put(datum)
            asked: list[dict[str, object]] = [
                {"schema": "note"},
                {"schema": "note", "tags": {"even-1"}},
                {"schema": "note", "where": {"kind": "k1"}},
                {"schema": "note", "where": {"in.x": 1}, "tags": {"all"}},
                {"schema": "note", "order_by": "score"},
                {"schema": "note", "where": {"score": {"$gt": 1}}},
            ]
            found = [[(d.id, d.data, d.tags, d.rev) for d in await u.query(raw=True, **ask)] for ask in asked]
            assert all(found)
            answers.append(found)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_ids_that_were_there_before_go_on_counting(url: str, tmp_path: object) -> None:
    async with dgent.open(url if url == "memory:" else f"sqlite:///{tmp_path}/a.db") as u:
        datums = make_datums()
        assert {stored.rev for stored in await u.put_many(datums)} == {1}
        await u.delete("id-1")
        await u.forget("id-2")
        again = await u.put_many(datums)
        assert [stored.rev for stored in again[:4]] == [1, 3, 2, 1]
        await u.forget("id-3")
        others = [datum.replace(id=f"other-{datum.id}") for datum in datums]
        back = await u.put_many([*others, datums[3]])  # all of them are new, but one was forgotten
        assert [stored.rev for stored in back] == [1] * len(others) + [2]
        assert await u.count(schema="note") == len(datums) + len(others)
