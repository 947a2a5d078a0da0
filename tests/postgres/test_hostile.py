"""Sizes and texts at the edge: they come back as they went in, or are refused and nothing is stored."""

from __future__ import annotations

import os

import pytest

import dgent
from dgent.errors import DgentError
from tests.postgres.load import feed

IDS = [
    *(
        "%",
        "_",
        "a%",
        "a_",
        "aXb",
        "a_b",
        "a%b",
        "'",
        '"',
        "\\",
        "\\\\",
        "\\x41",
        "$1",
        "$$",
        ":id",
        "{}",
        "{u}",
    ),
    *("'; DROP TABLE datum; --", "NULL", "é", "e\u0301", "日本", "\U0001f600", "a b", "../x", "%s", "%(id)s"),
    *("x" * 200, "-", "0", "\u00a0x", "a,b", '{"a":1}', "{1,2}", "(1,2)", '("a","b")'),
]


async def test_ids_with_odd_characters(url: str) -> None:
    async with dgent.open(url) as u:
        stored: set[str] = set()
        for id in IDS:
            try:
                await u.put(dgent.Datum(id=id, data={id: id}, tags=frozenset({id}), source="s" + id))
                stored.add(id)
            except DgentError:
                assert not await u.count(dgent.Query()) > len(stored)
        assert len(stored) > 25, "most of these are ids"
        for id in stored:
            found = await u.get(id, raw=True)
            assert found.id == id and found.data == {id: id} and found.tags == {id}
            assert [each.id for each in await u.query(dgent.Query(tags={id}), raw=True)] == [id]
            assert [each.id for each in await u.query(dgent.Query(where={(id,): id}), raw=True)] == [id]
            prefixed = {each.id for each in await u.query(dgent.Query(prefix=id, limit=None), raw=True)}
            assert prefixed == {each for each in stored if each.startswith(id)}, "a prefix is no pattern"
            assert len(await u.history(id)) == 1
        assert {each.id for each in await u.get_many(sorted(stored), raw=True)} == stored
        # Through the streamed way, too.
        await u.put_many([dgent.Datum(id=f"bulk{n}{IDS[n % 20]}", data={"n": n}) for n in range(1200)])
        for n in (0, 3, 9, 10, 11):
            assert (await u.get(f"bulk{n}{IDS[n % 20]}", raw=True)).data == {"n": n}


async def test_huge_values(url: str) -> None:
    """Twenty megabytes that hardly compress, as data and as content."""
    noise = os.urandom(10_000_000).hex()
    async with dgent.open(f"{url}&timeout=60") as u:
        assert (await u.put(dgent.Datum(id="noise", data={"text": noise}))).rev == 1
        assert (await u.get("noise", raw=True)).data["text"] == noise
        await u.put(dgent.Datum(id="content", content=noise.encode()))
        assert (await u.get("content", raw=True)).content == noise.encode()
        await u.put(dgent.Datum(id="noise", data={"text": "small again"}))
        assert (await u.history("noise"))[1].datum.data["text"] == noise
        assert [len(found) for found in (await feed(u)).values()] == [2, 1]


async def test_five_thousand_records_in_one_commit(url: str) -> None:
    async with dgent.open(url) as u:
        put = await u.put_many([dgent.Datum(id=f"{i:04}", data={"n": i % 7}) for i in range(5000)])
        assert {(each.rev, each.seq) for each in put} == {(1, 1)}
        assert await u.count(dgent.Query(where={"n": 3})) == len(range(3, 5000, 7))
        (change,) = await u.changes(0)
        assert len(change.items) == 5000
        again = [dgent.Datum(id=f"{i:04}", data={"n": i % 7 + 10}) for i in range(5000)]
        assert {each.rev for each in await u.put_many(again)} == {2}
        assert await u.count(dgent.Query(where={"n": 13})) == len(range(3, 5000, 7))


async def test_many_tags_and_empty_values(url: str) -> None:
    async with dgent.open(url) as u:
        tags = frozenset(f"tag{i}" for i in range(60))
        await u.put(dgent.Datum(id="tags", tags=tags))
        assert (await u.get("tags", raw=True)).tags == tags
        assert [each.id for each in await u.query(dgent.Query(tags={"tag7", "tag59"}), raw=True)] == ["tags"]
        empties = {"s": "", "l": [], "d": {}, "n": None, "z": 0, "f": -0.0, "b": False}
        await u.put(dgent.Datum(id="empty", data=empties, content=b""))
        found = await u.get("empty", raw=True)
        assert found.data == empties and not found.content and not found.tags
        await u.put(dgent.Datum(id="nothing"))
        assert (await u.get("nothing", raw=True)).data == {}
        assert [each.id for each in await u.query(dgent.Query(where={"s": ""}), raw=True)] == ["empty"]


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "\udfff"])
async def test_what_postgres_cannot_store_as_text(url: str, text: str) -> None:
    """A NUL or half a character: wherever it stands it is kept as it is or refused, in dgent's words."""
    async with dgent.open(url) as u:
        places = [
            lambda: dgent.Datum(id="a" + text),
            lambda: dgent.Datum(id="t", tags=frozenset({text})),
            lambda: dgent.Datum(id="s", source=text),
            lambda: dgent.Datum(id="d", data={"k": text}),
            lambda: dgent.Datum(id="k", data={text: 1}),
            lambda: dgent.Datum(id="c", content=text.encode(errors="surrogatepass")),
            lambda: dgent.Datum(id="p", parent_id=text),
        ]
        for place in places:
            try:
                put = await u.put(place(), note=None)
            except DgentError:
                continue
            found = await u.get(put.id, raw=True)
            assert (found.data, found.content, found.tags) == (put.data, put.content, put.tags)
        with pytest.raises(DgentError):
            await u.put(dgent.Datum(id="n"), note=text)
            raise DgentError("kept")
        await u.put(dgent.Datum(id="fine"))
        assert await u.exists("fine")
