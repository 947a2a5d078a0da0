"""The largest and the smallest things that can be stored, and clear words for what is beyond."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import codec
from dgent.errors import InputError
from dgent.store.engine import row
from tests.fault.check import check_store

MB = 1 << 20


@pytest.fixture(params=["memory", "sqlite"])
async def u(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    path = tmp_path / "sizes.db"
    async with dgent.open("memory:" if request.param == "memory" else f"sqlite:///{path}") as opened:
        yield opened
    if request.param == "sqlite":
        check_store(str(path))


async def test_large_values(u: Any) -> None:
    content = os.urandom(20 * MB)
    text = "é" * (MB // 2) + "x" * (MB // 2)
    stored = await u.put(dgent.Datum(id="large", content=content, data={"text": text}))
    for found in (await u.get("large", raw=True), (await u.query(dgent.Query(), raw=True))[0]):
        assert found.content == content and found.data["text"] == text
    (without,) = await u.query(dgent.Query(content=False), raw=True)
    assert without.content == b"" and without.data["text"] == text
    assert len(await u.query(dgent.Query(where={"text": text}))) == 1
    # Changed, and back again: the history holds both.
    await u.put(stored.replace(data={"text": "short"}, content=b""))
    assert (await u.get("large", as_of=stored.seq, raw=True)).content == content
    await u.undo(await u.seq())
    assert (await u.get("large", raw=True)).content == content


async def test_small_values(u: Any) -> None:
    made = [
        dgent.Datum(id="a"),
        dgent.Datum(id="b", data={"": ""}),
        dgent.Datum(id="c", data={"a": [], "b": {}, "c": "", "d": None, "e": [[], {}]}),
        dgent.Datum(id="d", content=b"\0"),
    ]
    await u.put_many(made)
    found = {each.id: each for each in await u.query(dgent.Query(limit=None), raw=True)}
    assert all(found[each.id].data == each.data and found[each.id].content == each.content for each in made)
    assert await u.put_many([]) == []
    seq = await u.seq()
    await u.commit([])
    assert await u.seq() == seq, "nothing to do is no commit"


async def test_64_tags_and_no_more(u: Any) -> None:
    tags = frozenset(f"{i:03}" + "é" * 126 for i in range(64))
    await u.put(dgent.Datum(id="tagged", tags=tags))
    assert (await u.get("tagged", raw=True)).tags == tags
    assert await u.count(dgent.Query(tags=tags)) == 1
    for tag in sorted(tags)[::16]:
        assert await u.count(dgent.Query(tags={tag})) == 1
    with pytest.raises(InputError, match="64"):
        await u.put(dgent.Datum(id="more", tags=tags | {"one more"}))


def nested(levels: int) -> dict[str, Any]:
    """Maps and lists within each other, so many levels in all."""
    value: Any = 1
    for level in range(levels - 1):
        value = [value] if level % 2 else {"a": value}
    return {"a": value}


async def test_nesting_to_the_limit_and_beyond(u: Any) -> None:
    deepest = nested(codec.MAX_DEPTH)
    await u.put(dgent.Datum(id="deep", data=deepest))
    assert (await u.get("deep", raw=True)).data == deepest
    assert len(await u.query(dgent.Query(), raw=True)) == 1
    for levels in (codec.MAX_DEPTH + 1, 1000, 50_000):
        with pytest.raises(InputError, match="deep"):
            await u.put(dgent.Datum(id="deeper", data=nested(levels)))
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(InputError, match="deep"):
        await u.put(dgent.Datum(id="deeper", data=endless))
    assert not await u.exists("deeper")


async def test_one_record_twice_in_a_commit(u: Any) -> None:
    with pytest.raises(InputError, match="twice"):
        await u.put_many([dgent.Datum(id="a"), dgent.Datum(id="b"), dgent.Datum(id="a")])
    assert await u.count() == 0


async def test_a_record_over_the_limit(u: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row, "MAX_RECORD_BYTES", 5 * MB)
    await u.put(dgent.Datum(id="fits", content=bytes(5 * MB - 100)))
    for wrong in (
        dgent.Datum(id="big", content=bytes(5 * MB + 1)),
        dgent.Datum(id="big", data={"x": "y" * 5 * MB}),
    ):
        with pytest.raises(InputError, match=r"'big'.*larger"):
            await u.put(wrong)
        with pytest.raises(InputError, match="larger"):
            await u.put_many([dgent.Datum(id="small"), wrong])
    assert await u.count() == 1


async def test_fifty_thousand_records_in_one_commit(u: Any) -> None:
    count = 50_000 if u.backend.name == "sqlite" else 5_000
    many = [dgent.Datum(id=f"r{i:05}", data={"n": i}, tags=frozenset({"t"})) for i in range(count)]
    stored = await u.put_many(many)
    assert len({each.seq for each in stored}) == 1 and {each.rev for each in stored} == {1}
    assert await u.count(dgent.Query(tags={"t"})) == count
    (change,) = await u.changes(stored[0].seq - 1)
    assert len(change.items) == count
    # One that cannot be stored, at the very end: none of the others is.
    with pytest.raises(InputError):
        await u.put_many([*(each.replace(data={}) for each in many), dgent.Datum(id="")])
    assert (await u.get("r00000", raw=True)).data == {"n": 0}
