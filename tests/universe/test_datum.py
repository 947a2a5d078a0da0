"""Records without a contract: put, put_many, get_many, delete, exists, count, list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dgent

START = datetime(2024, 5, 1, tzinfo=UTC)


def numbered(*numbers: int, prefix: str = "n") -> list[dgent.Datum]:
    return [
        dgent.Datum(id=f"{prefix}/{n}", data={"n": n}, created_at=START + timedelta(seconds=n))
        for n in numbers
    ]


async def test_a_datum_comes_back_as_it_went_in(u: dgent.Universe) -> None:
    data = {"text": "é\0\U0001f600", "n": -(2**63), "f": -0.0, "list": [1, [2, {"a": None}]], "no": False}
    kept = await u.put(dgent.Datum.create(data, content=b"\x00\x01"))
    assert (kept.rev, kept.seq) == (1, await u.seq())
    read = await u.get(kept.id)
    assert read == kept
    assert str(read.data["f"]) == "-0.0"


async def test_put_many_is_one_commit(u: dgent.Universe) -> None:
    stored = await u.put_many(numbered(1, 2, 3))
    assert {datum.seq for datum in stored} == {await u.seq()}
    assert await u.put_many([]) == []
    missing = await u.get_many(["n/3", "none", "n/1", "n/3"])
    assert [None if d is None else d.data["n"] for d in missing] == [3, None, 1, 3]
    with pytest.raises(dgent.InputError):
        await u.put_many([*numbered(4), dgent.Datum(id="")])
    assert not await u.exists("n/4")


async def test_delete_and_exists(u: dgent.Universe) -> None:
    await u.put_many(numbered(1))
    assert await u.exists("n/1")
    with pytest.raises(dgent.VersionConflict):
        await u.delete("n/1", expect=7)
    assert await u.delete("n/1", expect=1)
    assert not await u.exists("n/1")
    assert not await u.delete("n/1")
    assert await u.count() == 0


async def test_count(u: dgent.Universe) -> None:
    await u.put_many(numbered(*range(10)))
    assert await u.count() == 10
    assert await u.count(dgent.Query(where={"n": {"$gte": 7}}, limit=1, offset=2)) == 3


async def test_list_by_prefix_newest_first(u: dgent.Universe) -> None:
    await u.put_many([*numbered(1, 2, 3), *numbered(5, prefix="m")])
    assert [d.id for d in await u.list()] == ["m/5", "n/3", "n/2", "n/1"]
    assert [d.id for d in await u.list("n/")] == ["n/3", "n/2", "n/1"]
    assert [d.id for d in await u.list("n/", limit=2)] == ["n/3", "n/2"]
    assert await u.list("x") == []


async def test_list_after_means_strictly_after(u: dgent.Universe) -> None:
    await u.put_many(numbered(1, 2, 3))
    second = START + timedelta(seconds=2)
    assert [d.id for d in await u.list(after=second)] == ["n/3"]
    assert [d.id for d in await u.list(after=second - timedelta(microseconds=1))] == ["n/3", "n/2"]
    assert await u.list(after=datetime.max.replace(tzinfo=UTC)) == []


async def test_list_without_a_limit_gives_all(u: dgent.Universe) -> None:
    await u.put_many(numbered(*range(250)))
    assert len(await u.list()) == 100
    assert len(await u.list(limit=None)) == 250


async def test_what_was_read_is_the_readers_own(u: dgent.Universe) -> None:
    kept = await u.put(dgent.Datum(id="x", data={"list": [1]}))
    kept.data["list"].append(2)
    (await u.get("x")).data["list"].append(3)
    (await u.query(dgent.Query()))[0].data["list"].append(4)
    assert (await u.get("x")).data == {"list": [1]}
