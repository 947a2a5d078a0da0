"""New values that many tasks remember at once: written together, and each as if it were alone."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import math
import uuid
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent import Query, Schema, ids
from dgent.errors import InputError, StorageError
from dgent.store.engine.fresh import MOST, FreshGroup
from dgent.store.engine.kernel import Writing
from dgent.store.sqlite.backend import SQLiteBackend
from tests.fault.check import check_store


@dataclasses.dataclass(frozen=True)
class Note:
    text: str
    count: int | None = 0
    share: float = 0.5


@dataclasses.dataclass(frozen=True)
class Told:
    text: str


class Mood(enum.StrEnum):
    CALM = "calm"


NOTE = Schema("note", 1, Note, indexes=("count",))
TOLD = Schema("told", 1, Told, text={"text": 1})
DURABILITIES = pytest.mark.parametrize("durability", ["full", "relaxed"])


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were written together, for each group."""
    sizes: list[int] = []
    write = FreshGroup.write

    def count(self: FreshGroup, ledger: Any) -> Any:
        done = write(self, ledger)
        sizes.append(0 if done is None else len(done))
        return done

    monkeypatch.setattr(FreshGroup, "write", count)
    return sizes


async def opened(path: Path, durability: str = "relaxed") -> dgent.Universe:
    u = await dgent.open(f"sqlite:///{path}", durability=durability)
    u.register(NOTE, TOLD)
    await u.remember(Note("the first of its schema"))
    return u


@DURABILITIES
async def test_each_is_a_commit_of_its_own(tmp_path: Path, durability: str, written: list[int]) -> None:
    u = await opened(tmp_path / "s.db", durability)
    values = [Note(f"n{n} ☃" if n % 9 else "", n if n % 5 else None, n / 3) for n in range(600)]
    sets = [None, {"a"}, ["b", "a"], frozenset({"c", "é"}), ()]
    made = await asyncio.gather(*[u.remember(v, tags=sets[n % 5]) for n, v in enumerate(values)])
    assert sum(written) == 600 and max(written) <= MOST
    assert [each.seq for each in made] == list(range(2, 602))
    assert len({each.id for each in made}) == 600 and sorted(e.id for e in made) == [e.id for e in made]
    for n, (each, value) in enumerate(zip(made, values, strict=True)):
        stored = await u.get(each.id, raw=True)
        assert stored == each.datum and stored.data == dataclasses.asdict(value)
        assert (stored.rev, stored.author, stored.schema) == (1, "system", "note")
        assert stored.tags == frozenset(sets[n % 5] or ())
        assert stored.updated_at is not None and stored.created_at <= stored.updated_at
    found = await u.recall(Query(schema="note", where={"count": 7}, tags={"b"}))
    assert [each.value for each in found] == [values[7]]
    assert [len(each.items) for each in await u.changes()] == [1] * 601
    await u.close()
    check_store(str(tmp_path / "s.db"))


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        (Note(7), ()),  # type: ignore[arg-type]
        (Note("\ud800"), ()),
        (Note("a", 2**63), ()),
        (Note("a", share=math.nan), ()),
        (Note("a"), ["x\0y"]),
        (Note("a"), ["\ud800"]),
        (Note("a"), [5]),
        (Note("a"), "tags"),
        (Note("a"), [f"{n}" for n in range(ids.MAX_TAGS + 1)]),
    ],
    ids=ascii,
)
async def test_a_wrong_one_is_refused_alone(tmp_path: Path, value: Note, tags: Any) -> None:
    u = await opened(tmp_path / "s.db")
    puts = [u.remember(Note(f"{n}", n)) for n in range(40)]
    puts.insert(20, u.remember(value, tags=tags))
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(ended.pop(20), InputError)
    assert sorted(each.value.count for each in ended) == list(range(40))
    assert await u.count(schema="note") == 41
    await u.close()


async def test_a_member_of_an_enum_is_stored_as_its_text(tmp_path: Path) -> None:
    u = await opened(tmp_path / "s.db")
    made = await asyncio.gather(*[u.remember(Note("a"), tags=[t]) for t in ("calm", Mood.CALM) * 10])
    raws = [await u.get(each.id, raw=True) for each in made]
    assert {type(tag) for each in made for tag in each.datum.tags} == {str}
    assert {each.tags for each in raws} == {frozenset({"calm"})}
    await u.close()


async def test_a_value_is_stored_as_it_was_when_it_was_given(tmp_path: Path, written: list[int]) -> None:
    u = await opened(tmp_path / "s.db")
    notes = [Note("before", n) for n in range(20)]
    tags = [["before"] for _ in notes]
    tasks = [asyncio.ensure_future(u.remember(v, tags=t)) for v, t in zip(notes, tags, strict=True)]

    def change() -> None:
        for note, each in zip(notes, tags, strict=True):
            object.__setattr__(note, "text", "after")
            each[:] = ["after"]

    asyncio.get_running_loop().call_soon(change)
    made = await asyncio.gather(*tasks)
    raws = [await u.get(each.id, raw=True) for each in made]
    assert written == [20]
    assert {each.data["text"] for each in raws} == {"before"} == {tag for each in raws for tag in each.tags}
    await u.close()


@DURABILITIES
async def test_a_cancelled_one_is_left_out(tmp_path: Path, durability: str, written: list[int]) -> None:
    u = await opened(tmp_path / "s.db", durability)
    tasks = [asyncio.ensure_future(u.remember(Note(f"{n}", n))) for n in range(40)]
    asyncio.get_running_loop().call_soon(tasks[7].cancel)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(ended.pop(7), asyncio.CancelledError) and written == [39]
    assert sorted(each.value.count for each in ended) == [n for n in range(40) if n != 7]
    assert not await u.count(schema="note", where={"count": 7})
    await u.close()


async def test_records_with_texts_go_the_usual_way_of_whoever_indexes_them(
    tmp_path: Path, written: list[int]
) -> None:
    u = await opened(tmp_path / "s.db")
    await asyncio.gather(*[u.remember(Told(f"a parser {n}")) for n in range(20)])
    assert len(await u.search("parser", k=50)) == 20
    assert written == [], "their texts are indexed"
    await u.close()
    plain = await dgent.open(f"sqlite:///{tmp_path}/s.db")
    plain.register(NOTE, Schema("told", 1, Told))  # the store knows of the texts, this program does not
    for _ in range(3):
        await asyncio.gather(*[plain.remember(Told(f"a parser {n}")) for n in range(20)])
    assert written == [20, 20], "the first ones before the store is known to have the schema"
    assert await plain.count(schema="told") == 80
    await plain.close()
    u = await opened(tmp_path / "s.db")
    assert len(await u.search("parser", k=100)) == 80, "those of the others wait for the index, too"
    await u.close()


async def test_records_with_other_entries_go_the_usual_way(tmp_path: Path, written: list[int]) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        u.register(Schema("told", 1, Told, indexes=("text.*",)))  # of items, should it ever be a list
        await u.remember(Told("the first of its schema"))
        for _ in range(3):
            await asyncio.gather(*[u.remember(Told(f"{n}")) for n in range(20)])
        assert written == [0], "refused once, and not tried again"
        assert await u.count(schema="told", where={"text": "7"}) == 3


async def test_the_first_records_of_a_schema_are_stored(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        u.register(NOTE)
        for turn in range(3):
            made = await asyncio.gather(*[u.remember(Note(f"{n}", n)) for n in range(20)])
            assert sorted(each.seq for each in made) == list(range(20 * turn + 1, 20 * turn + 21))
        assert await u.count(schema="note") == 60


@DURABILITIES
async def test_a_group_that_fails_is_written_one_by_one(tmp_path: Path, durability: str) -> None:
    failures = 0

    class Failing:
        def __init__(self, kernel: Writing) -> None:
            self._kernel = kernel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kernel, name)

        def insert(self, rows: Any) -> None:
            nonlocal failures
            if any(b"bad" in row.data for row in rows):
                failures += 1
                raise apsw.FullError("the disk is full")
            self._kernel.insert(rows)

    backend = SQLiteBackend(str(tmp_path / "s.db"), durability=durability, wrap=Failing)  # type: ignore[arg-type]
    async with dgent.Universe(backend) as u:
        u.register(NOTE)
        await u.remember(Note("the first of its schema"))
        notes = [Note("bad" if n == 11 else "good", n) for n in range(30)]
        ended = await asyncio.gather(*map(u.remember, notes), return_exceptions=True)
        assert isinstance(ended.pop(11), StorageError) and failures >= 2
        assert sorted(each.value.count for each in ended) == [n for n in range(30) if n != 11]
        assert await u.count(schema="note") == 30
    check_store(str(tmp_path / "s.db"))


@DURABILITIES
async def test_what_was_handed_in_before_a_close_is_stored(tmp_path: Path, durability: str) -> None:
    u = await opened(tmp_path / "s.db", durability)
    tasks = [asyncio.ensure_future(u.remember(Note(f"{n}", n))) for n in range(30)]
    await asyncio.sleep(0)
    await u.close()
    made = await asyncio.gather(*tasks)
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as again:
        again.register(NOTE)
        assert [each.value for each in await again.get_many([e.id for e in made])] == [e.value for e in made]


@DURABILITIES
async def test_a_drawn_id_that_is_known_is_never_written_over(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    u = await opened(tmp_path / "s.db", durability)
    first = await u.remember(Note("mine", 1))
    draw = ids.new_ids
    monkeypatch.setattr(ids, "new_ids", lambda count: [first.id, *draw(count - 1)])
    made = await asyncio.gather(*[u.remember(Note(f"n{n}", n)) for n in range(40)])
    assert len({first.id, *[each.id for each in made]}) == 41
    assert (await u.get(first.id)).value == Note("mine", 1)
    assert await u.count(Query(schema="note")) == 42
    await u.close()
    check_store(str(tmp_path / "s.db"))


def test_ids_of_several_milliseconds_rise() -> None:
    many = ids.new_ids(10_000)
    assert many == sorted(many) and len({*many}) == 10_000
    assert all(uuid.UUID(each).version == 7 and str(uuid.UUID(each)) == each for each in many)
    assert {uuid.UUID(each).variant for each in many} == {uuid.RFC_4122}


def test_many_new_ids_are_like_single_ones() -> None:
    before, many, after = ids.new_id(), ids.new_ids(200), ids.new_id()
    assert [before, *many, after] == sorted({before, *many, after})
    assert {len(each) for each in many} == {len(before)} and {each[14] for each in many} == {"7"}
    assert {each[19] for each in many} <= set("89ab") and ids.new_ids(0) == []
