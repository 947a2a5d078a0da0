"""Index entries wait behind their commits, are moved in batches, and no reader can tell the difference."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent import Query
from dgent.errors import Corrupt
from dgent.store.engine.kernel import IndexScan
from dgent.store.engine.tail import Tail, group, pack, sum_up, unpack
from dgent.store.sqlite import kernel
from dgent.store.sqlite.reading import SQLiteReading
from dgent.store.upkeep import upkeep_of
from tests.fault.check import check_store, move_entries

UNEVEN = b"\x91\x96\x01\x01\x91\x01\x90\x90\x90"
HUGE = b"\x91\x96\xcf" + b"\xff" * 8 + b"\x01\x90\x90\x90\x90"
WHOLE = ((b"", -(2**63), 0), (b"\xff", 0, 0))


@dataclass(frozen=True)
class Job:
    state: str
    rank: int = 0


JOB = dgent.Schema("job", contract=Job, indexes=("state", "rank"))


def opened(path: Path) -> dgent.Universe:
    u = dgent.open(f"sqlite:///{path}", durability="relaxed")
    u.register(JOB)
    return u


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def u(path: Path) -> AsyncIterator[dgent.Universe]:
    async with opened(path) as u:
        yield u


def job(id: str, state: str, tags: set[str]) -> dgent.Datum:
    return dgent.Datum(id, data={"state": state}, tags=tags, schema="job", schema_version=1)


def waiting(path: Path) -> int:
    """How many records' entries wait in the file."""
    connection = apsw.Connection(str(path))
    ((found,),) = connection.execute("SELECT coalesce(sum(records), 0) FROM tail").fetchall()
    connection.close()
    return int(found)


async def ids(u: dgent.Universe, **query: Any) -> list[str]:
    return [found.id async for found in u.iterate(Query(schema="job", **{"limit": None, **query}))]


async def paged(u: dgent.Universe, **query: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await u.page(Query(schema="job", **query, cursor=cursor))
        found += [each.id for each in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


# -- in memory ----------------------------------------------------------------------------


def test_what_is_packed_comes_back() -> None:
    added = [(1, b"", 10, 5), (2, b"key", 10, 5), (1, b"", 11, 6)]
    removed = [(2, b"old", 10, 5)]
    records = group(added, removed)
    assert len(records) == 2
    assert sum_up(unpack(pack(records))) == (sorted(added), removed, [])


def test_an_entry_that_came_and_went_is_as_it_was() -> None:
    entry = (1, b"k", 10, 5)
    came, went = unpack(pack(group([entry], []))), unpack(pack(group([], [entry])))
    assert sum_up([*came, *went]) == ([], [], [entry]), "it was never there"
    assert sum_up([*went, *came]) == ([], [], [entry]), "it is still there"
    assert sum_up([*came, *went, *came]) == ([entry], [], [])
    assert sum_up([*went, *came, *went]) == ([], [entry], [])


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91\x01", b"\x91\x96\x01\x01\x91\x01\x90\x90", UNEVEN, HUGE]
)
def test_damaged_bytes_are_named(body: bytes) -> None:
    with pytest.raises(Corrupt, match="wait to be moved"):
        unpack(body)


def test_rows_that_were_moved_are_dropped() -> None:
    tail, scan = Tail(), IndexScan(1, *WHOLE)
    by_schema = (1).__eq__
    tail.add([(n, group([(1, b"", n, n)], [])) for n in (3, 7, 9)], by_schema)
    found = tail.waiting(scan)
    assert found is not None and [place[2] for place in found.added] == [3, 7, 9]
    tail.drop_before(9, by_schema)
    tail.add([(12, group([], [(1, b"", 9, 9)]))], by_schema)
    found = tail.waiting(scan)
    assert found is None, "the last one went where it came from"
    assert tail.waiting(IndexScan(2, *WHOLE)) is None


def test_a_reader_is_released_with_its_thread(path: Path) -> None:
    """Its connection would hold a lock on the file until the garbage is collected."""
    reading = SQLiteReading(apsw.Connection(str(path)))
    released = weakref.ref(reading)
    gc.disable()
    try:
        del reading
        assert released() is None
    finally:
        gc.enable()


# -- one process --------------------------------------------------------------------------


async def test_small_commits_wait_and_large_ones_do_not(u: dgent.Universe, path: Path) -> None:
    await u.remember(Job("open"))
    assert waiting(path) == 1
    await u.put_many(
        [dgent.Datum(data={"state": "open", "rank": n}, schema="job", schema_version=1) for n in range(1000)]
    )
    assert waiting(path) == 1
    assert await u.count(schema="job", where={"state": "open"}) == 1001


@pytest.mark.parametrize("history", ["all", "none"])
async def test_deletions_of_one_commit_wait_together(path: Path, history: str) -> None:
    async with dgent.open(f"sqlite:///{path}", durability="relaxed") as u:
        u.register(dgent.Schema("job", contract=Job, indexes=("state", "rank"), history=history))
        await u.put_many([job(f"{i}", "open", {"a"}) for i in range(100)])
        with closing(apsw.Connection(str(path))) as connection:
            count = "SELECT count(*) FROM tail"
            ((before,),) = connection.execute(count).fetchall()
            await u.transact(lambda tx: _delete_all(tx, [f"{i}" for i in range(80)]))
            ((after,),) = connection.execute(count).fetchall()
        assert after == before + 1
        assert await ids(u, where={"state": "open"}) == [f"{i}" for i in reversed(range(80, 100))]
        found = await upkeep_of(u.backend).inspect(deep=True)
    assert [each.level for each in found].count("problem") == 0
    if history == "all":
        check_store(str(path))


async def _delete_all(tx: Any, names: list[str]) -> None:
    for name in names:
        await tx.delete(name)


async def test_they_are_moved_when_enough_wait(u: dgent.Universe, path: Path) -> None:
    most = 0
    for n in range(3 * kernel.MOVE_AT):
        await u.remember(Job("open", n))
        most = max(most, waiting(path)) if n % 16 == 0 else most
    assert kernel.MOVE_AT // 2 < most <= kernel.MOVE_AT, "of one put after another, no more wait than may"
    check_store(str(path))


@pytest.mark.parametrize("move_at", [1, 2, 7, 256])
async def test_every_read_while_entries_wait_and_move(
    u: dgent.Universe, path: Path, move_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of read, after each of many random changes, against a list that is simply searched."""
    monkeypatch.setattr(kernel, "MOVE_AT", move_at)
    choose = random.Random(move_at)
    truth: dict[str, tuple[Job, frozenset[str]]] = {}
    order: list[str] = []
    async with opened(path) as other:
        for step in range(120):
            what = choose.random()
            if what < 0.5 or not truth:
                id = f"j{step}"
                order.append(id)
            else:
                id = choose.choice(sorted(truth))
            if what > 0.85 and truth:
                await u.delete(id)
                del truth[id]
                order.remove(id)
            else:
                value = Job(choose.choice(("open", "held", "done")), choose.randrange(4))
                tags = frozenset(choose.sample(("red", "blue", "green"), choose.randrange(3)))
                await u.remember(value, id=id, tags=tags)
                truth[id] = value, tags
            reader = choose.choice((u, other))
            state, tag = choose.choice(("open", "held", "done")), choose.choice(("red", "blue"))
            limit, offset, down = choose.randrange(1, 6), choose.randrange(3), choose.random() < 0.5
            wanted = [id for id in order if truth[id][0].state == state]
            tagged = [id for id in wanted if tag in truth[id][1]]
            turned = wanted[::-1] if down else wanted
            by = {"where": {"state": state}, "descending": down}
            assert await ids(reader, **by) == turned
            assert await paged(reader, **by, limit=limit) == turned, "page by page it is the same"
            found = await reader.query(Query(schema="job", **by, limit=limit, offset=offset))
            assert [each.id for each in found] == turned[offset : offset + limit]
            assert sorted(await ids(reader, where={"state": state}, tags={tag})) == sorted(tagged)
            assert await reader.count(schema="job", where={"state": state}) == len(wanted)
            ranked = await ids(reader, where={"rank": {"$gte": 2}})
            assert sorted(ranked) == sorted(id for id in order if truth[id][0].rank >= 2)
    check_store(str(path))


@pytest.mark.parametrize("move_at", [1, 2, 256])
async def test_entries_know_the_tags_their_record_has_now(
    u: dgent.Universe, path: Path, move_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry by field has bits of its record's tags, and stays when only these change."""
    monkeypatch.setattr(kernel, "MOVE_AT", move_at)
    held = {"where": {"state": "held"}}
    await u.put_many([job(f"j{n}", "held", {"red"}) for n in range(300)])
    await u.put(job("late", "held", {"red"}))
    # So many of the tags that the entries by field are those to walk.
    await u.put_many([job(f"o{n}", "open", {"red", "blue", "green"}) for n in range(1000)])
    for id in ("j7", "late"):
        for tag in ("blue", "green", "blue"):
            await u.put(job(id, "held", {tag}))
            assert await ids(u, **held, tags={tag}) == [id]
            assert id not in await ids(u, **held, tags={"red"})
        await u.put(job(id, "held", {"red", "blue"}))
        await move_entries(u.backend)
        assert await ids(u, **held, tags={"blue"}) == [id], "what was moved is found, too"
        await u.delete(id)
        await u.put(job(id, "held", {"green"}))
        assert await ids(u, **held, tags={"green"}) == [id]
        await u.delete(id)
    assert await u.count(schema="job", **held, tags={"red"}) == 299
    check_store(str(path))


async def test_bits_of_tags_that_do_not_fit_are_named_and_mended(path: Path) -> None:
    async with opened(path) as u:
        await u.put_many([job(f"j{n}", "held", {"red"}) for n in range(300)])
        await move_entries(u.backend)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE entry SET tags = 0 WHERE tags IS NOT NULL AND dk % 3 = 0")
    async with opened(path) as u:
        assert await u.count(schema="job", where={"state": "held"}, tags={"red"}) == 200, "the test is one"
        found = {each.subject: each for each in await upkeep_of(u.backend).inspect(deep=True, fix=True)}
        assert "have other tags than their records" in found["entries"].message
        assert await u.count(schema="job", where={"state": "held"}, tags={"red"}) == 300
    check_store(str(path))


async def test_an_offset_beyond_what_is_read_along(u: dgent.Universe) -> None:
    for n in range(150):
        await u.remember(Job("open"), id=f"j{n:03}")
    found = await u.query(Query(schema="job", limit=2, offset=120, descending=False))
    assert [each.id for each in found] == ["j120", "j121"]


async def test_a_page_beside_what_waits_takes_few_statements(u: dgent.Universe, path: Path) -> None:
    await u.put_many([job(f"old.{n}", "open", {"t"}) for n in range(300)])
    for n in range(30):
        await u.put(job(f"new.{n}", "open", {"t"}))
    asked: dict[str, Any] = {"tags": {"t"}, "where": {"state": "open"}, "limit": 50}
    expected = [each.id for each in await u.query(Query(schema="job", **asked))]  # opens the connection too
    assert waiting(path) == 30 and expected[:30] == [f"new.{n}" for n in reversed(range(30))]
    statements: list[str] = []

    def trace(_cursor: object, sql: str, _values: object) -> bool:
        statements.append(sql)
        return True

    connections = [each for each in apsw.connections() if Path(each.filename).name == path.name]
    for connection in connections:
        connection.exec_trace = trace
    found = [each.id for each in await u.query(Query(schema="job", **asked))]
    for connection in connections:
        connection.exec_trace = None
    assert found == expected and 2 < len(statements) < 10, statements


async def test_a_commit_that_is_refused_leaves_nothing_waiting(u: dgent.Universe, path: Path) -> None:
    await u.remember(Job("open"), id="a")
    for _ in range(3):
        with pytest.raises(dgent.VersionConflict):
            await u.put(dgent.Datum(id="a", data={"state": "held"}, schema="job", schema_version=1), expect=7)
        assert await ids(u, where={"state": "open"}) == ["a"]
    check_store(str(path))


async def test_forgotten_values_do_not_wait(u: dgent.Universe, path: Path) -> None:
    await u.remember(Job("a-secret-state"), id="a")
    await u.remember(Job("open"), id="b")
    assert b"a-secret-state" in path.read_bytes() + Path(f"{path}-wal").read_bytes()
    await u.forget("a")
    assert waiting(path) == 0
    await u.close()
    left = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"a-secret-state" not in left


# -- several ------------------------------------------------------------------------------


async def test_readers_and_writers_of_many_handles(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has written finds it at once, by every index, whoever moves the entries."""
    monkeypatch.setattr(kernel, "MOVE_AT", 5)

    async def write(name: str) -> None:
        async with opened(path) as u:
            for n in range(60):
                await u.remember(Job(f"{name}", n), id=f"{name}.{n:02}", tags={name})
                if n % 3 == 0:
                    found = await ids(u, where={"state": name}, descending=False)
                    assert found == [f"{name}.{i:02}" for i in range(n + 1)]
                if n % 7 == 0:
                    assert await u.count(schema="job", tags={name}) == n + 1

    await asyncio.gather(*(write(name) for name in "abcd"))
    check_store(str(path))


async def test_damaged_rows_are_named_and_mended(path: Path) -> None:
    async with opened(path) as u:
        for n in range(10):
            await u.remember(Job("open", n), id=f"j{n}")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE tail SET body = x'c1' WHERE place = (SELECT max(place) FROM tail)")
    connection.close()
    async with opened(path) as u:
        with pytest.raises(Corrupt, match=r"wait to be moved.*doctor --deep --fix"):
            await ids(u)
        assert (await u.get("j9")).value == Job("open", 9), "a record is found by its id"
        await u.remember(Job("held"), id="more")
        found = {each.subject: each for each in await upkeep_of(u.backend).inspect(deep=True, fix=True)}
        assert found["entries"].fixed, found["entries"]
        assert len(await ids(u)) == 11
        assert [each.level for each in await upkeep_of(u.backend).inspect(deep=True)].count("problem") == 0
    check_store(str(path))


async def test_only_damaged_rows_stay_when_others_are_moved(path: Path) -> None:
    async with opened(path) as u:
        for n in range(10):
            await u.remember(Job("open", n), id=f"j{n}")
    with closing(apsw.Connection(str(path))) as connection:
        places: Any = [place for (place,) in connection.execute("SELECT place FROM tail ORDER BY place")]
        connection.execute("UPDATE tail SET body = x'c1' WHERE place IN (?, ?)", (places[2], places[6]))
    async with opened(path) as u:
        await move_entries(u.backend)
        with closing(apsw.Connection(str(path))) as connection:
            left = connection.execute("SELECT place FROM tail ORDER BY place").fetchall()
        assert left == [(places[2],), (places[6],)]
        await upkeep_of(u.backend).inspect(deep=True, fix=True)
        assert len(await ids(u)) == 10
    check_store(str(path))


async def test_an_old_store_and_one_moved_by_hand_are_the_same(path: Path) -> None:
    async with opened(path) as u:
        for n in range(30):
            await u.remember(Job("open" if n % 2 else "held", n), id=f"j{n}")
        before = await ids(u, where={"state": "open"}), await ids(u, where={"rank": {"$lt": 9}})
        await move_entries(u.backend)
        assert waiting(path) == 0
        assert (await ids(u, where={"state": "open"}), await ids(u, where={"rank": {"$lt": 9}})) == before
    check_store(str(path))
