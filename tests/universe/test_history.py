"""What was: the versions of a record, and the whole store as of an earlier commit or moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dgent
from dgent.errors import HistoryGone
from tests.universe.conftest import Another
from tests.universe.marks import MARK_V1, MarkV1, mark

ALL = dgent.Query(limit=None)


@pytest.fixture
async def story(u: dgent.Universe) -> list[int]:
    """x is made, changed, deleted and made again; y comes in between. The seq after each step."""
    await u.put(dgent.Datum(id="x", data={"n": 1}))
    await u.put(dgent.Datum(id="x", data={"n": 2}), note="better")
    await u.put(dgent.Datum(id="y", data={"n": 0}))
    await u.delete("x")
    await u.put(dgent.Datum(id="x", data={"n": 3}))
    assert await u.seq() == 5
    return [1, 2, 3, 4, 5]


def now(found: list[Any]) -> dict[str, int]:
    return {datum.id: datum.data["n"] for datum in found}


STATES: list[dict[str, int]] = [{}, {"x": 1}, {"x": 2}, {"x": 2, "y": 0}, {"y": 0}, {"x": 3, "y": 0}]


async def test_the_versions_of_a_record(u: dgent.Universe, story: list[int]) -> None:
    versions = await u.history("x")
    assert [(v.rev, v.seq, v.op) for v in versions] == [
        (4, 5, "put"),
        (3, 4, "delete"),
        (2, 2, "put"),
        (1, 1, "put"),
    ]
    assert [v.datum and v.datum.data for v in versions] == [{"n": 3}, None, {"n": 2}, {"n": 1}]
    assert [v.note for v in versions] == [None, None, "better", None]
    assert {v.author for v in versions} == {"scout"}
    assert [v.at for v in versions] == sorted((v.at for v in versions), reverse=True)
    assert await u.history("x", limit=2) == versions[:2]
    assert await u.history("nothing") == []


async def test_every_version_keeps_its_envelope(u: dgent.Universe) -> None:
    first = await u.put(dgent.Datum(id="x", tags=frozenset("a"), author="ann", source="s", content=b"\0one"))
    second = await u.put(dgent.Datum(id="x", tags=frozenset("b"), parent_id="p", content=b"two" * 999))
    newest, oldest = await u.history("x")
    assert (newest.datum, oldest.datum) == (second, first)
    assert (newest.author, oldest.author) == ("scout", "scout"), "who committed, whoever the author is"


async def test_as_of_a_seq(u: dgent.Universe, story: list[int]) -> None:
    for seq, state in enumerate(STATES):
        assert now(await u.query(ALL, as_of=seq)) == state
        assert await u.count(as_of=seq) == len(state)
        for id in ("x", "y"):
            read = await u.get(id, as_of=seq)
            assert (None if read is None else read.data["n"]) == state.get(id)
        assert now([d for d in await u.get_many(["x", "y"], as_of=seq) if d]) == state
        assert [d.id async for d in u.iterate(ALL, as_of=seq)] == [
            d.id for d in await u.query(ALL, as_of=seq)
        ]
    assert now(await u.query(ALL, as_of=999)) == STATES[-1]


async def test_as_of_a_moment(u: dgent.Universe) -> None:
    moments = [datetime.now(UTC)]
    for n in range(3):
        await asyncio.sleep(0.002)
        await u.put(dgent.Datum(id="x", data={"n": n}))
        await asyncio.sleep(0.002)
        moments.append(datetime.now(UTC))
    for n, moment in enumerate(moments):
        read = await u.get("x", as_of=moment)
        assert (None if read is None else read.data["n"]) == (None if n == 0 else n - 1)
        assert await u.count(as_of=moment) == (1 if n else 0)
    exactly = (await u.history("x"))[1].at
    assert (await u.get("x", as_of=exactly)).data["n"] == 1
    assert (await u.get("x", as_of=exactly - timedelta(microseconds=1))).data["n"] == 0
    assert (await u.get("x", as_of=datetime.max.replace(tzinfo=UTC))).data["n"] == 2


async def test_a_query_as_of_a_seq_uses_the_values_of_then(u: dgent.Universe) -> None:
    kept = await u.remember(mark("one", author="ann"), tags={"a"})
    await u.remember(mark("other", author="bob"), tags={"a"})
    seq = await u.seq()
    await u.store(kept.replace(value=mark("two", author="zoe"), tags={"b"}))
    by_author = dgent.Query(schema="witness.mark", where={"author": "ann"})
    by_tag = dgent.Query(schema="witness.mark", tags={"a"}, order_by="author", descending=False)
    assert [c.value.action for c in await u.query(by_author, as_of=seq)] == ["one"]
    assert [c.value.author for c in await u.query(by_tag, as_of=seq)] == ["ann", "bob"]
    assert await u.query(by_author) == []
    assert [c.value.author for c in await u.query(by_tag)] == ["bob"]
    assert await u.count(by_tag, as_of=seq) == 2
    assert len(await u.recall(by_tag.replace(limit=1, offset=1), as_of=seq)) == 1


async def test_the_past_is_read_in_the_new_version(another: Another, u: dgent.Universe) -> None:
    old = await another(MARK_V1)
    kept = await old.remember(MarkV1("plan", "r", "ann"))
    await u.store((await u.get(kept.id)).replace(value=mark("done")))
    query = dgent.Query(schema="witness.mark", where={"principles.0": "plan"})
    assert [c.value.action for c in await u.query(query, as_of=kept.seq)] == ["plan"]
    assert (await u.get(kept.id, as_of=kept.seq)).meta.crystallized_from == kept.id
    assert await u.query(query) == []


async def test_pages_as_of_a_seq(u: dgent.Universe) -> None:
    await u.put_many(dgent.Datum(id=f"r{n}", data={"n": n}) for n in range(10))
    seq = await u.seq()
    expected = [d.id for d in await u.query(ALL)]
    found: list[str] = []
    query: dgent.Query | None = ALL.replace(limit=3)
    while query is not None:
        page = await u.page(query, as_of=seq)
        found += [d.id for d in page.items]
        await u.delete(f"r{len(found) % 10}")
        query = None if page.cursor is None else query.replace(cursor=page.cursor)
    assert found == expected


# -- schemas that keep less ----------------------------------------------------------------


@dataclass(frozen=True)
class Beat:
    n: int


@pytest.mark.parametrize(("history", "kept"), [("all", 6), (2, 3), (1, 2), ("none", 1)])
async def test_how_much_a_schema_keeps(u: dgent.Universe, history: Any, kept: int) -> None:
    u.register(dgent.Schema("test.beat", contract=Beat, history=history))
    for n in range(6):
        await u.remember(Beat(n), id="beat")
    versions = await u.history("beat")
    assert [v.rev for v in versions] == list(range(6, 6 - kept, -1))
    assert [v.datum.data["n"] for v in versions if v.datum] == list(range(5, 5 - kept, -1))
    if history != "all":
        with pytest.raises(HistoryGone) as gone:
            await u.get("beat", as_of=1)
        assert gone.value.details["first_seq"] == 7 - kept
    assert (await u.get("beat", as_of=7 - kept)).value == Beat(6 - kept)


async def test_ticking_records_of_one_schema_do_not_end_the_past_of_others(u: dgent.Universe) -> None:
    """A heartbeat keeps no history; reading marks as of an earlier seq works all the same."""
    u.register(dgent.Schema("test.beat", contract=Beat, history="none"))
    kept = await u.remember(mark("one"))
    await u.remember(Beat(0), id="beat")
    seq = await u.seq()
    await u.remember(Beat(1), id="beat")
    await u.store(kept.replace(value=mark("two")))
    marks = dgent.Query(schema="witness.mark")
    assert [c.value.action for c in await u.query(marks, as_of=seq)] == ["one"]
    assert await u.count(marks, as_of=seq) == 1
    with pytest.raises(HistoryGone):
        await u.query(dgent.Query(schema="test.beat"), as_of=seq)


async def test_a_record_made_again_after_a_forget_does_not_end_the_past_of_others(u: dgent.Universe) -> None:
    await u.put(dgent.Datum(id="x", data={"n": 1}))
    await u.forget("x")
    await u.put(dgent.Datum(id="y", data={"n": 2}))
    seq = await u.seq()
    await u.put(dgent.Datum(id="x", data={"n": 3}))
    assert now(await u.query(ALL, as_of=seq)) == {"y": 2}
    assert await u.get("x", as_of=seq) is None
